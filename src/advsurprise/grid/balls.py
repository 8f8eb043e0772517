"""Wandering balls: each tries one random neighbouring cell per step and moves there if it is empty."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, UInt8, UInt32

from advsurprise.grid import geometry, tiles

ABSENT = -1
"""Cell of a ball that is not on the grid: never placed, or carried."""


def wander(
    grid: UInt8[Array, " cells"],
    balls: Int[Array, " balls"],
    stilled: Bool[Array, " rooms"],
    body: Int[Array, ""],
    bits: UInt32[Array, " balls"],
    *,
    size: int,
    view: int,
) -> tuple[UInt8[Array, " cells"], Int[Array, " balls"]]:
    """Moves every ball of a room that is not stilled, one after the other; never onto the body."""

    def move(number: Int[Array, ""], state):
        grid, balls = state
        here = balls[number]
        direction = (bits[number] >> 30).astype(jnp.int32)
        there = here + geometry.stride(direction, size=size, view=view)
        code = grid[here]
        room = (code.astype(jnp.int32) - tiles.BALL) // tiles.NUM_COLOURS
        goes = (here != ABSENT) & ~stilled[room] & (grid[there] == tiles.EMPTY) & (there != body)
        grid = grid.at[here].set(jnp.where(goes, jnp.uint8(tiles.EMPTY), code))
        grid = grid.at[there].set(jnp.where(goes, code, grid[there]))
        return grid, balls.at[number].set(jnp.where(goes, there, here))

    return jax.lax.fori_loop(0, balls.shape[0], move, (grid, balls))


def picked_or_dropped(
    balls: Int[Array, " balls"], front: Int[Array, ""], before: UInt8[Array, ""], after: UInt8[Array, ""]
) -> Int[Array, " balls"]:
    """Updates the cells of the balls after the cell `front` changed from `before` to `after`."""
    removed = tiles.is_ball(before) & ~tiles.is_ball(after)
    placed = tiles.is_ball(after) & ~tiles.is_ball(before)
    balls = jnp.where(removed & (balls == front), ABSENT, balls)
    first_free = jnp.argmax(balls == ABSENT)
    return balls.at[first_free].set(jnp.where(placed, front, balls[first_free]))
