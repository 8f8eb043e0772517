"""The state of a room world, and its measures."""

from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt8, UInt32

from advsurprise.types import Measure

MEASURES = (
    Measure("rooms_episode", "rooms visited per episode", short="rooms", shown=True),
    Measure("rooms_life", "rooms visited in the body's life", short="life"),
    Measure("noisy_rooms", "noisy rooms in the layout"),
    Measure("stilled", "noisy rooms stilled", short="stilled", only_where="noisy_rooms", shown=True, at_handover=True),
    Measure("uses", "boxes or switches used per episode", short="uses", shown=True),
    Measure("restarts", "times noise was started again per episode"),
    Measure("dark_steps", "steps in dark rooms per episode", short="dark", shown=True),
    Measure("in_dark", "in a dark room", at_handover=True),
    Measure("doors_closed", "doors closed", short="closed", shown=True, at_handover=True),
    Measure("doors_locked", "doors locked", short="locked", shown=True, at_handover=True),
    Measure("shut_in", "in a dark room with every door closed", at_handover=True),
    Measure("locked_in", "in a dark room with every door locked", at_handover=True),
    Measure("room", "room the body is in", at_handover=True),
    Measure("x", "column of the body"),
    Measure("y", "row of the body"),
    Measure("direction", "direction the body faces"),
)

Reward = Literal["none", "rooms", "stilled", "both"]
"""What a world of rooms rewards."""


class RoomState(eqx.Module):
    """State of one body's world. Rooms are numbered along the chain from 0."""

    grid: UInt8[Array, " cells"]
    """Tile codes of the padded grid, flat."""
    position: Int[Array, ""]
    """The body's cell, as a flat index."""
    direction: Int[Array, ""]
    """0 right, 1 down, 2 left, 3 up."""
    carried: UInt8[Array, ""]
    """Code of the carried object, `EMPTY` for none."""
    time: Int[Array, ""]
    """Steps taken in this episode."""
    top: Int[Array, "rooms 2"]
    """Upper left corner (x, y) of each room, walls included."""
    side: Int[Array, "rooms 2"]
    """Width and height of each room, walls included."""
    doors: Int[Array, " doors"]
    """Cells of the doors; door i joins rooms i and i + 1."""
    balls: Int[Array, " balls"]
    """Cells of the balls."""
    noisy: Bool[Array, " rooms"]
    """Which rooms are noisy."""
    stilled: Bool[Array, " rooms"]
    """Which noisy rooms have been stilled."""
    words: UInt32[Array, " rooms"]
    """The word that determines the colours of a room's lights."""
    visited: Bool[Array, " rooms"]
    """Rooms the body has visited in this episode."""
    visited_life: Bool[Array, " rooms"]
    """Rooms the body has ever visited."""
    uses: Int[Array, ""]
    """Times noise was stopped in this episode."""
    restarts: Int[Array, ""]
    """Times noise was started again in this episode."""
    dark_steps: Int[Array, ""]
    """Steps of this episode that ended in a dark room."""


COUNTED = ("visited", "visited_life", "uses", "restarts", "dark_steps")
"""Counters of the episode and of the body's life, which rewinding keeps."""


def reward_between(of: Reward, before: RoomState, after: RoomState) -> Float[Array, ""]:
    """`rooms`: 1 for a room that is new in the episode; `stilled`: 1 for stilling a room, -1 for starting its noise
    again; `both`: their sum."""
    counted = {"none": (), "rooms": ("visited",), "stilled": ("stilled",), "both": ("visited", "stilled")}[of]
    gained = jnp.float32(0)
    for name in counted:
        now, was = (jnp.sum(getattr(state, name), dtype=jnp.float32) for state in (after, before))
        gained += now - was
    return gained


def share(holds: Bool[Array, " n"]) -> Float[Array, ""]:
    """Fraction of entries that are true; 0 if there are none."""
    return jnp.sum(holds, dtype=jnp.float32) / max(holds.shape[0], 1)
