"""What the room worlds promise beyond MiniGrid: noise, measures, settings."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from advsurprise import make
from advsurprise.envs.picture import full_codes
from advsurprise.errors import UserError
from advsurprise.grid import geometry, tiles
from advsurprise.grid.actions import Action

pytestmark = pytest.mark.slow


@functools.partial(jax.jit, static_argnums=0)
def _begin(env, key):
    return env.initial(key=key)


@functools.partial(jax.jit, static_argnums=0)
def _step(env, state, action, key):
    state, _ = env.transition(state, action, key=key)
    return state, full_codes(env, state), env.measure(state)


def _walk(env, state, actions, key):
    """The last state, and all states, tile codes and measures on the way; one program per world for any length."""
    walked = []
    for action, step_key in zip(actions, jax.random.split(key, len(actions)), strict=True):
        walked.append(_step(env, state, jnp.int32(action), step_key))
        state = walked[-1][0]
    return state, jax.tree.map(lambda *leaves: np.stack(leaves), *walked)


@functools.cache
def _noisy_dark_noisy_noisy():
    return make("rooms/four", kinds=("noisy", "dark", "noisy", "noisy"))


def _first_box(state):
    """Code of the first room's box."""
    return next(code for code in range(tiles.box(0, 0), tiles.box(1, 0)) if (np.asarray(state.grid) == code).any())


def _facing(env, state, code):
    """The state with the body beside the thing with this code, facing it: in the cell to its left, say."""
    cell = int(np.flatnonzero(np.asarray(state.grid) == code)[0])
    for direction in range(4):
        stride = int(geometry.stride(jnp.int32(direction), size=env.grid, view=env.view))
        if bool(tiles.is_walkable(state.grid[cell - stride])):
            return dataclasses.replace(state, position=jnp.int32(cell - stride), direction=jnp.int32(direction))
    raise AssertionError("nowhere to stand")


def test_lights_of_a_stilled_room_never_change_again_and_all_others_do(getkey):
    env = _noisy_dark_noisy_noisy()
    state = _begin(env, getkey())
    state = _facing(env, state, _first_box(state))
    _, (states, codes, info) = _walk(env, state, [Action.TOGGLE] + [Action.LEFT] * 60, getkey())
    codes = np.asarray(codes)
    raw = np.asarray(states.grid)[0]
    for room, changes in [(0, False), (2, True), (3, True)]:
        x, y = geometry.coordinates(np.flatnonzero(raw == tiles.LIGHT + room), size=env.grid, view=env.view)
        shown = codes[:, x, y]
        assert (shown[1:] != shown[:-1]).any() == changes
        if changes:
            # A cell keeps its colour from one step to the next one time in six.
            assert 0.12 < (shown[1:] == shown[:-1]).mean() < 0.21
    np.testing.assert_allclose(info["stilled"], 1 / 3, rtol=1e-6)
    assert (np.asarray(info["uses"]) == 1).all()
    assert np.asarray(states.stilled)[-1].tolist() == [True, False, False, False]


def test_the_step_that_opens_the_box_still_shows_a_fresh_colouring(getkey):
    env = _noisy_dark_noisy_noisy()
    state = _begin(env, getkey())
    state = _facing(env, state, _first_box(state))
    _, (states, _, _) = _walk(env, state, [Action.TOGGLE, Action.DONE], getkey())
    assert states.words[0, 0] != state.words[0]
    assert states.words[1, 0] == states.words[0, 0]


def test_switches_stop_and_start_the_noise_and_are_counted(getkey):
    env = make("rooms/switch")
    state = _facing(env, _begin(env, getkey()), tiles.STOP_SWITCH)
    stopped, (_, _, info) = _walk(env, state, [Action.TOGGLE] * 3, getkey())
    assert np.asarray(info["stilled"]).tolist() == [1, 1, 1]
    assert np.asarray(info["uses"]).tolist() == [1, 1, 1]
    started, (_, _, info) = _walk(env, _facing(env, stopped, tiles.START_SWITCH), [Action.TOGGLE] * 2, getkey())
    assert np.asarray(info["stilled"]).tolist() == [0, 0]
    assert np.asarray(info["restarts"]).tolist() == [1, 1]
    again, _ = _walk(env, _facing(env, started, tiles.STOP_SWITCH), [Action.TOGGLE], getkey())
    assert int(again.uses) == 2


