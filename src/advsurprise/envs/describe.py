"""Descriptions of worlds for the command line."""

import ast
import dataclasses
import functools
import inspect
import io
import pathlib
import textwrap
from collections.abc import Iterable
from typing import Any

import jax

from advsurprise.envs import find, list_envs
from advsurprise.envs.base import AbstractEnv
from advsurprise.envs.registration import IDS
from advsurprise.errors import UserError
from advsurprise.training import files
from advsurprise.trust import allow
from advsurprise.types import EnvSpec

WIDTH = 116
"""Width of text output, in columns."""


def listing() -> dict[str, Any]:
    """Name and one-line description of every world."""
    gymnasium_ids = {world: id for id, world in IDS.items()}
    return {
        "envs": [
            {"id": id, "description": description, "gymnasium": gymnasium_ids.get(id)}
            for id, description in list_envs().items()
        ]
    }


def listing_text(result: dict[str, Any]) -> str:
    """The list as text."""
    width = max(len(env["id"]) for env in result["envs"]) + 2
    lines = [f"{env['id']:{width}}{env['description']}" for env in result["envs"]]
    return "\n".join([*lines, "", "Details of one world: advsurprise envs rooms/four --png four.png"])


def card(id: str, *, settings: Iterable[str], png: pathlib.Path | None, seed: int) -> dict[str, Any]:
    """Everything about one world; with `png`, also draws one of its layouts."""
    world = find(id)
    allow(id)
    fields = world.parse(settings)
    about = {"id": id, "description": world.description, "kind": world.kind}
    if world.kind == "host":
        if png is not None:
            raise UserError(f"{id} has no picture")
        docs = {} if world.settings is None else field_docs(world.settings)
        values = fields if world.settings is None else dataclasses.asdict(world.settings(**fields))
        return about | _of_spec(world.read_spec(**fields)) | {"fields": values, "field_help": docs, "png": None}
    env = world.make(**fields)
    if png is not None:
        _write_png(env, png, seed)
    names = world.fields or ()
    values = env.settings if world.fields is None else {name: getattr(env, name) for name in names}
    return about | {
        **_of_spec(env.spec),
        "classes": env.class_names or None,
        "actions": env.action_names,
        "fields": values,
        "field_help": {name: text for name, text in field_docs(type(env)).items() if name in names},
        "png": None if png is None else str(png),
    }


def _of_spec(spec: EnvSpec) -> dict[str, Any]:
    return {
        "observation": {
            "shape": spec.observation_shape,
            "dtype": spec.observation_dtype,
            "kind": spec.observation_kind,
        },
        "num_classes": spec.num_classes,
        "classes": None,
        "actions": spec.action_names or tuple(str(action) for action in range(spec.num_actions)),
        "noop": spec.noop,
        "first_role": spec.first_role or None,
        "max_steps": spec.max_steps,
        "info": spec.info,
        "measures": {measure.name: measure.label for measure in spec.measures},
    }


def card_text(card: dict[str, Any]) -> str:
    """The card as text."""
    seen, actions = card["observation"], card["actions"]
    classes = f", {card['num_classes']} classes" if card["num_classes"] else f", {seen['kind']}"
    lines = [
        f"{card['id']}: {card['description']}",
        f"  kind      {'pure: compiled' if card['kind'] == 'pure' else 'host: runs outside of jax'}",
        f"  sees      {seen['shape']} {seen['dtype']}{classes}",
        f"  actions   {', '.join(actions)}",
        f"  no-op     {'none' if card['noop'] is None else actions[card['noop']]}",
        f"  starts    {card['first_role'] or 'any role'}",
        f"  episode   {card['max_steps'] or 'any number of'} steps",
        "  measures",
        *(f"    {name:16}{label}" for name, label in card["measures"].items()),
        "  fields    (change with --set FIELD=VALUE)",
    ]
    for name, value in card["fields"].items():
        lines += [f"    {name} = {value!r}", *_indented(card["field_help"].get(name, ""))]
    if not card["fields"]:
        lines.append("    any keyword argument of the environment")
    if card["png"]:
        lines.append(f"image written to {card['png']}")
    return "\n".join(lines)


def _indented(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 8)


@functools.cache
def field_docs(owner: type) -> dict[str, str]:
    """The docstring under each field of a class, read from its source, since Python does not keep them."""
    body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
    assert isinstance(body, ast.ClassDef)
    docs: dict[str, str] = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        text = below.value if isinstance(below, ast.Expr) else None
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Constant):
            docs[field.target.id] = " ".join(str(text.value).split())
    return docs


def _write_png(env: AbstractEnv, png: pathlib.Path, seed: int) -> None:
    import matplotlib.image

    if png.suffix.lower() != ".png":
        raise UserError(f"--png must name a .png file, not {png.name!r}")
    if not png.parent.is_dir():
        raise UserError(f"the folder {str(png.parent)!r} does not exist")
    state, _ = env.reset(key=jax.random.key(seed))
    image = io.BytesIO()
    matplotlib.image.imsave(image, env.draw(state), format="png")
    files.write(png, image.getvalue())
