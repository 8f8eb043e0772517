"""What the room worlds promise beyond MiniGrid: generation, noise, measures, settings."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from advsurprise import make
from advsurprise.envs.picture import full_codes
from advsurprise.errors import UserError
from advsurprise.grid import geometry, tiles
from advsurprise.grid.actions import Action

pytestmark = pytest.mark.slow

LEAST_P = 1e-3
NUMBER = 4000


@functools.cache
def _layouts(id="rooms/four", **fields):
    env = make(id, **dict(fields))
    keys = jax.random.split(jax.random.key(11), NUMBER)
    return env, jax.tree.map(np.asarray, jax.jit(jax.vmap(lambda k: env.initial(key=k)))(keys))


def _offset_in_room(env, states, cells, room):
    """Column and row of a cell inside a room, counted from its first cell, and the room's inner sides."""
    x, y = geometry.coordinates(cells, size=env.grid, view=env.view)
    return x - states.top[:, room, 0] - 1, y - states.top[:, room, 1] - 1, states.side[:, room] - 2


def _uniform_over_rooms(numbers, areas):
    """p-value of: given its room's area, each number is uniform on 0 … area − 1."""
    observed, expected = [], []
    for area in np.unique(areas):
        counts = np.bincount(numbers[areas == area], minlength=area)
        if counts.sum() >= 10 * area:
            observed += counts.tolist()
            expected += [counts.sum() / area] * area
    return stats.chisquare(observed, expected, ddof=len(np.unique(areas)) - 1).pvalue


def test_kinds_are_fair_and_independent():
    _, states = _layouts()
    patterns = states.noisy @ (1 << np.arange(4))
    assert stats.chisquare(np.bincount(patterns, minlength=16)).pvalue > LEAST_P


def test_the_body_begins_on_any_free_cell_of_the_first_room_facing_anywhere():
    env, states = _layouts(kinds=("dark",) * 4)
    column, row, inner = _offset_in_room(env, states, states.position, 0)
    assert (column >= 0).all()
    assert (row >= 0).all()
    assert (column < inner[:, 0]).all()
    assert (row < inner[:, 1]).all()
    assert _uniform_over_rooms(column + row * inner[:, 0], inner.prod(axis=1)) > LEAST_P
    assert stats.chisquare(np.bincount(states.direction, minlength=4)).pvalue > LEAST_P


def test_the_body_never_begins_on_a_wall_box_or_door():
    for fields in (
        {"kinds": ("noisy",) * 4},
        {"noise": "balls", "noisy": 1.0, "dark": 0.0, "ball_density": 1.0},
    ):
        _, states = _layouts(**fields)
        standing_on = np.take_along_axis(states.grid, states.position[:, None], 1)[:, 0]
        assert (tiles.is_light(standing_on) | (standing_on == tiles.EMPTY)).all()


def test_each_noisy_room_holds_one_box_anywhere_of_any_colour_and_lights_elsewhere():
    env, states = _layouts(kinds=("noisy",) * 4)
    for room in range(4):
        in_room = (states.grid >= tiles.box(room, 0)) & (states.grid < tiles.box(room + 1, 0))
        assert (in_room.sum(axis=1) == 1).all()
        cells = in_room.argmax(axis=1)
        column, row, inner = _offset_in_room(env, states, cells, room)
        assert _uniform_over_rooms(column + row * inner[:, 0], inner.prod(axis=1)) > LEAST_P
        colours = np.take_along_axis(states.grid, cells[:, None], 1)[:, 0] - tiles.box(room, 0)
        assert stats.chisquare(np.bincount(colours, minlength=6)).pvalue > LEAST_P
        assert ((states.grid == tiles.LIGHT + room).sum(axis=1) == inner.prod(axis=1) - 1).all()


def test_dark_rooms_are_empty():
    _, states = _layouts(kinds=("dark",) * 4)
    assert (tiles.is_walkable(states.grid) == (states.grid == tiles.EMPTY)).all()
    inner = (states.side - 2).prod(axis=2).sum(axis=1)
    x, y = geometry.all_coordinates(25, 7)
    right = x[None, None] - states.top[:, :, :1]
    down = y[None, None] - states.top[:, :, 1:]
    width, height = states.side[:, :, :1], states.side[:, :, 1:]
    inside = (right > 0) & (right < width - 1) & (down > 0) & (down < height - 1)
    assert (((states.grid == tiles.EMPTY)[:, None] & inside).sum(axis=(1, 2)) == inner).all()


def test_doors_are_closed_and_never_of_the_colour_of_the_door_before():
    _, states = _layouts()
    codes = np.take_along_axis(states.grid, states.doors, 1)
    assert tiles.is_closed_door(codes).all()
    colours = codes - tiles.door(tiles.CLOSED, 0)
    for door in range(3):
        assert stats.chisquare(np.bincount(colours[:, door], minlength=6)).pvalue > LEAST_P
    for door in range(2):
        step = (colours[:, door + 1].astype(int) - colours[:, door]) % 6
        assert (step != 0).all()
        assert stats.chisquare(np.bincount(step, minlength=6)[1:]).pvalue > LEAST_P


