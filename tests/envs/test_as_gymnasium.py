"""The room worlds behind Gymnasium's interface, judged by Gymnasium's own checks."""

import copy
import dataclasses
import pickle
import subprocess
import sys

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils import seeding
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import DictInfoToList, RecordEpisodeStatistics

from advsurprise.envs.as_gymnasium import RoomsEnv, RoomsVectorEnv
from advsurprise.envs.host.pure import as_host
from advsurprise.envs.registration import IDS
from advsurprise.errors import UserError
from advsurprise.types import CONTINUE, RESTART

pytestmark = pytest.mark.slow

BODIES = 5


@pytest.mark.parametrize("id", IDS)
def test_gymnasiums_checker_passes(id):
    env = gymnasium.make(id)
    assert env.unwrapped.world.id == IDS[id]
    check_env(env.unwrapped)


def test_the_package_need_not_be_imported_if_the_id_names_it():
    code = "import gymnasium; print(gymnasium.make('advsurprise:advsurprise/DoorRoom-v0').spec.id)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "advsurprise/DoorRoom-v0"


def test_fields_are_keyword_arguments():
    env = gymnasium.make("advsurprise/FourRooms-v0", rooms=6, view=5, encoding="symbolic")
    assert env.observation_space.shape == (5, 5, 3)
    assert env.unwrapped.world.rooms == 6
    with pytest.raises(UserError, match="did you mean 'rooms'"):
        gymnasium.make("advsurprise/FourRooms-v0", room=6)


def test_an_episode_runs_to_its_end():
    env = gymnasium.make("advsurprise/DoorRoom-v0")
    env.reset(seed=0)
    ends = [env.step(2)[2:4] for _ in range(96)]
    assert ends == [(False, False)] * 95 + [(True, False)]
    env = gymnasium.make("advsurprise/DoorRoom-v0", timeout="truncated")
    env.reset(seed=0)
    assert [env.step(2)[2:4] for _ in range(96)][-1] == (False, True)


def test_rendering_draws_every_cell_and_highlights_what_is_seen():
    env = gymnasium.make("advsurprise/FourRooms-v0", render_mode="rgb_array", rooms=1, kinds=("dark",), grid=10)
    env.reset(seed=1)
    picture = env.render()
    assert picture.shape == (10 * 32, 10 * 32, 3)
    assert picture.dtype == np.uint8
    state = env.unwrapped._state
    x, y = state.top[0]
    width, height = state.side[0]
    # Walls are grey 100 where they are not seen, and lighter where they are: nothing else is drawn on the rim.
    rim = {
        tuple(picture[32 * row + 16, 32 * column + 16]) for column in range(x, x + width) for row in (y, y + height - 1)
    }
    assert rim <= {(100, 100, 100), (146, 146, 146)}
    with pytest.raises(UserError, match="render_mode"):
        RoomsEnv(render_mode="ansi")


def test_bad_actions_and_forgotten_resets_are_refused():
    env = gymnasium.make("advsurprise/FourRooms-v0").unwrapped
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    env.reset(seed=0)
    with pytest.raises(UserError, match="from 0 to 6"):
        env.step(7)
    vector = gymnasium.make_vec("advsurprise/FourRooms-v0", num_envs=BODIES)
    vector.reset(seed=0)
    for actions in (np.full(BODIES, 9), np.full(BODIES, -1), np.full(BODIES, 1.7), np.zeros(BODIES + 1, int)):
        with pytest.raises(UserError, match="5 whole numbers from 0 to 6"):
            vector.step(actions)


ONE = {"id": "advsurprise/SwitchRoom-v0", "timeout": "truncated", "max_steps": 12}


def _pure_steps(world, actions, seed):
    """What the world's own functions give from the keys that an environment draws: the environment's returns, less
    those of `reset` behind the first."""
    draw = seeding.np_random(seed)[0]
    begin = eqx.filter_jit(lambda key: world.initial(key=key))
    move = eqx.filter_jit(lambda state, action, key: world.transition(state, action, key=key))
    look = eqx.filter_jit(lambda state: (world.observe(state), world.measure(state)))
    state = None
    for index, action in enumerate(actions):
        if index % world.max_steps == 0:
            before, state = state, begin(jax.random.key(int(draw.integers(2**31))))
            life = state.visited_life if before is None else before.visited_life | state.visited_life
            state = dataclasses.replace(state, visited_life=life)
            yield look(state)
        state, outcome = move(state, jnp.int32(action), jax.random.key(int(draw.integers(2**31))))
        obs, info = look(state)
        yield obs, outcome.reward, outcome.terminated, outcome.truncated, info


