"""Whole episodes of known measures, in worlds whose episodes differ in length; evaluation and cross-play of runs."""

import dataclasses
import pathlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from advsurprise import api, envs, methods
from advsurprise.api import Trained
from advsurprise.config import RunConfig
from advsurprise.envs.base import AbstractEnv, Outcome
from advsurprise.envs.host.base import Host
from advsurprise.envs.host.pure import as_host
from advsurprise.envs.ladder import LadderWorld, Place
from advsurprise.errors import UserError
from advsurprise.evaluation import play as playing
from advsurprise.evaluation.play import play, play_host
from advsurprise.learning.host_collect import HostCollector
from advsurprise.learning.interaction import Agent, make_agent
from advsurprise.learning.networks import FixedPolicy
from advsurprise.learning.players import alone
from advsurprise.types import GAME_OVER, EnvSpec, Measure, TimeStep

pytestmark = pytest.mark.slow

MEASURES = (
    Measure("time", "steps per episode", shown=True, at_handover=True),
    Measure("long", "episode of the longer kind"),
    Measure("left", "steps left", only_where="long"),
)


class CoinState(eqx.Module):
    """Steps taken, and steps that the episode has."""

    time: jax.Array
    length: jax.Array


class CoinWorld(AbstractEnv[CoinState]):
    """Every episode has 2 or 14 steps, by a fair coin; there is nothing to see or to do."""

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("test/coin", (1,), "int32", "classes", 2, 2, 0, MEASURES, noop=0)

    def initial(self, *, key):
        return CoinState(jnp.int32(0), jnp.where(jax.random.bernoulli(key), 14, 2))

    def transition(self, state, action, *, key):
        time = state.time + 1
        return CoinState(time, state.length), Outcome(jnp.float32(0), time >= state.length, jnp.bool_(False))

    def observe(self, state):
        return jnp.zeros(1, jnp.int32)

    def measure(self, state):
        return {"time": state.time, "long": state.length > 2, "left": state.length - state.time}

    def place(self, state):
        return jnp.zeros(0, jnp.int32)

    def rewind(self, first, state):
        return first


class UnequalHost(Host):
    """Bodies whose episodes have 3 and 21 steps, always."""

    def __init__(self):
        self.bodies, self.lengths = 2, np.asarray([3, 21])
        self.time = np.zeros(2, np.int32)

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("test/unequal", (1,), "int32", "classes", 2, 2, 0, MEASURES[:1])

    def reset(self, seed) -> TimeStep:
        self.time[:] = 0
        return self._timestep(self.time.copy(), np.zeros(2, bool))

    def send(self, action, group=0) -> None:
        self.time += 1

    def recv(self, group=0) -> TimeStep:
        time, over = self.time.copy(), self.time == self.lengths
        self.time[over] = 0
        return self._timestep(time, over)

    def relocate(self, request, group=0) -> TimeStep:
        raise NotImplementedError

    def close(self) -> None:
        pass

    def _timestep(self, time, over) -> TimeStep:
        obs = np.zeros((2, 1), np.int32)
        parts = obs, np.zeros(2, np.float32), over, np.zeros(2, bool), obs, {"time": time}
        # Numpy arrays in a record of jax's, as every host answers.
        return jax.tree.map(np.asarray, TimeStep(*jax.tree.map(jnp.asarray, parts)))


def agent_for(spec: EnvSpec, method: str = "task", bodies: int = 1, **fields):
    return make_agent(methods.make(method, spec, **fields), bodies, key=jax.random.key(0))


@pytest.fixture
def short_chunks(monkeypatch):
    """Chunks that cut episodes in two."""
    monkeypatch.setattr(playing, "CHUNK", 5)


def test_short_episodes_are_not_favoured_in_a_pure_world(short_chunks):
    world = CoinWorld()
    measured = play(world, agent_for(world.spec), episodes=400, seed=1)
    assert all(values.shape == (400,) for values in measured.values())
    lengths, counts = np.unique(measured["end/time"], return_counts=True)
    assert lengths.tolist() == [2, 14]
    # A fair coin, within four standard deviations. Of the first 400 episodes to finish seven in eight would be short.
    assert abs(counts[1] - 200) < 4 * 10
    np.testing.assert_allclose(measured["mean/time"], (measured["end/time"] + 1) / 2)
    # A measure that an episode does not have is not a number there, neither at its end nor on the way.
    for name, value in (("end/left", 0.0), ("mean/left", 6.5)):
        assert set(measured[name][measured["end/long"] == 1]) == {value}
        assert np.isnan(measured[name][measured["end/long"] == 0]).all()


