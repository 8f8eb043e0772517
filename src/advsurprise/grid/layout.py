"""Turns a chain of rooms into a grid with doors, lights, boxes, switches, keys, balls and the body."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, UInt8, UInt32

from advsurprise.grid import balls, geometry, tiles
from advsurprise.grid.chain import Chain
from advsurprise.grid.lights import below

BODY, CONTROL, RESTART, KEY = range(4)
"""Things that need a separate cell in a room, by their index in `slots`."""
NUM_SLOTS = 4
NOWHERE = 0
"""A corner of the padding: writing a wall there changes nothing, so absent objects are put here."""


class Objects(eqx.Module):
    """Objects to put on the grid; absent ones are walls at `NOWHERE`."""

    cells: Int[Array, " objects"]
    codes: UInt8[Array, " objects"]


def paint(chain: Chain, fill: UInt8[Array, " rooms"], *, size: int, view: int) -> UInt8[Array, " cells"]:
    """Walls of every room, its inside filled with `fill`, empty between rooms, walls in the padding."""
    x, y = (jnp.asarray(axis) for axis in geometry.all_coordinates(size, view))
    grid = jnp.where(geometry.interior(size, view), jnp.uint8(tiles.EMPTY), jnp.uint8(tiles.WALL))
    for room in range(fill.shape[0]):
        right, down = x - chain.top[room, 0], y - chain.top[room, 1]
        width, height = chain.side[room, 0], chain.side[room, 1]
        inside = (right >= 0) & (right < width) & (down >= 0) & (down < height)
        edge = (right == 0) | (right == width - 1) | (down == 0) | (down == height - 1)
        grid = jnp.where(inside, jnp.where(edge, jnp.uint8(tiles.WALL), fill[room]), grid)
    return grid


def put(grid: UInt8[Array, " cells"], objects: list[Objects]) -> UInt8[Array, " cells"]:
    """Writes objects onto the grid."""
    cells = jnp.concatenate([each.cells for each in objects])
    codes = jnp.concatenate([each.codes for each in objects])
    return grid.at[cells].set(codes)


def where_present(present: Bool[Array, " n"], cells: Int[Array, " n"], codes: Int[Array, " n"]) -> Objects:
    """Objects of which only some are present."""
    return Objects(jnp.where(present, cells, NOWHERE), jnp.where(present, codes, tiles.WALL).astype(jnp.uint8))


def floor_area(chain: Chain) -> Int[Array, " rooms"]:
    """Cells inside each room's walls."""
    return (chain.side[:, 0] - 2) * (chain.side[:, 1] - 2)


def floor_cell(chain: Chain, number: Int[Array, "rooms *n"], *, size: int, view: int) -> Int[Array, "rooms *n"]:
    """Flat index of the `number`-th cell inside each room, counted row by row."""
    shape = (-1,) + (1,) * (number.ndim - 1)
    width = (chain.side[:, 0] - 2).reshape(shape)
    x = chain.top[:, 0].reshape(shape) + 1 + number % width
    y = chain.top[:, 1].reshape(shape) + 1 + number // width
    return geometry.cell(x, y, size=size, view=view)


def slots(bits: UInt32[Array, "rooms slots"], area: Int[Array, " rooms"]) -> Int[Array, "rooms slots"]:
    """Distinct uniform cells of each room: the first swaps of a shuffle of 0 … area − 1."""
    moved: list[tuple[Array, Array]] = []

    def at(place):
        number = place
        for where, what in moved:
            number = jnp.where(place == where, what, number)
        return number

    chosen = []
    for index in range(bits.shape[1]):
        other = index + below(bits[:, index], (area - index).astype(jnp.uint32)).astype(jnp.int32)
        chosen.append(at(other))
        moved.append((other, at(jnp.full_like(other, index))))
    return jnp.stack(chosen, axis=1)


def door_colours(bits: UInt32[Array, " doors"]) -> Int[Array, " doors"]:
    """Colours of the doors along the chain, each uniform over those the door before does not have."""
    colours = [below(bits[0], jnp.uint32(tiles.NUM_COLOURS)).astype(jnp.int32)]
    for word in bits[1:]:
        step = 1 + below(word, jnp.uint32(tiles.NUM_COLOURS - 1)).astype(jnp.int32)
        colours.append((colours[-1] + step) % tiles.NUM_COLOURS)
    return jnp.stack(colours)


def scatter_balls(
    chain: Chain,
    taken: Int[Array, "rooms slots"],
    noisy: Bool[Array, " rooms"],
    *,
    density: float,
    high: int,
    size: int,
    view: int,
    key: Array,
) -> Objects:
    """Balls of random colours on distinct free cells of the noisy rooms; cells are `ABSENT` where there is none."""
    order_key, colour_key = jax.random.split(key)
    rooms, most = chain.side.shape[0], (high - 2) ** 2
    area = floor_area(chain)[:, None]
    number = jnp.broadcast_to(jnp.arange(most), (rooms, most))
    free = (number < area) & (number[:, :, None] != taken[:, None, :]).all(-1)
    order = jnp.argsort(jnp.where(free, jax.random.uniform(order_key, (rooms, most)), 2.0), axis=-1)
    wanted = (density * area.astype(jnp.float32)).astype(jnp.int32)
    count = jnp.minimum(wanted, area - taken.shape[1])
    present = ((number < count) & noisy[:, None]).reshape(-1)
    colour = jax.random.randint(colour_key, (rooms, most), 0, tiles.NUM_COLOURS)
    codes = tiles.ball(jnp.arange(rooms)[:, None], colour).reshape(-1)
    cells = floor_cell(chain, order, size=size, view=view).reshape(-1)
    return Objects(jnp.where(present, cells, balls.ABSENT), jnp.where(present, codes, tiles.WALL).astype(jnp.uint8))


def num_bits(rooms: int) -> int:
    """Number of random words for a layout of `rooms` rooms."""
    return rooms * (3 + NUM_SLOTS) + 1


def name_bits(bits: UInt32[Array, " n"], rooms: int) -> dict[str, Array]:
    """Splits one draw of random words by use."""
    kinds, doors, boxes, rest = (
        bits[:rooms],
        bits[rooms : 2 * rooms],
        bits[2 * rooms : 3 * rooms],
        bits[3 * rooms :],
    )
    slots = rest[: rooms * NUM_SLOTS].reshape(rooms, NUM_SLOTS)
    return {"kinds": kinds, "doors": doors, "boxes": boxes, "slots": slots, "direction": rest[-1:]}
