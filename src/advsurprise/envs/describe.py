"""What the worlds are, for the command line."""

import pathlib
from collections.abc import Iterable
from typing import Any

import jax

from advsurprise.envs import list_envs, make
from advsurprise.envs.registration import IDS
from advsurprise.envs.rooms import RoomWorld, field_names
from advsurprise.envs.settings import parse
from advsurprise.errors import UserError
from advsurprise.grid.actions import Action


def listing() -> dict[str, Any]:
    """Every world in one line."""
    gymnasium_ids = {world: id for id, world in IDS.items()}
    return {
        "envs": [
            {"id": id, "description": description, "gymnasium": gymnasium_ids.get(id)}
            for id, description in list_envs().items()
        ]
    }


def listing_text(found: dict[str, Any]) -> str:
    """The list for a person."""
    lines = [f"{env['id']:14}{env['description']}" for env in found["envs"]]
    return "\n".join([*lines, "", "More of one: advsurprise envs rooms/four --png four.png"])


def card(world: str, *, settings: Iterable[str], png: pathlib.Path | None, seed: int) -> dict[str, Any]:
    """All about one world; with `png`, also a picture of one of its layouts."""
    env = make(world, **parse(RoomWorld, settings)) if world in list_envs() else make(world)
    spec = env.spec
    if png is not None:
        _write_png(env, png, seed)
    return {
        "id": spec.id,
        "description": list_envs()[world],
        "observation": {
            "shape": spec.observation_shape,
            "dtype": spec.observation_dtype,
            "kind": spec.observation_kind,
        },
        "num_classes": spec.num_classes,
        "classes": env.classes if isinstance(env, RoomWorld) and env.encoding != "symbolic" else None,
        "actions": [action.name.lower() for action in Action],
        "max_steps": spec.max_steps,
        "info": spec.info,
        "fields": {name: getattr(env, name) for name in field_names()},
        "png": None if png is None else str(png),
    }


def card_text(card: dict[str, Any]) -> str:
    """The card for a person."""
    observation = card["observation"]
    lines = [
        f"{card['id']}: {card['description']}",
        f"  sees     {observation['shape']} {observation['dtype']}, {card['num_classes']} {observation['kind']}",
        f"  does     {', '.join(card['actions'])}",
        f"  lasts    {card['max_steps']} steps",
        f"  measures {', '.join(card['info'])}",
        "  fields   (change with --set FIELD=VALUE)",
        *(f"    {name} = {value!r}" for name, value in card["fields"].items()),
    ]
    if card["png"]:
        lines.append(f"drawn into {card['png']}")
    else:
        lines.append(f"Draw one: advsurprise envs {card['id']} --png {card['id'].replace('/', '-')}.png")
    return "\n".join(lines)


def _write_png(env: Any, png: pathlib.Path, seed: int) -> None:
    import matplotlib.image

    from advsurprise.envs.picture import draw

    if png.suffix.lower() != ".png":
        raise UserError(f"--png writes a .png file, not {png.name!r}")
    if not png.parent.is_dir():
        raise UserError(f"the folder {str(png.parent)!r} does not exist")
    state, _ = env.reset(key=jax.random.key(seed))
    matplotlib.image.imsave(png, draw(env, state))
