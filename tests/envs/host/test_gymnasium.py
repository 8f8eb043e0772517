"""Gymnasium environments behind the host contract, followed step by step with an environment that counts."""

import inspect
import json
import os
import shlex
import signal
import textwrap

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import TimeLimit

from advsurprise import envs, methods
from advsurprise.cli import main as cli
from advsurprise.config import PPOConfig
from advsurprise.envs.host.base import Host
from advsurprise.envs.host.check import check, text
from advsurprise.envs.host.gymnasium import GymnasiumHost, open_host
from advsurprise.envs.host.load import Body, is_gymnasium, make_env
from advsurprise.envs.host.spaces import read_actions, read_metadata, read_observations
from advsurprise.envs.registration import IDS
from advsurprise.errors import UserError
from advsurprise.evaluation.play import play_host
from advsurprise.learning.host_collect import HostCollector
from advsurprise.learning.interaction import make_agent
from advsurprise.learning.learn import learn, make_learner
from advsurprise.learning.networks import ImageTorso, blank_view, make_torso
from advsurprise.learning.players import played_by
from advsurprise.types import CONTINUE, RESTART, REWIND, EnvSpec, TimeStep

pytestmark = pytest.mark.slow

BODIES = 3
HEADER = "import gymnasium\nimport numpy as np\nfrom gymnasium import spaces\n\n"


class Counting(gymnasium.Env):
    """Shows its episode and the step in it, in one array that it writes over. Action 4 ends an episode from step 5."""

    observation_space = spaces.Box(0, 1000, (2,), np.float32)
    action_space = spaces.Discrete(2, start=3)

    def __init__(self, end=5):
        self.end = end
        self.seen = np.array([-1, 0], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seen[:] = self.seen[0] + 1, 0
        return self.seen, {"anything": object()}

    def step(self, action):
        self.seen[1] += 1
        over = bool(action == 4 and self.seen[1] >= self.end)
        return self.seen, float(action), over, False, {"ragged": np.zeros(int(self.seen[1]))}


class Picture(gymnasium.Env):
    """A grey image that brightens by one a step."""

    observation_space = spaces.Box(0, 255, (20, 20), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros((20, 20), np.uint8), {}

    def step(self, action):
        self.time += 1
        return np.full((20, 20), self.time, np.uint8), 0.0, False, self.time == 7, {}


class Grid(gymnasium.Env):
    """A grid of three classes, numbered from 10."""

    observation_space = spaces.Box(10, 12, (5, 5), np.int64)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.integers(10, 13, (5, 5)), {}

    def step(self, action):
        return self.np_random.integers(10, 13, (5, 5)), 0.0, bool(self.np_random.random() < 0.1), False, {}


class Lockstep(VectorEnv):
    """A native vector environment that counts; all bodies end at step 2."""

    single_observation_space = spaces.Box(0, 9, (1,), np.float32)
    single_action_space = spaces.Discrete(2)

    def __init__(self, num_envs=2, mode=None, tells=True):
        self.metadata = {} if mode is None else {"autoreset_mode": mode}
        self.num_envs, self.tells = num_envs, tells
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed=None, options=None):
        assert seed is None or isinstance(seed, int)
        self.time = 0
        return np.zeros((self.num_envs, 1), np.float32), {}

    def step(self, actions):
        self.time = 1 if self.time == 2 else self.time + 1
        done = np.array([self.time == 2] + [False] * (self.num_envs - 1))
        obs = np.where(done & self.tells, 0, self.time).astype(np.float32)[:, None]
        infos = {"final_obs": np.full((self.num_envs, 1), self.time)} if self.tells else {}
        return obs, np.zeros(self.num_envs), done, np.zeros_like(done), infos


def counting_host(mode: AutoresetMode, end: int = 5) -> GymnasiumHost:
    makers = [lambda: Body(TimeLimit(Counting(end), 7))] * BODIES
    return GymnasiumHost(SyncVectorEnv(makers, autoreset_mode=mode), "Counting")


def play(host: Host, actions):
    for action in actions:
        host.send(np.asarray(action))
        yield host.recv()


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
    result = play_host(host, agent, episodes=20, seed=0)
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


def test_calls_out_of_order_and_actions_out_of_range():
    host = open_host("CartPole-v1", 2)
    for out_of_order in (host.send, host.relocate):
        with pytest.raises(RuntimeError, match="reset"):
            out_of_order(np.zeros(2, np.int64))
    host.reset(0)
    with pytest.raises(RuntimeError, match="send actions"):
        host.recv()
    for actions in ([0, 2], [-1, 0], [0, 1, 0]):
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
        (AutoresetMode.NEXT_STEP, "step that nobody took"),
    ]:
        with pytest.raises(UserError, match=sentence):
            GymnasiumHost(Lockstep(mode=mode), "Lockstep")
    with pytest.raises(UserError, match="step that nobody took"):
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