def _face_steps(env, actions, seed):
    ended = True
    for action in actions:
        if ended:
            yield env.reset(seed=seed)
            seed = None
        yield env.step(action)
        ended = env.unwrapped._state.time == env.unwrapped.world.max_steps


def test_one_body_steps_exactly_as_the_pure_world():
    env = gymnasium.make(**ONE)
    actions = np.random.default_rng(3).integers(0, 7, 30)
    shown = list(_face_steps(env, actions, seed=8))
    known = list(_pure_steps(env.unwrapped.world, actions, seed=8))
    assert len(shown) == 33
    for (obs, *ends, info), (pure_obs, *pure_ends, pure_info) in zip(shown, known, strict=True):
        np.testing.assert_array_equal(obs, pure_obs)
        assert ends == [each.item() for each in pure_ends]
        assert info == {key: value.item() for key, value in pure_info.items()}
        assert [type(value) for value in info.values()] == [type(pure_info[key].item()) for key in info]


def test_what_a_step_returned_stays_as_it_was():
    env = gymnasium.make(**ONE)
    first, info = env.reset(seed=0)
    kept, info_kept = first.copy(), dict(info)
    for action in (2, 0, 2, 1, 5):
        env.step(action)
    assert np.array_equal(first, kept)
    assert info == info_kept
    first[:] = 0
    again, _ = env.reset(seed=0)
    assert np.array_equal(again, kept)


def test_copies_and_pickles_go_on_alike():
    env = gymnasium.make(**ONE).unwrapped
    env.reset(seed=0)
    env.step(2)
    others = copy.deepcopy(env), pickle.loads(pickle.dumps(env))
    for action in (2, 0, 2):
        obs, *_, info = env.step(action)
        for other in others:
            assert other._programs is env._programs
            other_obs, *_, other_info = other.step(action)
            assert np.array_equal(other_obs, obs)
            assert other_info == info


def test_environments_of_the_same_settings_share_their_programs():
    first, second, other = (gymnasium.make(**ONE, view=view).unwrapped for view in (7, 7, 5))
    first.reset(seed=0)
    assert second._programs.begin is first._programs.begin
    assert other._programs is not first._programs


@pytest.fixture
def envs():
    made = gymnasium.make_vec("advsurprise/SwitchRoom-v0", num_envs=BODIES, max_steps=12)
    yield made
    made.close()


def test_make_vec_is_native_and_says_how_it_resets(envs):
    assert isinstance(envs.unwrapped, RoomsVectorEnv)
    assert envs.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    assert envs.single_observation_space.shape == (7, 7)
    assert envs.observation_space.shape == (BODIES, 7, 7)
    assert envs.action_space == gymnasium.spaces.MultiDiscrete([7] * BODIES)


def _vector_steps(envs, steps, seed=4):
    envs.action_space.seed(seed)
    yield envs.reset(seed=seed)
    for _ in range(steps):
        yield envs.step(envs.action_space.sample())


def test_vector_steps_have_gymnasiums_shapes_and_types(envs):
    for returned in _vector_steps(envs, 15):
        obs, info = returned[0], returned[-1]
        assert envs.observation_space.contains(obs)
        for key in ("rooms_episode", "stilled"):
            assert info[key].shape == (BODIES,)
            assert info[f"_{key}"].all()
        if len(returned) == 5:
            rewards, terminations, truncations = returned[1:4]
            assert rewards.dtype == np.float64
            assert terminations.dtype == truncations.dtype == np.bool_
            assert rewards.shape == terminations.shape == truncations.shape == (BODIES,)


def test_vector_episodes_end_with_final_obs_and_final_info(envs):
    returned = list(_vector_steps(envs, 14))
    for index, (*_, terminations, _, info) in enumerate(returned[1:], start=1):
        assert terminations.all() == (index == 12)
        assert ("final_obs" in info) == (index == 12)
    obs, _, _, _, info = returned[12]
    assert info["_final_obs"].all()
    assert all(final.shape == (7, 7) for final in info["final_obs"])
    assert info["final_info"]["_rooms_episode"].all()
    # What is outside `final_info` belongs to the new episode.
    assert (info["dark_steps"] == 0).all()
    assert (info["rooms_episode"] == 1).all()
    assert any(not np.array_equal(final, new) for final, new in zip(info["final_obs"], obs, strict=True))