def test_every_body_of_a_host_plays_as_many_episodes(short_chunks):
    host = UnequalHost()
    for episodes, expected in ((2, 2), (7, 8), (8, 8)):
        measured = play_host(host, [agent_for(host.spec)], episodes=episodes, seed=1)[0]
        assert sorted(measured["end/time"]) == [3.0] * (expected // 2) + [21.0] * (expected // 2)
        assert measured["end/time"].mean() == 12
        assert measured["mean/time"].mean() == (2 + 11) / 2


def test_a_host_is_played_like_the_world_behind_it(short_chunks):
    world = CoinWorld()
    agent = agent_for(world.spec, "adversarial-surprise", k_explore=3, k_control=2, stack=1)
    pure = play(world, agent, episodes=6, seed=2)
    hosted = play_host(as_host(world, 6), [agent], episodes=6, seed=2)[0]
    assert set(pure) == set(hosted)
    for name, values in pure.items():
        np.testing.assert_allclose(values, hosted[name], rtol=1e-5, err_msg=name)


def test_an_agent_plays_alike_alone_and_among_others(short_chunks):
    """Three agents on a host of two seeds: the third has a copy of itself beside it."""
    world = LadderWorld("test/pays", (Place(0, (0, 0), (0.0, 1.0)),), max_steps=5)
    method = methods.make("task", world.spec, stack=1)
    learnt = method.init(bodies=4, key=jax.random.key(0))
    policies = [FixedPolicy(jnp.asarray([0.0, lean]), 1) for lean in (-1.0, 0.0, 1.0)]
    agents = [Agent(method, {"agent": policy}, learnt) for policy in policies]
    together = play_host(HostCollector(as_host(world, 4, seeds=2), 5), agents, episodes=8, seed=2)
    single = HostCollector(as_host(world, 4), 5)
    for agent, found in zip(agents, together, strict=True):
        expected = play_host(single, [agent], episodes=8, seed=2)[0]
        assert set(found) == set(expected)
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, rtol=1e-5, err_msg=name)
    totals = [tuple(found["end/total"].tolist()) for found in together]
    assert len(set(totals)) == 3
    assert all(len(total) == 8 for total in totals)


def test_whole_games_are_not_restarted_by_the_method(short_chunks):
    """Every step pays 1 and an episode has 5; ASP's own games are over after 2."""
    world = LadderWorld("test/pays", (Place(0, (0, 0), (1.0, 1.0)),), max_steps=5)
    method = methods.make("asp", world.spec, clock=2, stack=1)
    policies = {role: FixedPolicy(jnp.asarray(method.action_bias(role)), 1) for role in method.roles}
    agent = Agent(method, policies, method.init(bodies=4, key=jax.random.key(0)))
    found = play_host(HostCollector(as_host(world, 4), 5, relocates=False), [agent], episodes=4, seed=2)[0]
    assert found["end/total"].tolist() == [5.0] * 4
    assert envs.find("doom/take-cover").read_spec().info.count(GAME_OVER) == 1


def test_a_role_alone_plays_every_turn():
    method = methods.make("adversarial-surprise", CoinWorld().spec, k_explore=3, k_control=2, stack=1)
    policies = {role: FixedPolicy(jnp.zeros(2), 1) for role in ("explore", "control")}
    agent = Agent(method, policies, method.init(bodies=1, key=jax.random.key(0)))
    assert all(policy is policies["explore"] for policy in alone(agent, "explore").policies.values())
    assert list(alone(agent, "control").policies) == ["explore", "control"]
    with pytest.raises(UserError, match="no role 'alice'; roles are explore, control"):
        alone(agent, "alice")


def test_hand_overs_are_counted_across_chunks(short_chunks):
    """Turns of 3 and 2 steps: in 14 steps Explore's end at 3, 8 and 13, Control's at 5, 10 and, cut short, 14; in 2
    steps Explore's only turn ends with the episode."""
    world = CoinWorld()
    agent = agent_for(world.spec, "adversarial-surprise", k_explore=3, k_control=2, stack=1)
    measured = play(world, agent, episodes=8, seed=3)
    long = measured["end/time"] == 14
    assert 0 < long.sum() < 8
    explore, control = (
        {which: measured[f"handover/{role}/{which}/time"] for which in ("first", "all")} for role in agent.method.roles
    )
    np.testing.assert_allclose(explore["first"], np.where(long, 3, 2))
    np.testing.assert_allclose(explore["all"], np.where(long, 8, 2))
    np.testing.assert_allclose(control["first"], np.where(long, 5, np.nan))
    np.testing.assert_allclose(control["all"], np.where(long, 29 / 3, np.nan), rtol=1e-6)


def test_a_world_that_never_ends_is_given_up(monkeypatch):
    monkeypatch.setattr(playing, "MAX_CHUNKS", 2)
    monkeypatch.setattr(playing, "CHUNK", 3)
    host = UnequalHost()
    with pytest.raises(UserError, match="test/unequal: not every body ended 1 episode"):
        play_host(host, [agent_for(host.spec)], episodes=2, seed=0)


# ------------------------------------------------------------------------------------------------ runs at play


