"""Checks the settings of a room world before anything compiles."""

import math
from typing import TYPE_CHECKING, get_type_hints

from advsurprise.envs.world import check_fields
from advsurprise.errors import check
from advsurprise.grid import chain, tiles

if TYPE_CHECKING:
    from advsurprise.envs.rooms import RoomWorld

MAX_VIEW = 15
"""Widest view: a row must fit one word of the shadow casting with room to spare."""
MAX_GRID = 255
"""Largest grid; a cell's index must stay far below 2³¹ and a layout must stay cheap to draw."""


def check_rooms(world: "RoomWorld") -> None:
    """Refuses invalid settings."""
    hints = get_type_hints(type(world))
    check_fields(world.id, hints, {name: getattr(world, name) for name in hints})
    rules = [
        (1 <= world.rooms <= tiles.MAX_ROOMS, f"rooms must be 1 to {tiles.MAX_ROOMS}, not {world.rooms}"),
        (world.min_side >= 4, f"min_side counts the walls and must be at least 4, not {world.min_side}"),
        (
            world.max_side >= world.min_side,
            f"max_side must be at least min_side ({world.min_side}), not {world.max_side}",
        ),
        (
            world.max_side < world.grid <= MAX_GRID,
            f"grid must be larger than max_side ({world.max_side}) and at most {MAX_GRID}, not {world.grid}",
        ),
        (
            min(world.dark, world.noisy) >= 0 and math.isclose(world.dark + world.noisy, 1, abs_tol=1e-6),
            f"dark and noisy are probabilities and must add up to 1, not {world.dark} + {world.noisy}",
        ),
        (
            len(world.kinds) in (0, world.rooms),
            f"kinds must name all {world.rooms} rooms or none, not {len(world.kinds)}",
        ),
        (0 <= world.ball_density <= 1, f"ball_density must be 0 to 1, not {world.ball_density}"),
        (
            -1 <= world.key_room < world.rooms,
            f"key_room must be a room from 0 to {world.rooms - 1}, or -1 for no key, not {world.key_room}",
        ),
        (world.key_room < 0 or world.rooms > 1, "key_room needs a door, and a single room has none"),
        (
            3 <= world.view <= MAX_VIEW and world.view % 2 == 1,
            f"view must be odd, from 3 to {MAX_VIEW}, not {world.view}",
        ),
        (world.max_steps >= 1, f"max_steps must be at least 1, not {world.max_steps}"),
    ]
    check(rules, subject=world.id)
    chain.check(world.rooms, world.min_side, world.max_side, world.grid)
