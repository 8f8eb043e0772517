"""Tile codes: one byte for everything that can be in a cell, and its properties.

A code gives the object, its colour, its state and, for things that belong to a room (boxes, switches, balls and
lights), that room. Where MiniGrid asks an object's class, the physics here tests the code.
"""

import numpy as np
from jaxtyping import UInt8

COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
"""Index is MiniGrid's colour number."""
NUM_COLOURS = len(COLOURS)
MAX_ROOMS = 9
"""Maximum number of rooms: room numbers are part of the codes."""

OPEN, CLOSED, LOCKED = 0, 1, 2
"""MiniGrid's door states."""

# First code of each family; colours and rooms are added to it.
UNSEEN = 0
EMPTY = 1
WALL = 2
DOOR = 3
KEY = DOOR + 3 * NUM_COLOURS
STOP_SWITCH = KEY + NUM_COLOURS
START_SWITCH = STOP_SWITCH + MAX_ROOMS
BOX = START_SWITCH + MAX_ROOMS
BALL = BOX + MAX_ROOMS * NUM_COLOURS
LIGHT = BALL + MAX_ROOMS * NUM_COLOURS
FLOOR = LIGHT + MAX_ROOMS
NUM_CODES = FLOOR + NUM_COLOURS

# MiniGrid's object numbers; the switch is the authors' addition.
TYPE_NUMBER = {
    "unseen": 0,
    "empty": 1,
    "wall": 2,
    "floor": 3,
    "door": 4,
    "key": 5,
    "ball": 6,
    "box": 7,
    "switch": 11,
}

CLASSES = (
    "unseen",
    "empty",
    "wall",
    "open door",
    "closed door",
    "locked door",
    "key",
    "box or stop switch",
    "start switch",
    "ball",
    *(f"{colour} floor" for colour in COLOURS),
)
"""The compact encoding: one class per cell, so that flashing is visible to a single categorical."""
NUM_CLASSES = len(CLASSES)
FIRST_FLOOR_CLASS = NUM_CLASSES - NUM_COLOURS

NUM_SYMBOLS = 12
"""Categories of each channel of the symbolic encoding, as the paper counts them."""

WALL_COLOUR = COLOURS.index("grey")
STOP_COLOUR, START_COLOUR = COLOURS.index("red"), COLOURS.index("green")


def door(state, colour):
    """Code of a door."""
    return DOOR + NUM_COLOURS * state + colour


def box(room, colour):
    """Code of the box that stills `room`."""
    return BOX + NUM_COLOURS * room + colour


def ball(room, colour):
    """Code of a ball that moves until `room` is stilled."""
    return BALL + NUM_COLOURS * room + colour


def _symbols() -> UInt8[np.ndarray, "codes 3"]:
    table = np.zeros((NUM_CODES, 3), np.uint8)
    number = TYPE_NUMBER
    table[EMPTY] = number["empty"], 0, 0
    table[WALL] = number["wall"], WALL_COLOUR, 0
    for room in range(MAX_ROOMS):
        table[STOP_SWITCH + room] = number["switch"], STOP_COLOUR, 0
        table[START_SWITCH + room] = number["switch"], START_COLOUR, 0
    for colour in range(NUM_COLOURS):
        for state in (OPEN, CLOSED, LOCKED):
            table[door(state, colour)] = number["door"], colour, state
        table[KEY + colour] = number["key"], colour, 0
        table[FLOOR + colour] = number["floor"], colour, 0
        for room in range(MAX_ROOMS):
            table[box(room, colour)] = number["box"], colour, 0
            table[ball(room, colour)] = number["ball"], colour, 0
    # A light has no colour until `lights.resolve` gives it one.
    table[LIGHT : LIGHT + MAX_ROOMS] = number["floor"], 0, 0
    return table


def _classes() -> UInt8[np.ndarray, " codes"]:
    table = np.zeros(NUM_CODES, np.uint8)
    table[EMPTY], table[WALL] = CLASSES.index("empty"), CLASSES.index("wall")
    for state, name in enumerate(("open door", "closed door", "locked door")):
        table[door(state, 0) : door(state + 1, 0)] = CLASSES.index(name)
    table[KEY:STOP_SWITCH] = CLASSES.index("key")
    table[STOP_SWITCH:START_SWITCH] = CLASSES.index("box or stop switch")
    table[START_SWITCH:BOX] = CLASSES.index("start switch")
    table[BOX:BALL] = CLASSES.index("box or stop switch")
    table[BALL:LIGHT] = CLASSES.index("ball")
    table[LIGHT:FLOOR] = FIRST_FLOOR_CLASS
    table[FLOOR:] = FIRST_FLOOR_CLASS + np.arange(NUM_COLOURS)
    return table


SYMBOL_OF = _symbols()
"""MiniGrid's (type, colour, state) of each code."""
CLASS_OF = _classes()
"""Compact class of each code."""


def is_opaque(code):
    """Whether it blocks the view: walls, closed and locked doors."""
    return (code == WALL) | ((code >= door(CLOSED, 0)) & (code < KEY))


def is_walkable(code):
    """Whether the body can stand on it: empty cells, floors, lights and open doors."""
    return (code == EMPTY) | is_open_door(code) | (code >= LIGHT)


def is_open_door(code):
    """Whether it is an open door."""
    return (code >= DOOR) & (code < door(CLOSED, 0))


def is_closed_door(code):
    """Whether it is a door that is closed and not locked."""
    return (code >= door(CLOSED, 0)) & (code < door(LOCKED, 0))


def is_locked_door(code):
    """Whether it is a locked door."""
    return (code >= door(LOCKED, 0)) & (code < KEY)


def is_key(code):
    """Whether it is a key."""
    return (code >= KEY) & (code < STOP_SWITCH)


def is_box(code):
    """Whether it is a box."""
    return (code >= BOX) & (code < BALL)


def is_ball(code):
    """Whether it is a ball."""
    return (code >= BALL) & (code < LIGHT)


def is_light(code):
    """Whether it is a floor tile whose colour flashes while its room is not stilled."""
    return (code >= LIGHT) & (code < FLOOR)