def test_the_paired_worlds_are_as_described():
    for id, present in {
        "rooms/door": [],
        "rooms/lock": ["key"],
        "rooms/switch": ["stop", "start"],
    }.items():
        _, states = _layouts(id)
        codes = np.take_along_axis(states.grid, states.doors, 1)
        assert tiles.is_open_door(codes).all()
        assert (states.noisy == [True, False]).all()
        assert (tiles.is_key(states.grid).sum(axis=1) == ("key" in present)).all()
        assert ((states.grid == tiles.STOP_SWITCH).sum(axis=1) == ("stop" in present)).all()
        assert ((states.grid == tiles.START_SWITCH).sum(axis=1) == ("start" in present)).all()
        assert not tiles.is_box(states.grid).any()


def test_the_key_lies_in_the_dark_room_and_fits_the_door():
    env, states = _layouts("rooms/lock")
    cells = tiles.is_key(states.grid).argmax(axis=1)
    column, row, inner = _offset_in_room(env, states, cells, 1)
    assert ((column >= 0) & (row >= 0) & (column < inner[:, 0]) & (row < inner[:, 1])).all()
    key_colour = np.take_along_axis(states.grid, cells[:, None], 1)[:, 0] - tiles.KEY
    door_colour = np.take_along_axis(states.grid, states.doors, 1)[:, 0] - tiles.door(tiles.OPEN, 0)
    assert (key_colour == door_colour).all()


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


def test_balls_are_as_many_as_asked_for():
    env, states = _layouts(noise="balls", kinds=("noisy",) * 4, ball_density=0.3)
    area = (states.side - 2).prod(axis=2)
    expected = np.minimum(np.floor(0.3 * area), area - 2).sum(axis=1)
    assert (tiles.is_ball(states.grid).sum(axis=1) == expected).all()
    assert env.noise == "balls"


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


def test_a_place_is_cell_doors_and_stilled_rooms_and_nothing_else():
    env, states = _layouts(kinds=("noisy",) * 4)
    state = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), states)

    def place(**changes):
        return np.asarray(env.place(dataclasses.replace(state, **changes))).tolist()

    x, y, doors, stilled = place()
    assert [x, y] == [int(value) for value in geometry.coordinates(state.position, size=env.grid, view=env.view)]
    # All three doors are closed, a 1 in base 3 each, and no room is stilled.
    assert (doors, stilled) == (1 + 3 + 9, 0)
    # An open door is a 0, a locked one a 2; a stilled room sets its bit.
    for code, digit in ((tiles.OPEN, 0), (tiles.LOCKED, 2)):
        grid = state.grid.at[state.doors[1]].set(jnp.uint8(tiles.door(code, 0)))
        assert place(grid=grid) == [x, y, 1 + 3 * digit + 9, 0]
    assert place(stilled=jnp.array([False, True, False, True])) == [x, y, doors, 2 + 8]
    assert place(position=state.position + 1) == [x + 1, y, doors, 0]
    same = {
        "direction": (state.direction + 1) % 4,
        "carried": jnp.uint8(tiles.KEY),
        "words": state.words + 1,
        "time": state.time + 9,
        "visited": ~state.visited,
    }
    assert place(**same) == [x, y, doors, 0]


@pytest.mark.parametrize(
    ("world", "fields", "number"),
    # Always unseen, empty, wall, open and closed door, and six colours: 11. A box is one more, switches are two, a key
    # and the lock that it makes possible two; balls replace the colours.
    [
        ("rooms/four", {}, 12),
        ("rooms/door", {}, 11),
        ("rooms/lock", {}, 13),
        ("rooms/switch", {}, 13),
        ("rooms/four", {"noise": "balls"}, 7),
        ("rooms/door", {"encoding": "shared"}, 16),
    ],
)
def test_a_world_shows_its_own_classes(world, fields, number):
    env = make(world, **fields)
    assert len(env.classes) == env.spec.num_classes == number
    shared = make(world, **{**fields, "encoding": "shared"})
    # A body that carries something sees it in its own cell.
    carried = [code for code, name in ((tiles.KEY, "key"), (tiles.BOX, "box or stop switch")) if name in env.classes]
    code = jnp.uint8(carried[0] if carried else tiles.EMPTY)

    @jax.jit
    @jax.vmap
    def both(state):
        state = dataclasses.replace(state, carried=code)
        return env.observe(state), shared.observe(state)

    _, states = _layouts(world, **{name: value for name, value in fields.items() if name != "encoding"})
    own, all_classes = map(np.asarray, both(jax.tree.map(lambda leaf: jnp.asarray(leaf[:200]), states)))
    assert np.array_equal(np.array(env.classes)[own], np.array(tiles.CLASSES)[all_classes])
