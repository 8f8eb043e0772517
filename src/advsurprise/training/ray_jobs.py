"""Commands on a Ray cluster: one task for each job, begun again by Ray where its process, its worker or its node dies.

The folder of the sweep must lie on a file system that all nodes share: logs and runs are written there, and a command
that is given again goes on from what is there. Never two at once on one run: a command ends with the worker that
started it (`training.tied`), and the lock on its log keeps out a second one until the first is gone.
"""

import contextlib
import os
import pathlib
import signal
import socket
import sys
import time
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, BinaryIO

from advsurprise.errors import UserError, require
from advsurprise.training.jobs import POLL, Clock, Event, Job, Log, Notice, memory_share, reason, start
from advsurprise.training.signals import stop_signals

LOCK_WAIT = 120.0
"""Seconds that an attempt waits for the one before it to end."""
ANSWER = 10.0
"""Seconds within which a cluster has to answer."""
PYTHON = "python"
"""What stands for the interpreter of whichever node runs a command."""
MARK = "advsurprise: attempt on "
"""How the line in the log begins that every attempt writes first."""
PASSED_ON = ("JAX_", "XLA_", "ADVSURPRISE_", "PYTHONPATH")
"""Beginnings of the environment's names that commands on all nodes get from here."""


class Killed(Exception):
    """Something killed the command of an attempt: Ray makes another."""


@dataclass(frozen=True)
class Resources:
    """What Ray sets aside for a job."""

    cpus: int
    """Cores."""
    gpus: float = 0.0
    """GPUs, or a part of one."""


def run_jobs_on_ray(
    jobs: Sequence[Job],
    *,
    folder: pathlib.Path,
    log: Log,
    workers: int | None = None,
    cpus: int | None = None,
    gpu_share: float | None = None,
    retries: int = 0,
    notice: Notice = lambda event: None,
) -> tuple[dict[str, str], int]:
    """Runs all of them on the cluster of RAY_ADDRESS, or on one that is made here and ends with them: for each that
    failed the reason, and the signal that stopped them (0 if none did). What they print goes to NAME.log in the folder.

    workers: most at a time; as many as the cluster has room for if left out.
    cpus, gpu_share: cores and GPUs (or the part of one) of each; a GPU where the cluster has one, else two cores.
    retries: how often a job that something killed is begun again.
    """
    ray = require("ray", extra="ray")
    with _connected(ray, folder), stop_signals() as stop:
        tasks = _Tasks(ray, folder.resolve(), log, notice, retries, _resources(ray, cpus, gpu_share))
        waiting, clock = deque(jobs), Clock(jobs, log)
        while (waiting and not stop) or tasks.asked:
            while waiting and not stop and (workers is None or len(tasks.asked) < workers):
                tasks.ask(waiting.popleft())
            time.sleep(POLL)
            if stop:
                tasks.cancel()
            tasks.look()
            clock.tick(tasks.running, len(waiting) + len(tasks.asked) - tasks.running)
    return tasks.failed, stop[0] if stop else 0


@contextlib.contextmanager
def _connected(ray: ModuleType, folder: pathlib.Path) -> Iterator[None]:
    """Connects to a cluster. What Ray says goes to ray.log: it would write pages to standard output."""
    address = os.environ.get("RAY_ADDRESS") or "local"
    _check_reachable(address)
    # A cluster of our own sends no statistics of its use to anybody.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    own = {"include_dashboard": False} if address == "local" else {}
    with open(folder / "ray.log", "a") as output, contextlib.redirect_stdout(output):
        try:
            with warnings.catch_warnings():
                # jax warns of forks. Those of Ray become other programs at once.
                warnings.simplefilter("ignore", RuntimeWarning)
                ray.init(address=address, log_to_driver=False, logging_level="ERROR", **own)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise UserError(f"could not reach the Ray cluster at {address}: {str(error).splitlines()[0]}") from None
        try:
            yield
        finally:
            ray.shutdown()


def _check_reachable(address: str) -> None:
    """Refuses the address of a machine that does not answer, for which Ray would wait without end."""
    host, colon, port = address.rpartition("//")[2].rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"could not reach the Ray cluster at {address}: {error}") from None


