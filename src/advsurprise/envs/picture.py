"""Pictures of a room world's state."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Shaped, UInt8

from advsurprise.envs.base import Scene
from advsurprise.envs.rooms import RoomState, RoomWorld
from advsurprise.grid import geometry, lights, render, tiles, view

COLOURLESS = tiles.COLOURS.index("grey")
"""Colour of objects whose colour a body does not see."""
UNSEEN = "#2a2f37"
"""Colour of unseen cells; MiniGrid draws them as if they were empty."""
DOORS = ("open door", "closed door", "locked door")
"""Classes of doors, by state."""
FLOORS = tiles.CLASSES[tiles.FIRST_FLOOR_CLASS :]
"""Classes of floors, by colour."""


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
    """Reshapes a value per cell of the padded grid to axes [x, y] of the grid itself."""
    side, pad = geometry.side(world.grid, world.view), geometry.padding(world.view)
    return flat.reshape(side, side)[pad : pad + world.grid, pad : pad + world.grid].T


def scene(world: RoomWorld, state: RoomState) -> Scene:
    """The whole grid and the body in it; cells outside all rooms are drawn as unseen, not as empty."""
    x, y = geometry.coordinates(state.position, size=world.grid, view=world.view)
    codes = jnp.where(in_rooms(world, state), full_codes(world, state), jnp.uint8(tiles.UNSEEN))
    return Scene(codes, seen_cells(world, state), x, y, state.direction, state.carried)


def in_rooms(world: RoomWorld, state: RoomState) -> Bool[Array, "size size"]:
    """Cells that belong to a room, walls included, axes [x, y]."""
    line = jnp.arange(world.grid)
    across, down = (
        (line >= low) & (line < low + side)
        for low, side in zip(state.top.T[..., None], state.side.T[..., None], strict=True)
    )
    return jnp.any(across[:, :, None] & down[:, None, :], axis=0)


@functools.cache
def tile_shapes() -> tuple[tuple[Any, ...], ...]:
    """Name and shapes of every tile code."""
    drawn = [(tiles.CLASSES[tiles.CLASS_OF[code]], *render.shapes(code)) for code in range(tiles.NUM_CODES)]
    drawn[tiles.UNSEEN] = ("unseen", ("r", 0, 1, 0, 1, UNSEEN))
    return tuple(drawn)


def tiles_of(world: RoomWorld, obs: Shaped[np.ndarray, "*n"]) -> UInt8[np.ndarray, "..."]:
    """A tile for every cell of a view: the first that looks like its class or symbol."""
    if world.encoding == "symbolic":
        first = {tuple(symbol): code for code, symbol in reversed(list(enumerate(tiles.SYMBOL_OF.tolist())))}
        flat = [first.get(tuple(symbol), tiles.UNSEEN) for symbol in obs.reshape(-1, 3).tolist()]
        return np.asarray(flat, np.uint8).reshape(obs.shape[:-1])
    return np.asarray([_tile_of_class(world, name) for name in world.classes], np.uint8)[obs]


def _tile_of_class(world: RoomWorld, name: str) -> int:
    """The tile that shows a class. Doors, keys and boxes are drawn in grey, since classes leave out their colour."""
    if name in DOORS:
        return tiles.door(DOORS.index(name), COLOURLESS)
    if name in FLOORS:
        return tiles.FLOOR + FLOORS.index(name)
    if name == "box or stop switch":
        return tiles.STOP_SWITCH if world.control == "switch" else tiles.box(0, COLOURLESS)
    first = tiles.CLASS_OF.tolist().index(tiles.CLASSES.index(name))
    return first + COLOURLESS if name in ("key", "ball") else first


@functools.partial(jax.jit, static_argnums=0)
def _codes_and_seen(world: RoomWorld, state: RoomState) -> tuple[Array, Array]:
    return full_codes(world, state), seen_cells(world, state)
