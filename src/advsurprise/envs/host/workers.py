"""The processes that step the bodies of a host world, seen from the host.

They are started as programs, not forked: jax's threads would not survive that, and a script that opens a world needs no
``if __name__ == "__main__"``. What they share with the host has no name, so that nothing is left behind whoever dies.
"""

import abc
import contextlib
import json
import mmap
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence

from advsurprise.envs.host.body import imported
from advsurprise.envs.host.shared import (
    DONE,
    FAILED,
    RESET,
    Arrays,
    Layout,
    Message,
    Setup,
    arrays_in,
    memory_size,
    receive_message,
    send_message,
)
from advsurprise.envs.host.worker import GRACE, Bodies, sentence
from advsurprise.errors import EXIT_FAILED, MissingExtra, UserError

PROGRAM = "advsurprise.envs.host.worker"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Cores are shared out among workers, and not among the threads of each."""


class WorkerDied(UserError):
    """A process that ran a body ended by itself or was killed, and replacing it was not possible or of no use."""

    exit_code = EXIT_FAILED


class Death(Exception):
    """A worker cannot go on; the text says why."""


class Worker(abc.ABC):
    """Some bodies, and one command after the other for them."""

    def __init__(self, setup: Setup):
        self.setup = setup
        self.orders: deque[tuple[int, int]] = deque()
        """Commands, and the group of each, that are not yet answered, oldest first."""
        self.traits: dict[str, bool] = {}
        """What the world can do, once the worker has started."""

    def order(self, command: int, group: int, rest: bytes = b"") -> None:
        """Starts a command, and returns at once."""
        self.orders.append((command, group))
        self._send(Message(command, group, rest))

    def busy(self, group: int) -> bool:
        """Whether a command for a group is not yet answered."""
        return any(each == group for _, each in self.orders)

    def finish(self) -> tuple[int, bytes]:
        """Waits for the oldest command: what it was and what it brought. Raises `Death`, or what the worker refused it
        with."""
        brought = self._receive()
        return self.orders.popleft()[0], brought

    @abc.abstractmethod
    def start(self) -> None:
        """Waits until the bodies are made."""

    @abc.abstractmethod
    def hang_up(self) -> None:
        """Has the worker end once it is through with its orders, and returns at once."""

    @abc.abstractmethod
    def end(self, deadline: float) -> str:
        """Ends the worker, by force at a time of the monotonic clock; returns how it ended."""

    @abc.abstractmethod
    def _send(self, message: Message) -> None: ...

    @abc.abstractmethod
    def _receive(self) -> bytes: ...


class ProcessWorker(Worker):
    """A worker in a session of its own: Ctrl-C does not reach it, and what its bodies start ends with it."""

    def __init__(self, setup: Setup, memory: int):
        super().__init__(setup)
        # Some worlds leave files in the folder in which they run.
        self._folder = tempfile.mkdtemp(prefix="advsurprise-worker-")
        self.connection, theirs = socket.socketpair()
        paths = os.pathsep.join(os.path.abspath(path) for path in sys.path)
        numbers = [str(number) for number in (theirs.fileno(), memory, os.getpid())]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", PROGRAM, *numbers, self._folder],
                pass_fds=(theirs.fileno(), memory),
                start_new_session=True,
                cwd=self._folder,
                env=os.environ | ONE_THREAD | {"PYTHONPATH": paths, "TMPDIR": self._folder},
                stdin=subprocess.DEVNULL,
                # What a world prints must not mix with what the host's program prints.
                stdout=2,
            )
        self._send(Message(RESET, rest=json.dumps(setup).encode()))

    @property
    def pid(self) -> int:
        """Number of the process and of its session."""
        return self._process.pid

    def start(self) -> None:
        """Waits until the bodies are made."""
        self.traits = json.loads(self._receive())

    def hang_up(self) -> None:
        """Closes one direction of the socket: a worker that finds no more orders ends."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)

    def end(self, deadline: float) -> str:
        """Ends the process and all that it started, by force at the deadline."""
        if self._process.returncode is None:
            self.hang_up()
            self._wait_for_silence(deadline)
            # Before the process is waited for: afterwards its number may be that of another one.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self.connection.close()
        code = self._process.wait()
        if self.setup.clean_up is not None:
            imported(self.setup.clean_up)(self._folder)
        shutil.rmtree(self._folder, ignore_errors=True)
        return f"killed by signal {-code}" if code < 0 else f"exit code {code}"

    def _wait_for_silence(self, deadline: float) -> None:
        """Waits until the worker's end of the socket is closed, and throws away what it still answers."""
        with contextlib.suppress(OSError):
            while (left := deadline - time.monotonic()) > 0:
                self.connection.settimeout(left)
                if not self.connection.recv(2**20):
                    return

    def _send(self, message: Message) -> None:
        # That a worker is gone is noticed when its answer is waited for.
        with contextlib.suppress(OSError):
            send_message(self.connection, message)

    def _receive(self) -> bytes:
        answer = receive_message(self.connection)
        if answer is None:
            raise Death(self.end(deadline=0.0))
        if answer.kind == DONE:
            return answer.rest
        text = answer.rest.decode()
        if answer.kind == FAILED:
            raise Death(text)
        raise _refused(text, exit_code=answer.detail)