CONFIG = RunConfig(
    env="ladder/game",
    method="adversarial-surprise",
    method_fields={"k_explore": 1, "k_control": 2, "stack": 1},
    seeds=(0, 1, 2),
)


@pytest.fixture(scope="module")
def trained() -> Trained:
    """Three training seeds; their policies differ, which is all that matters here."""
    world = envs.make(CONFIG.env)
    method = methods.make(CONFIG.method, world.spec, **CONFIG.method_fields)
    agents = [make_agent(method, 1, key=jax.random.key(seed)) for seed in CONFIG.seeds]
    # Untrained policies are nearly uniform: sharper ones differ from seed to seed.
    sharp = [jax.tree.map(lambda leaf: 40 * leaf, agent) for agent in agents]
    return Trained(pathlib.Path("nowhere"), CONFIG, sharp, 0)


def test_training_seeds_are_the_sample_and_random_play_is_played_once(trained, monkeypatch):
    calls = []

    def counted(*args, **named):
        calls.append(named["seed"])
        return play(*args, **named)

    monkeypatch.setattr(api, "play", counted)
    measures = trained.evaluate(episodes=40, seeds=2)
    assert len(calls) == 3 * 2
    alone = [dataclasses.replace(trained, agents=[agent]).evaluate(episodes=40, seeds=2) for agent in trained.agents]
    found = measures["common_surprise"]
    means = [each["common_surprise"]["mean"] for each in alone]
    assert len(set(means)) == 3
    assert (found["n"], found["over"]) == (3, "training seeds")
    assert found["mean"] == pytest.approx(np.mean(means))
    assert (alone[0]["common_surprise"]["n"], alone[0]["common_surprise"]["over"]) == (40, "episodes")
    calls.clear()
    random = trained.evaluate(episodes=40, seeds=2, player="random")
    assert len(calls) == 2
    once = dataclasses.replace(trained, agents=trained.agents[:1]).evaluate(episodes=40, seeds=2, player="random")
    assert random == once
    assert (random["common_surprise"]["n"], random["common_surprise"]["over"]) == (40, "episodes")


def test_cross_play_pairs_every_role_with_every_player(trained, monkeypatch):
    """Without playing: whoever plays a role is recognised by the action it is most likely to take, if any."""
    # As if the world had an action that does nothing.
    spec = trained.agents[0].method.spec._replace(noop=2)
    method = methods.make(CONFIG.method, spec, **CONFIG.method_fields)
    agents = [Agent(method, agent.policies, agent.learnt) for agent in trained.agents]
    monkeypatch.setattr(LadderWorld, "spec", property(lambda world: spec))
    games = []

    def noted(world, agent, *, episodes, seed):
        games.append({role: _player(policy, agents) for role, policy in agent.policies.items()})
        return {"x": np.full(episodes, float(seed))}

    monkeypatch.setattr(api, "play", noted)
    rows = dataclasses.replace(trained, agents=agents).cross_play(episodes=8, seeds=2)
    players = ("trained", "random", "motionless")
    assert [(row["explore"], row["control"]) for row in rows] == [(a, b) for a in players for b in players]
    for row in rows:
        several = "trained" in (row["explore"], row["control"])
        estimate = row["measures"]["x"]
        assert (estimate["n"], estimate["over"]) == ((3, "training seeds") if several else (8, "episodes"))
        assert estimate["mean"] == api.EVALUATION_SEED + 0.5
        for number in range(3 if several else 1):
            expected = {role: number if row[role] == "trained" else row[role] for role in method.roles}
            assert [games.pop(0), games.pop(0)] == [expected, expected]
    assert games == []


def _player(policy, agents) -> int | str:
    """The training seed of a policy, or what else plays."""
    if isinstance(policy, FixedPolicy):
        return "random" if len(set(np.asarray(policy.logits).tolist())) == 1 else "motionless"
    (number,) = [n for n, agent in enumerate(agents) if any(policy is each for each in agent.policies.values())]
    return number


def test_where_every_action_moves_nobody_plays_motionless(trained, monkeypatch):
    monkeypatch.setattr(api, "play", lambda *args, **named: {"x": np.zeros(1)})
    rows = trained.cross_play(episodes=2, seeds=2)
    players = ("trained", "random")
    assert [(row["explore"], row["control"]) for row in rows] == [(a, b) for a in players for b in players]


def test_policies_are_played_elsewhere_or_refused(trained):
    longer = trained.evaluate(episodes=4, seeds=2, env="ladder/game", env_fields={"max_steps": 7})
    assert longer["end/place"]["n"] == 3
    for env in ("rooms/four", "CartPole-v1"):
        with pytest.raises(UserError, match=f"trained in ladder/game cannot act in {env}"):
            trained.evaluate(episodes=4, seeds=2, env=env)
    with pytest.raises(UserError, match="3 episodes cannot be split over 10 evaluation seeds"):
        trained.evaluate(episodes=3)
