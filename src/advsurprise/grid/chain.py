"""A chain of rooms with shared walls, placed as MiniGrid's MultiRoom places them.

Placing is rejection sampling, written as a function of random bits that works on both numpy and jax arrays: jax draws
layouts, numpy checks whether such rooms fit at all before anything compiles.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from advsurprise.errors import UserError
from advsurprise.grid.lights import below

TRIES = 8
"""Places tried for each further room before restarting the whole chain."""
DRAWS = 5
"""Random words per try: exit wall, door along it, the two sides, the offset along the shared wall."""
FIRST_ENTRY_WALL = 2
"""Walls are numbered like directions. The first room has no entry, but gets no exit on this wall."""


class Chain(NamedTuple):
    """Rooms in order, axes [..., room, xy]; rectangles include their walls."""

    top: Any
    """Upper left corner."""
    side: Any
    """Width and height, walls included."""
    door: Any
    """Door to the previous room; for the first room, its corner."""
    fits: Any
    """Whether every room fits, axes [...]."""


def attempt(bits, *, rooms: int, low: int, high: int, size: int, xp) -> Chain:
    """One attempt per leading index of `bits` [..., rooms, TRIES, DRAWS] (uint32) at placing the whole chain."""
    first = bits[..., 0, 0, :]
    sides = _draw(first[..., 0:2], high - low + 1, xp) + low
    top = _draw(first[..., 2:4], size - 2, xp)
    unplaced = xp.zeros((*top.shape[:-1], rooms - 1, 2), "int32")
    tops, all_sides = (xp.concatenate([first[..., None, :], unplaced], -2) for first in (top, sides))
    start = Chain(tops, all_sides, tops, _inside(top, sides, size))
    entry = xp.full(start.fits.shape, FIRST_ENTRY_WALL, "int32")

    def place(room, state):
        chain, entry = state
        return _place(room, chain, entry, xp.take(bits, room, -3), low=low, high=high, size=size, xp=xp)

    if xp is jnp:
        # Not unrolled, so that nine rooms compile as fast as two.
        return jax.lax.fori_loop(1, rooms, place, (start, entry))[0]
    return functools.reduce(lambda state, room: place(room, state), range(1, rooms), (start, entry))[0]


def _place(room, placed: Chain, entry, bits, *, low: int, high: int, size: int, xp):
    """Adds room number `room` at the first of TRIES proposed places that is free."""
    tops, sides, doors, fits = placed
    before = (xp.take(tops, room - 1, -2), xp.take(sides, room - 1, -2))
    top, side, door, new_entry = _propose(bits, *before, entry, low=low, high=high, xp=xp)
    number = xp.arange(tops.shape[-2])
    apart = _apart(top[..., None, :], side[..., None, :], tops[..., None, :, :], sides[..., None, :, :])
    free = _inside(top, side, size) & xp.all(apart | (number >= room - 1), axis=-1)
    chosen = xp.argmax(free, axis=-1)[..., None]
    here = (number == room)[:, None]

    def put(into, candidates):
        taken = xp.take_along_axis(candidates, chosen[..., None], -2)
        return xp.where(here, taken, into)

    placed = Chain(put(tops, top), put(sides, side), put(doors, door), fits & xp.any(free, axis=-1))
    return placed, xp.take_along_axis(new_entry, chosen, -1)[..., 0]


def _draw(words, limit, xp):
    return below(words, xp.asarray(limit).astype("uint32")).astype("int32")


def _propose(bits, top, sides, entry, *, low: int, high: int, xp):
    """TRIES places for the room after the one at `top`: corner, sides, door [..., TRIES, xy] and its entry wall."""
    x, y = top[..., None, 0], top[..., None, 1]
    width, height = sides[..., None, 0], sides[..., None, 1]
    # One of the three walls other than the entry: skip over it.
    wall = _draw(bits[..., 0], 3, xp)
    wall = xp.where(wall >= entry[..., None], wall + 1, wall)
    along = _draw(bits[..., 1], xp.where(wall % 2 == 0, height, width) - 2, xp) + 1
    door_x = xp.where(wall == 0, x + width - 1, xp.where(wall == 2, x, x + along))
    door_y = xp.where(wall == 1, y + height - 1, xp.where(wall == 3, y, y + along))
    new_width = _draw(bits[..., 2], high - low + 1, xp) + low
    new_height = _draw(bits[..., 3], high - low + 1, xp) + low
    # The door is between the new room's corners: 1 to side − 2 cells from its upper or left end.
    back = _draw(bits[..., 4], xp.where(wall % 2 == 0, new_height, new_width) - 2, xp) + 1
    new_x = xp.where(wall == 0, door_x, xp.where(wall == 2, door_x - new_width + 1, door_x - back))
    new_y = xp.where(wall == 1, door_y, xp.where(wall == 3, door_y - new_height + 1, door_y - back))
    return (
        xp.stack([new_x, new_y], -1),
        xp.stack([new_width, new_height], -1),
        xp.stack([door_x, door_y], -1),
        (wall + 2) % 4,
    )


def _inside(top, sides, size: int):
    """Whether a room is on the grid; the last row stays free, as in MiniGrid."""
    end = top + sides
    return (top[..., 0] >= 0) & (top[..., 1] >= 0) & (end[..., 0] <= size) & (end[..., 1] < size)


def _apart(top, sides, other_top, other_sides):
    """Whether two rooms that are not neighbours in the chain do not touch, with MiniGrid's uneven margins."""
    before = top + sides < other_top
    after = other_top + other_sides <= top
    return before[..., 0] | after[..., 0] | before[..., 1] | after[..., 1]


