"""What a host and its workers have in common: the arrays of all bodies, and messages. Imports no jax."""

import hashlib
import itertools
import math
import mmap
import socket
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

RESET, STEP, RELOCATE, SAVE, LOAD = range(5)
"""Requests to a worker; steps and relocations with the slot to write to, resets with that of each group."""
DONE, FAILED, REFUSED = range(3)
"""How a worker answers: done; an error, after which it exits; a mistake of the user's, in one sentence."""
NO_ACTION = -1
"""In place of an action: the body is left alone."""
SLOTS = 2
"""Observations are written in turn to two places, so that the last one outlives a step in which a worker dies."""

ALIGNMENT = 64
HEAD = struct.Struct("<BBQ")
LENGTH = struct.Struct("<Q")
DIGEST = 16


class Layout(NamedTuple):
    """Sizes of the arrays; rows are bodies, those of a group one after the other."""

    rows: int
    """Bodies of all seeds."""
    shape: tuple[int, ...]
    """Shape of an observation."""
    dtype: str
    """numpy name of its type."""
    measures: tuple[str, ...]
    """Keys of a step's `info`."""


class Setup(NamedTuple):
    """All that a worker must know, as JSON."""

    function: str
    """As in `Maker`."""
    kwargs: dict[str, Any]
    """As in `Maker`."""
    folder: str | None
    """As in `Maker`."""
    clean_up: str | None
    """As in `Maker`."""
    layout: Layout
    """Sizes of the arrays."""
    rows: tuple[tuple[int, ...], ...]
    """Rows of the worker's bodies, for each group."""


class Arrays(NamedTuple):
    """The arrays of all bodies."""

    obs: np.ndarray
    """What to act on next, axes [slot, row, …]."""
    final_obs: np.ndarray
    """What the action led to; written where an episode ended, and nowhere else."""
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    info: np.ndarray
    """Measures, axes [row, measure]."""
    action: np.ndarray
    rewind: np.ndarray
    """Bodies to rewind."""
    restart: np.ndarray
    """Bodies to begin a new episode with."""
    seed: np.ndarray
    """Seeds of bodies to reset."""


def memory_size(layout: Layout) -> int:
    """Bytes that the arrays take."""
    return _place(layout)[1]


def arrays_in(memory: mmap.mmap, layout: Layout) -> Arrays:
    """The arrays, in memory that may be shared."""
    places, _ = _place(layout)
    return Arrays(*(np.ndarray(shape, dtype, memory, offset) for shape, dtype, offset in places))


def _place(layout: Layout) -> tuple[list[tuple[tuple[int, ...], np.dtype, int]], int]:
    """Shape, type and first byte of each array, and the first byte behind them all."""
    rows, shape = layout.rows, tuple(layout.shape)
    one, flag = (rows,), ((rows,), np.dtype(bool))
    wanted = [((SLOTS, rows, *shape), np.dtype(layout.dtype)), ((rows, *shape), np.dtype(layout.dtype))]
    wanted += [(one, np.dtype(np.float32)), flag, flag, ((rows, len(layout.measures)), np.dtype(np.float32))]
    wanted += [(one, np.dtype(np.int32)), flag, flag, (one, np.dtype(np.uint32))]
    places, offset = [], 0
    for array_shape, dtype in wanted:
        places.append((array_shape, dtype, offset))
        offset += -(-math.prod(array_shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
    return places, offset


class Message(NamedTuple):
    """What a host and a worker tell each other: two small numbers, and bytes where these do not suffice."""

    kind: int
    """A command, or how it went."""
    detail: int = 0
    """The group of a command; the exit code of a refusal."""
    rest: bytes = b""
    """What else the command needs, or has brought."""


def send_message(connection: socket.socket, message: Message) -> None:
    """Sends a message."""
    connection.sendall(HEAD.pack(message.kind, message.detail, len(message.rest)) + message.rest)


def receive_message(connection: socket.socket) -> Message | None:
    """Waits for a message; None if there is nobody left to send one."""
    head = _receive_exactly(connection, HEAD.size)
    if head is None:
        return None
    kind, detail, length = HEAD.unpack(head)
    rest = _receive_exactly(connection, length) if length else b""
    return None if rest is None else Message(kind, detail, rest)


def _receive_exactly(connection: socket.socket, count: int) -> bytes | None:
    parts = []
    while count:
        try:
            part = connection.recv(min(count, 2**20))
        except ConnectionError:
            return None
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def pack(parts: Sequence[bytes]) -> bytes:
    """Several byte strings as one, with what shows any damage."""
    lengths = [LENGTH.pack(len(part)) for part in parts]
    packed = b"".join([LENGTH.pack(len(parts)), *lengths, *parts])
    return hashlib.blake2b(packed, digest_size=DIGEST).digest() + packed


def unpack(packed: bytes) -> list[bytes]:
    """What was packed; raises ValueError for bytes that are not whole."""
    digest, packed = packed[:DIGEST], packed[DIGEST:]
    if hashlib.blake2b(packed, digest_size=DIGEST).digest() != digest:
        raise ValueError("bytes are missing or changed")
    (count,) = LENGTH.unpack_from(packed)
    lengths = [LENGTH.unpack_from(packed, LENGTH.size * (1 + index))[0] for index in range(count)]
    ends = np.cumsum([LENGTH.size * (1 + count), *lengths]).tolist()
    return [packed[start:end] for start, end in itertools.pairwise(ends)]
