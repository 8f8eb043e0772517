"""Runs commands in parallel on one machine; one that fails does not affect the others."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Literal, NamedTuple

from advsurprise.training import tied
from advsurprise.training.signals import stop_signals

POLL = 0.2
"""Seconds between checks of the processes."""
REPORT = 10.0
"""Seconds between lines of progress."""
TAIL = 2**16
"""Bytes at the end of a metrics file that contain its last row."""
FILLED = 0.9
"""Fraction of a GPU's memory that all runs together take."""
GPUS = pathlib.Path("/proc/driver/nvidia/gpus")

Log = Callable[[str], None]
Status = Literal["waiting", "running", "done", "failed", "stopped"]


@dataclass(frozen=True)
class Job:
    """Commands to run one after the other."""

    name: str
    """Name in the log."""
    commands: tuple[tuple[str, ...], ...]
    """Each continues where it was stopped when it is run again."""
    metrics: pathlib.Path
    """File with one row per update from the first command, to read progress from."""
    steps: int
    """Environment steps per seed at the end."""
    seeds: int = 1
    """Seeds trained together."""


class Event(NamedTuple):
    """A change in the status of a job."""

    name: str
    """Name of the job."""
    status: Status
    """The new status."""
    retries: int = 0
    """How often it was restarted after being killed."""
    reason: str = ""
    """Why it failed."""


Notice = Callable[[Event], None]


def run_jobs(
    jobs: Sequence[Job],
    *,
    workers: int,
    folder: pathlib.Path,
    log: Log,
    gpu_share: float | None = None,
    retries: int = 0,
    notice: Notice = lambda event: None,
) -> tuple[dict[str, str], int]:
    """Runs all jobs, with their output in NAME.log in the folder. Returns the reason for each job that failed, and the
    signal that stopped them (0 if none did).

    workers: number of parallel jobs.
    gpu_share: fraction of a GPU's memory for each; defaults to equal shares.
    retries: how often a killed command is restarted.
    """
    waiting, clock = deque(jobs), Clock(jobs, log)
    shares = [device_share(slot, workers=workers, gpus=visible_gpus(), part=gpu_share) for slot in range(workers)]
    pool = _Pool(folder, log, notice, retries, shares)
    with stop_signals() as stop:
        while (waiting and not stop) or pool.running:
            while waiting and not stop and len(pool.running) < workers:
                pool.launch(waiting.popleft())
            time.sleep(POLL)
            if stop:
                pool.interrupt()
            pool.poll()
            clock.tick(len(pool.running), len(waiting))
    return pool.failed, stop[0] if stop else 0


@dataclass
class _Running:
    job: Job
    slot: int
    process: subprocess.Popen
    done: int = 0
    """Commands that have succeeded."""
    retries: int = 0


class _Pool:
    """Running jobs, each in a slot with its share of the GPUs."""

    def __init__(
        self, folder: pathlib.Path, log: Log, notice: Notice, retries: int, shares: Sequence[Mapping[str, str]]
    ):
        self.running: list[_Running] = []
        self.failed: dict[str, str] = {}
        self._folder, self._log, self._notice, self._retries, self._shares = folder, log, notice, retries, shares
        self._stopped = False

    def launch(self, job: Job) -> None:
        slot = min(set(range(len(self._shares))) - {each.slot for each in self.running})
        self.running.append(_Running(job, slot, self._start(job, 0, slot)))
        self._notice(Event(job.name, "running"))

    def interrupt(self) -> None:
        """Asks all jobs to stop, once: a second signal would interrupt their current update."""
        for each in self.running if not self._stopped else ():
            with contextlib.suppress(ProcessLookupError):
                each.process.send_signal(signal.SIGINT)
        self._stopped = True

    def poll(self) -> None:
        """Checks which commands have ended, and starts the next ones."""
        self.running = [each for each in self.running if self._continues(each)]

    def _continues(self, each: _Running) -> bool:
        code = each.process.poll()
        if code is None:
            return True
        each.done += code == 0
        if each.done == len(each.job.commands):
            return self._ended(each, "done", "done")
        if self._stopped:
            return self._ended(each, "stopped")
        if code > 0 or (code < 0 and each.retries == self._retries):
            return self._ended(each, "failed", "failed", reason(self._path(each.job), code))
        if code < 0:
            each.retries += 1
            self._log(f"{each.job.name} was killed by signal {-code}: restarted")
            self._notice(Event(each.job.name, "running", each.retries))
        each.process = self._start(each.job, each.done, each.slot)
        return True

    def _ended(self, each: _Running, status: Status, word: str = "", why: str = "") -> bool:
        name = each.job.name
        if why:
            self.failed[name] = why
        if word:
            self._log(f"{name} {word}: {why}" if why else f"{name}: {word}")
        self._notice(Event(name, status, each.retries, why))
        return False

    def _start(self, job: Job, number: int, slot: int) -> subprocess.Popen:
        with open(self._path(job), "ab") as output:
            return start(job.commands[number], output=output, env=self._shares[slot])

    def _path(self, job: Job) -> pathlib.Path:
        return self._folder / f"{job.name}.log"


