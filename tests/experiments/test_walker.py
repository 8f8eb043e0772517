"""Ways of scripted players, on a map drawn by hand."""

import pytest

from advsurprise.experiments.scripted import shut_in
from advsurprise.experiments.walker import FORWARD, LEFT, PICKUP, RIGHT, TOGGLE, Pose, Walker, toggles_to_pass
from advsurprise.grid import tiles

OPEN, SHUT, LOCKED = (tiles.door(state, 2) for state in (tiles.OPEN, tiles.CLOSED, tiles.LOCKED))
KEY = tiles.KEY + 2
MAP = (
    "#######",
    "#..#..#",
    "#..D..#",
    "#b.#..#",
    "#######",
)
ACROSS = len(MAP[0])
STRIDES = (1, ACROSS, -1, -ACROSS)


def _cell(x, y):
    return y * ACROSS + x


def _walker(door=SHUT, carried=tiles.EMPTY):
    codes = {"#": tiles.WALL, ".": tiles.EMPTY, "D": door, "b": tiles.box(0, 1)}
    rooms = [frozenset(_cell(x, y) for x in columns for y in (1, 2, 3)) for columns in ((1, 2), (4, 5))]
    grid = bytearray(codes[sign] for sign in "".join(MAP))
    return Walker(grid, Pose(_cell(1, 1), 0), carried, STRIDES, rooms, [_cell(3, 2)])


@pytest.mark.parametrize(
    ("code", "carried", "toggles"),
    [
        (tiles.EMPTY, tiles.EMPTY, 0),
        (OPEN, KEY, 0),
        (SHUT, tiles.EMPTY, 1),
        (SHUT, KEY, 2),
        (SHUT, KEY + 1, 1),
        (LOCKED, KEY, 1),
        (LOCKED, KEY + 1, None),
        (tiles.WALL, KEY, None),
        (tiles.box(0, 1), KEY, None),
    ],
)
def test_what_lies_in_front_and_how_it_is_passed(code, carried, toggles):
    assert toggles_to_pass(code, carried) == toggles


def test_the_shortest_way_to_the_other_room_opens_the_door():
    body = _walker()
    assert body.room == 0
    assert body.go(lambda pose: pose.cell in body.rooms[1])
    # One cell on and one down in either order would do; through the door it faces right.
    assert sorted(body.actions[:4]) == sorted([FORWARD, RIGHT, FORWARD, LEFT])
    assert body.actions[4:] == [TOGGLE, FORWARD, FORWARD]
    assert (body.pose, body.room) == (Pose(_cell(4, 2), 0), 1)
    assert body.grid[_cell(3, 2)] == OPEN


def test_a_locked_door_is_no_way_without_its_key():
    assert not _walker(LOCKED).go(lambda pose: pose.cell == _cell(4, 2))
    body = _walker(LOCKED, KEY)
    assert body.go(lambda pose: pose.cell == _cell(4, 2))
    assert body.actions.count(TOGGLE) == 1


def test_facing_a_box_is_standing_before_it():
    body = _walker()
    box = body.find(range(tiles.BOX, tiles.BALL), 0)
    assert box == _cell(1, 3)
    assert body.face(box)
    assert (body.actions, body.pose) == ([RIGHT, FORWARD], Pose(_cell(1, 2), 1))


def test_ways_are_counted_in_steps():
    found = {way.pose: way.steps for way in _walker().ways(2)}
    assert all(len(way.actions) == way.steps for way in _walker().ways(9))
    assert found[Pose(_cell(1, 1), 0)] == 0
    assert found[Pose(_cell(1, 1), 2)] == 2
    assert found[Pose(_cell(1, 2), 1)] == 2
    assert max(found.values()) == 2
    # Four directions on the spot, two beside each of two forward steps, and none behind.
    assert set(found) == {Pose(_cell(1, 1), turn) for turn in range(4)} | {
        Pose(_cell(2, 1), turn) for turn in (0, 1, 3)
    } | {Pose(_cell(1, 2), 1)}


def test_shutting_itself_in_is_closing_the_door_from_inside():
    body = _walker(OPEN)
    shut_in(body, 1)
    # Through the door, and round to face it again.
    assert body.pose == Pose(_cell(4, 2), 2)
    assert body.actions[-1] == TOGGLE
    assert body.actions.count(TOGGLE) == 1
    again = _walker(SHUT)
    again.pose = Pose(_cell(5, 3), 0)
    shut_in(again, 1)
    assert again.actions == []


def test_with_a_key_it_locks_the_door():
    body = _walker(OPEN)
    body.grid[_cell(5, 2)] = KEY
    shut_in(body, 1)
    # The key lies straight ahead behind the door: it is picked up, then the door closed and locked.
    assert body.actions.count(PICKUP) == 1
    assert body.actions[-2:] == [TOGGLE, TOGGLE]
    assert (body.carried, body.grid[_cell(5, 2)]) == (KEY, tiles.EMPTY)
    locked = _walker(LOCKED, KEY)
    locked.pose = Pose(_cell(4, 2), 2)
    shut_in(locked, 1)
    assert locked.actions == []
