"""The zoo: small trained agents that ship with the package. `zoo:NAME` can be given wherever a run's folder can."""

import json
import pathlib
from typing import Any

from advsurprise.errors import UserError, nearest

PREFIX = "zoo:"
AGENTS = pathlib.Path(__file__).parent / "agents"
"""Where they are, each in a folder of its own."""
CARD = "card.json"
"""What an agent is, how it was made and how it plays."""


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
    """What a person calls the run in a folder: the folder, or `zoo:NAME`."""
    return f"{PREFIX}{folder.name}" if is_shipped(folder) else str(folder)


def cards() -> list[dict[str, Any]]:
    """The cards of all agents."""
    return [json.loads((AGENTS / name / CARD).read_text("utf-8")) for name in names()]
