"""Worlds by name. The part of a name before the slash is the module here that makes it."""

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

from advsurprise.errors import UserError, nearest

if TYPE_CHECKING:
    from advsurprise.envs.base import AbstractEnv

CALIBRATION = {"ladder"}
"""Families that test the learner: `make` makes them, lists leave them out."""


def _families() -> list[str]:
    """Modules of this folder that hold worlds: those with a table `WORLDS`."""
    modules = (module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg)
    return [name for name in modules if hasattr(importlib.import_module(f"{__name__}.{name}"), "WORLDS")]


def list_envs() -> dict[str, str]:
    """Every world's name and what it is, in one line."""
    worlds: dict[str, str] = {}
    for family in (name for name in _families() if name not in CALIBRATION):
        table = importlib.import_module(f"{__name__}.{family}").WORLDS
        worlds |= {name: entry[0] for name, entry in table.items()}
    return worlds


def make(id: str, **fields: Any) -> "AbstractEnv":
    """Makes the world called `id`, with some of its fields changed: ``make("rooms/four", rooms=6, view=5)``."""
    family = id.partition("/")[0]
    if family not in _families():
        raise UserError(f"unknown world {nearest(id, list_envs())}")
    return importlib.import_module(f"{__name__}.{family}").make(id, **fields)
