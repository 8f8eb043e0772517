"""Code of others runs only if the user has named it: never because the folder of a run, a comparison or a card of the
zoo says so. Those may be anybody's, and name any file and any function."""

import pathlib
from collections.abc import Iterable

from advsurprise.errors import UserError
from advsurprise.userfile import is_file_class

_NAMED: set[str] = set()
"""Worlds and methods that the user has named in this process."""


def allow(*names: str | None) -> None:
    """Remembers that the user has named some worlds or methods; None is nobody's name."""
    _NAMED.update(_key(name) for name in names if name is not None)


def allow_all(names: str | Iterable[str]) -> None:
    """Remembers one name, or several."""
    allow(*([names] if isinstance(names, str) else names))


def check_named(name: str) -> None:
    """Refuses code that the user has not named: a class of a file, or anything of a package."""
    if _key(name) not in _NAMED:
        raise UserError(
            f"{name} would be imported and run because a file says so; if you trust it, name it yourself: "
            f"--allow {name}"
        )


def _key(name: str) -> str:
    """The same for two ways to write the path of one file."""
    if not is_file_class(name):
        return name
    place, _, class_name = name.rpartition(":")
    return f"{pathlib.Path(place).absolute()}:{class_name}"
