"""Third-party code runs only if the user has named it, never because the folder of a run, a comparison or a card of the
zoo does: those may come from anyone, and name any file and any function."""

import pathlib
from collections.abc import Iterable

from advsurprise.errors import UserError
from advsurprise.userfile import is_file_class

_NAMED: set[str] = set()
"""Worlds and methods that the user has named in this process."""


def allow(*names: str | None) -> None:
    """Marks worlds or methods as named by the user; None is ignored."""
    _NAMED.update(_key(name) for name in names if name is not None)


def allow_all(names: str | Iterable[str]) -> None:
    """Marks one name or several as named by the user."""
    allow(*([names] if isinstance(names, str) else names))


def check_named(name: str) -> None:
    """Refuses code that the user has not named: a class of a file, or anything of a package."""
    if _key(name) not in _NAMED:
        raise UserError(
            f"{name} would be imported and run only because a file names it; if you trust it, add --allow {name}"
        )


def _key(name: str) -> str:
    """The name with an absolute path, so that two spellings of the same file are equal."""
    if not is_file_class(name):
        return name
    place, _, class_name = name.rpartition(":")
    return f"{pathlib.Path(place).absolute()}:{class_name}"
