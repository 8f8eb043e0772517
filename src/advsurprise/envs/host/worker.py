"""Worker process that steps some bodies of a host world. Imports no jax.

It receives commands over a socket, and reads actions from and writes results to memory that it shares with the host. It
exits when the other end of the socket is closed, however the host ended.
"""

import concurrent.futures
import contextlib
import json
import mmap
import os
import select
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable

import numpy as np

from advsurprise.envs.host.body import Body, imported
from advsurprise.envs.host.cores import claim_core
from advsurprise.envs.host.shared import (
    DONE,
    FAILED,
    LOAD,
    NO_ACTION,
    REFUSED,
    RELOCATE,
    RESET,
    SAVE,
    STEP,
    Arrays,
    Layout,
    Message,
    Setup,
    arrays_in,
    memory_size,
    pack,
    receive_message,
    send_message,
    unpack,
)
from advsurprise.errors import UserError

GRACE = 5.0
"""Seconds that a worker has to close its bodies once its host is gone."""


class Bodies:
    """The bodies of one worker, and its claim to the core that it is confined to, if it is."""

    def __init__(self, setup: Setup, arrays: Arrays, *, core: socket.socket | None = None):
        self._setup = setup
        self._core = core
        self._arrays = arrays
        self._order = sorted(row for rows in setup.rows for row in rows)
        self._bodies: dict[int, Body] = {}
        self._threads: concurrent.futures.ThreadPoolExecutor | None = None
        self._fresh = True
        self._make()

    @property
    def traits(self) -> dict[str, bool]:
        """Capabilities of the world."""
        body = next(iter(self._bodies.values()))
        return {"resumes": body.resumes, "rewinds": body.rewinds}

    def answer(self, message: Message) -> Message:
        """Executes a command and returns the reply."""
        command, group, rest = message
        if command == STEP:
            self._run(lambda row: step(self._bodies[row], row, rest[0], self._arrays, self._setup.layout), group)
        elif command == RELOCATE:
            self._run(lambda row: relocate(self._bodies[row], row, rest[0], self._arrays, self._setup.layout), group)
        elif command == RESET:
            self._reset(slots=rest)
        elif command == SAVE:
            return Message(DONE, rest=pack([self._bodies[row].save() for row in self._order]))
        elif command == LOAD:
            self._load(unpack(rest))
        return Message(DONE)

    def close(self) -> None:
        """Closes every body, ignoring errors."""
        for _ in self._map(_close_quietly, list(self._bodies.values())):
            pass
        if self._threads is not None:
            self._threads.shutdown()
        self._bodies, self._threads = {}, None

    def _make(self) -> None:
        make = imported(self._setup.function)
        try:
            for row in self._order:
                self._bodies[row] = make(**self._setup.kwargs)
        except BaseException:
            self.close()
            raise
        if self._setup.own_processes and self._core is None and len(self._order) > 1:
            most = max(len(rows) for rows in self._setup.rows)
            self._threads = concurrent.futures.ThreadPoolExecutor(most)

    def _run(self, do: Callable[[int], None], group: int) -> None:
        for _ in self._map(do, self._setup.rows[group]):
            pass

    @property
    def _map(self) -> Callable[..., Iterable[None]]:
        """Maps over bodies one by one, or in threads if steps wait for other processes, on other cores."""
        return map if self._threads is None else self._threads.map

    def _reset(self, slots: bytes) -> None:
        self._fresh = False
        for slot, rows in zip(slots, self._setup.rows, strict=True):
            for row in rows:
                obs = self._bodies[row].reset(int(self._arrays.seed[row]))
                begin(self._bodies[row], obs, row, slot, self._arrays, self._setup.layout)

    def _load(self, states: list[bytes]) -> None:
        if not self._fresh:
            self.close()
            self._make()
        self._fresh = False
        for row, state in zip(self._order, states, strict=True):
            try:
                self._bodies[row].load(state)
            except Exception as error:
                raise UserError(f"the saved state of a body could not be loaded: {sentence(error)}") from error


def _close_quietly(body: Body) -> None:
    with contextlib.suppress(Exception):
        body.close()


