"""Registry entries of worlds. Imports no jax, so that looking up a name is fast."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

from advsurprise.config import check_value, read_fields
from advsurprise.errors import UserError, nearest

if TYPE_CHECKING:
    from advsurprise.envs.base import AbstractEnv
    from advsurprise.envs.host.base import Host
    from advsurprise.types import EnvSpec


PLACEMENT = {"workers": int, "groups": int}
"""Fields of every host world with settings that say how its bodies run, not what the world is: worker processes (0: all
bodies in this process) and groups that step in turn."""


@dataclass(frozen=True)
class World:
    """Registry entry of a world: what other layers need to know about it, and how to build it."""

    id: str
    """Its name."""
    description: str
    """What it is, in one line."""
    kind: Literal["pure", "host"]
    """`pure`: compiled, built with `make`; `host`: steps outside of jax, built with `open`."""
    build: Callable[..., Any]
    """`build(**fields)` for a pure world, `build(bodies, seeds=…, **fields)` for a host world."""
    fields: Mapping[str, Any] | None
    """Type of every field that can be set; None if any keyword is accepted."""
    view_fields: tuple[str, ...] = ()
    """Fields that decide what a body sees: a policy keeps them when it is moved to another world."""
    calibration: bool = False
    """Whether it exists to test the learner; such worlds are not listed."""
    settings: type | None = None
    """For a host world: the dataclass of its fields, with defaults and docstrings."""
    spec: "Callable[..., EnvSpec] | None" = None
    """For a host world: `spec(**fields)` returns its `EnvSpec` without opening it."""
    foreign: bool = False
    """Whether it comes from another library or a user's file, so that its spec is known only once it is made."""
    published: Mapping[str, float] = field(default_factory=dict)
    """Published scores of the game by who played, such as `random` and `human`."""

    def make(self, **fields: Any) -> "AbstractEnv":
        """Builds the pure world, with some of its fields changed."""
        if self.kind != "pure":
            raise UserError(f"{self.id} runs on the host: call open(bodies) instead of make()")
        self.check(fields)
        return self.build(**fields)

    def open(self, bodies: int, *, seeds: int = 1, **fields: Any) -> "Host":
        """Opens the world behind the host contract, with `bodies` bodies for each of `seeds` seeds."""
        self.check(fields)
        if self.kind == "host":
            return self.build(bodies, seeds=seeds, **fields)
        from advsurprise.envs.host.pure import as_host

        return as_host(self.build(**fields), bodies, seeds=seeds)

    def read_spec(self, **fields: Any) -> "EnvSpec":
        """What a learner needs to know about the world; opens it with one body if there is no other way to find out."""
        self.check(fields)
        if self.kind == "pure":
            return self.build(**fields).spec
        if self.spec is not None:
            return self.spec(**{name: value for name, value in fields.items() if name not in PLACEMENT})
        with contextlib.closing(self.open(1, **fields)) as host:
            return host.spec

    def check(self, fields: Mapping[str, Any]) -> None:
        """Refuses unknown fields and values of the wrong type."""
        if self.all_fields is not None:
            check_fields(self.id, self.all_fields, fields)

    def parse(self, settings: Iterable[str]) -> dict[str, Any]:
        """Parses settings such as ``rooms=6`` or ``kinds=dark,noisy`` according to the types of the fields."""
        return read_fields(settings, self.all_fields)

    @property
    def all_fields(self) -> Mapping[str, Any] | None:
        """Type of every field that can be set, `PLACEMENT` included; None if any keyword is accepted."""
        return self.fields if self.fields is None or self.settings is None else {**self.fields, **PLACEMENT}


def check_fields(id: str, hints: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
    """Refuses a field that does not exist or a value of the wrong type."""
    for name, value in fields.items():
        if name not in hints:
            raise UserError(f"{id} has no field {nearest(name, hints)}")
        check_value(id, name, hints[name], value)


def pure_worlds(
    env_type: type,
    table: Mapping[str, tuple[str, dict[str, Any]]],
    *,
    fixed: tuple[str, ...] = ("id",),
    view_fields: tuple[str, ...] = (),
    calibration: bool = False,
) -> dict[str, World]:
    """Worlds of one class, from a table of descriptions and fields by name; `fixed` fields cannot be set."""
    hints = {name: hint for name, hint in get_type_hints(env_type).items() if name not in fixed}

    def build(id: str, own: dict[str, Any], **fields: Any) -> "AbstractEnv":
        return env_type(id=id, **{**own, **fields})

    return {
        id: World(
            id,
            description,
            "pure",
            functools.partial(build, id, own),
            hints,
            view_fields=view_fields,
            calibration=calibration,
        )
        for id, (description, own) in table.items()
    }