def start(
    command: Sequence[str], *, output: BinaryIO, env: Mapping[str, str], cwd: str | None = None
) -> subprocess.Popen:
    """Starts a command that prints to a file and is killed if this process ends."""
    # In a new session: Ctrl-C reaches it only through this process, once.
    return subprocess.Popen(
        [sys.executable, "-I", "-S", tied.__file__, str(os.getpid()), *command],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env={**os.environ, **env},
        cwd=cwd,
        start_new_session=True,
    )


def reason(path: pathlib.Path, code: int) -> str:
    """Why a command failed: the last line that it printed, or the signal that killed it."""
    if code < 0:
        return f"killed by signal {-code}"
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("advsurprise: ") if lines else f"exit code {code}"


# --------------------------------------------------------------------------------------------------------- devices


def visible_gpus() -> list[str]:
    """GPUs that a child process would see, as CUDA_VISIBLE_DEVICES names them."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [each.strip() for each in chosen.split(",") if each.strip() not in ("", "-1")]
    return [str(number) for number, _ in enumerate(GPUS.iterdir())] if GPUS.is_dir() else []


def room(part: float | None) -> int:
    """Number of runs that fit on the GPUs if each takes this part of one; 1 without a part or a GPU."""
    return max(1, len(visible_gpus()) * int(1 / part)) if part else 1


def device_share(slot: int, *, workers: int, gpus: Sequence[str], part: float | None) -> dict[str, str]:
    """Environment variables that give one of `workers` processes its share of the GPUs: whole GPUs, or a part of the
    memory of one (`part`, by default equal parts)."""
    if workers > 1 and len(gpus) > 1:
        each = max(1, len(gpus) // workers)
        mine = [gpus[(slot * each + number) % len(gpus)] for number in range(each)]
        share = {"CUDA_VISIBLE_DEVICES": ",".join(mine)}
    else:
        share = {}
    return share | memory_share(part or 1 / -(-workers // max(1, len(gpus))))


def memory_share(part: float) -> dict[str, str]:
    """Environment variables that limit a process to a part of a GPU's memory; by default it takes most at its start."""
    if part >= 1:
        return {}
    return {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{FILLED * part:.3f}"}


# -------------------------------------------------------------------------------------------------------- progress


class Clock:
    """Logs the progress of all jobs from time to time."""

    def __init__(self, jobs: Sequence[Job], log: Log):
        self._jobs, self._log = jobs, log
        self._total = sum(job.steps * job.seeds for job in jobs)
        self._start, self._before = time.monotonic(), self._done()
        self._last = self._start

    def tick(self, running: int, waiting: int) -> None:
        now = time.monotonic()
        if now - self._last < REPORT:
            return
        self._last, done = now, self._done()
        queue = f"{running} running, {waiting} waiting"
        if done == self._total:
            # Commands that follow training, such as evaluations, have no steps: a rate would only fall.
            self._log(f"all {done:,} steps are trained; {queue}")
            return
        # A resumed run drops the rows after its last checkpoint, which may have been counted.
        rate = max(0, done - self._before) / (now - self._start)
        left = f", ETA {_minutes((self._total - done) / rate)}" if rate > 0 else ""
        share = f"{100 * done / self._total:.0f}%"
        self._log(f"{share} of {self._total:,} steps, {rate:,.0f} steps/s{left}; {queue}")

    def _done(self) -> int:
        return sum(min(last_step(job.metrics), job.steps) * job.seeds for job in self._jobs)


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}m{int(seconds) % 60:02d}s"


def last_step(path: pathlib.Path) -> int:
    """The step of the last complete row of a run's metrics; 0 if there is none."""
    return next((row["step"] for row in _last_rows(path) if "step" in row), 0)


def _last_rows(path: pathlib.Path) -> Iterator[dict]:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            lines = file.read().split(b"\n")
    except OSError:
        return
    # The first line may be cut by the seek, the last by a write in progress.
    for line in reversed(lines):
        with contextlib.suppress(ValueError):
            yield json.loads(line)
