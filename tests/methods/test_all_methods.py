"""What is promised of every method in the folder: both loops and so both collectors, exact resume, a line on itself."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sameness import assert_same, bits

import advsurprise
from advsurprise import methods
from advsurprise.config import PPOConfig, RunConfig, from_dict
from advsurprise.evaluation.play import play
from advsurprise.learning.interaction import make_agent
from advsurprise.learning.players import played_by
from advsurprise.training import checkpoint
from advsurprise.training.fused import Fused
from advsurprise.training.hosted import Hosted

pytestmark = pytest.mark.slow

FIELDS = {
    "adversarial-surprise": {"k_explore": 1, "k_control": 4, "stack": 2},
    "agac": {"stack": 2, "counts": 0.1, "extrinsic": 1.0},
    "asp": {"stack": 2, "first_stop": 0.3},
    "rnd": {"stack": 2, "priming": 20, "width": 16, "extrinsic": 1.0},
    "smirl": {"stack": 2},
    "task": {"stack": 2},
}
"""Fields that differ from the defaults, so that every part of a method is at work."""
METHODS = methods.names()
BODIES = 4
"""Even, so that two devices share the fused loop of methods with two networks; the hosted one has a single device."""


def _config(name):
    return RunConfig(
        env="ladder/game",
        method=name,
        method_fields=FIELDS.get(name, {}),
        ppo=PPOConfig(minibatch=8, epochs=2),
        steps=10**6,
        bodies=BODIES,
        rollout=10,
        seeds=(5,),
    )


@functools.cache
def _trained(name):
    """A fused loop, and its states and metrics after no, one and two updates."""
    loop = Fused(_config(name))
    states, history = [loop.init()], []
    for _ in range(2):
        state, metrics = jax.block_until_ready(loop.update(states[-1]))
        states.append(state)
        history.append(metrics)
    return loop, states, history


# `make test` compares the loops in rooms (learning/test_parity.py), and collecting with requests (test_asp_rooms.py).
@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
def test_the_loops_train_the_same(name):
    _, states, history = _trained(name)
    hosted = Hosted(_config(name))
    state = hosted.init()
    for expected in history:
        state, metrics = hosted.update(state)
        assert_same(expected | {"workers_replaced": np.zeros(1, np.float32)}, metrics)
    assert_same(states[-1].learner, state.learner)


@pytest.mark.parametrize("name", METHODS)
def test_a_saved_run_goes_on_to_the_bit(name, tmp_path):
    loop, states, history = _trained(name)
    checkpoint.save(tmp_path, 1, states[1], {"config": {}})
    found, complaints = checkpoint.newest_good(tmp_path)
    assert not complaints
    state, metrics = loop.update(loop.resumed(checkpoint.load(found, loop.like())))
    assert bits((state, metrics)) == bits((states[2], history[1]))


@pytest.mark.parametrize("name", METHODS)
def test_training_changes_what_it_should_and_logs_numbers(name):
    loop, states, history = _trained(name)
    for role in loop.method.roles:
        before, after = (jax.tree.leaves(state.learner.agent.policies[role]) for state in (states[0], states[2]))
        changed = any(not np.array_equal(a, b) for a, b in zip(before, after, strict=True))
        assert changed == loop.method.trains
    fitted = {*loop.method.networks, *(loop.method.roles if loop.method.trains else ())}
    for metrics in history:
        assert {name.removesuffix("/loss") for name in metrics if name.endswith("/loss")} == fitted
        assert {"episodes", "common_surprise", "end/total", "mean/total"} <= set(metrics)
        assert all(np.isfinite(value).all() for value in metrics.values())


@pytest.mark.parametrize("name", ["asp", "random"])
def test_frozen_policies_play(name):
    loop, states, _ = _trained(name)
    [agent] = loop.agents(states[-1])
    found = play(loop.env, played_by(agent, "greedy"), episodes=4, seed=1)
    assert {"end/total", "mean/total", "common_surprise"} <= set(found)
    assert all(values.shape == (4,) for values in found.values())


def test_every_method_says_what_it_is_in_a_line():
    lines = methods.list_methods()
    assert set(lines) >= {"adversarial-surprise", "agac", "asp", "random", "rnd", "smirl", "task"}
    assert all(line.endswith(".") and len(line) < 115 for line in lines.values())
    assert len(set(lines.values())) == len(lines)


def test_random_actions_are_uniform(getkey):
    env = advsurprise.make("ladder/game")
    agent = make_agent(methods.make("random", env.spec), 1, key=getkey())
    logits, _ = agent.policies["agent"](jax.tree.map(jnp.asarray, agent.method.see(_first(agent, env, getkey()))))
    assert np.array_equal(logits, np.zeros(env.spec.num_actions))


def _first(agent, env, key):
    return agent.method.start(env.reset(key=key)[1])


def test_configurations_of_every_method_are_read_and_written():
    for name in methods.names():
        cfg = _config(name)
        assert from_dict(json.loads(json.dumps(cfg.as_dict())), source="a file") == cfg
        assert methods.make(name, advsurprise.make("rooms/four").spec, **FIELDS.get(name, {})).spec.id == "rooms/four"
