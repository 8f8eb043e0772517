"""Commands side by side: several runs on one machine, where one that fails leaves the others alone."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from advsurprise.training.signals import stop_signals

POLL = 0.2
"""Seconds between two looks at the processes."""
REPORT = 10.0
"""Seconds between two lines of progress."""
TAIL = 2**16
"""Bytes at the end of a file of metrics that hold its last row."""

Log = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """Commands to be run one after the other."""

    name: str
    """What the log calls it."""
    commands: tuple[tuple[str, ...], ...]
    """Each can be given again after it was stopped, and goes on from there."""
    metrics: pathlib.Path
    """Where the first command writes a row per update, in which progress is read."""
    steps: int
    """Environment steps of each seed in the last row."""
    seeds: int = 1
    """Seeds trained together."""


@dataclass
class _Running:
    job: Job
    process: subprocess.Popen
    left: deque[tuple[str, ...]] = field(default_factory=deque)


def run_jobs(jobs: Sequence[Job], *, workers: int, folder: pathlib.Path, log: Log) -> tuple[dict[str, str], int]:
    """Runs all of them, so many at a time: for each that failed the reason, and the signal that stopped them (0 if none
    did). What they print goes to NAME.log in the folder."""
    waiting, running, failed = deque(jobs), [], {}
    clock = _Clock(jobs, log)
    with stop_signals() as stop:
        while (waiting and not stop) or running:
            while waiting and not stop and len(running) < workers:
                job = waiting.popleft()
                running.append(_Running(job, _start(job.commands[0], job, workers, folder), deque(job.commands[1:])))
            time.sleep(POLL)
            if stop:
                _interrupt(running)
            running = [each for each in running if _goes_on(each, failed, workers, folder, stopped=bool(stop), log=log)]
            clock.tick(len(running), len(waiting))
    return failed, stop[0] if stop else 0


def _start(command: tuple[str, ...], job: Job, workers: int, folder: pathlib.Path) -> subprocess.Popen:
    # Several processes share a GPU only if none takes most of its memory when it starts.
    share = {} if workers == 1 else {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    share |= {} if workers == 1 else {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 / workers:.3f}"}
    with open(folder / f"{job.name}.log", "ab") as output:
        # In a session of its own: Ctrl-C reaches it through here, once.
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | share,
            start_new_session=True,
        )


def _interrupt(running: Sequence[_Running]) -> None:
    for each in running:
        each.left.clear()
        with contextlib.suppress(ProcessLookupError):
            each.process.send_signal(signal.SIGINT)


def _goes_on(
    each: _Running, failed: dict[str, str], workers: int, folder: pathlib.Path, *, stopped: bool, log: Log
) -> bool:
    """Whether a job is still running, its next command included."""
    code = each.process.poll()
    if code is None:
        return True
    if code and not stopped:
        failed[each.job.name] = _reason(folder / f"{each.job.name}.log", code)
        log(f"{each.job.name} failed: {failed[each.job.name]}")
    elif each.left and not stopped:
        each.process = _start(each.left.popleft(), each.job, workers, folder)
        return True
    elif not stopped:
        log(f"{each.job.name}: done")
    return False


def _reason(path: pathlib.Path, code: int) -> str:
    """The last line that a command has printed."""
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("advsurprise: ") if lines else f"exit code {code}"


class _Clock:
    """Says now and then how far the jobs are."""

    def __init__(self, jobs: Sequence[Job], log: Log):
        self._jobs, self._log = jobs, log
        self._total = sum(job.steps * job.seeds for job in jobs)
        self._began, self._before = time.monotonic(), self._done()
        self._last = self._began

    def tick(self, running: int, waiting: int) -> None:
        now = time.monotonic()
        if now - self._last < REPORT:
            return
        self._last, done = now, self._done()
        rate = (done - self._before) / (now - self._began)
        left = f", ETA {_minutes((self._total - done) / rate)}" if rate > 0 else ""
        share = f"{100 * done / self._total:.0f}%"
        self._log(f"{share} of {self._total:,} steps, {rate:,.0f} steps/s{left}; {running} running, {waiting} waiting")

    def _done(self) -> int:
        return sum(min(last_step(job.metrics), job.steps) * job.seeds for job in self._jobs)


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}m{int(seconds) % 60:02d}s"


def last_step(path: pathlib.Path) -> int:
    """The step of the last whole row of a run's metrics; 0 if there is none."""
    return next((row["step"] for row in _last_rows(path) if "step" in row), 0)


def _last_rows(path: pathlib.Path) -> Iterator[dict]:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            lines = file.read().split(b"\n")
    except OSError:
        return
    # The first line may be cut where reading began, the last where writing is.
    for line in reversed(lines):
        with contextlib.suppress(ValueError):
            yield json.loads(line)
