"""What a user can get wrong, each with the exit code the command line answers with."""

import difflib
import importlib
from collections.abc import Iterable
from types import ModuleType


class UserError(ValueError):
    """A mistake in what the user asked for, in one sentence."""

    exit_code = 2


class MissingExtra(UserError):
    """An optional package is not installed; the sentence holds the line that installs it."""

    exit_code = 3


EXIT_FAILED = 4
"""Exit code of what was asked for rightly and failed: a check, a run, a disk, memory. Python's own 1 is left to
crashes."""


class WorldWarning(RuntimeWarning):
    """Something went wrong in a world, and training goes on without it: one sentence."""


class TrackWarning(RuntimeWarning):
    """A tracker failed and gets no more rows; training goes on: one sentence."""


def check(rules: Iterable[tuple[bool, str]], *, subject: str = "") -> None:
    """Refuses a configuration with the sentence of the first rule that does not hold."""
    for holds, sentence in rules:
        if not holds:
            raise UserError(f"{subject}: {sentence}" if subject else sentence)


def nearest(word: str, known: Iterable[str], *, listed: str = "") -> str:
    """`word` quoted, with the nearest known word if there is one: the end of an 'unknown …' sentence. Where all known
    words would be too many, `listed` says what lists them."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1)
    every = f"{listed} lists all" if listed else f"known: {', '.join(known)}"
    hint = f"did you mean {close[0]!r}?" if close else every
    return f"{word!r}; {hint}"


def require(module: str, *, extra: str) -> ModuleType:
    """Imports an optional package, or says which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(f'{module} is not installed; install it with: pip install "advsurprise[{extra}]"') from error