def test_a_box_stills_the_room_it_came_from_wherever_it_is_opened(getkey):
    env = _noisy_dark_noisy_noisy()
    state = _begin(env, getkey())
    box = _first_box(state)
    state, _ = _walk(env, _facing(env, state, box), [Action.PICKUP], getkey())
    assert int(state.carried) == box
    x, y = np.asarray(state.top)[1] + 1
    there = geometry.cell(int(x), int(y), size=env.grid, view=env.view)
    state = dataclasses.replace(state, position=jnp.int32(there), direction=jnp.int32(0))
    state, _ = _walk(env, state, [Action.DROP, Action.TOGGLE], getkey())
    assert np.asarray(state.stilled).tolist() == [True, False, False, False]


def test_measures_follow_the_body_through_a_door(getkey):
    env = make("rooms/door")
    state = _begin(env, getkey())
    door = int(state.doors[0])
    for direction in range(4):
        stride = int(geometry.stride(jnp.int32(direction), size=env.grid, view=env.view))
        if bool(tiles.is_light(state.grid[door - stride])):
            break
    # One step before the door, facing it; through it, turn round, close it.
    state = dataclasses.replace(state, position=jnp.int32(door - stride), direction=jnp.int32(direction))
    actions = [Action.FORWARD, Action.FORWARD, Action.LEFT, Action.LEFT, Action.TOGGLE, Action.DONE]
    _, (_, _, info) = _walk(env, state, actions, getkey())
    assert np.asarray(info["room"]).tolist() == [0, 1, 1, 1, 1, 1]
    assert np.asarray(info["rooms_episode"]).tolist() == [1, 2, 2, 2, 2, 2]
    assert np.asarray(info["dark_steps"]).tolist() == [0, 1, 2, 3, 4, 5]
    assert np.asarray(info["doors_closed"]).tolist() == [0, 0, 0, 0, 1, 1]
    assert np.asarray(info["doors_locked"]).tolist() == [0] * 6
    assert np.asarray(info["noisy_rooms"]).tolist() == [1] * 6


@pytest.mark.parametrize(
    ("reward", "rooms", "stilling"), [("none", 0, 0), ("rooms", 1, 0), ("stilled", 0, 1), ("both", 1, 1)]
)
def test_a_world_rewards_new_rooms_and_stilled_ones(reward, rooms, stilling, getkey):
    env = make("rooms/switch", reward=reward)
    transition = jax.jit(env.transition)

    def rewards(state, *actions):
        paid = []
        for action in actions:
            state, outcome = transition(state, jnp.int32(action), key=getkey())
            paid.append(float(outcome.reward))
        return state, paid

    state = _facing(env, _begin(env, getkey()), tiles.STOP_SWITCH)
    state, paid = rewards(state, Action.TOGGLE, Action.TOGGLE, Action.DONE)
    assert paid == [stilling, 0, 0]
    state, paid = rewards(_facing(env, state, tiles.START_SWITCH), Action.TOGGLE)
    assert paid == [-stilling]
    state = _facing(env, state, int(state.grid[state.doors[0]]))
    _, paid = rewards(
        state,
        *[Action.FORWARD] * 2,
        *[Action.LEFT] * 2,
        *[Action.FORWARD] * 2,
        *[Action.LEFT] * 2,
        *[Action.FORWARD] * 2,
    )
    assert paid == [0, rooms, *[0] * 8]


def test_rooms_of_the_life_outlive_the_episode(getkey):
    env = make("rooms/door")
    state = _begin(env, getkey())
    state = dataclasses.replace(state, visited=jnp.array([True, True]), visited_life=jnp.array([True, True]))
    fresh, measured = jax.jit(lambda s, k: (renewed := env.renew(s, key=k), env.measure(renewed)))(state, getkey())
    assert int(measured["rooms_episode"]) == 1
    assert int(measured["rooms_life"]) == 2
    assert int(fresh.time) == 0


