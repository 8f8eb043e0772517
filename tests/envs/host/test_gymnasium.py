"""Gymnasium environments behind the host contract, followed step by step with an environment that counts."""

import inspect
import os
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium_worlds import BODIES, HEADER, Counting, Grid, Lockstep, Picture, counting_host, play

from advsurprise import envs, methods
from advsurprise.envs.host.base import Host
from advsurprise.envs.host.gymnasium import GymnasiumHost, open_host
from advsurprise.envs.host.load import is_gymnasium
from advsurprise.envs.host.spaces import read_metadata
from advsurprise.envs.registration import IDS
from advsurprise.errors import UserError
from advsurprise.evaluation.play import play_host
from advsurprise.learning.host_collect import HostCollector
from advsurprise.learning.interaction import make_agent
from advsurprise.learning.players import played_by
from advsurprise.types import CONTINUE, RESTART, REWIND, TimeStep

pytestmark = pytest.mark.slow


def follow(host: Host, end: int, steps: int = 60) -> set[str]:
    """Plays and compares with plain counting; which ends of an episode were met."""
    actions = np.random.default_rng(0).integers(2, size=(steps, BODIES))
    start = host.reset(0)
    np.testing.assert_array_equal(start.obs, [[0, 0]] * BODIES)
    where = [(0, 0, 0.0)] * BODIES
    met = set()
    for action, timestep in zip(actions, play(host, actions), strict=True):
        for body, (episode, step, total) in enumerate(where):
            step, total = step + 1, total + 3 + action[body]
            terminated = action[body] == 1 and step >= end
            truncated = step == 7 and not terminated
            over = terminated or truncated
            np.testing.assert_array_equal(timestep.final_obs[body], [episode, step])
            np.testing.assert_array_equal(timestep.obs[body], [episode + 1, 0] if over else [episode, step])
            assert (timestep.terminated[body], timestep.truncated[body]) == (terminated, truncated)
            assert timestep.reward[body] == 3 + action[body]
            assert timestep.info["episode_length"][body] == step
            assert timestep.info["episode_return"][body] == total
            where[body] = (episode + 1, 0, 0.0) if over else (episode, step, total)
            met |= {"terminated"} if terminated else {"truncated"} if truncated else set()
    host.close()
    return met


@pytest.mark.parametrize("mode", AutoresetMode)
def test_every_step_is_one_of_the_world(mode):
    assert follow(counting_host(mode), end=5) == {"terminated", "truncated"}


def test_terminated_wins_where_the_clock_runs_out_as_well():
    assert follow(counting_host(AutoresetMode.SAME_STEP, end=7), end=7) == {"terminated", "truncated"}


@pytest.fixture
def counting_file(tmp_path):
    path = tmp_path / "my_env.py"
    path.write_text(HEADER + inspect.getsource(Counting))
    return f"{path}:Counting"


@pytest.mark.parametrize("vectorization", ["auto", "sync", "async"])
def test_a_class_of_a_file(counting_file, vectorization):
    host = open_host(counting_file, BODIES, kwargs={"end": 6, "max_episode_steps": 7}, vectorization=vectorization)
    assert bool(host.worker_pids) == (vectorization == "async")
    assert follow(host, end=6) == {"terminated", "truncated"}


def test_the_record_has_the_declared_shapes_and_types():
    host = open_host("CartPole-v1", BODIES)
    spec = host.spec
    assert (spec.id, spec.num_actions, spec.max_steps, spec.truncates) == ("CartPole-v1", 2, 0, True)
    first = host.reset(0)
    [second] = play(host, [[0] * BODIES])
    for timestep in (first, second):
        for obs in (timestep.obs, timestep.final_obs):
            assert isinstance(obs, np.ndarray)
            assert (obs.shape, str(obs.dtype)) == ((BODIES, *spec.observation_shape), spec.observation_dtype)
        assert timestep.reward.dtype == np.float32
        assert timestep.terminated.dtype == timestep.truncated.dtype == bool
        assert tuple(sorted(timestep.info)) == tuple(sorted(spec.info))
        assert timestep.info["episode_length"].dtype == np.float32
        assert timestep.info["episode_return"].dtype == np.float32
    assert jax.tree.structure(first) == jax.tree.structure(second)


def cartpole(seed) -> np.ndarray:
    host = open_host("CartPole-v1", BODIES)
    actions = np.random.default_rng(1).integers(2, size=(60, BODIES))
    seen = [host.reset(seed).obs] + [np.hstack([t.obs, t.final_obs]).reshape(BODIES, -1) for t in play(host, actions)]
    return np.hstack(seen)