class LocalWorker(Worker):
    """Bodies in this process, which act when the answer is waited for."""

    def __init__(self, setup: Setup, arrays: Arrays):
        super().__init__(setup)
        self._messages: deque[Message] = deque()
        self._arrays = arrays
        self._bodies: Bodies | None = None

    def start(self) -> None:
        """Makes the bodies."""
        with _death_of_errors():
            self._bodies = Bodies(self.setup, self._arrays)
        self.traits = self._bodies.traits

    def hang_up(self) -> None:
        """Nothing is under way."""

    def end(self, deadline: float) -> str:
        """Closes the bodies."""
        if self._bodies is not None:
            self._bodies.close()
        return "closed"

    def _send(self, message: Message) -> None:
        self._messages.append(message)

    def _receive(self) -> bytes:
        assert self._bodies is not None
        with _death_of_errors():
            return self._bodies.answer(self._messages.popleft()).rest


class Workers:
    """All workers of a host, and the memory that they share with it."""

    def __init__(self, name: str, setups: Sequence[Setup], layout: Layout, *, local: bool):
        self.all: list[Worker] = []
        self._name = name
        self._setups = setups
        self._local = local
        self._owner = os.getpid()
        self._memory = -1 if local else _anonymous_file(memory_size(layout))
        self.arrays = arrays_in(mmap.mmap(self._memory, memory_size(layout)), layout)
        try:
            self._start_all()
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """Numbers of the processes."""
        return [worker.pid for worker in self.all if isinstance(worker, ProcessWorker)]

    def replace(self, index: int) -> Worker:
        """Ends a worker and starts another in its place; raises `Death` if that fails."""
        # One that failed by an error is still closing its bodies; one that is dead does not keep us waiting.
        self.all[index].end(time.monotonic() + GRACE)
        self.all[index] = self._new(index)
        try:
            self.all[index].start()
        except UserError as error:
            raise Death(str(error)) from error
        return self.all[index]

    def close(self) -> None:
        """Ends every worker; does nothing the second time, or in a process that was forked from the host's."""
        if os.getpid() != self._owner:
            return
        workers, self.all = self.all, []
        for worker in workers:
            worker.hang_up()
        deadline = time.monotonic() + GRACE
        for worker in workers:
            worker.end(deadline)
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1

    def _start_all(self) -> None:
        """Starts all workers at the same time."""
        for index in range(len(self._setups)):
            self.all.append(self._new(index))
        try:
            for worker in self.all:
                worker.start()
        except Death as death:
            raise UserError(f"{self._name} could not be made: {death}") from death

    def _new(self, index: int) -> Worker:
        setup = self._setups[index]
        return LocalWorker(setup, self.arrays) if self._local else ProcessWorker(setup, self._memory)


def default_workers() -> int:
    """One per core, less one core in eight: this process has policies to compute. With fewer than eight cores, where a
    policy costs as much as a step, all are shared."""
    cores = usable_cores()
    return cores - cores // 8


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def _death_of_errors():
    """Turns any error that is not the user's into the death of a worker."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise Death(sentence(error)) from error


def _refused(text: str, *, exit_code: int) -> UserError:
    """A mistake of the user's as it was raised in a worker."""
    error = MissingExtra(text) if exit_code == MissingExtra.exit_code else UserError(text)
    error.exit_code = exit_code
    return error


def _anonymous_file(size: int) -> int:
    """A file without a name, which ends with the last process that has it open."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("advsurprise")
    else:
        with tempfile.TemporaryFile() as file:
            number = os.dup(file.fileno())
    os.ftruncate(number, size)
    return number