FLOATS = (-np.inf, np.inf)


@pytest.mark.parametrize(
    ("space", "kind", "shape", "dtype", "classes"),
    [
        (spaces.Box(*FLOATS, (6,), np.float64), "vector", (6,), "float32", 0),
        (spaces.Box(*FLOATS, (), np.float32), "vector", (1,), "float32", 0),
        (spaces.Box(0, 255, (128,), np.uint8), "vector", (128,), "float32", 0),
        (spaces.Box(0, 255, (84, 84), np.uint8), "image", (84, 84, 1), "uint8", 0),
        (spaces.Box(0, 255, (20, 30, 3), np.uint8), "image", (20, 30, 3), "uint8", 0),
        (spaces.Box(0, 200, (20, 30, 3), np.uint8), "image", (20, 30, 3), "float32", 0),
        (spaces.Box(-1, 1, (20, 20, 3), np.float32), "image", (20, 20, 3), "float32", 0),
        (spaces.Box(*FLOATS, (4, 4), np.float32), "image", (4, 4, 1), "float32", 0),
        (spaces.Box(0, 5, (7, 7), np.uint8), "classes", (7, 7), "uint8", 6),
        (spaces.Box(-2, 2, (3,), np.int32), "classes", (3,), "uint8", 5),
        (spaces.Box(0, 1, (10, 10, 4), np.bool_), "classes", (10, 10, 4), "uint8", 2),
        (spaces.Discrete(500, start=-3), "classes", (1,), "int32", 500),
        (spaces.MultiDiscrete([[2, 5], [3, 4]]), "classes", (2, 2), "uint8", 5),
        (spaces.MultiDiscrete([3, 4], start=[5, -1]), "classes", (2,), "uint8", 4),
        (spaces.MultiBinary([3, 3]), "classes", (3, 3), "uint8", 2),
    ],
)
def test_observation_spaces(space, kind, shape, dtype, classes):
    reading = read_observations(space, "X")
    assert (reading.kind, reading.shape, reading.dtype, reading.num_classes) == (kind, shape, dtype, classes)
    space.seed(0)
    shown = reading.encode(np.stack([np.asarray(space.sample()) for _ in range(50)]))
    assert (shown.shape, str(shown.dtype)) == ((50, *shape), dtype)
    if kind == "classes":
        assert 0 <= shown.min() <= shown.max() < classes
    if kind == "image" and np.isfinite(space.low).all():
        shown = shown / 255 if dtype == "uint8" else shown
        assert -1e-6 <= shown.min() < 0.1 < 0.9 < shown.max() <= 1


@pytest.mark.parametrize(
    ("space", "sentence"),
    [
        (spaces.Dict(a=spaces.Discrete(2)), r"observation_space is Dict\('a': Discrete\(2\)\).*FlattenObservation"),
        (spaces.Tuple([spaces.Discrete(2)]), r"observation_space is Tuple.*accepted are Box"),
        (spaces.Graph(spaces.Discrete(2), None), r"observation_space is Graph.*accepted are Box"),
        (spaces.Box(0, 255, (3, 84, 84), np.uint8), r"shape \(3, 84, 84\), which looks like channels first"),
        (spaces.Box(0, 1, (2, 2, 2, 2), np.float32), r"shape \(2, 2, 2, 2\); shapes of 1 to 3 axes"),
        (spaces.Box(0, 1, (0,), np.float32), r"shape \(0,\)"),
        (spaces.Box(0, 1000, (5, 5), np.int32), "1001 values per entry"),
        (spaces.Discrete(10**6), "1000000 numbers as one-hot"),
    ],
)
def test_observation_spaces_that_are_refused(space, sentence):
    with pytest.raises(UserError, match=f"^X: .*{sentence}"):
        read_observations(space, "X")


@pytest.mark.parametrize(
    ("space", "sentence"),
    [
        (spaces.Box(-1, 1, (2,), np.float32), "and continuous actions cannot be trained"),
        (spaces.MultiBinary(3), "only Discrete actions are accepted"),
        (spaces.MultiDiscrete([2, 2]), "only Discrete actions are accepted"),
    ],
)
def test_action_spaces_that_are_refused(space, sentence):
    with pytest.raises(UserError, match=rf"^X: action_space is .*{sentence}"):
        read_actions(space, "X")


@pytest.mark.parametrize("seen", [[[13]], [[9]]])
def test_a_class_that_was_not_declared_is_named(seen):
    reading = read_observations(spaces.Box(10, 12, (1,), np.int64), "X")
    with pytest.raises(ValueError, match="outside the 3"):
        reading.encode(np.array(seen))


