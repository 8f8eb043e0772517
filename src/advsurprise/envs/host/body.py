"""One body of a host world, stepped in a worker process. Imports no jax, so that workers start quickly."""

import abc
import importlib
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np


class Stepped(NamedTuple):
    """Result of one step of one body."""

    obs: np.ndarray
    """Observation after the action; at the end of an episode its last one."""
    reward: float
    """The world's own reward."""
    terminated: bool
    """Whether the episode ended in a terminal state."""
    truncated: bool
    """Whether the time limit ended the episode."""
    info: dict[str, float]
    """Measures of the state the action led to, keys as in `EnvSpec.info`."""


class Body(abc.ABC):
    """One body: `reset` once (or `load`), then `step`, with `begin` after each step that ended an episode.

    A body never resets itself: the worker does, in one place for all worlds. Arrays it returns may be overwritten by
    its next call.
    """

    rewinds: ClassVar[bool] = False
    """Whether `rewind` restores the exact first state of the episode."""
    resumes: ClassVar[bool] = False
    """Whether `save` and `load` continue a body exactly where it was."""

    @abc.abstractmethod
    def reset(self, seed: int) -> np.ndarray:
        """Starts the first episode; returns its first observation. Equal seeds (below 2^31) give equal episodes."""

    @abc.abstractmethod
    def step(self, action: int) -> Stepped:
        """Applies the action."""

    @abc.abstractmethod
    def begin(self) -> np.ndarray:
        """Starts the next episode (or life), whether or not the last has ended; returns its first observation."""

    def restart(self) -> np.ndarray:
        """Starts a new episode (or game, where lives are episodes) on request; returns its first observation."""
        return self.begin()

    def rewind(self) -> np.ndarray:
        """Returns to the first observation of the current episode; starts a new one in worlds that cannot rewind."""
        return self.restart()

    def save(self) -> bytes:
        """Everything `load` needs to continue exactly."""
        raise NotImplementedError

    def load(self, state: bytes) -> None:
        """Continues where `save` was called, in a body that was not reset."""
        raise NotImplementedError

    def info(self) -> dict[str, float]:
        """Measures of the current state, for the timestep after a reset."""
        return {}

    def close(self) -> None:  # noqa: B027
        """Releases what the body holds; does nothing by default."""


class Maker(NamedTuple):
    """How a worker makes a body: an importable function and JSON-serializable keywords."""

    function: str
    """`package.module:function`, which returns a `Body`."""
    kwargs: dict[str, Any]
    folder: str | None = None
    """Working directory of the workers; None for one temporary folder each, where relative paths do not work."""
    clean_up: str | None = None
    """`package.module:function` that removes what a killed worker left behind, given its temporary folder."""
    own_processes: bool = False
    """Whether every body has a process of its own, for which a step waits without holding the GIL."""


def imported(name: str) -> Callable:
    """Imports `package.module:function`."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)