def _resources(ray: ModuleType, cpus: int | None, gpu_share: float | None) -> Resources:
    """What each job takes; refused if no node of the cluster has it."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    most = {name: max((node.get(name, 0) for node in nodes), default=0) for name in ("CPU", "GPU")}
    gpus = float(most["GPU"] > 0) if gpu_share is None else gpu_share
    cores = (1 if gpus else min(2, int(most["CPU"]) or 1)) if cpus is None else cpus
    if cores > most["CPU"] or gpus > most["GPU"]:
        raise UserError(
            f"no node of the cluster has {cores} cores and {gpus:g} GPUs for a run: the largest have "
            f"{most['CPU']:g} and {most['GPU']:g}; ask for less with --cpus and --gpu-share"
        )
    return Resources(cores, gpus)


@dataclass
class _Asked:
    job: Job
    path: pathlib.Path
    before: int
    """Bytes of its log from earlier times."""
    attempts: int = 0


class _Tasks:
    """Tasks that Ray was asked for."""

    def __init__(
        self, ray: ModuleType, folder: pathlib.Path, log: Log, notice: Notice, retries: int, resources: Resources
    ):
        self.asked: dict[Any, _Asked] = {}
        self.failed: dict[str, str] = {}
        self._ray, self._folder, self._log, self._notice, self._resources = ray, folder, log, notice, resources
        self._cancelled = False
        self._attempt = ray.remote(
            num_cpus=resources.cpus, num_gpus=resources.gpus, max_retries=retries, retry_exceptions=[Killed]
        )(attempt)

    @property
    def running(self) -> int:
        """Those that a node has begun."""
        return sum(each.attempts > 0 for each in self.asked.values())

    def ask(self, job: Job) -> None:
        path = self._folder / f"{job.name}.log"
        env = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
        # As many devices wherever it runs: another number would change the last bits.
        env = {"JAX_NUM_CPU_DEVICES": str(self._resources.cpus), **env, **memory_share(self._resources.gpus or 1.0)}
        commands = [[PYTHON, *command[1:]] if command[0] == sys.executable else command for command in job.commands]
        task = self._attempt.options(name=job.name)
        place = str(job.metrics.parent.resolve())
        reference = task.remote(commands, log=str(path), run=place, env=env, cwd=os.getcwd())
        self.asked[reference] = _Asked(job, path, path.stat().st_size if path.exists() else 0)

    def cancel(self) -> None:
        """Asks all of them to stop, once."""
        for reference in self.asked if not self._cancelled else ():
            self._ray.cancel(reference)
        self._cancelled = True

    def look(self) -> None:
        """Sees which were begun, begun again, and have ended."""
        for each in self.asked.values():
            self._count(each)
        ended, _ = self._ray.wait(list(self.asked), num_returns=len(self.asked), timeout=0) if self.asked else ([], [])
        for reference in ended:
            each = self.asked.pop(reference)
            self._count(each)
            self._end(each, *self._result(reference))

    def _count(self, each: _Asked) -> None:
        attempts = _attempts(each.path, each.before)
        if attempts > each.attempts:
            each.attempts = attempts
            if attempts > 1:
                self._log(f"{each.job.name} was killed, or its node: begun again")
            self._notice(Event(each.job.name, "running", attempts - 1))

    def _result(self, reference: Any) -> tuple[int | None, str]:
        """Exit code of the last command and the reason of its failure; no code if it was stopped."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except (errors.TaskCancelledError, KeyboardInterrupt):
            return None, ""
        except errors.RayTaskError as error:
            return 1, str(error.cause).splitlines()[0]
        except errors.RayError as error:
            return 1, str(error).splitlines()[0]

    def _end(self, each: _Asked, code: int | None, why: str) -> None:
        name, retries = each.job.name, max(0, each.attempts - 1)
        if code == 0:
            self._log(f"{name}: done")
            self._notice(Event(name, "done", retries))
        elif code is None or self._cancelled:
            self._notice(Event(name, "stopped", retries))
        else:
            self.failed[name] = why
            self._log(f"{name} failed: {why}")
            self._notice(Event(name, "failed", retries, why))


def _attempts(path: pathlib.Path, begin: int) -> int:
    """Attempts that the log of a job tells of, from some byte on."""
    try:
        with open(path, "rb") as file:
            file.seek(begin)
            return file.read().count(MARK.encode())
    except OSError:
        return 0


# ------------------------------------------------------------------------------------------------------- on a node


def attempt(
    commands: Sequence[Sequence[str]], *, log: str, run: str, env: Mapping[str, str], cwd: str
) -> tuple[int, str]:
    """Runs the commands of a job on a node of the cluster: the exit code of the last, and the reason of a failure."""
    import ray

    path, node = pathlib.Path(log), ray.get_runtime_context().get_node_id()
    if not path.parent.is_dir():
        return 2, f"{socket.gethostname()} does not see {path.parent}: all nodes must share its file system"
    with open(path, "ab") as output:
        if not take(output, LOCK_WAIT):
            return 2, f"{run} is still being trained elsewhere"
        output.write(f"{MARK}{socket.gethostname()}, node {node}, process {os.getpid()}\n".encode())
        output.flush()
        for command in commands:
            code = _run(command, output, env, cwd)
            if code < 0:
                raise Killed(f"killed by signal {-code}")
            if code:
                return code, reason(path, code)
    return 0, ""


def take(output: BinaryIO, seconds: float) -> bool:
    """Whether a log could be locked in time. Commands that print to it hold the lock as well, until the last is gone.

    The log rather than the run's folder: between machines, file systems share locks of files alone. Those without any
    do without.
    """
    import fcntl

    end = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(output, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > end:
                return False
        except OSError:
            return True
        time.sleep(POLL)


def _run(command: Sequence[str], output: BinaryIO, env: Mapping[str, str], cwd: str) -> int:
    """The exit code of a command, which is stopped where this task is cancelled."""
    # Ray cancels by a simulated SIGINT, which workers of a cluster that was begun in the background ignore.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    python = sys.executable if command[0] == PYTHON else command[0]
    process = start([python, *command[1:]], output=output, env=env, cwd=cwd if os.path.isdir(cwd) else None)
    try:
        while process.poll() is None:
            time.sleep(POLL)
    except KeyboardInterrupt:
        process.send_signal(signal.SIGTERM)
        process.wait()
        raise
    return process.returncode