def test_a_number_that_is_not_finite_is_named(tmp_path):
    path = tmp_path / "nan.py"
    source = inspect.getsource(Grid).replace("np.int64", "np.float32")
    path.write_text(
        HEADER + source.replace("self.np_random.integers(10, 13, (5, 5)), 0.0", "np.full((5, 5), np.nan), 0")
    )
    host = open_host(f"{path}:Grid", 1)
    host.reset(0)
    with pytest.raises(UserError, match=r"nan\.py:Grid: an observation holds a number that is not finite"):
        list(play(host, [[0]]))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("CartPol-v1", "Did you mean: `CartPole`"),
        ("no_such_package:X-v0", "No module named 'no_such_package'"),
        ("missing.py:X", "there is no file 'missing.py'"),
        ("{path}:Countin", "has no class 'Countin'; did you mean 'Counting'"),
        ("{path}:Other", "Other is not a subclass of gymnasium.Env"),
        ("{broken}:X", r"broken.py could not be run: ZeroDivisionError"),
        ("{empty}:X", "has no class 'X', nor any other gymnasium.Env"),
    ],
)
def test_names_that_lead_nowhere(tmp_path, name, sentence):
    files = {"path": tmp_path / "env.py", "broken": tmp_path / "broken.py", "empty": tmp_path / "empty.py"}
    files["path"].write_text(HEADER + inspect.getsource(Counting) + "\n\nclass Other:\n    pass\n")
    files["broken"].write_text("1 / 0\n")
    files["empty"].write_text("")
    with pytest.raises(UserError, match=sentence):
        open_host(name.format(**files), 1)


def test_a_file_that_changed_is_run_again_and_finds_files_beside_it(tmp_path):
    path = tmp_path / "changing.py"
    (tmp_path / "beside_changing.py").write_text("ACTIONS = 3\n")
    source = inspect.getsource(Grid)
    path.write_text(HEADER + source)
    assert make_env(f"{path}:Grid").action_space == spaces.Discrete(4)
    changed = source.replace("spaces.Discrete(4)", "spaces.Discrete(beside_changing.ACTIONS)")
    path.write_text(f"import beside_changing\n{HEADER}{changed}")
    assert make_env(f"{path}:Grid").action_space == spaces.Discrete(3)


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


@pytest.mark.parametrize(("side", "outputs"), [(84, 7 * 7 * 64), (60, 4 * 4 * 64), (20, 64), (7, 64), (3, 64)])
def test_image_torsos_fit_images_of_any_size(side, outputs, getkey):
    spec = EnvSpec("X", (side, side, 3), "float32", "image", 0, 2, 0, ())
    torso = make_torso(spec, 4, 2, key=getkey())
    assert isinstance(torso, ImageTorso)
    assert jax.eval_shape(torso, blank_view(spec, 4, 2)).shape == (outputs,)


def test_an_image_torso_sees_frames_and_features(getkey):
    spec = EnvSpec("X", (20, 24, 3), "float32", "image", 0, 2, 0, ())
    torso = make_torso(spec, 2, 2, key=getkey())
    view = blank_view(spec, 2, 2)
    for part in ("frames", "features"):
        seen = jax.random.uniform(getkey(), getattr(view, part).shape)
        gradient = jax.grad(lambda x, part=part: torso(_with(view, part, x)).sum())(seen)
        touched = jnp.any(gradient != 0, axis=(1, 2) if part == "frames" else (0, 1))
        assert touched.all()


def _with(view, part, value):
    fields = {"frames": view.frames, "features": view.features, "time": view.time} | {part: value}
    return type(view)(**fields)


@pytest.mark.slow
@pytest.mark.parametrize("made", [Picture, pytest.param(Grid, marks=pytest.mark.long)])
def test_training_on_images_and_classes(made, getkey):
    bodies, length = 2, 16
    host = GymnasiumHost(SyncVectorEnv([made] * bodies, autoreset_mode=AutoresetMode.SAME_STEP), made.__name__)
    method = methods.make("adversarial-surprise", host.spec, k_explore=4, k_control=4)
    cfg = PPOConfig(epochs=1, minibatch=32)
    learner = make_learner(make_agent(method, bodies, key=getkey()), cfg)
    collector = HostCollector(host, length)
    seeds = jax.tree.map(lambda leaf: leaf[None], learner.agent)
    memory = collector.start(seeds, key=getkey()[None])
    rollout = jax.tree.map(lambda leaf: leaf[0], collector.collect(seeds, memory, key=getkey()[None])[1])
    assert rollout.info["episode_length"].shape == (length, bodies)
    update = jax.jit(lambda learner, rollout, key: learn(learner, rollout, cfg, key=key))
    learner, metrics = update(learner, rollout, getkey())
    assert metrics["episodes"] > 0
    assert metrics["end/episode_length"] > 0
    assert all(bool(jnp.isfinite(value).all()) for value in metrics.values()), metrics


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


