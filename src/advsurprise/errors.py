"""Errors that a user can cause, with the exit codes of the command line."""

import dataclasses
import difflib
import importlib
from collections.abc import Collection, Iterable
from types import ModuleType
from typing import Any, Literal, get_args, get_origin, get_type_hints


class UserError(ValueError):
    """A mistake in the user's input, in one sentence."""

    exit_code = 2


class MissingExtra(UserError):
    """An optional package is not installed; the message says how to install it."""

    exit_code = 3


EXIT_FAILED = 4
"""Exit code of a valid command that failed: a check, a run, a full disk, out of memory. Python's 1 is for crashes."""


class WorldWarning(RuntimeWarning):
    """Something went wrong in a world; training continues."""


class TrackWarning(RuntimeWarning):
    """A tracker failed and gets no more rows; training continues."""


def check(rules: Iterable[tuple[bool, str]], *, subject: str = "") -> None:
    """Raises `UserError` with the sentence of the first rule that does not hold."""
    for holds, sentence in rules:
        if not holds:
            raise UserError(f"{subject}: {sentence}" if subject else sentence)


def choice_rules(settings: Any) -> list[tuple[bool, str]]:
    """Rules for `check`: every field of a dataclass that is annotated with a Literal has one of its values."""
    hints = get_type_hints(type(settings))
    return [
        choice_rule(each.name, getattr(settings, each.name), get_args(hints[each.name]))
        for each in dataclasses.fields(settings)
        if get_origin(hints[each.name]) is Literal
    ]


def choice_rule(name: str, value: Any, choices: Collection[str]) -> tuple[bool, str]:
    """Rule for `check`: the value is one of the choices."""
    return value in choices, f"unknown {name} {nearest(str(value), choices)}"


def nearest(word: str, known: Iterable[str], *, listed: str = "") -> str:
    """End of an 'unknown …' message: the quoted word, and the closest known one or else all of them. If those are too
    many, `listed` names the command that lists them."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1)
    every = f"{listed} lists all" if listed else f"known: {', '.join(known)}"
    hint = f"did you mean {close[0]!r}?" if close else every
    return f"{word!r}; {hint}"


def require(module: str, *, extra: str) -> ModuleType:
    """Imports an optional package, or says which extra installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(f'{module} is not installed; install it with: pip install "advsurprise[{extra}]"') from error
