"""The processes that step the bodies of a host world, as seen by the host.

They are started as programs, not forked: jax's threads would not survive that, and a script that opens a world needs no
``if __name__ == "__main__"``. The memory they share with the host is anonymous, so that nothing is left behind when
a process dies.
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
"""Cores are divided among workers, not among the threads of each."""


class WorkerDied(UserError):
    """A worker process died, and replacing it failed or did not help."""

    exit_code = EXIT_FAILED


class Death(Exception):
    """A worker cannot continue; the text says why."""


class Worker(abc.ABC):
    """Some bodies and the queue of commands for them."""

    def __init__(self, setup: Setup):
        self.setup = setup
        self.orders: deque[tuple[int, int]] = deque()
        """Unanswered commands and their groups, oldest first."""
        self.traits: dict[str, bool] = {}
        """Capabilities of the world, once the worker has started."""

    def order(self, command: int, group: int, rest: bytes = b"") -> None:
        """Sends a command, and returns immediately."""
        self.orders.append((command, group))
        self._send(Message(command, group, rest))

    def busy(self, group: int) -> bool:
        """Whether a command for a group is unanswered."""
        return any(each == group for _, each in self.orders)

    def finish(self) -> tuple[int, bytes]:
        """Waits for the oldest command; returns it and its result. Raises `Death`, or the worker's `UserError`."""
        result = self._receive()
        return self.orders.popleft()[0], result

    @abc.abstractmethod
    def start(self) -> None:
        """Waits until the bodies are made."""

    @abc.abstractmethod
    def hang_up(self) -> None:
        """Tells the worker to exit after its pending commands, and returns immediately."""

    @abc.abstractmethod
    def end(self, deadline: float) -> str:
        """Stops the worker, by force after the deadline (monotonic clock); returns how it ended."""

    @abc.abstractmethod
    def _send(self, message: Message) -> None: ...

    @abc.abstractmethod
    def _receive(self) -> bytes: ...


class ProcessWorker(Worker):
    """A worker process in a separate session: Ctrl-C does not reach it, and what its bodies start ends with it."""

    def __init__(self, setup: Setup, memory: int):
        super().__init__(setup)
        # Some worlds leave files in their working directory.
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
                # Keeps what a world prints out of the output of the host's program.
                stdout=2,
            )
        self._send(Message(RESET, rest=json.dumps(setup).encode()))

    @property
    def pid(self) -> int:
        """Id of the process and of its session."""
        return self._process.pid

    def start(self) -> None:
        """Waits until the bodies are made."""
        self.traits = json.loads(self._receive())

    def hang_up(self) -> None:
        """Closes one direction of the socket; the worker exits when no commands are left."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)

    def end(self, deadline: float) -> str:
        """Stops the process and everything it started, by force after the deadline."""
        if self._process.returncode is None:
            self.hang_up()
            self._wait_for_silence(deadline)
            # Before waiting for the process: afterwards its id may belong to another one.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self.connection.close()
        code = self._process.wait()
        if self.setup.clean_up is not None:
            imported(self.setup.clean_up)(self._folder)
        shutil.rmtree(self._folder, ignore_errors=True)
        return f"killed by signal {-code}" if code < 0 else f"exit code {code}"

    def _wait_for_silence(self, deadline: float) -> None:
        """Waits until the worker's end of the socket is closed, and discards remaining replies."""
        with contextlib.suppress(OSError):
            while (left := deadline - time.monotonic()) > 0:
                self.connection.settimeout(left)
                if not self.connection.recv(2**20):
                    return

    def _send(self, message: Message) -> None:
        # A dead worker is noticed when waiting for its reply.
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
    """Bodies in this process, which act when the reply is requested."""

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
        """Does nothing: no command is running."""

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
    """All workers of a host, and the memory they share with it."""

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
        """Ids of the processes."""
        return [worker.pid for worker in self.all if isinstance(worker, ProcessWorker)]

    def replace(self, index: int) -> Worker:
        """Replaces a worker by a new one; raises `Death` if that fails."""
        # A worker that raised an error is still closing its bodies; a dead one takes no time.
        self.all[index].end(time.monotonic() + GRACE)
        self.all[index] = self._new(index)
        try:
            self.all[index].start()
        except UserError as error:
            raise Death(str(error)) from error
        return self.all[index]

    def close(self) -> None:
        """Stops every worker; does nothing the second time, or in a process forked from the host's."""
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
        """Starts all workers in parallel."""
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
    """One per core, less one core in eight to compute policies in this process. With fewer than eight cores, where a
    policy costs as much as a step, all are shared."""
    cores = usable_cores()
    return cores - cores // 8


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def _death_of_errors():
    """Turns any error other than a `UserError` into `Death`."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise Death(sentence(error)) from error


def _refused(text: str, *, exit_code: int) -> UserError:
    """The `UserError` that was raised in a worker."""
    error = MissingExtra(text) if exit_code == MissingExtra.exit_code else UserError(text)
    error.exit_code = exit_code
    return error


def _anonymous_file(size: int) -> int:
    """An unnamed file, which is freed when the last process closes it."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("advsurprise")
    else:
        with tempfile.TemporaryFile() as file:
            number = os.dup(file.fileno())
    os.ftruncate(number, size)
    return number