# --- check ------------------------------------------------------------------------------------------------------------


def test_a_sound_environment_is_ready(tmp_path):
    report = check("CartPole-v1", {"max_episode_steps": 50})
    assert report["ok"], report
    assert report["problems"] == []
    assert (report["kind"], report["density"], report["actions"]) == ("vector", "gaussian", "Discrete(2)")
    assert report["steps_per_s"] > 100
    assert report["train_with"] == "advsurprise train --env CartPole-v1 --set env.max_episode_steps=50"
    assert json.loads(json.dumps(report)) == report
    assert "ready to train" in text(report)
    assert text(report).endswith(report["train_with"])


def test_the_line_to_train_with_is_one_that_the_command_line_takes(monkeypatch):
    settings = {"max_episode_steps": 50, "sutton_barto_reward": True}
    report = check("CartPole-v1", settings)
    assert report["ok"], report
    seen = []
    monkeypatch.setattr("advsurprise.cli.train.train", lambda asked, *_, **__: seen.append(asked) or {})
    monkeypatch.setattr("advsurprise.cli.train.text", lambda result: "")
    program, *words = shlex.split(report["train_with"])
    assert program == "advsurprise"
    cli.main([*words, "--method", "task"])
    assert (seen[0].env, seen[0].env_fields) == ("CartPole-v1", settings)


SOUND = inspect.getsource(Grid).replace("Grid", "Env")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("spaces.Discrete(4)", "spaces.Box(-1, 1, (2,), np.float32)", "action_space is Box"),
        ("spaces.Discrete(4)", "4", "action_space must be a gymnasium space, not 4"),
        ("spaces.Box(10, 12, (5, 5), np.int64)", "spaces.Dict(a=spaces.Discrete(2))", "observation_space is Dict"),
        ("spaces.Box(10, 12, (5, 5), np.int64)", "None", "observation_space must be a gymnasium space, not missing"),
        ("spaces.Box(10, 12, (5, 5), np.int64)", "spaces.Box(10, 12, (5, 4), np.int64)", "has shape (5, 5), but"),
        ("spaces.Box(10, 12, (5, 5), np.int64)", "spaces.Box(10, 12, (5, 5), np.uint8)", "has dtype int64, but"),
        ("spaces.Box(10, 12, (5, 5), np.int64)", "spaces.Box(10, 11, (5, 5), np.int64)", "is not within"),
        ("(10, 13, (5, 5)), {}", "(10, 13, (5, 5))", "reset must return (observation, info), not a ndarray"),
        (
            ", False, {}",
            ", {}",
            "step must return (observation, reward, terminated, truncated, info), not a tuple of 4",
        ),
        (", False, {}", ", 0, {}", "truncated of step must be True or False, not 0"),
        (", False, {}", ", False, None", "the info of step must be a dict, not None"),
        (", 0.0,", ", float('nan'),", "the reward of step must be a finite number, not nan"),
        (", 0.0,", ", None,", "the reward of step must be a finite number, not None"),
        (", 0.0,", ", 1 / 0,", "raised ZeroDivisionError: division by zero"),
        ("seed=None, ", "", "unexpected keyword argument 'seed'"),
        ("super().reset(seed=seed)", "super().reset()", "super().reset(seed=seed)"),
        ("return self.np_random.integers(10, 13, (5, 5)), 0.0", "return self.noise(), 0.0", "at step 1"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, old, new, sentence):
    path = tmp_path / "env.py"
    noise = "\n    def noise(self):\n        return np.random.default_rng().integers(10, 13, (5, 5))\n"
    assert old in SOUND
    path.write_text(HEADER + SOUND.replace(old, new) + noise)
    report = check(f"{path}:Env")
    assert not report["ok"]
    assert report["train_with"] is None
    assert any(sentence in problem for problem in report["problems"]), report
    assert all("\n" not in problem for problem in report["problems"])
    assert "not ready" in text(report)


def test_what_is_worth_knowing_is_noted(tmp_path, capsys):
    path = tmp_path / "env.py"
    path.write_text(HEADER + SOUND.replace("bool(self.np_random.random() < 0.1)", "bool(print('step'))"))
    report = check(f"{path}:Env")
    assert report["ok"], report
    assert any("no episode ended within 1000 random steps" in note for note in report["notes"])
    assert capsys.readouterr().out == ""
    path.write_text(HEADER + textwrap.dedent(inspect.getsource(Picture)))
    report = check(f"{path}:Picture")
    assert report["ok"], report
    assert any("two seeds gave the same" in note for note in report["notes"])
    assert (report["kind"], report["density"]) == ("image", "gaussian")


def test_names_that_lead_nowhere_are_problems():
    report = check("CartPol-v1")
    assert (report["ok"], len(report["problems"])) == (False, 1)
    assert "Did you mean: `CartPole`" in report["problems"][0]
