"""What the seven actions do to the body and to the cell in front of it, with MiniGrid's rules.

Two rules are ours: toggling a closed door with its key in hand locks it, and switches.
"""

import enum

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, UInt8

from advsurprise.grid import tiles


class Action(enum.IntEnum):
    """MiniGrid's actions."""

    LEFT = 0
    RIGHT = 1
    FORWARD = 2
    PICKUP = 3
    DROP = 4
    TOGGLE = 5
    DONE = 6


NUM_ACTIONS = len(Action)
NO_ROOM = -1


class Effect(eqx.Module):
    """Effect of an action."""

    turn: Int[Array, ""]
    """Quarter turns to add to the direction."""
    moves: Bool[Array, ""]
    """Whether the body steps into the cell in front."""
    front: UInt8[Array, ""]
    """New code of the cell in front."""
    carried: UInt8[Array, ""]
    """New code of what the body carries, `EMPTY` for nothing."""
    stills: Int[Array, ""]
    """Room whose noise it stops, or `NO_ROOM`."""
    starts: Int[Array, ""]
    """Room whose noise it starts again, or `NO_ROOM`."""


def act(action: Int[Array, ""], front: UInt8[Array, ""], carried: UInt8[Array, ""], *, fixed_boxes: bool) -> Effect:
    """Effect of `action` on a body that faces a cell with code `front` and carries `carried`."""
    picks = (action == Action.PICKUP) & is_portable(front, fixed_boxes=fixed_boxes) & (carried == tiles.EMPTY)
    drops = (action == Action.DROP) & (front == tiles.EMPTY)
    toggles = action == Action.TOGGLE
    empty = jnp.uint8(tiles.EMPTY)
    left_behind = jnp.where(picks, empty, jnp.where(drops, carried, front))
    code = front.astype(jnp.int32)
    opens_box = toggles & tiles.is_box(code)
    stops = toggles & (code >= tiles.STOP_SWITCH) & (code < tiles.START_SWITCH)
    starts = toggles & (code >= tiles.START_SWITCH) & (code < tiles.BOX)
    stilled = jnp.where(opens_box, (code - tiles.BOX) // tiles.NUM_COLOURS, code - tiles.STOP_SWITCH)
    return Effect(
        turn=jnp.where(action == Action.LEFT, 3, jnp.where(action == Action.RIGHT, 1, 0)).astype(jnp.int32),
        moves=(action == Action.FORWARD) & tiles.is_walkable(front),
        front=jnp.where(toggles, toggled(front, carried), left_behind),
        carried=jnp.where(picks, front, jnp.where(drops, empty, carried)),
        stills=jnp.where(opens_box | stops, stilled, NO_ROOM),
        starts=jnp.where(starts, code - tiles.START_SWITCH, NO_ROOM),
    )


def is_portable(code: UInt8[Array, ""], *, fixed_boxes: bool) -> Bool[Array, ""]:
    """Whether the body can pick it up: keys, balls and, unless they are fixed, boxes."""
    portable = tiles.is_key(code) | tiles.is_ball(code)
    return portable if fixed_boxes else portable | tiles.is_box(code)


def toggled(front: UInt8[Array, ""], carried: UInt8[Array, ""]) -> UInt8[Array, ""]:
    """The code that `toggle` leaves in front: doors change state, boxes vanish, all else stays.

    Doors: open → closed; closed → open, or → locked with its key in hand; locked → open with its key, else no change.
    """
    code, hand = front.astype(jnp.int32), carried.astype(jnp.int32)
    colour = (code - tiles.DOOR) % tiles.NUM_COLOURS
    has_key = hand == tiles.KEY + colour
    closes = tiles.is_open_door(code)
    locks = tiles.is_closed_door(code) & has_key
    opens = (tiles.is_closed_door(code) & ~has_key) | (tiles.is_locked_door(code) & has_key)
    after = jnp.where(closes, tiles.door(tiles.CLOSED, colour), code)
    after = jnp.where(locks, tiles.door(tiles.LOCKED, colour), after)
    after = jnp.where(opens, tiles.door(tiles.OPEN, colour), after)
    return jnp.where(tiles.is_box(code), tiles.EMPTY, after).astype(jnp.uint8)
