"""What the body sees: MiniGrid's egocentric, occluded view."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt8, UInt32

from advsurprise.grid import geometry, lights, tiles


def visible(transparent: Bool[Array, " {view*view}"], *, view: int) -> Bool[Array, " {view*view}"]:
    """MiniGrid's shadow casting, a row of the view at a time, each row a word with a bit per column.

    Rows are visited from the body's own upwards. In a row, light first runs to the right and then to the left
    through transparent cells; every transparent cell it reaches (except the last column in the first pass and the
    first in the second) lights the cell above it and the one above next in the direction of travel.
    """
    columns = jnp.asarray(1 << np.arange(view), jnp.int32)
    rows = jnp.sum(jnp.where(transparent.reshape(view, view), columns[:, None], 0), axis=0, dtype=jnp.int32)
    reached = jnp.int32(1 << (view // 2))
    lit = [reached] * view
    for row in reversed(range(view)):
        lit[row], reached = _cast_row(reached, rows[row], view=view)
    return _unpack(lit, view=view)


def _unpack(lit: list[Int[Array, ""]], *, view: int) -> Bool[Array, " {view*view}"]:
    """The bits of all rows by cell, axes [column, row], flattened.

    As many rows share a word as fit. The remainder changes no word, since all are below 2³¹. It is there for XLA on a
    CPU, which would otherwise repeat the shadow casting for every cell, but does not recompute a division.
    """
    together = 31 // view
    groups = [lit[row : row + together] for row in range(0, view, together)]
    words = jnp.stack([_join(group, view=view) for group in groups])
    words = jax.lax.rem(words, jnp.full_like(words, 2**32 - 1))
    column, row = np.indices((view, view), dtype=np.uint32).reshape(2, -1)
    word = words[0]
    for group in range(1, len(groups)):
        word = jnp.where(jnp.asarray(row // together == group), words[group], word)
    return (word >> jnp.asarray(row % together * view + column)) & 1 == 1


def _join(rows: list[Int[Array, ""]], *, view: int) -> UInt32[Array, ""]:
    """Rows of bits in one word, the first lowest."""
    word = jnp.uint32(0)
    for place, row in enumerate(rows):
        word = word | (row.astype(jnp.uint32) << (place * view))
    return word


def _cast_row(reached: Int[Array, ""], clear: Int[Array, ""], *, view: int) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """One row: which cells are lit, and which cells of the row above are reached from it."""
    full, last, first = (1 << view) - 1, 1 << (view - 1), 1
    going_right = _run(reached & clear & ~last, clear & ~last, left=False, view=view)
    lit = (reached | (going_right << 1)) & full
    going_left = _run(lit & clear & ~first, clear & ~first, left=True, view=view)
    above = going_right | (going_right << 1) | going_left | (going_left >> 1)
    return lit | (going_left >> 1), above & full


def _run(start: Int[Array, ""], clear: Int[Array, ""], *, left: bool, view: int) -> Int[Array, ""]:
    """Bits that `start` reaches by moving one way through `clear`, in logarithmically many steps."""
    distance = 1
    while distance < view:
        start = start | (clear & (start >> distance if left else start << distance))
        clear = clear & (clear >> distance if left else clear << distance)
        distance *= 2
    return start


def look(
    grid: UInt8[Array, " cells"],
    position: Int[Array, ""],
    direction: Int[Array, ""],
    carried: UInt8[Array, ""],
    words: UInt32[Array, " rooms"],
    *,
    size: int,
    view: int,
) -> UInt8[Array, " {view*view}"]:
    """Codes of the cells in view; unseen where hidden, the carried object (else empty) in the body's own cell."""
    cells = geometry.view_cells(position, direction, size=size, view=view)
    codes = grid[cells]
    seen = visible(~tiles.is_opaque(codes), view=view)
    codes = lights.resolve(codes, cells, words)
    own = jnp.arange(view * view) == (view // 2) * view + view - 1
    return jnp.where(own, carried, jnp.where(seen, codes, jnp.uint8(tiles.UNSEEN)))


def compact(
    codes: UInt8[Array, " {view*view}"], classes: tuple[str, ...] = tiles.CLASSES, *, view: int
) -> UInt8[Array, "view view"]:
    """One class per cell, numbered as in `classes`, axes [column, row] as in MiniGrid."""
    number = np.array([classes.index(name) if name in classes else 0 for name in tiles.CLASSES], np.uint8)
    return jnp.asarray(number[tiles.CLASS_OF])[codes].reshape(view, view)


def symbolic(codes: UInt8[Array, " {view*view}"], *, view: int) -> UInt8[Array, "view view 3"]:
    """MiniGrid's (type, colour, state) per cell, axes [column, row, channel]."""
    return jnp.asarray(tiles.SYMBOL_OF)[codes].reshape(view, view, 3)