def test_a_seed_or_its_key_gives_the_same_episodes_and_no_body_is_another():
    one, two = cartpole(5), cartpole(6)
    np.testing.assert_array_equal(one, cartpole(5))
    np.testing.assert_array_equal(one, cartpole(jax.random.key(5)))
    first = np.concatenate([one[:, :4], two[:, :4]])
    assert len(np.unique(first, axis=0)) == 2 * BODIES


def test_a_host_can_begin_anew_in_the_middle_of_a_step():
    host = open_host("CartPole-v1", BODIES)
    first = host.reset(3)
    host.send(np.zeros(BODIES, np.int64))
    again = host.reset(3)
    np.testing.assert_array_equal(first.obs, again.obs)
    [timestep] = play(host, [[1] * BODIES])
    assert timestep.info["episode_length"].tolist() == [1] * BODIES


@pytest.fixture(params=[*AutoresetMode, "async"], ids=str)
def any_counting_host(request, counting_file):
    if request.param == "async":
        fields = {"max_episode_steps": 7}
        return open_host(counting_file, BODIES, kwargs=fields, vectorization="async")
    return counting_host(request.param)


def test_only_bodies_that_request_it_begin_anew(any_counting_host):
    host = any_counting_host
    host.reset(0)
    # The world shows its episode and the step in it; the clock cuts episodes at step 7.
    [moved] = play(host, [[0] * BODIES])
    assert moved.obs.tolist() == [[0, 1]] * BODIES
    # REWIND and RESTART are the same here: there is no way back.
    shown = host.relocate(np.array([CONTINUE, REWIND, RESTART]))
    assert shown.obs.tolist() == shown.final_obs.tolist() == [[0, 1], [1, 0], [1, 0]]
    assert shown.place is None
    assert not (shown.terminated | shown.truncated).any()
    *_, last = play(host, [[0] * BODIES] * 6)
    # The first body's clock ran on and ended its episode, those of the others began again with them.
    assert last.final_obs.tolist() == [[0, 7], [1, 6], [1, 6]]
    assert last.obs.tolist() == [[1, 0], [1, 6], [1, 6]]
    assert last.truncated.tolist() == [True, False, False]
    assert last.info["episode_length"].tolist() == [7, 6, 6]
    assert last.info["episode_return"].tolist() == [21, 18, 18]
    # Right after an end, and when nobody requests anything.
    assert host.relocate(np.array([RESTART, CONTINUE, CONTINUE])).obs.tolist() == [[2, 0], [1, 6], [1, 6]]
    assert host.relocate(np.zeros(BODIES, int)).obs.tolist() == [[2, 0], [1, 6], [1, 6]]
    [last] = play(host, [[0] * BODIES])
    assert last.obs.tolist() == [[2, 1], [2, 0], [2, 0]]
    host.close()


def test_a_world_that_relocates_all_bodies_is_refused():
    host = GymnasiumHost(Lockstep(mode=AutoresetMode.SAME_STEP), "Lockstep")
    host.reset(0)
    list(play(host, [[0, 0]]))
    with pytest.raises(UserError, match=r"Lockstep: resetting some bodies .* changed others"):
        host.relocate(np.array([CONTINUE, RESTART]))


def test_our_own_vector_environments_reset_by_mask():
    host = open_host("advsurprise/DoorRoom-v0", BODIES, kwargs={"max_side": 5, "grid": 12}, vectorization="native")
    host.reset(0)
    *_, before = play(host, [[2] * BODIES] * 4)
    shown = host.relocate(np.array([CONTINUE, RESTART, CONTINUE]))
    changed = (shown.obs != before.obs).reshape(BODIES, -1).any(axis=1)
    assert changed.tolist() == [False, True, False]
    [after] = play(host, [[2] * BODIES])
    assert after.info["episode_length"].tolist() == [5, 1, 5]
    for mask in ([True] * BODIES, np.ones(BODIES, int), np.ones(BODIES + 1, bool)):
        with pytest.raises(UserError, match=r"reset_mask.* must be a numpy array of 3 booleans"):
            host.vector.reset(options={"reset_mask": mask})


