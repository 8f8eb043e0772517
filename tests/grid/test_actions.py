"""The rules the oracle cannot judge (locking, switches) and one line for each of the others."""

import jax.numpy as jnp
import pytest

from advsurprise.grid import tiles
from advsurprise.grid.actions import NO_ROOM, Action, act

RED, BLUE = 0, 2
OPEN, CLOSED, LOCKED = (tiles.door(state, RED) for state in (tiles.OPEN, tiles.CLOSED, tiles.LOCKED))
RED_KEY, BLUE_KEY = tiles.KEY + RED, tiles.KEY + BLUE


def _act(action, front, carried=tiles.EMPTY, fixed_boxes=False):
    return act(jnp.int32(action), jnp.uint8(front), jnp.uint8(carried), fixed_boxes=fixed_boxes)


@pytest.mark.parametrize(
    ("front", "carried", "after"),
    [
        (OPEN, tiles.EMPTY, CLOSED),
        (CLOSED, tiles.EMPTY, OPEN),
        (LOCKED, tiles.EMPTY, LOCKED),
        (OPEN, RED_KEY, CLOSED),
        (CLOSED, RED_KEY, LOCKED),
        (LOCKED, RED_KEY, OPEN),
        (CLOSED, BLUE_KEY, OPEN),
        (LOCKED, BLUE_KEY, LOCKED),
        (tiles.box(3, BLUE), tiles.EMPTY, tiles.EMPTY),
        (tiles.WALL, RED_KEY, tiles.WALL),
        (tiles.LIGHT + 1, tiles.EMPTY, tiles.LIGHT + 1),
        (tiles.STOP_SWITCH + 1, tiles.EMPTY, tiles.STOP_SWITCH + 1),
        (RED_KEY, tiles.EMPTY, RED_KEY),
    ],
)
def test_toggle(front, carried, after):
    effect = _act(Action.TOGGLE, front, carried)
    assert int(effect.front) == after
    assert int(effect.carried) == carried
    assert not bool(effect.moves)


@pytest.mark.parametrize("room", range(tiles.MAX_ROOMS))
def test_boxes_and_switches_act_on_their_own_room(room):
    for colour in range(tiles.NUM_COLOURS):
        opened = _act(Action.TOGGLE, tiles.box(room, colour))
        assert (int(opened.stills), int(opened.starts)) == (room, NO_ROOM)
    stopped = _act(Action.TOGGLE, tiles.STOP_SWITCH + room)
    started = _act(Action.TOGGLE, tiles.START_SWITCH + room)
    assert (int(stopped.stills), int(stopped.starts)) == (room, NO_ROOM)
    assert (int(started.stills), int(started.starts)) == (NO_ROOM, room)


@pytest.mark.parametrize("action", [a for a in Action if a != Action.TOGGLE])
@pytest.mark.parametrize("front", [tiles.box(2, 1), tiles.STOP_SWITCH, tiles.START_SWITCH])
def test_only_toggle_reaches_the_noise(action, front):
    effect = _act(action, front)
    assert (int(effect.stills), int(effect.starts)) == (NO_ROOM, NO_ROOM)


def test_boxes_can_be_carried_unless_they_are_fixed():
    box = tiles.box(1, BLUE)
    assert int(_act(Action.PICKUP, box).carried) == box
    assert int(_act(Action.PICKUP, box, fixed_boxes=True).carried) == tiles.EMPTY
    assert int(_act(Action.PICKUP, box, fixed_boxes=True).front) == box


def test_things_are_dropped_on_empty_cells_only():
    onto_empty, onto_light = _act(Action.DROP, tiles.EMPTY, RED_KEY), _act(Action.DROP, tiles.LIGHT, RED_KEY)
    assert (int(onto_empty.front), int(onto_empty.carried)) == (RED_KEY, tiles.EMPTY)
    assert (int(onto_light.front), int(onto_light.carried)) == (tiles.LIGHT, RED_KEY)


def test_unknown_actions_do_nothing():
    effect = _act(17, CLOSED)
    assert int(effect.front) == CLOSED
    assert int(effect.turn) == 0
    assert not bool(effect.moves)
