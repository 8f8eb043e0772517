"""Processes rollouts of large observations in chunks of steps: as floats, all of them would fill the memory."""

import math
from collections.abc import Callable
from typing import Any

import jax

LARGE = 4096
"""Entries of an observation above which steps are processed in chunks: 84x84 pixels have 7,056, rooms about 600."""
MOST_NUMBERS = 2**20
"""Maximum entries of a chunk's observations, unless one step has more: networks need twenty times as many."""


def is_large(numbers: int) -> bool:
    """Whether observations with this many entries are processed in chunks."""
    return numbers > LARGE


def chunk_length(steps: int, *, bodies: int, numbers: int) -> int:
    """Steps in a chunk: all if observations are small, else the largest divisor of `steps` that keeps a chunk within
    `MOST_NUMBERS`; `numbers` are the entries of an observation."""
    if not is_large(numbers):
        return steps
    return largest_divisor(steps, max(1, MOST_NUMBERS // (bodies * numbers)))


def largest_divisor(number: int, most: int) -> int:
    """The largest divisor of a number that is at most `most`."""
    return max(divisor for divisor in range(1, min(most, number) + 1) if number % divisor == 0)


def split(x: Any, length: int) -> Any:
    """Arrays [T, …] as [chunk, length, …]."""
    return jax.tree.map(lambda leaf: leaf.reshape(-1, length, *leaf.shape[1:]), x)


def by_chunks(function: Callable[[Any], Any], x: Any, *, shape: tuple[int, ...]) -> Any:
    """Applies `function` to arrays [T, B, …] chunk by chunk; its results have an axis T too. `shape` is that of an
    observation as floats."""
    steps, bodies = jax.tree.leaves(x)[0].shape[:2]
    length = chunk_length(steps, bodies=bodies, numbers=math.prod(shape))
    if length == steps:
        return function(x)
    parts = jax.lax.map(function, split(x, length))
    return jax.tree.map(lambda leaf: leaf.reshape(steps, *leaf.shape[2:]), parts)
