"""An agent in a loop of one's own does what it does in the library's."""

import equinox as eqx
import jax
import numpy as np
import pytest

import advsurprise
from advsurprise import methods
from advsurprise.envs.host.pure import as_host
from advsurprise.errors import UserError
from advsurprise.evaluation.player import AgentPlayer
from advsurprise.learning.host_collect import HostCollector
from advsurprise.learning.interaction import make_agent

STEPS = 30
TURNS = {"k_explore": 4, "k_control": 4}


@pytest.fixture(scope="module")
def agent():
    env = advsurprise.make("rooms/door", max_steps=12, max_side=5, view=5, grid=12)
    method = methods.make("adversarial-surprise", env.spec, **TURNS)
    return env, jax.jit(lambda key: make_agent(method, 1, key=key))(jax.random.key(3))


def _actors(agent):
    return [policy.actor.weight for policy in agent.policies.values()]


@pytest.mark.slow
def test_greedy_it_acts_as_the_collector_does(agent):
    env, made = agent
    # Preferences large enough that chance decides nothing: a greedy player and a sampled rollout act alike.
    sure = eqx.tree_at(_actors, made, [1e6 * weight for weight in _actors(made)])
    host = as_host(env, 1)
    collector, seeds = HostCollector(host, STEPS), jax.tree.map(lambda leaf: leaf[None], sure)
    keys = jax.random.split(jax.random.key(0), 2)
    memory = collector.start(seeds, key=keys[:1])
    rollout = jax.tree.map(lambda leaf: leaf[0], collector.collect(seeds, memory, key=keys[1:])[1])
    seen, over = np.asarray(rollout.views.newest)[:, 0], np.asarray(rollout.terminated | rollout.truncated)[:, 0]
    player, begins, roles, actions = AgentPlayer(sure, greedy=True), True, [], []
    for obs, ended in zip(seen, over, strict=True):
        if begins:
            player.reset(obs)
        actions.append(player.act(obs))
        roles.append(player.role)
        begins = ended
    assert over.sum() >= 2
    assert actions == rollout.decision.action[:, 0].tolist()
    assert roles == [made.method.roles[role] for role in np.asarray(rollout.decision.role)[:, 0]]
    assert len(set(actions)) > 1


@pytest.mark.long
def test_one_role_can_act_alone_and_the_seed_decides(agent):
    env, made = agent
    obs = np.asarray(env.reset(key=jax.random.key(0))[1].obs)

    def play(**fields):
        player = AgentPlayer(made, **fields)
        player.reset(obs)
        return [(player.act(obs), player.role) for _ in range(12)]

    assert {role for _, role in play(role="explore")} == {"explore"}
    assert [role for _, role in play()] == ["control"] * 4 + ["explore"] * 4 + ["control"] * 4
    assert play(seed=1) == play(seed=1)
    assert play(seed=1) != play(seed=2)


def test_what_cannot_be_is_refused(agent):
    _, made = agent
    with pytest.raises(UserError, match="there is no role 'alice'; roles are explore, control"):
        AgentPlayer(made, role="alice")
    player = AgentPlayer(made)
    with pytest.raises(RuntimeError, match="reset the player"):
        player.act(np.zeros((5, 5)))
    with pytest.raises(UserError, match=r"must have shape \(5, 5\), not \(7, 7\)"):
        player.reset(np.zeros((7, 7)))
    assert player.spec.observation_shape == (5, 5)
