"""The host contract (docs/contract.md): all bodies at once, in numpy; the world keeps its own state."""

import abc

import numpy as np
from jaxtyping import Int, PRNGKeyArray

from advsurprise.types import EnvSpec, TimeStep


class Host(abc.ABC):
    """The host contract: all bodies at once, numpy arrays, the world keeps its own state."""

    bodies: int
    """Bodies that act at the same time."""

    @property
    @abc.abstractmethod
    def spec(self) -> EnvSpec:
        """What a learner must know of the world."""

    @abc.abstractmethod
    def reset(self, seed: int | PRNGKeyArray) -> TimeStep:
        """Begins the first episode of every body: the same seed (or key) gives the same episodes."""

    @abc.abstractmethod
    def send(self, action: Int[np.ndarray, " bodies"]) -> None:
        """Starts a step with every body."""

    @abc.abstractmethod
    def recv(self) -> TimeStep:
        """Waits for the step that `send` started."""

    @abc.abstractmethod
    def relocate(self, request: Int[np.ndarray, " bodies"]) -> TimeStep:
        """Relocates bodies between two steps: on `REWIND` back to the first state of their episode (worlds that
        cannot, to the beginning of a new one), on `RESTART` into a new one. Only `obs` and `place` of the result
        count."""

    @abc.abstractmethod
    def close(self) -> None:
        """Closes the world."""
