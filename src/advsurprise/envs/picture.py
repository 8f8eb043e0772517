"""Pictures of a room world's state."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, UInt8

from advsurprise.envs.rooms import RoomState, RoomWorld
from advsurprise.grid import geometry, lights, render, tiles, view


def draw(world: RoomWorld, state: RoomState, *, tile_size: int = 32) -> UInt8[np.ndarray, "rows columns 3"]:
    """The whole grid with the cells the body sees highlighted, as MiniGrid draws it."""
    codes, seen = (np.asarray(part) for part in _codes_and_seen(world, state))
    x, y = geometry.coordinates(int(state.position), size=world.grid, view=world.view)
    return render.draw(codes, (x, y), int(state.direction), seen, tile_size=tile_size)


def full_codes(world: RoomWorld, state: RoomState) -> UInt8[Array, "size size"]:
    """Tile codes of the whole grid without its padding, with the lights' colours, axes [x, y]."""
    cells = jnp.arange(state.grid.shape[0], dtype=jnp.int32)
    return unpad(world, lights.resolve(state.grid, cells, state.words))


def seen_cells(world: RoomWorld, state: RoomState) -> Bool[Array, "size size"]:
    """Which cells of the grid the body sees, axes [x, y]."""
    cells = geometry.view_cells(state.position, state.direction, size=world.grid, view=world.view)
    seen = view.visible(~tiles.is_opaque(state.grid[cells]), view=world.view)
    return unpad(world, jnp.zeros(state.grid.shape, bool).at[cells].set(seen))


def unpad(world: RoomWorld, flat: Array) -> Array:
    """From a value per cell of the padded grid to axes [x, y] of the grid itself."""
    side, pad = geometry.side(world.grid, world.view), geometry.padding(world.view)
    return flat.reshape(side, side)[pad : pad + world.grid, pad : pad + world.grid].T


@functools.partial(jax.jit, static_argnums=0)
def _codes_and_seen(world: RoomWorld, state: RoomState) -> tuple[Array, Array]:
    return full_codes(world, state), seen_cells(world, state)