@functools.lru_cache
def success_rate(rooms: int, low: int, high: int, size: int, tries: int = 512) -> float:
    """Share of attempts that place the whole chain, estimated with numpy and a fixed seed."""
    bits = np.random.default_rng(0).integers(0, 2**32, (tries, rooms, TRIES, DRAWS), dtype=np.uint32)
    return float(attempt(bits, rooms=rooms, low=low, high=high, size=size, xp=np).fits.mean())


def check(rooms: int, low: int, high: int, size: int) -> None:
    """Refuses rooms that fit in none of thousands of attempts, and suggests a grid that is large enough."""
    if success_rate(rooms, low, high, size) > 0 or success_rate(rooms, low, high, size, 8192) > 0:
        return
    larger = size
    while success_rate(rooms, low, high, larger) < 0.05:
        larger += 5
    raise UserError(
        f"{rooms} rooms with sides from {low} to {high} do not fit a grid of {size}x{size}: "
        f"none of 8192 attempts succeeded; set grid={larger} or use fewer or smaller rooms"
    )


def sample(key, *, rooms: int, low: int, high: int, size: int) -> Chain:
    """A chain that fits: the first that fits among attempts made in parallel batches."""
    rate = max(success_rate(rooms, low, high, size), 1 / 512)
    parallel = min(64, int(np.ceil(2 / rate)))

    def try_some(state):
        key, _ = state
        key, bits_key = jax.random.split(key)
        # Drawn flat: XLA takes 1.3 s instead of 0.15 s to compile the same draw with four axes.
        bits = jax.random.bits(bits_key, (parallel * rooms * TRIES * DRAWS,), jnp.uint32)
        bits = bits.reshape(parallel, rooms, TRIES, DRAWS)
        tried = attempt(bits, rooms=rooms, low=low, high=high, size=size, xp=jnp)
        first = jnp.argmax(tried.fits)
        return key, jax.tree.map(lambda leaf: leaf[first], tried)

    nowhere = jnp.zeros((rooms, 2), jnp.int32)
    start = (key, Chain(nowhere, nowhere, nowhere, jnp.bool_(False)))
    return jax.lax.while_loop(lambda state: ~state[1].fits, try_some, start)[1]
