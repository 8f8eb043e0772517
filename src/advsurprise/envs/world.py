"""What a world says of itself before it is built. Imports no jax, so that names can be looked up at once."""

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
"""Fields of every host world with settings that say how its bodies are run, and are no part of the world: worker
processes (0: none, all in this one) and groups that step in turn."""


@dataclass(frozen=True)
class World:
    """A world by its name: what every layer above needs to know of it, and how it is built."""

    id: str
    """Its name."""
    description: str
    """What it is, in one line."""
    kind: Literal["pure", "host"]
    """`pure`: compiled, built with `make`; `host`: steps outside of jax, built with `open`."""
    build: Callable[..., Any]
    """Of a pure world `build(**fields)`, of a host world `build(bodies, seeds=…, **fields)`."""
    fields: Mapping[str, Any] | None
    """Type of every field that can be set; None if any keyword is accepted."""
    view_fields: tuple[str, ...] = ()
    """Fields that decide what a body sees: a policy keeps them when it is moved to another world."""
    calibration: bool = False
    """Whether it tests the learner and is left out of lists."""
    settings: type | None = None
    """Of a host world: the dataclass of its fields, with their defaults and what they mean."""
    spec: "Callable[..., EnvSpec] | None" = None
    """Of a host world: `spec(**fields)`, what a learner must know of it, read without opening it."""
    foreign: bool = False
    """Whether it comes from another library or a user's file: what it is like is known only once it is made."""
    published: Mapping[str, float] = field(default_factory=dict)
    """Published scores of the game, by whose they are."""

    def make(self, **fields: Any) -> "AbstractEnv":
        """The pure world, with some of its fields changed."""
        if self.kind != "pure":
            raise UserError(f"{self.id} runs on the host: open it for some bodies instead of making it")
        self.check(fields)
        return self.build(**fields)

    def open(self, bodies: int, *, seeds: int = 1, **fields: Any) -> "Host":
        """The world behind the host contract, for some bodies of each of some seeds."""
        self.check(fields)
        if self.kind == "host":
            return self.build(bodies, seeds=seeds, **fields)
        from advsurprise.envs.host.pure import as_host

        return as_host(self.build(**fields), bodies, seeds=seeds)

    def read_spec(self, **fields: Any) -> "EnvSpec":
        """What a learner must know of the world. One that says it only when it is open is opened for a body."""
        self.check(fields)
        if self.kind == "pure":
            return self.build(**fields).spec
        if self.spec is not None:
            return self.spec(**{name: value for name, value in fields.items() if name not in PLACEMENT})
        with contextlib.closing(self.open(1, **fields)) as host:
            return host.spec

    def check(self, fields: Mapping[str, Any]) -> None:
        """Refuses a field that it does not have, or a value of another type."""
        if self.all_fields is not None:
            check_fields(self.id, self.all_fields, fields)

    def parse(self, settings: Iterable[str]) -> dict[str, Any]:
        """Fields from settings such as ``rooms=6`` or ``kinds=dark,noisy``, each read as its field's type asks."""
        return read_fields(settings, self.all_fields)

    @property
    def all_fields(self) -> Mapping[str, Any] | None:
        """Type of every field that can be set, those of its placement included; None if any keyword is accepted."""
        return self.fields if self.fields is None or self.settings is None else {**self.fields, **PLACEMENT}


def check_fields(id: str, hints: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
    """Every field exists and holds a value of its type: words one of the known words, numbers numbers."""
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
    """Worlds of one class, each by its name, its description and its own fields; `fixed` cannot be set."""
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
