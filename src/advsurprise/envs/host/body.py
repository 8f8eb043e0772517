"""One body of a host world, as it is stepped in a worker process. Imports no jax: workers start in a moment."""

import abc
import importlib
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np


class Stepped(NamedTuple):
    """What one step of one body led to."""

    obs: np.ndarray
    """What the action led to; at an episode's end its last observation."""
    reward: float
    """The world's own reward."""
    terminated: bool
    """The episode ended and has no future."""
    truncated: bool
    """The clock ran out."""
    info: dict[str, float]
    """Measures of the state the action led to, keys as in `EnvSpec.info`."""


class Body(abc.ABC):
    """One body: `reset` once (or `load`), then `step` for ever, with `begin` after each step that ended an episode.

    A body never begins an episode by itself: the worker does, in one place for all worlds. Arrays it returns may be
    written over by its next call.
    """

    frees_gil: ClassVar[bool] = False
    """Whether a step spends its time outside of Python, so that threads of one process step several bodies at once."""
    rewinds: ClassVar[bool] = False
    """Whether `rewind` leads back to the very first state of the episode."""
    resumes: ClassVar[bool] = False
    """Whether `save` and `load` continue a body exactly where it was."""

    @abc.abstractmethod
    def reset(self, seed: int) -> np.ndarray:
        """The first observation of the first episode: the same seed, a number below 2^31, gives the same episodes."""

    @abc.abstractmethod
    def step(self, action: int) -> Stepped:
        """Uses the action."""

    @abc.abstractmethod
    def begin(self) -> np.ndarray:
        """The first observation of the next episode (or life), whether or not the last has ended."""

    def restart(self) -> np.ndarray:
        """The first observation of a new episode that a method asked for; where lives are episodes, of a new game."""
        return self.begin()

    def rewind(self) -> np.ndarray:
        """The first observation of the current episode again; a new episode in worlds that cannot go back."""
        return self.restart()

    def save(self) -> bytes:
        """All that `load` needs to continue exactly."""
        raise NotImplementedError

    def load(self, state: bytes) -> None:
        """Continues where `save` was called, in a body that was not reset."""
        raise NotImplementedError

    def info(self) -> dict[str, float]:
        """Measures of the current state, for the timestep after a reset."""
        return {}

    def close(self) -> None:  # noqa: B027
        """Ends whatever the body has started; nothing, if it is left out."""


class Maker(NamedTuple):
    """How a worker makes a body: a function that can be imported, and keywords that can be written as JSON."""

    function: str
    """`package.module:function`, which returns a `Body`."""
    kwargs: dict[str, Any]
    folder: str | None = None
    """Where workers run; None for temporary folders of their own, in which relative paths mean nothing."""
    clean_up: str | None = None
    """`package.module:function` that removes what a killed worker has left; it takes the worker's temporary folder."""


def imported(name: str) -> Callable:
    """The function by its `package.module:function`."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)
