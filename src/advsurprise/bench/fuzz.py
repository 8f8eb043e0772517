"""Random commands, run in-process: each must end with an exit code and one sentence, and change no file."""

import atexit
import concurrent.futures
import contextlib
import functools
import io
import multiprocessing
import os
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from advsurprise.bench import scene as scenes
from advsurprise.bench.cases import Case, draw
from advsurprise.bench.scene import Scene
from advsurprise.errors import EXIT_FAILED

Main = Callable[[list[str]], None]
Log = Callable[[str], None]

EXIT_CODES = (0, 2, 3, 4)
"""Exit codes that the command line promises; 4 means a failed check or a file that could not be written."""
LIMIT = 30.0
"""Time limit of a command in seconds."""
TOGETHER = 100
"""Commands per batch of a worker."""
EVERY = 5
"""Batches between two progress lines."""


class TooLong(BaseException):
    """A command ran over the time limit."""


def drill(
    count: int, *, main: Main, seed: int, workers: int = 1, log: Log = lambda line: None
) -> tuple[Counter, list[dict[str, Any]]]:
    """Tries `count` random cases; returns how many of each kind, and those that failed. `main` is the command line, a
    function that other processes can import."""
    tried, faults, start = Counter(), [], time.monotonic()
    parts = [range(first, min(first + TOGETHER, count)) for first in range(0, count, TOGETHER)]
    # In separate processes, so that a command that crashes does not take the drill down.
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(
        min(workers, len(parts)), mp_context=context, initializer=_new_session
    ) as pool:
        waiting = [pool.submit(try_cases, part, main, seed) for part in parts]
        for number, done in enumerate(concurrent.futures.as_completed(waiting), start=1):
            kinds, bad = done.result()
            tried += kinds
            faults += bad
            for each in bad:
                log(f"case {each['case']} ({each['kind']}): {each['fault']}")
            if number % EVERY == 0 or number == len(parts):
                log(f"{tried.total()} of {count} commands tried, {time.monotonic() - start:.0f} s")
    return tried, sorted(faults, key=lambda fault: fault["case"])


def try_cases(numbers: Iterable[int], main: Main, seed: int) -> tuple[Counter, list[dict[str, Any]]]:
    """Tries the cases with these numbers."""
    scene, tried, faults = _own_scene(), Counter(), []
    for number in numbers:
        case = draw(scene, random.Random(f"{seed} {number}"))
        fault = attempt(scene, case, main)
        tried[case.kind] += 1
        if fault:
            faults.append({"case": number, "kind": case.kind, "words": case.words, "fault": fault})
    return tried, faults


def _new_session() -> None:
    """Starts a new session: Ctrl-C is for the drill, not for the commands that it tries."""
    if hasattr(os, "setsid"):
        os.setsid()


@functools.cache
def _own_scene() -> Scene:
    """The scene of this process, removed when it exits."""
    place = tempfile.TemporaryDirectory(prefix="advsurprise-fuzz-")
    atexit.register(place.cleanup)
    return scenes.make(pathlib.Path(place.name))


def attempt(scene: Scene, case: Case, main: Main) -> str | None:
    """Runs one case and returns what was wrong with how it ended, or None."""
    out, said = _Text(), _Text()
    with scene.planted(case.planted):
        before = scenes.contents(scene.folder)
        try:
            with contextlib.chdir(scene.folder), _time_limit(), _streams(out, said):
                code = _exit_code(main, case.words)
        except TooLong:
            return f"it did not end within {LIMIT:.0f} s"
        except BaseException as error:
            return f"{type(error).__name__}: {_where(error)}"
        after = scenes.contents(scene.folder)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    # A failed check prints its findings to standard output.
    return _fault(code, said.getvalue() + (out.getvalue() if code == EXIT_FAILED else ""), changed)


def _exit_code(main: Main, words: list[str]) -> Any:
    try:
        main(words)
    except SystemExit as end:
        return 0 if end.code is None else end.code
    return 0


def _fault(code: Any, said: str, changed: list[str]) -> str | None:
    sentences = [line for line in said.splitlines() if line.startswith("advsurprise: ")]
    if code not in EXIT_CODES:
        return f"exit code {code!r}"
    if "Traceback" in said:
        return "a traceback on standard error"
    if changed:
        return f"changed {', '.join(changed)}"
    if code and not said.strip():
        return f"exit code {code} without a word"
    if len(sentences) > 1:
        return f"{len(sentences)} sentences: {' | '.join(sentences)}"
    return None


def _where(error: BaseException) -> str:
    """An error in one line, with its last location in this package."""
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "advsurprise" in frame.filename]
    place = f" ({pathlib.Path(ours[-1].filename).name}:{ours[-1].lineno})" if ours else ""
    return " ".join(str(error).split())[:200] + place


class _Text(io.StringIO):
    """An in-memory stream that can stand in for standard error."""

    encoding = "utf-8"  # pyright: ignore[reportAssignmentType, reportIncompatibleVariableOverride]

    def fileno(self) -> int:
        raise io.UnsupportedOperation("fileno")


@contextlib.contextmanager
def _streams(out: _Text, said: _Text) -> Iterator[None]:
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        yield


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    """Raises `TooLong` after the time limit; only in the main thread, where signals work."""
    if threading.current_thread() is not threading.main_thread() or sys.platform == "win32":
        yield
        return

    def stop(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