@pytest.fixture
def host(envs):
    """The same world and bodies from the same seed, behind the host contract, both just reset."""
    host = as_host(envs.unwrapped.world, BODIES)
    _same_shown(envs.reset(seed=6), host.reset(int(seeding.np_random(6)[0].integers(2**31))))
    return host


def test_vector_steps_exactly_as_the_pure_world(envs, host):
    _step_alike(envs, host, 27)


@pytest.mark.long
def test_vector_restarts_exactly_as_the_pure_world(envs, host):
    for steps in (0, 5, 20):  # some bodies' episodes then end at other times than the others'
        _step_alike(envs, host, steps)
        for mask in ([True, False, False, True, False], [True, True, False, False, False]):
            timestep = host.relocate(np.where(mask, RESTART, CONTINUE))
            _same_shown(envs.reset(options={"reset_mask": np.array(mask)}), timestep)
    _step_alike(envs, host, 14)


def _step_alike(envs, host, steps):
    rng = np.random.default_rng(1)
    measure = eqx.filter_jit(jax.vmap(envs.unwrapped.world.measure))
    for _ in range(steps):
        actions = rng.integers(0, 7, BODIES)
        host.send(actions)
        timestep = host.recv()
        obs, rewards, terminations, truncations, info = envs.step(actions)
        np.testing.assert_array_equal(obs, timestep.obs)
        np.testing.assert_array_equal(rewards, timestep.reward)
        np.testing.assert_array_equal(terminations, timestep.terminated)
        np.testing.assert_array_equal(truncations, timestep.truncated)
        assert ("final_obs" in info) == terminations.any()
        if not terminations.any():
            _same_shown((obs, info), timestep)
            continue
        for key, value in timestep.info.items():
            np.testing.assert_array_equal(info["final_info"][key][terminations], value[terminations])
            assert not info["final_info"][key][~terminations].any()
            assert info[key].dtype == info["final_info"][key].dtype == value.dtype
        for body, final in enumerate(info["final_obs"]):
            assert (final is None) == (not terminations[body])
            assert final is None or np.array_equal(final, timestep.final_obs[body])
        assert all(np.array_equal(info[key], value) for key, value in measure(host.state).items())


def _same_shown(returned, timestep):
    obs, info = returned
    np.testing.assert_array_equal(obs, timestep.obs)
    assert set(info) == set(timestep.info) | {f"_{key}" for key in timestep.info}
    for key, value in timestep.info.items():
        np.testing.assert_array_equal(info[key], value)
        assert info[key].dtype == value.dtype


def test_vector_pickles_go_on_alike_and_a_closed_one_must_be_reset(envs):
    envs.reset(seed=0)
    other = pickle.loads(pickle.dumps(envs.unwrapped))
    for actions in ([2, 0, 1, 2, 5], [2, 2, 2, 0, 6]):
        for once, again in zip(envs.step(actions)[:4], other.step(actions)[:4], strict=True):
            assert np.array_equal(once, again)
    other.close()
    with pytest.raises(gymnasium.error.ResetNeeded):
        other.step([0] * BODIES)


def test_vector_seeds_repeat(envs):
    once, again, other = (list(_vector_steps(envs, 14, seed)) for seed in (4, 4, 5))
    assert all(np.array_equal(a[0], b[0]) for a, b in zip(once, again, strict=True))
    assert not all(np.array_equal(a[0], b[0]) for a, b in zip(once, other, strict=True))


def test_gymnasiums_vector_wrappers_work(envs):
    listed = DictInfoToList(envs)
    for _, *_, infos in _vector_steps(listed, 13):
        assert len(infos) == BODIES
        assert all("stilled" in info for info in infos)
    counted = RecordEpisodeStatistics(envs)
    lengths = [info["episode"]["l"] for _, *_, info in _vector_steps(counted, 13) if "episode" in info]
    assert [length.tolist() for length in lengths] == [[12] * BODIES]


def test_vector_rendering_gives_a_picture_per_body():
    envs = gymnasium.make_vec("advsurprise/DoorRoom-v0", num_envs=2, render_mode="rgb_array")
    envs.reset(seed=0)
    first, second = envs.render()
    assert first.shape == second.shape == (800, 800, 3)
    assert not np.array_equal(first, second)
