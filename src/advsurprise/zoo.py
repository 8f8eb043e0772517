"""The zoo: small trained agents that ship with the package. Use `zoo:NAME` in place of a run's folder."""

import json
import pathlib
from typing import Any

from advsurprise.errors import UserError, nearest

PREFIX = "zoo:"
AGENTS = pathlib.Path(__file__).parent / "agents"
"""Folder with one subfolder per agent."""
CARD = "card.json"
"""File that says what an agent is, how it was trained and how it plays."""


def names() -> list[str]:
    """Names of all agents."""
    return sorted(path.parent.name for path in AGENTS.glob(f"*/{CARD}"))


def folder(path: str | pathlib.Path) -> pathlib.Path:
    """The folder that a run's folder or `zoo:NAME` refers to."""
    if not str(path).startswith(PREFIX):
        return pathlib.Path(path)
    name = str(path).removeprefix(PREFIX)
    if name not in names():
        raise UserError(f"the zoo has no agent {nearest(name, names())}")
    return AGENTS / name


def is_shipped(folder: pathlib.Path) -> bool:
    """Whether a folder is that of one of the zoo's agents."""
    return folder.parent == AGENTS


def title(folder: pathlib.Path) -> str:
    """Display name of the run in a folder: the folder, or `zoo:NAME`."""
    return f"{PREFIX}{folder.name}" if is_shipped(folder) else str(folder)


def cards() -> list[dict[str, Any]]:
    """The cards of all agents."""
    return [json.loads((AGENTS / name / CARD).read_text("utf-8")) for name in names()]