def step(body: Body, row: int, slot: int, arrays: Arrays, layout: Layout) -> None:
    """Steps a body; if that ends its episode, the next one starts within the same step."""
    action = int(arrays.action[row])
    if action == NO_ACTION:
        return
    stepped = body.step(action)
    terminated = bool(stepped.terminated)
    truncated = bool(stepped.truncated) and not terminated
    arrays.reward[row] = stepped.reward
    arrays.terminated[row] = terminated
    arrays.truncated[row] = truncated
    if layout.measures:
        arrays.info[row] = [stepped.info[name] for name in layout.measures]
    if not (terminated or truncated):
        _show(stepped.obs, arrays.obs[slot], row)
        return
    # Before the next episode starts: its first observation may overwrite this one.
    _show(stepped.obs, arrays.final_obs, row)
    _show(body.begin(), arrays.obs[slot], row)


def relocate(body: Body, row: int, slot: int, arrays: Arrays, layout: Layout) -> None:
    """Relocates a body, if requested."""
    if arrays.rewind[row]:
        begin(body, body.rewind(), row, slot, arrays, layout)
    elif arrays.restart[row]:
        begin(body, body.restart(), row, slot, arrays, layout)


def begin(body: Body, obs: np.ndarray, row: int, slot: int, arrays: Arrays, layout: Layout) -> None:
    """Shows the first observation and measures of an episode that a reset or relocation started."""
    _show(obs, arrays.obs[slot], row)
    info = body.info()
    arrays.info[row] = [info.get(name, 0.0) for name in layout.measures]


def _show(obs: np.ndarray, shown: np.ndarray, row: int) -> None:
    if obs.shape != shown.shape[1:] or obs.dtype != shown.dtype:
        raise ValueError(f"an observation is {obs.dtype} {obs.shape}, not {shown.dtype} {shown.shape[1:]}")
    shown[row] = obs


def sentence(error: BaseException) -> str:
    """An error in one line."""
    line = " ".join(str(error).split())
    if isinstance(error, UserError):
        return line
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def refusal(error: BaseException) -> Message:
    """The reply to a command that raised an error."""
    text = sentence(error).encode()
    return Message(REFUSED, error.exit_code, text) if isinstance(error, UserError) else Message(FAILED, rest=text)


def serve(connection: socket.socket, memory: int) -> None:
    """Makes the bodies and executes commands until the host disconnects."""
    setup = receive_message(connection)
    if setup is None:
        return
    with contextlib.closing(_open(connection, memory, setup.rest)) as bodies:
        while (message := receive_message(connection)) is not None:
            try:
                answer = bodies.answer(message)
            except Exception as error:
                answer = refusal(error)
            send_message(connection, answer)
            if answer.kind == FAILED:
                return


def _open(connection: socket.socket, memory: int, setup: bytes) -> Bodies:
    known = Setup(*json.loads(setup))
    known = known._replace(layout=Layout(*known.layout), rows=tuple(tuple(each) for each in known.rows))
    try:
        if known.folder is not None:
            os.chdir(known.folder)
        core = claim_core() if known.own_processes else None
        arrays = arrays_in(mmap.mmap(memory, memory_size(known.layout)), known.layout)
        bodies = Bodies(known, arrays, core=core)
    except Exception as error:
        send_message(connection, refusal(error))
        raise SystemExit(0) from None
    send_message(connection, Message(DONE, rest=json.dumps(bodies.traits).encode()))
    return bodies


def main(connection: int, memory: int, host: int, folder: str) -> None:
    """Serves until the host disconnects, then removes the folder with the bodies' files."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Processes that bodies start must not keep these open.
    os.set_inheritable(connection, False)
    os.set_inheritable(memory, False)
    threading.Thread(target=_watch, args=(connection, host, folder), daemon=True).start()
    try:
        with contextlib.suppress(ConnectionError):
            serve(socket.socket(fileno=connection), memory)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if os.getppid() != host:
            _end_session()


def _watch(connection: int, host: int, folder: str) -> None:
    """Kills the worker and everything it started if it is still running `GRACE` seconds after its host is gone, for
    example in a long step."""
    hung_up = select.poll()
    hung_up.register(connection, getattr(select, "POLLRDHUP", 0))
    # The parent is checked too: a process forked by the host keeps the other end of the socket open.
    while not hung_up.poll(1000) and os.getppid() == host:
        pass
    time.sleep(GRACE)
    shutil.rmtree(folder, ignore_errors=True)
    _end_session()


def _end_session() -> None:
    """Kills this process and everything its bodies started."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
