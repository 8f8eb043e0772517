"""Worlds of other JAX libraries by name: `gymnax:NAME`, `pgx:NAME`, or `package.module:function`, which returns one.

Imports no jax, so that looking up a name is fast; packages are imported when a world is made.
"""

import dataclasses
import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from advsurprise.envs.world import World, check_fields
from advsurprise.errors import UserError, nearest, require
from advsurprise.trust import check_named
from advsurprise.userfile import is_file_class

if TYPE_CHECKING:
    from advsurprise.envs.foreign.world import ForeignEnv

LIBRARIES = {"gymnax": "an environment of gymnax", "pgx": "a game of pgx"}
"""Libraries that can be named before the colon instead of a module, and what their worlds are."""
PLAIN = (bool, int, float, str)
"""Types of fields that can be set; others keep their defaults."""


class Made(NamedTuple):
    """An environment with gymnax's interface, and its parameters."""

    name: str
    """Its name."""
    env: Any
    """The environment."""
    params: Any
    """The `params` of its functions; None if it has none."""
    fields: dict[str, Any]
    """Every field that can be set, and its value."""


def is_foreign(name: str) -> bool:
    """Whether a name is that of a world of another JAX library. Gymnasium's `package:Name-v0` is not: `Name-v0` is not
    an identifier."""
    place, colon, rest = name.partition(":")
    if not colon or is_file_class(name):
        return False
    return place in LIBRARIES or (rest.isidentifier() and all(part.isidentifier() for part in place.split(".")))


def world(name: str) -> World:
    """Registry entry for a name; whether the world exists, and its fields, are known only once it is made."""
    what = LIBRARIES.get(name.partition(":")[0], "a JAX environment with gymnax's interface")
    return World(name, what, "pure", functools.partial(_build, name), None, foreign=True)


def _build(name: str, /, **fields: Any) -> "ForeignEnv":
    frozen = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
    # Types are part of the cache key, since 1 == True.
    return _built(name, tuple((key, type(frozen[key]), frozen[key]) for key in sorted(frozen)))


@functools.lru_cache(maxsize=32)
def _built(name: str, fields: tuple[tuple[str, type, Any], ...]) -> "ForeignEnv":
    """The same world for the same fields, so that its compiled programs are reused."""
    from advsurprise.envs.foreign.world import build

    return build(make(name, {key: value for key, _, value in fields}))


def make(name: str, fields: Mapping[str, Any]) -> Made:
    """Makes an environment. `fields` go to the function (or class) that makes it if it takes them, otherwise to the
    environment's own parameters."""
    maker = find_maker(name)
    wanted = parameters(maker)
    given = {key: value for key, value in fields.items() if key in wanted}
    missing = [key for key, value in wanted.items() if value is inspect.Parameter.empty and key not in given]
    if missing:
        raise UserError(f"{name} needs a value for {missing[0]}: add --set env.{missing[0]}=VALUE")
    hints = {key: type(value) if type(value) in PLAIN else Any for key, value in wanted.items()}
    check_fields(name, hints, given)
    made = attempt(f"{name} could not be made", lambda: maker(**given))
    env, params = made if isinstance(made, tuple) and len(made) == 2 else (made, getattr(made, "default_params", None))
    own = values(params)
    check_fields(name, hints | {key: type(value) for key, value in own.items()}, fields)
    params = replaced(params, {key: value for key, value in fields.items() if key not in given})
    arguments = {key: value for key, value in (wanted | given).items() if type(value) in PLAIN}
    return Made(name, env, params, arguments | values(params))


def find_maker(name: str) -> Callable[..., Any]:
    """The function or class that makes an environment; this imports its module, which runs its code."""
    place, _, rest = name.partition(":")
    if place == "gymnax":
        gymnax = require("gymnax", extra="gymnax")
        if rest not in gymnax.registered_envs:
            raise UserError(f"gymnax has no environment {nearest(rest, gymnax.registered_envs)}")
        return type(attempt(f"{name} could not be made", lambda: gymnax.make(rest))[0])
    if place == "pgx":
        from advsurprise.envs.foreign.pgx import game_maker

        return game_maker(rest)
    check_named(name)
    # Last, so that modules of the current folder can be imported but shadow nothing installed.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    module = attempt(f"{name}: {place} could not be imported", lambda: importlib.import_module(place))
    maker = getattr(module, rest, None)
    if not callable(maker):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise UserError(f"{place} has no function {nearest(rest, known)}")
    return maker


def parameters(maker: Callable[..., Any]) -> dict[str, Any]:
    """Keyword parameters with their defaults; `inspect.Parameter.empty` where there is none."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    try:
        signature = inspect.signature(maker)
    except (TypeError, ValueError):
        return {}
    return {key: each.default for key, each in signature.parameters.items() if each.kind in named}


def values(params: Any) -> dict[str, Any]:
    """Parameters of an environment that can be set: numbers and strings in a dataclass or named tuple."""
    if dataclasses.is_dataclass(params) and not isinstance(params, type):
        pairs = {each.name: getattr(params, each.name) for each in dataclasses.fields(params)}
        reals = {each.name for each in dataclasses.fields(params) if each.type in (float, "float")}
    else:
        pairs, reals = getattr(params, "_asdict", dict)(), set()
    plain = {key: value for key, value in pairs.items() if type(value) in PLAIN}
    return {key: float(value) if key in reals and type(value) is int else value for key, value in plain.items()}


def replaced(params: Any, changed: Mapping[str, Any]) -> Any:
    """The parameters with some of them changed, each keeping its type: 2 becomes 2.0 where a float was."""
    if not changed:
        return params
    before = values(params)
    cast = {key: float(value) if type(before[key]) is float else value for key, value in changed.items()}
    return params._replace(**cast) if hasattr(params, "_replace") else dataclasses.replace(params, **cast)


def attempt(what: str, call: Callable[[], Any]) -> Any:
    """Calls third-party code; turns what it raises into a `UserError`."""
    from advsurprise.envs.foreign.rules import their_rules

    try:
        with their_rules():
            return call()
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise UserError(f"{what}: {sentence(error)}") from error


def sentence(error: BaseException) -> str:
    """The first paragraph of an error in one line; jax's messages are a page long."""
    first = str(error).strip().split("\n\n")[0].split("\nThe error occurred")[0]
    return f"{type(error).__name__}: {' '.join(first.split()) or 'no reason given'}"
