"""What the room worlds promise beyond MiniGrid: how layouts are drawn, places, classes."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from advsurprise import make
from advsurprise.grid import geometry, tiles

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


def test_balls_are_as_many_as_asked_for():
    env, states = _layouts(noise="balls", kinds=("noisy",) * 4, ball_density=0.3)
    area = (states.side - 2).prod(axis=2)
    expected = np.minimum(np.floor(0.3 * area), area - 2).sum(axis=1)
    assert (tiles.is_ball(states.grid).sum(axis=1) == expected).all()
    assert env.noise == "balls"


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
