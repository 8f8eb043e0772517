"""Reads the states of room worlds for the theory."""

from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from advsurprise.envs.reader import RANDOM, Read, Reader
from advsurprise.envs.room_state import RoomState
from advsurprise.errors import UserError
from advsurprise.grid import geometry, tiles, view

if TYPE_CHECKING:
    from advsurprise.envs.rooms import RoomWorld

FACING = (">", "v", "<", "^")


class RoomReader(Reader):
    """Reads a room world with lights: grid, body and stilled rooms, but not clock, counters or colours.

    A stilled room keeps the colours it has at that moment. They do not affect what can happen, so they are left
    out, and lights that do not flash count as deterministic.
    """

    choices = tiles.NUM_COLOURS

    def __init__(self, env: "RoomWorld"):
        if env.noise != "lights":
            raise UserError(
                "cannot enumerate a world with balls, whose positions are part of the state: set noise=lights"
            )
        self.env = env

    def read(self, state: RoomState) -> Read:
        body = [state.position, state.direction, state.carried]
        body = jnp.stack([part.astype(jnp.int32) for part in body])
        stilled = state.stilled.astype(jnp.int32)
        identity = jnp.concatenate([body, stilled, state.grid.astype(jnp.int32)])
        codes = _codes_in_view(self.env, state)
        flashing = tiles.is_light(codes) & ~state.stilled[jnp.clip(codes - tiles.LIGHT, 0, self.env.rooms - 1)]
        classes = jnp.asarray(tiles.CLASS_OF)[codes].astype(jnp.int32)
        return Read(identity, jnp.where(flashing, RANDOM, classes))

    def name(self, state: RoomState) -> str:
        x, y = geometry.coordinates(int(state.position), size=self.env.grid, view=self.env.view)
        doors = state.grid[state.doors]
        parts = [f"({x},{y}){FACING[int(state.direction)]}"]
        parts += [f"door {_door(int(code))}" for code in doors]
        parts += [f"room {room} still" for room in np.flatnonzero(state.stilled)]
        parts += ["carrying"] if int(state.carried) != tiles.EMPTY else []
        return " ".join(parts)


def _codes_in_view(env: "RoomWorld", state: RoomState) -> Int[Array, " cells"]:
    """Tile codes in view before lights get their colours, as `grid.view.look` sees them."""
    cells = geometry.view_cells(state.position, state.direction, size=env.grid, view=env.view)
    codes = state.grid[cells]
    lit = view.visible(~tiles.is_opaque(codes), view=env.view)
    own = jnp.arange(env.view**2) == (env.view // 2) * env.view + env.view - 1
    shown = jnp.where(own, state.carried, jnp.where(lit, codes, jnp.uint8(tiles.UNSEEN)))
    return shown.astype(jnp.int32)


def _door(code: int) -> str:
    return "open" if tiles.is_open_door(code) else "locked" if tiles.is_locked_door(code) else "shut"