def test_self_play_in_gymnasium_worlds():
    # The world counts its episodes: Bob gets a new one, and so does the next Alice.
    host = counting_host(AutoresetMode.SAME_STEP, end=1000)
    method = methods.make("asp", host.spec, clock=5, first_stop=0.2, stack=1)
    agent = played_by(make_agent(method, BODIES, key=jax.random.key(0)), "random")
    collector = HostCollector(host, 40)
    seeds, keys = jax.tree.map(lambda leaf: leaf[None], agent), jax.random.split(jax.random.key(0))
    collected = collector.collect(seeds, collector.start(seeds, key=keys[:1]), key=keys[1:])
    memory, rollout = jax.tree.map(lambda leaf: leaf[0], collected)
    seen = np.concatenate([np.asarray(rollout.views.newest), np.asarray(memory.frames.stack)[None, :, -1]])
    over = np.asarray(rollout.terminated | rollout.truncated)
    new = np.asarray(rollout.signal.stopped) | over
    assert new.any(axis=0).all()
    assert np.array_equal(np.diff(seen[..., 0], axis=0), new)
    assert np.array_equal(seen[1:, :, 1], np.where(new, 0, seen[:-1, :, 1] + 1))
    # The counter never shows the same twice, so Bob never gets there: every game ends with the clock.
    assert np.array_equal(over, np.asarray(rollout.signal.time) == 5)
    assert not np.asarray(rollout.signal.solved).any()
    result = play_host(host, [agent], episodes=20, seed=0)[0]
    was_set = result["task_set"] == 1
    assert 0 < was_set.sum() < 20
    assert np.array_equal(np.isnan(result["solved"]), ~was_set)
    assert (result["time_alice"] + result["time_bob"])[was_set].tolist() == [5] * was_set.sum()


@pytest.mark.parametrize("vectorization", ["sync", "native"])
def test_our_own_worlds_say_the_same_through_gymnasium(vectorization):
    for id, world in IDS.items():
        host = open_host(id, 1, vectorization=vectorization)
        own = envs.make(world).spec
        assert (host.spec.noop, host.spec.first_role) == (own.noop, own.first_role), id
        host.close()
    host = open_host("advsurprise/DoorRoom-v0", 1, kwargs={"first_role": "explore"}, vectorization=vectorization)
    assert host.spec.first_role == "explore"
    host.close()


def test_turns_are_the_same_through_gymnasium():
    fields = {"max_side": 5, "grid": 12, "max_steps": 12}
    host = open_host("advsurprise/DoorRoom-v0", 1, kwargs=fields)
    turns = []
    for spec in (host.spec, envs.make("rooms/door", **fields).spec):
        method = methods.make("adversarial-surprise", spec, k_explore=2, k_control=2)
        first = np.zeros(spec.observation_shape, spec.observation_dtype)
        no = jnp.bool_(False)
        memory = method.start(TimeStep(jnp.asarray(first), jnp.float32(0), no, no, jnp.asarray(first), {}))
        turns.append(method.roles[int(method.turn(memory))])
    assert turns == ["control", "control"]
    host.close()


def test_users_environments_can_say_what_does_nothing_and_who_begins():
    class Saying(Counting):
        metadata = {"noop": 4, "first_role": "control"}  # noqa: RUF012

    host = GymnasiumHost(SyncVectorEnv([Saying], autoreset_mode=AutoresetMode.SAME_STEP), "Saying")
    # Its actions are 3 and 4, ours 0 and 1.
    assert (host.spec.noop, host.spec.first_role) == (1, "control")
    host = GymnasiumHost(SyncVectorEnv([Counting], autoreset_mode=AutoresetMode.SAME_STEP), "Counting")
    assert (host.spec.noop, host.spec.first_role) == (None, "")
    for wrong, sentence in [
        ({"noop": 2}, r"metadata\['noop'\] must be an action of Discrete\(2, start=3\), not 2"),
        ({"noop": "stay"}, "not 'stay'"),
        ({"first_role": 1}, r"metadata\['first_role'\] must be the name of a role, not 1"),
    ]:
        with pytest.raises(UserError, match=sentence):
            read_metadata(wrong, Counting.action_space, "X")


