"""What is recorded is what collectors collect and what the world was in."""

import jax
import numpy as np
import pytest

from advsurprise import envs, methods
from advsurprise.envs.host.pure import as_host
from advsurprise.envs.picture import full_codes, in_rooms
from advsurprise.evaluation import record as recording
from advsurprise.evaluation.record import record
from advsurprise.learning.collect import ScanCollector
from advsurprise.learning.interaction import make_agent
from advsurprise.methods.base import LOG_PROBABILITY

pytestmark = pytest.mark.slow

SEED, BODIES = 7, 3
ENV = envs.make("rooms/switch", grid=11, max_side=5, max_steps=12)
TWO_MODELS = {"scope": "round", "explore_scope": "episode"}
METHOD = methods.make("adversarial-surprise", ENV.spec, k_explore=3, k_control=3, stack=2, **TWO_MODELS)


@pytest.fixture(scope="module")
def agent():
    """Sharper than an untrained policy, so that a wrong view would change actions."""
    return jax.tree.map(lambda leaf: 20 * leaf, jax.jit(lambda key: make_agent(METHOD, 5, key=key))(jax.random.key(1)))


@pytest.fixture(scope="module")
def episodes(agent):
    return record(ENV, [agent], episodes=BODIES, seed=SEED)[0]


@pytest.fixture(scope="module")
def rollout(agent):
    """The same episodes, from the collector of training."""
    collector = ScanCollector(ENV, BODIES, 12)

    @jax.jit
    def play(agent):
        start_key, key = recording.keys(SEED, 0)
        return collector.collect(agent, collector.start(agent, key=start_key), key=key)[1]

    return play(agent)


def test_steps_are_those_of_the_collector(episodes, rollout):
    for body, episode in enumerate(episodes):
        assert episode.end == "terminated"
        for name in ("role", "action", "logits", "value"):
            np.testing.assert_allclose(getattr(episode, name), getattr(rollout.decision, name)[:, body], rtol=1e-4)
        assert episode.obs.shape == (13, 7, 7)
        np.testing.assert_array_equal(episode.obs[:12], rollout.views.newest[:, body])
        # Policies see both models, a person is shown Control's.
        control, _ = np.split(np.asarray(rollout.views.features[:, body]), 2, axis=-1)
        np.testing.assert_allclose(episode.features, control, atol=1e-6)
        for name in ENV.spec.info:
            # A measure of the world is that of the state a step led to; here it is that of the state itself.
            np.testing.assert_allclose(episode.measures[name][1:], rollout.info[name][:, body])
            assert episode.at_end[name] == float(rollout.info[name][-1, body])


def test_rewards_are_the_methods_own(agent, episodes, rollout):
    _, scores = jax.jit(METHOD.score)(agent.learnt, rollout)
    roles = np.asarray(rollout.decision.role)
    assert set(roles.ravel()) == {0, 1}
    for body, episode in enumerate(episodes):
        for number, role in enumerate(METHOD.roles):
            acts = roles[:, body] == number
            np.testing.assert_allclose(episode.reward[role][acts, 0], scores[role].reward[acts, body, 0], rtol=1e-4)
            assert np.isnan(episode.reward[role][~acts]).all()
        traced = episode.trace[LOG_PROBABILITY]
        np.testing.assert_allclose(traced.value, -rollout.signal.surprise[:, body], rtol=1e-5)
        np.testing.assert_array_equal(traced.counts, rollout.signal.scored[:, body])


def test_scenes_are_the_states_of_the_world(episodes):
    """The world stepped on its own, with the recorded actions."""
    host = as_host(ENV, BODIES)
    host.reset(recording.keys(SEED, 0)[0])
    codes = jax.jit(jax.vmap(lambda state: full_codes(ENV, state)))
    inside = np.asarray(jax.jit(jax.vmap(lambda state: in_rooms(ENV, state)))(host.state))
    places = jax.jit(jax.vmap(ENV.place))
    for step in range(12):
        tiles, place = np.where(inside, np.asarray(codes(host.state)), 0), np.asarray(places(host.state))
        for body, episode in enumerate(episodes):
            np.testing.assert_array_equal(episode.scene.tiles[step], tiles[body])
            assert episode.scene.direction[step] == host.state.direction[body]
            assert [episode.scene.column[step], episode.scene.row[step]] == place[body, :2].tolist()
        host.send(np.asarray([episode.action[step] for episode in episodes]))
        host.recv()
    # Where the body sees something, the tiles of its view are those of the world, but for colours that it cannot see.
    names = [shapes[0] for shapes in ENV.tile_shapes]
    seen = {names[tile] for tile in np.unique(ENV.tiles_of(episodes[0].obs))} - {"unseen", "empty"}
    assert seen <= {names[tile] for tile in np.unique(episodes[0].scene.tiles)}


def test_a_host_world_is_recorded_alike(agent, episodes, monkeypatch):
    monkeypatch.setattr(recording, "CHUNK", 5)
    hosted = record(as_host(ENV, BODIES), [agent], episodes=BODIES, seed=SEED)[0]
    first = recording.keys(SEED, 0)
    assert jax.random.key_data(first[0]).tolist() == jax.random.key_data(recording.keys(SEED, 1)[0]).tolist()
    for mine, theirs in zip(hosted, episodes, strict=True):
        # Chunks have noise of their own: up to the first one's end both are the same.
        np.testing.assert_array_equal(mine.obs[:5], theirs.obs[:5])
        assert (len(mine.obs), mine.scene, mine.end) == (12, None, "terminated")
        assert np.isnan(mine.measures["x"][0])
        np.testing.assert_allclose(mine.measures["x"][1:5], theirs.measures["x"][1:5])


@pytest.mark.parametrize("method", [pytest.param("rnd", marks=pytest.mark.long), "smirl"])
def test_other_methods_and_long_episodes(method):
    """RND keeps numbers of every body, of which there were others in training; an episode is cut at the limit."""
    made = methods.make(method, ENV.spec, stack=1)
    agent = make_agent(made, 5, key=jax.random.key(0))
    (episode,) = record(ENV, [agent], episodes=1, seed=SEED, limit=7)[0]
    assert (len(episode.role), len(episode.obs), episode.end) == (7, 8, "cut")
    assert np.isfinite(episode.reward["agent"]).all()
    (traced,) = episode.trace.values()
    assert traced.value.shape == (7,)
    assert traced.counts.all()
