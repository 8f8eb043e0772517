"""What a room world can be asked for; everything else is refused with a sentence before anything compiles."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from advsurprise.config import read_value
from advsurprise.errors import UserError, nearest
from advsurprise.grid import chain, tiles

if TYPE_CHECKING:
    from advsurprise.envs.rooms import RoomWorld

MAX_VIEW = 15
"""Widest view: a row must fit one word of the shadow casting with room to spare."""
MAX_GRID = 255
"""Largest grid; a cell's index must stay far below 2³¹ and a layout must stay cheap to draw."""


def check_rooms(world: "RoomWorld") -> None:
    """Raises `UserError` for settings no world can have."""
    check_words(type(world), world.id, {name: getattr(world, name) for name in get_type_hints(type(world))})
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
        (world.key_room < 0 or world.rooms > 1, "a key needs a door, and one room alone has none"),
        (
            3 <= world.view <= MAX_VIEW and world.view % 2 == 1,
            f"view must be odd, from 3 to {MAX_VIEW}, not {world.view}",
        ),
        (world.max_steps >= 1, f"max_steps must be at least 1, not {world.max_steps}"),
    ]
    for holds, sentence in rules:
        if not holds:
            raise UserError(f"{world.id}: {sentence}")
    chain.check(world.rooms, world.min_side, world.max_side, world.grid)


def check_words(world_type: type, id: str, fields: dict[str, Any]) -> None:
    """Every field exists and holds a value of its kind: words one of the known words, numbers numbers."""
    hints = get_type_hints(world_type)
    for name, value in fields.items():
        if name not in hints:
            raise UserError(f"{id} has no field {nearest(name, set(hints) - {'id'})}")
        hint, choices = hints[name], get_args(hints[name])
        if hint in (int, float, bool, str):
            accepted = (int, float) if hint is float else hint
            if not isinstance(value, accepted) or (hint is not bool and isinstance(value, bool)):
                raise UserError(f"{id}: {name} must be a {hint.__name__}, not {value!r}")
        elif name == "kinds":
            unknown = [kind for kind in value if kind not in ("dark", "noisy")]
            if unknown:
                raise UserError(f"{id}: unknown kind of room {nearest(str(unknown[0]), ('dark', 'noisy'))}")
        elif choices and value not in choices:
            raise UserError(f"{id}: unknown {name} {nearest(str(value), choices)}")


def parse(world_type: type, words: Iterable[str]) -> dict[str, Any]:
    """Fields from words like ``rooms=6`` or ``kinds=dark,noisy``, each read as its field's type asks."""
    hints = {name: hint for name, hint in get_type_hints(world_type).items() if name != "id"}
    fields: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise UserError(f"write --set FIELD=VALUE, not {word!r}")
        if name not in hints:
            raise UserError(f"unknown field {nearest(name, hints)}")
        fields[name] = read_value(name, hints[name], value)
    return fields