@pytest.mark.parametrize(
    "opened",
    [
        lambda: open_host("CartPole-v1", 2, vectorization="sync"),
        lambda: GymnasiumHost(Lockstep(mode=AutoresetMode.SAME_STEP), "Lockstep"),
    ],
    ids=["bodies", "vector"],
)
def test_calls_out_of_order_and_invalid_actions(opened):
    host = opened()
    for out_of_order in (host.send, host.relocate):
        with pytest.raises(RuntimeError, match="reset"):
            out_of_order(np.zeros(2, np.int64))
    host.reset(0)
    with pytest.raises(RuntimeError, match="send actions"):
        host.recv()
    for actions in ([0, 2], [-1, 0], [0.0, 0.7], [0, 1, 0]):
        with pytest.raises(UserError, match="2 whole numbers from 0 to 1"):
            host.send(np.array(actions))
    host.send(np.zeros(2, np.int64))
    for too_early in (host.send, host.relocate):
        with pytest.raises(RuntimeError, match="receive the last step"):
            too_early(np.zeros(2, np.int64))
    host.close()


def test_native_vector_environments():
    host = GymnasiumHost(Lockstep(mode=AutoresetMode.SAME_STEP), "Lockstep")
    host.reset(0)
    first, second = play(host, [[0, 0]] * 2)
    assert first.obs.tolist() == first.final_obs.tolist() == [[1], [1]]
    assert (second.obs.tolist(), second.final_obs.tolist()) == ([[0], [2]], [[2], [2]])
    for mode, sentence in [
        (None, "autoreset_mode.* is None, not one of NextStep, SameStep, Disabled"),
        ("Sometimes", "is 'Sometimes'"),
        (AutoresetMode.NEXT_STEP, "for a real step"),
    ]:
        with pytest.raises(UserError, match=sentence):
            GymnasiumHost(Lockstep(mode=mode), "Lockstep")
    with pytest.raises(UserError, match="for a real step"):
        open_host("CartPole-v1", 2, vectorization="native")
    for mode, sentence in [(AutoresetMode.SAME_STEP, "final_obs"), (AutoresetMode.DISABLED, "changed others")]:
        host = GymnasiumHost(Lockstep(mode=mode, tells=False), "Lockstep")
        host.reset(0)
        with pytest.raises(UserError, match=sentence):
            list(play(host, [[0, 0]] * 2))


def test_images_and_classes_are_shown_as_declared():
    host = GymnasiumHost(SyncVectorEnv([Picture], autoreset_mode=AutoresetMode.SAME_STEP), "Picture")
    assert (host.spec.observation_kind, host.spec.observation_shape) == ("image", (20, 20, 1))
    assert host.spec.observation_dtype == host.reset(0).obs.dtype == "uint8"
    for step, timestep in enumerate(play(host, [[0]] * 8), start=1):
        np.testing.assert_array_equal(timestep.final_obs, (step - 1) % 7 + 1)
        assert timestep.truncated.tolist() == [step == 7]
    grid = Grid()
    host = GymnasiumHost(SyncVectorEnv([lambda: grid], autoreset_mode=AutoresetMode.SAME_STEP), "Grid")
    assert (host.spec.observation_kind, host.spec.num_classes, host.spec.observation_dtype) == ("classes", 3, "uint8")
    seed = host._seeds(0)[0]
    np.testing.assert_array_equal(host.reset(0).obs[0], Grid().reset(seed=seed)[0] - 10)


def test_other_things_that_are_refused(counting_file):
    with pytest.raises(UserError, match="bodies must be at least 1"):
        open_host("CartPole-v1", 0)
    with pytest.raises(UserError, match="unexpected keyword argument 'sizes'"):
        open_host(counting_file, 1, kwargs={"sizes": 3})
    with pytest.raises(UserError, match="Pendulum-v1: action_space is Box"):
        open_host("Pendulum-v1", 1)
    for name in ("CartPole-v1", "pkg:Name-v0", "a/file.py:Class", "Unknown-v3"):
        assert is_gymnasium(name)
    assert not any(map(is_gymnasium, envs.list_envs()))


def _step(host):
    host.send(np.zeros(BODIES, np.int32))
    host.recv()


def test_the_death_of_a_worker_ends_its_episodes_and_no_others(counting_file):
    host = open_host(counting_file, BODIES, vectorization="async")
    host.reset(0)
    _step(host)
    os.kill(host.worker_pids[1], signal.SIGKILL)
    host.send(np.zeros(BODIES, np.int32))
    with pytest.warns(RuntimeWarning, match=r"worker 2 of 2 died \(killed by signal 9\)"):
        timestep = host.recv()
    assert timestep.truncated.any()
    assert not timestep.truncated.all()
    assert timestep.final_obs.tolist() == [[0, 1] if ended else [0, 2] for ended in timestep.truncated]
    assert host.replaced == 1
    host.close()
