"""Cells as flat indices of a grid padded with walls, directions as strides.

The padding is as wide as the view is long, so that looking over the edge reads a wall and needs no bounds check.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

DIRECTIONS = ((1, 0), (0, 1), (-1, 0), (0, -1))
"""(dx, dy) of MiniGrid's directions: right, down, left, up."""


def padding(view: int) -> int:
    """How far a view of side `view` can look over the edge."""
    return view - 1


def side(size: int, view: int) -> int:
    """Side of the padded grid."""
    return size + 2 * padding(view)


def cell(x, y, *, size: int, view: int):
    """Flat index of column x, row y of the unpadded grid."""
    return (y + padding(view)) * side(size, view) + x + padding(view)


def coordinates(index, *, size: int, view: int):
    """Column and row of a flat index: the inverse of `cell`."""
    row, column = index // side(size, view), index % side(size, view)
    return column - padding(view), row - padding(view)


def all_coordinates(size: int, view: int) -> tuple[Int[np.ndarray, " cells"], Int[np.ndarray, " cells"]]:
    """Column and row of every cell, negative or beyond the size in the padding."""
    x, y = coordinates(np.arange(side(size, view) ** 2, dtype=np.int32), size=size, view=view)
    return x, y


def interior(size: int, view: int) -> Bool[np.ndarray, " cells"]:
    """Which cells are not padding."""
    x, y = all_coordinates(size, view)
    return (x >= 0) & (x < size) & (y >= 0) & (y < size)


def stride(direction: Int[Array, ""], *, size: int, view: int) -> Int[Array, ""]:
    """What to add to a flat index to go one cell in `direction` (taken modulo 4)."""
    strides = jnp.asarray([dx + dy * side(size, view) for dx, dy in DIRECTIONS], jnp.int32)
    return strides[direction % 4]


def view_cells(
    position: Int[Array, ""], direction: Int[Array, ""], *, size: int, view: int
) -> Int[Array, " {view*view}"]:
    """Flat indices of the cells of the egocentric view, in MiniGrid's order: [column, row], flattened.

    The body stands in the middle column of the last row and looks towards row 0:
    cell(i, j) = position + (view − 1 − j)·forward + (i − ⌊view/2⌋)·right.
    """
    column, row = (np.indices((view, view), dtype=np.int32) - np.array([view // 2, view - 1])[:, None, None]).reshape(
        2, -1
    )
    forward = stride(direction, size=size, view=view)
    right = stride(direction + 1, size=size, view=view)
    return position - jnp.asarray(row, jnp.int32) * forward + jnp.asarray(column, jnp.int32) * right
