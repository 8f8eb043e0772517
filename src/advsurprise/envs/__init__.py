"""Worlds by name.

A family of worlds is one file with a table `WORLDS`: in this folder if they are pure, in `host/` if they run on the
host. The part of a name before the slash is the name of that file. Gymnasium ids (`CartPole-v1`, `package:Name-v0`) and
classes in a file (`file.py:Class`) are host worlds, through Gymnasium. Pure worlds of other JAX libraries are
`gymnax:NAME`, `pgx:NAME` or `package.module:function`.
"""

import importlib
import importlib.util
import pkgutil
from typing import TYPE_CHECKING, Any

from advsurprise.envs.world import World
from advsurprise.errors import UserError, nearest

if TYPE_CHECKING:
    from advsurprise.envs.base import AbstractEnv
    from advsurprise.envs.gymnax_style import GymnaxStyle

FOLDERS = (__name__, f"{__name__}.host")
"""Packages whose modules can hold a family."""


def find(id: str) -> World:
    """Returns the registry entry of the world `id`, without building it; refuses an unknown name."""
    from advsurprise.envs.foreign import load as foreign
    from advsurprise.envs.host import load

    if foreign.is_foreign(id):
        return foreign.world(id)
    if load.is_gymnasium(id):
        return load.world(id)
    own = _family(id.partition("/")[0])
    if id not in own:
        raise UserError(f"unknown world {nearest(id, [*own, *list_envs()], listed='`advsurprise envs`')}")
    return own[id]


def list_envs() -> dict[str, str]:
    """Name and one-line description of every world."""
    packages = [importlib.import_module(folder) for folder in FOLDERS]
    names = {module.name for package in packages for module in pkgutil.iter_modules(package.__path__)}
    worlds = [world for name in sorted(names) for world in _family(name).values()]
    worlds.sort(key=lambda world: world.kind != "pure")
    return {world.id: world.description for world in worlds if not world.calibration}


def make(id: str, **fields: Any) -> "AbstractEnv":
    """Makes the pure world called `id`, with some fields changed: ``make("rooms/four", rooms=6, view=5)``."""
    from advsurprise.trust import allow

    allow(id)
    return find(id).make(**fields)


def check(id: str, fields: dict[str, Any] | None = None) -> dict[str, Any]:
    """Tries out a third-party world and reports what is wrong with it."""
    from advsurprise.envs.foreign import check as foreign
    from advsurprise.envs.foreign.load import is_foreign
    from advsurprise.envs.host import check as host

    return (foreign if is_foreign(id) else host).check(id, fields)


def as_gymnax(id: str, *, one_hot: bool = False, values: int = 5, **fields: Any) -> "GymnaxStyle":
    """Makes the pure world called `id`, with some fields changed, with gymnax's interface: `reset(key, params)` and
    `step(key, state, action, params)`, which resets automatically. `one_hot` one-hot encodes classes; `values` is 6 for
    loops that expect `terminated` and `truncated`."""
    from advsurprise.envs.gymnax_style import GymnaxStyle

    return GymnaxStyle(make(id, **fields), one_hot=one_hot, values=values)


def _family(name: str) -> dict[str, World]:
    """Worlds of the module called `name`; empty if there is no such module or it defines none."""
    worlds: dict[str, World] = {}
    for folder in FOLDERS:
        if name.isidentifier() and importlib.util.find_spec(f"{folder}.{name}") is not None:
            worlds |= getattr(importlib.import_module(f"{folder}.{name}"), "WORLDS", {})
    return worlds
