"""Runs commands on a Ray cluster: one task per job, restarted by Ray if its process, its worker or its node dies.

The folder of the sweep must be on a file system that all nodes share: logs and runs are written there, and a restarted
command continues from there. No run is ever trained twice at once: a command ends with the worker that started it
(`training.tied`), and the lock on its log keeps out a second one until the first has ended.
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
"""Seconds that an attempt waits for the previous one to end."""
ANSWER = 10.0
"""Timeout in seconds for connecting to a cluster."""
PYTHON = "python"
"""Placeholder for the interpreter of the node that runs a command."""
MARK = "advsurprise: attempt on "
"""Start of the first line that every attempt writes to the log."""
PASSED_ON = ("JAX_", "XLA_", "ADVSURPRISE_", "PYTHONPATH")
"""Prefixes of the environment variables that are passed on to commands on all nodes."""


class Killed(Exception):
    """The command of an attempt was killed: Ray starts another attempt."""


@dataclass(frozen=True)
class Resources:
    """What Ray reserves for a job."""

    cpus: int
    """Number of cores."""
    gpus: float = 0.0
    """Number of GPUs, or a fraction of one."""


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
    """Runs all jobs on the cluster at RAY_ADDRESS, or else on a temporary local one, with their output in NAME.log in
    the folder. Returns the reason for each job that failed, and the signal that stopped them (0 if none did).

    workers: number of parallel jobs; defaults to as many as fit on the cluster.
    cpus, gpu_share: cores and GPUs (or fraction of one) per job; default: a GPU if the cluster has one, else two cores.
    retries: how often a killed job is restarted.
    """
    ray = require("ray", extra="ray")
    with _connected(ray, folder), stop_signals() as stop:
        tasks = _Tasks(ray, folder.resolve(), log, notice, retries, _resources(ray, cpus, gpu_share))
        waiting, clock = deque(jobs), Clock(jobs, log)
        while (waiting and not stop) or tasks.submitted:
            while waiting and not stop and (workers is None or len(tasks.submitted) < workers):
                tasks.submit(waiting.popleft())
            time.sleep(POLL)
            if stop:
                tasks.cancel()
            tasks.poll()
            clock.tick(tasks.running, len(waiting) + len(tasks.submitted) - tasks.running)
    return tasks.failed, stop[0] if stop else 0


@contextlib.contextmanager
def _connected(ray: ModuleType, folder: pathlib.Path) -> Iterator[None]:
    """Connects to a cluster. Ray's output goes to ray.log: it would fill pages of standard output."""
    address = os.environ.get("RAY_ADDRESS") or "local"
    _check_reachable(address)
    # Our own cluster sends no usage statistics.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    own = {"include_dashboard": False} if address == "local" else {}
    with open(folder / "ray.log", "a") as output, contextlib.redirect_stdout(output):
        try:
            with warnings.catch_warnings():
                # jax warns of forks, but those of Ray exec another program at once.
                warnings.simplefilter("ignore", RuntimeWarning)
                ray.init(address=address, log_to_driver=False, logging_level="ERROR", **own)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise UserError(f"could not reach the Ray cluster at {address}: {str(error).splitlines()[0]}") from None
        try:
            yield
        finally:
            ray.shutdown()


def _check_reachable(address: str) -> None:
    """Refuses the address of a machine that does not answer: Ray would wait for it forever."""
    host, colon, port = address.rpartition("//")[2].rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"could not reach the Ray cluster at {address}: {error}") from None


def _resources(ray: ModuleType, cpus: int | None, gpu_share: float | None) -> Resources:
    """Resources for each job; refused if no node of the cluster has them."""
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
class _Submitted:
    job: Job
    path: pathlib.Path
    before: int
    """Size of its log when it was submitted."""
    attempts: int = 0


class _Tasks:
    """Tasks submitted to Ray."""

    def __init__(
        self, ray: ModuleType, folder: pathlib.Path, log: Log, notice: Notice, retries: int, resources: Resources
    ):
        self.submitted: dict[Any, _Submitted] = {}
        self.failed: dict[str, str] = {}
        self._ray, self._folder, self._log, self._notice, self._resources = ray, folder, log, notice, resources
        self._cancelled = False
        self._attempt = ray.remote(
            num_cpus=resources.cpus, num_gpus=resources.gpus, max_retries=retries, retry_exceptions=[Killed]
        )(attempt)

    @property
    def running(self) -> int:
        """Number of tasks that a node has started."""
        return sum(each.attempts > 0 for each in self.submitted.values())

    def submit(self, job: Job) -> None:
        path = self._folder / f"{job.name}.log"
        env = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
        # The same number of devices on every node: another one would change the last bits.
        env = {"JAX_NUM_CPU_DEVICES": str(self._resources.cpus), **env, **memory_share(self._resources.gpus or 1.0)}
        commands = [[PYTHON, *command[1:]] if command[0] == sys.executable else command for command in job.commands]
        task = self._attempt.options(name=job.name)
        run = str(job.metrics.parent.resolve())
        reference = task.remote(commands, log=str(path), run=run, env=env, cwd=os.getcwd())
        self.submitted[reference] = _Submitted(job, path, path.stat().st_size if path.exists() else 0)

    def cancel(self) -> None:
        """Asks all tasks to stop, once."""
        for reference in self.submitted if not self._cancelled else ():
            self._ray.cancel(reference)
        self._cancelled = True

    def poll(self) -> None:
        """Checks which tasks were started, restarted or have ended."""
        for each in self.submitted.values():
            self._count(each)
        known = list(self.submitted)
        ended, _ = self._ray.wait(known, num_returns=len(known), timeout=0) if known else ([], [])
        for reference in ended:
            each = self.submitted.pop(reference)
            self._count(each)
            self._end(each, *self._result(reference))

    def _count(self, each: _Submitted) -> None:
        attempts = _attempts(each.path, each.before)
        if attempts > each.attempts:
            each.attempts = attempts
            if attempts > 1:
                self._log(f"{each.job.name} or its node was killed: restarted")
            self._notice(Event(each.job.name, "running", attempts - 1))

    def _result(self, reference: Any) -> tuple[int | None, str]:
        """Exit code of the last command and the reason for its failure; no code if it was stopped."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except (errors.TaskCancelledError, KeyboardInterrupt):
            return None, ""
        except errors.RayTaskError as error:
            return 1, str(error.cause).splitlines()[0]
        except errors.RayError as error:
            return 1, str(error).splitlines()[0]

    def _end(self, each: _Submitted, code: int | None, why: str) -> None:
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


def _attempts(path: pathlib.Path, offset: int) -> int:
    """Number of attempts in the log of a job, from byte `offset` on."""
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read().count(MARK.encode())
    except OSError:
        return 0


# ------------------------------------------------------------------------------------------------------- on a node


def attempt(
    commands: Sequence[Sequence[str]], *, log: str, run: str, env: Mapping[str, str], cwd: str
) -> tuple[int, str]:
    """Runs the commands of a job on a node. Returns the exit code of the last, and the reason for a failure."""
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
    """Locks a log; returns whether that worked in time. Commands that print to it hold the lock until they end.

    The log rather than the run's folder: between machines, file systems share locks on files only. File systems
    without locks have no such protection.
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
    """Runs a command, stopped if this task is cancelled, and returns its exit code."""
    # Ray cancels by a simulated SIGINT, which workers of a cluster started in the background ignore.
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
