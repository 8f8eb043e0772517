"""Where exactness is promised: the two collectors, the two loops, a seed alone and among others, the same seed twice.

Also that no compute is spent on steps a role did not take.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params
from sameness import assert_same, bits

import advsurprise
from advsurprise import methods
from advsurprise.config import PPOConfig, RunConfig
from advsurprise.envs.host.pure import as_host
from advsurprise.learning import collect, learn
from advsurprise.learning.collect import Carry, ScanCollector
from advsurprise.learning.host_collect import HostCollector
from advsurprise.learning.interaction import make_agent, role_schedule
from advsurprise.training.fused import Fused
from advsurprise.training.hosted import Hosted
from advsurprise.types import Rollout

pytestmark = pytest.mark.slow
BODIES = 4
TURNS = {"k_explore": 4, "k_control": 4}
SMALL = {"max_steps": 12, "max_side": 5, "view": 5, "grid": 12}
GAME = {"k_explore": 1, "k_control": 4, "stack": 1}


def test_the_collectors_collect_the_same(getkey):
    # 17 is not a whole number of episodes: rollouts begin and end within turns. Whole ones are compared with the loops.
    length = 17
    env = advsurprise.make("rooms/door", timeout="truncated", **SMALL)
    method = methods.make("adversarial-surprise", env.spec, **TURNS)
    assert role_schedule(method, length) is None
    agent = jax.jit(lambda key: make_agent(method, BODIES, key=key))(getkey())
    scan, host = ScanCollector(env, BODIES, length), HostCollector(as_host(env, BODIES, groups=2), length)
    start_key, *collect_keys = jax.random.split(getkey(), 3)
    compiled = jax.jit(lambda carry, key: scan.collect(agent, carry, key=key))
    carry = jax.jit(lambda key: scan.start(agent, key=key))(start_key)
    seeds = jax.tree.map(lambda leaf: leaf[None], agent)
    memory = host.start(seeds, key=start_key[None])
    for key in collect_keys:
        carry, scanned = compiled(carry, key)
        memory, hosted = host.collect(seeds, memory, key=key[None])
        assert_same(jax.tree.map(lambda leaf: leaf[None], scanned), hosted)
        assert_same(jax.tree.map(lambda leaf: leaf[None], carry.memory), memory)
        _check_rollout(scanned, method)


def test_prepared_first_states_change_nothing(getkey, monkeypatch):
    # On a GPU first states are prepared; here for 5 of 15 steps at a time. Bodies are rewound and restarted at
    # different times, and some play until the episode ends.
    env = advsurprise.make("rooms/four", **SMALL | {"rooms": 2})
    method = methods.make("asp", env.spec, first_stop=0.2, goal="cell")
    collector = ScanCollector(env, 32, 15)
    agent = jax.jit(lambda key: make_agent(method, 32, key=key))(getkey())
    start = jax.jit(lambda key: collector.start(agent, key=key))(getkey())
    # Bodies have been everywhere, which a new episode must not forget.
    start = eqx.tree_at(lambda carry: carry.env_state.visited_life, start, replace_fn=jnp.ones_like)
    key, collected = getkey(), []
    monkeypatch.setattr(collect, "PREPARED_STEPS", 7)
    for prepared in (False, True):
        monkeypatch.setattr(collect, "prepares", lambda method, prepared=prepared: prepared)
        collected.append(jax.jit(lambda key: collector.collect(agent, start, key=key))(key))
    (carry, rollout), (other_carry, other_rollout) = collected
    assert carry.env_state.visited_life.all()
    assert_same(_state(carry), _state(other_carry))
    assert_same(rollout, other_rollout)
    signal = rollout.signal
    for each in (signal.stopped, signal.solved):
        assert each.any(axis=1).sum() > 1
    # Alice played until the world ended the episode.
    assert ((signal.time == method.limit) & (signal.set_at == 0)).any()


def _state(carry: Carry):
    return carry.env_state, carry.first, carry.memory


def _check_rollout(rollout: Rollout, method):
    """What was compared is a real rollout: both roles act, episodes end, and cut ones have values."""
    assert set(np.unique(rollout.decision.role)) == {0, 1}
    assert np.any(rollout.signal.scored)
    over = np.asarray(rollout.terminated | rollout.truncated)
    assert over.any()
    for role in method.roles:
        has_value = np.asarray(rollout.final_value[role][..., 0] != 0)
        assert (has_value == np.asarray(rollout.truncated)).all()


def _config(**fields):
    ppo = PPOConfig(minibatch=16, epochs=2)
    return dataclasses.replace(RunConfig(steps=10**6, bodies=4, seeds=(0, 1), ppo=ppo), **fields)


def _run(loop, updates=2):
    """The state after some updates, and the metrics of each."""
    state = loop.init()
    history = []
    for _ in range(updates):
        state, metrics = jax.block_until_ready(loop.update(state))
        history.append(metrics)
    return state, history


ROOMS = _config(env="rooms/door", env_fields=SMALL, method_fields=TURNS, rollout=24)


@pytest.fixture(scope="module")
def rooms():
    """Two seeds in rooms, twice by one fused loop and once by a hosted one."""
    fused, hosted = Fused(ROOMS), Hosted(ROOMS)
    return {"fused": _run(fused), "again": _run(fused), "hosted": _run(hosted)}


def test_the_loops_train_the_same(rooms):
    (fused, fused_history), (hosted, hosted_history) = rooms["fused"], rooms["hosted"]
    for left, right in zip(fused_history, hosted_history, strict=True):
        assert_same(left | {"workers_replaced": np.zeros(2, np.float32)}, right)
    assert_same(fused.learner, hosted.learner)


@pytest.mark.long
def test_a_seed_is_trained_alone_as_among_others(rooms):
    alone, _ = _run(Hosted(dataclasses.replace(ROOMS, seeds=(0,))))
    assert_same(jax.tree.map(lambda leaf: leaf[:1], rooms["fused"][0].learner), alone.learner)


def test_the_same_seed_twice_gives_the_same_bits(rooms):
    first, second = bits(rooms["fused"]), bits(rooms["again"])
    assert len(first) > 100
    assert first == second


def test_seeds_differ(rooms):
    hidden = rooms["fused"][0].learner.agent.policies["control"].hidden
    assert not np.allclose(hidden.weight[0], hidden.weight[1], atol=1e-3)


# No compute on steps a role did not take.


def _method(max_steps, **fields):
    spec = advsurprise.make("ladder/game").spec._replace(max_steps=max_steps)
    return methods.make("adversarial-surprise", spec, **fields)


def test_in_lockstep_a_roles_rows_are_known_beforehand():
    # E2 C3, E2 C1: eight steps.
    method = _method(8, k_explore=2, k_control=3)
    roles = np.repeat(np.array([0, 0, 1, 1, 1, 0, 0, 1] * 2)[:, None], BODIES, axis=1)
    assert role_schedule(method, 16).tolist() == roles[:, 0].tolist()
    for index in range(2):
        rows = learn.scheduled_rows(role_schedule(method, 16) == index, BODIES)
        assert rows.chosen.tolist() == np.flatnonzero((roles == index).reshape(-1)).tolist()
    assert role_schedule(_method(0, k_explore=2, k_control=3), 16) is None
    assert role_schedule(method, 12) is None


def _collect_program(length, seeds=2):
    """The program that collects for several seeds at once."""
    env = advsurprise.make("ladder/game")
    method = methods.make("adversarial-surprise", env.spec, **GAME)
    collector = ScanCollector(env, BODIES, length)

    def one(key):
        agent = make_agent(method, BODIES, key=key)
        return collector.collect(agent, collector.start(agent, key=key), key=key)

    return jax.make_jaxpr(jax.vmap(one))(jax.random.split(jax.random.key(0), seeds)).jaxpr


def _scans(program):
    """Bodies of all scans in a program."""
    for equation in program.eqns:
        inner = list(jaxprs_in_params(equation.params))
        if equation.primitive.name == "scan":
            yield from inner
        for each in inner:
            yield from _scans(each)


def _matmuls(program, *, within_branches):
    """Matrix products in a program, with or without those inside branches."""
    count = 0
    for equation in program.eqns:
        count += equation.primitive.name == "dot_general"
        if within_branches or equation.primitive.name != "cond":
            count += sum(
                _matmuls(inner, within_branches=within_branches) for inner in jaxprs_in_params(equation.params)
            )
    return count


@pytest.mark.parametrize("length", [10, 7])
def test_policies_stay_within_branches_also_when_seeds_are_batched(length):
    # 10 is a whole number of episodes (one switch on the role), 7 is not (one branch per role). In the step's program
    # the only products outside the branches are those of the density (sums of logarithms), one per score.
    step = max(_scans(_collect_program(length)), key=lambda body: _matmuls(body, within_branches=True))
    inside, outside = _matmuls(step, within_branches=True), _matmuls(step, within_branches=False)
    # Each policy has two torso layers, a hidden one and two heads.
    assert inside - outside == 2 * 5
    assert outside == 1