def test_rewinding_keeps_what_the_episode_counted_and_nothing_else(getkey):
    # Alice walks into the dark room and stills the noisy one; Bob begins where she did, and stays there.
    env = make("rooms/switch")
    first = _begin(env, getkey())
    moved = dataclasses.replace(
        first,
        position=first.position + 1,
        time=jnp.int32(40),
        stilled=jnp.array([True, False]),
        visited=jnp.array([True, True]),
        visited_life=jnp.array([True, True]),
        uses=jnp.int32(2),
        restarts=jnp.int32(1),
        dark_steps=jnp.int32(7),
    )
    again = env.rewind(first, moved)
    counted = {"visited", "visited_life", "uses", "restarts", "dark_steps"}
    for name in vars(first):
        assert np.array_equal(getattr(again, name), getattr(moved if name in counted else first, name)), name
    _, _, measured = _step(env, again, jnp.int32(Action.DONE), getkey())
    assert {name: float(measured[name]) for name in ("rooms_episode", "uses", "dark_steps", "stilled")} == {
        "rooms_episode": 2,
        "uses": 2,
        "dark_steps": 7,
        "stilled": 0,
    }


def test_balls_wander_one_cell_at_a_time_and_stop_when_stilled(getkey):
    env = make("rooms/four", noise="balls", kinds=("noisy", "dark", "noisy", "dark"), max_steps=500)
    state = _begin(env, getkey())
    last, (states, _, _) = _walk(env, state, [Action.DONE] * 200, getkey())
    cells = np.asarray(states.balls)
    here = cells != -1
    assert (here == here[0]).all()
    step = np.abs(cells[1:] - cells[:-1])[:, here[0]]
    side = geometry.side(env.grid, env.view)
    assert set(np.unique(step)) == {0, 1, side}
    for moment in (0, 57, 199):
        present = cells[moment][here[0]]
        assert len(set(present.tolist())) == present.size
        assert tiles.is_ball(np.asarray(states.grid)[moment, present]).all()
        assert tiles.is_ball(np.asarray(states.grid)[moment]).sum() == present.size
    still = dataclasses.replace(last, stilled=jnp.array([True, False, True, False]))
    _, (states, _, _) = _walk(env, still, [Action.DONE] * 20, getkey())
    assert (np.asarray(states.balls) == np.asarray(last.balls)).all()


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"view": 6}, "view must be odd"),
        ({"view": 1}, "view must be odd, from 3"),
        ({"noisy": 0.6}, "must add up to 1"),
        ({"noisy": -0.5, "dark": 1.5}, "must add up to 1"),
        ({"rooms": 0}, "rooms must be 1 to 9"),
        ({"rooms": 10}, "rooms must be 1 to 9"),
        ({"rooms": 9, "min_side": 12, "max_side": 12}, "do not fit"),
        ({"min_side": 3}, "at least 4"),
        ({"min_side": 8, "max_side": 6}, "max_side must be at least min_side"),
        ({"max_side": 30}, "grid must be larger than max_side"),
        ({"kinds": ("dark",)}, "kinds must name all 4 rooms"),
        ({"kinds": ("dark", "noisy", "drak", "dark")}, "did you mean 'dark'"),
        ({"noise": "ligths"}, "did you mean 'lights'"),
        ({"encoding": "rgb"}, "unknown encoding"),
        ({"control": "lever"}, "unknown control"),
        ({"key_room": 4}, "key_room must be a room"),
        ({"rooms": 1, "key_room": 0}, "a single room has none"),
        ({"ball_density": 2.0}, "ball_density must be 0 to 1"),
        ({"max_steps": 0}, "max_steps must be at least 1"),
        ({"rooms": 4.5}, "rooms must be a whole number"),
        ({"rooms": True}, "rooms must be a whole number"),
        ({"kinds": "dark"}, "kinds must be a list"),
        ({"romms": 5}, "did you mean 'rooms'"),
    ],
)
def test_impossible_settings_are_refused_with_a_sentence(fields, sentence):
    with pytest.raises(UserError, match=sentence):
        make("rooms/four", **fields)


def test_unknown_worlds_get_the_nearest_name():
    with pytest.raises(UserError, match="did you mean 'rooms/four'"):
        make("rooms/for")
    with pytest.raises(UserError, match="unknown world 'romos/four'"):
        make("romos/four")


@pytest.mark.parametrize(
    "fields", [{"rooms": 2}, {"rooms": 9, "grid": 40}, {"max_side": 12, "min_side": 12, "grid": 50}]
)
def test_other_sizes_make_worlds(fields, getkey):
    env = make("rooms/four", **fields)
    timestep = jax.jit(lambda key: env.reset(key=key)[1])(getkey())
    assert timestep.obs.shape == (7, 7)
    assert int(timestep.info["rooms_episode"]) == 1
