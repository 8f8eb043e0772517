"""The view against MiniGrid's own slicing, rotating and shadow casting."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from minigrid.core.grid import Grid
from minigrid.core.world_object import Wall

from advsurprise.grid import geometry, tiles, view


@pytest.mark.parametrize("size", [3, 5, 7, 9])
def test_shadow_casting_equals_minigrids(size):
    rng = np.random.default_rng(size)
    densities = rng.uniform(0.05, 0.8, 1500)
    opaque = rng.random((1500, size, size)) < densities[:, None, None]
    # The body's own cell can be seen through: it never stands in a wall.
    opaque[:, size // 2, size - 1] = False
    seen = jax.vmap(lambda clear: view.visible(clear, view=size))(~opaque.reshape(1500, -1))
    for walls, ours in zip(opaque, np.asarray(seen), strict=True):
        grid = Grid(size, size)
        for x, y in zip(*np.nonzero(walls), strict=True):
            grid.set(x, y, Wall())
        theirs = grid.process_vis(agent_pos=(size // 2, size - 1))
        np.testing.assert_array_equal(ours.reshape(size, size), theirs)


@pytest.mark.parametrize("size", [5, 7])
@pytest.mark.parametrize("direction", range(4))
def test_view_cells_equal_minigrids_slice_and_rotation(size, direction):
    width = 12
    x, y = 4, 7
    grid = Grid(width, width)
    # MiniGrid rotates whatever its cells hold: let them hold their own coordinates.
    grid.grid = [(i % width, i // width) for i in range(width * width)]
    left = {0: x, 1: x - size // 2, 2: x - size + 1, 3: x - size // 2}[direction]
    top = {0: y - size // 2, 1: y, 2: y - size // 2, 3: y - size + 1}[direction]
    part = grid.slice(left, top, size, size)
    for _ in range(direction + 1):
        part = part.rotate_left()
    position = jnp.int32(geometry.cell(x, y, size=width, view=size))
    cells = geometry.view_cells(position, jnp.int32(direction), size=width, view=size)
    columns, rows = geometry.coordinates(np.asarray(cells), size=width, view=size)
    for index, (column, row) in enumerate(zip(columns, rows, strict=True)):
        theirs = part.get(index // size, index % size)
        inside = 0 <= column < width and 0 <= row < width
        assert theirs == (column, row) if inside else isinstance(theirs, Wall)


@pytest.mark.slow
def test_hidden_cells_are_unseen_and_the_carried_thing_shows_in_the_own_cell():
    size, side = 5, 9
    grid = np.full((side, side), tiles.WALL, np.uint8)
    grid[1:-1, 1:-1] = tiles.EMPTY
    grid[3, :] = tiles.WALL
    padded = np.full((side + 2 * (size - 1),) * 2, tiles.WALL, np.uint8)
    padded[size - 1 : size - 1 + side, size - 1 : size - 1 + side] = grid
    position = jnp.int32(geometry.cell(4, 5, size=side, view=size))
    key = jnp.uint8(tiles.KEY + 2)
    words = jnp.zeros(1, jnp.uint32)
    codes = view.look(jnp.asarray(padded.ravel()), position, jnp.int32(3), key, words, size=side, view=size)
    image = np.asarray(view.symbolic(codes, view=size))
    assert tuple(image[2, 4]) == (5, 2, 0)
    # Two rows ahead is the wall at y = 3; what is behind it is hidden.
    assert (image[:, 2, 0] == 2).all()
    assert (image[:, :2] == 0).all()
    compact = np.asarray(view.compact(codes, view=size))
    assert tiles.CLASSES[compact[2, 4]] == "key"
    assert tiles.CLASSES[compact[0, 0]] == "unseen"


def test_compact_is_a_function_of_the_symbols_and_distinguishes_flashing_colours():
    by_symbol = {}
    resolved = [code for code in range(tiles.NUM_CODES) if not tiles.is_light(code)]
    for code in resolved:
        by_symbol.setdefault(tuple(tiles.SYMBOL_OF[code]), set()).add(int(tiles.CLASS_OF[code]))
    assert all(len(classes) == 1 for classes in by_symbol.values())
    floors = tiles.CLASS_OF[tiles.FLOOR :]
    assert len(set(floors.tolist())) == tiles.NUM_COLOURS
    assert len({c for classes in by_symbol.values() for c in classes}) == tiles.NUM_CLASSES
