"""What a host and its workers share: the arrays of all bodies, and messages. Imports no jax."""

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
"""Commands to a worker; steps and relocations carry the slot to write to, resets one slot per group."""
DONE, FAILED, REFUSED = range(3)
"""Replies of a worker: done; an error, after which it exits; a `UserError`."""
NO_ACTION = -1
"""In place of an action: the body does not step."""
SLOTS = 2
"""Observations alternate between two slots, so that the last one survives a step in which a worker dies."""

ALIGNMENT = 64
HEAD = struct.Struct("<BBQ")
LENGTH = struct.Struct("<Q")
DIGEST = 16


class Layout(NamedTuple):
    """Sizes of the arrays; rows are bodies, ordered by group."""

    rows: int
    """Bodies of all seeds."""
    shape: tuple[int, ...]
    """Shape of an observation."""
    dtype: str
    """numpy name of its type."""
    measures: tuple[str, ...]
    """Keys of a step's `info`."""


class Setup(NamedTuple):
    """Everything a worker needs to know, sent as JSON."""

    function: str
    """As in `Maker`."""
    kwargs: dict[str, Any]
    """As in `Maker`."""
    folder: str | None
    """As in `Maker`."""
    clean_up: str | None
    """As in `Maker`."""
    own_processes: bool
    """As in `Maker`."""
    layout: Layout
    """Sizes of the arrays."""
    rows: tuple[tuple[int, ...], ...]
    """Rows of the worker's bodies, for each group."""


class Arrays(NamedTuple):
    """The arrays of all bodies."""

    obs: np.ndarray
    """Observation to act on next, axes [slot, row, …]."""
    final_obs: np.ndarray
    """Final observation; written only where an episode ended."""
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    info: np.ndarray
    """Measures, axes [row, measure]."""
    action: np.ndarray
    rewind: np.ndarray
    """Bodies to rewind."""
    restart: np.ndarray
    """Bodies to restart."""
    seed: np.ndarray
    """Seeds of bodies to reset."""


def memory_size(layout: Layout) -> int:
    """Size of the arrays in bytes."""
    return _place(layout)[1]


def arrays_in(memory: mmap.mmap, layout: Layout) -> Arrays:
    """The arrays, in memory that may be shared."""
    places, _ = _place(layout)
    return Arrays(*(np.ndarray(shape, dtype, memory, offset) for shape, dtype, offset in places))


def _place(layout: Layout) -> tuple[list[tuple[tuple[int, ...], np.dtype, int]], int]:
    """Shape, type and offset of each array, and the total size."""
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
    """A message between host and worker: two small numbers, and bytes where these are not enough."""

    kind: int
    """A command, or the kind of reply."""
    detail: int = 0
    """The group of a command; the exit code of a refusal."""
    rest: bytes = b""
    """Arguments of the command, or its result."""


def send_message(connection: socket.socket, message: Message) -> None:
    """Sends a message."""
    connection.sendall(HEAD.pack(message.kind, message.detail, len(message.rest)) + message.rest)


def receive_message(connection: socket.socket) -> Message | None:
    """Waits for a message; None if the other end is closed."""
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
    """Joins byte strings into one, with a checksum."""
    lengths = [LENGTH.pack(len(part)) for part in parts]
    packed = b"".join([LENGTH.pack(len(parts)), *lengths, *parts])
    return hashlib.blake2b(packed, digest_size=DIGEST).digest() + packed


def unpack(packed: bytes) -> list[bytes]:
    """Splits what `pack` joined; raises ValueError if it is damaged."""
    digest, packed = packed[:DIGEST], packed[DIGEST:]
    if hashlib.blake2b(packed, digest_size=DIGEST).digest() != digest:
        raise ValueError("bytes are missing or changed")
    (count,) = LENGTH.unpack_from(packed)
    lengths = [LENGTH.unpack_from(packed, LENGTH.size * (1 + index))[0] for index in range(count)]
    ends = np.cumsum([LENGTH.size * (1 + count), *lengths]).tolist()
    return [packed[start:end] for start, end in itertools.pairwise(ends)]
