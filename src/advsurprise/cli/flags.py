"""Flags that several verbs have."""

import pathlib
from typing import Annotated, Any

from tyro.conf import Positional, UseAppendAction, arg


def optional(metavar: str, default: str, help: str | None = None) -> Any:
    """An optional flag whose default is described in words. `help` is for texts too long for one line: tyro keeps the
    line breaks of docstrings."""
    return arg(metavar=metavar, help=help, help_behavior_hint=f"(default: {default})")


Json = Annotated[bool, arg(help="Print one JSON object on standard output and nothing else.")]
RunFolder = Annotated[Positional[pathlib.Path], arg(metavar="RUN")]
EnvSettings = Annotated[
    UseAppendAction[tuple[str, ...]],
    arg(name="set", metavar="FIELD=VALUE", help="Change a field of the environment."),
]
Settings = Annotated[
    UseAppendAction[tuple[str, ...]],
    arg(name="set", metavar="FIELD=VALUE", help="Change any field: ppo.lr=1e-4, env.rooms=6, method.quiet=0.25 …"),
]
Allow = Annotated[
    UseAppendAction[tuple[str, ...]],
    arg(
        metavar="NAME",
        help="Allow a world or method of the run to be imported and run: a class in a file, or code from a package.",
        help_behavior_hint="(repeatable)",
    ),
]
