"""Asymmetric self-play learns, and its players keep to their roles."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from advsurprise import methods
from advsurprise.config import PPOConfig, RunConfig
from advsurprise.envs.ladder import LadderWorld, Place
from advsurprise.evaluation.play import play
from advsurprise.evaluation.statistics import summarise
from advsurprise.learning.interaction import Agent
from advsurprise.learning.learn import learn, make_learner
from advsurprise.learning.players import with_players
from advsurprise.training.fused import Fused

pytestmark = pytest.mark.slow


def _fork():
    """One step leads from the beginning to one of three ends, in which everything stays as it is."""
    ends = tuple(Place(i, (i, i, i), (0.0,) * 3) for i in (1, 2, 3))
    return LadderWorld("fork", (Place(0, (1, 2, 3), (0.0,) * 3), *ends), max_steps=8)


@pytest.fixture(scope="module")
def trained():
    ppo = PPOConfig(lr=3e-3, minibatch=256, entropy_coef=0.003)
    fields = {"first_stop": 0.3, "stack": 1}
    loop = Fused(RunConfig(method="asp", method_fields=fields, ppo=ppo, bodies=64, rollout=32, steps=10**9), _fork())
    state, history = loop.init(), []
    for _ in range(25):
        state, metrics = jax.block_until_ready(loop.update(state))
        history.append(metrics)
    return loop, state, {name: np.array([metrics[name][0] for metrics in history]) for name in history[0]}


def _outcomes(agent):
    measures = summarise([play(_fork(), agent, episodes=500, seed=1)])
    return [measures[name]["mean"] for name in ("task_set", "solved", "time_alice", "time_bob")]


def test_bob_learns_to_do_what_alice_does(trained):
    loop, state, history = trained
    agent = loop.agents(state)[0]
    # Whatever Alice does, she stops in one of the ends. A random Bob has a single try at it: ⅓. A trained one is there
    # in one step, which is as fast as Alice can be, and nothing is left to pay her.
    _, skilled, _, quick = _outcomes(with_players(agent, {"alice": "random"}))
    _, clumsy, _, _ = _outcomes(with_players(agent, {"alice": "random", "bob": "random"}))
    assert clumsy == pytest.approx(1 / 3, abs=0.07)
    assert skilled > 0.97
    assert quick == pytest.approx(1, abs=0.2)
    # Two of three times Alice was paid for the rest of the clock, k (8 − 2 t_A), at first.
    assert history["alice_pay"][0] > 0.01
    assert history["alice_pay"][-1] < 0.003


def test_players_have_their_roles_actions(trained):
    loop, state, _ = trained
    agent = loop.agents(state)[0]
    # The last of the world's own actions, which is no stop: Alice who does nothing sets no task.
    still = dataclasses.replace(agent.method, spec=agent.method.spec._replace(noop=2))
    idle = _outcomes(with_players(Agent(still, agent.policies, agent.learnt), {"alice": "motionless", "bob": "random"}))
    assert idle[0] == 0
    assert np.isnan(idle[1:]).all()
    # Alice at random stops within her first seven steps with probability 1 − 0.7⁷.
    assert _outcomes(with_players(agent, {"alice": "random", "bob": "random"}))[0] == pytest.approx(
        1 - 0.7**7, abs=0.04
    )
    bias = with_players(agent, {"bob": "random"}).policies["bob"].logits
    np.testing.assert_allclose(jax.nn.softmax(bias), [1 / 3] * 3 + [0] * 3, rtol=1e-6)


def test_bobs_missing_half_stays_missing(trained):
    loop, state, _ = trained
    bob = loop.agents(state)[0].policies["bob"]
    assert np.array_equal(bob.actor.bias[3:], np.full(3, np.float32(methods.base.NEVER)))


def test_a_role_that_took_no_step_or_all_of_them(trained):
    loop, state, _ = trained
    cfg = PPOConfig(minibatch=64, epochs=1)
    learner = make_learner(loop.agents(state)[0], cfg)
    rollout = jax.tree.map(lambda leaf: leaf[0], loop.devices.on_first(loop.collect(state)[1]))
    update = jax.jit(lambda learner, rollout, key: learn(learner, rollout, cfg, key=key))
    for index, (name, other) in enumerate((("alice", "bob"), ("bob", "alice"))):
        roles = jnp.full_like(rollout.decision.role, index)
        only = eqx.tree_at(lambda rollout: (rollout.decision.role, rollout.next_role), rollout, (roles, roles[0]))
        after, metrics = update(learner, only, jax.random.key(0))
        unknown = {metric for metric, value in metrics.items() if jnp.isnan(value).any()}
        assert unknown == {metric for metric in metrics if metric.startswith(f"{other}/")} - {f"{other}/steps"}
        assert (float(metrics[f"{name}/steps"]), float(metrics[f"{other}/steps"])) == (64 * 32, 0)
        same = [_equal(after.agent.policies[role], learner.agent.policies[role]) for role in (name, other)]
        assert same == [False, True]


def _equal(left, right):
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True))
