"""What a method is: roles that share one body, what they see, what is noted at each step, and what they learn from it.

Hooks are for one body; `interaction.py` batches them. A method object is its own configuration: all fields are static.
"""

import abc
from typing import Any, Generic, TypeVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray, Shaped

from advsurprise.density import AbstractDensity, Categorical, Gaussian
from advsurprise.types import EnvSpec, Rollout, Score, TimeStep, View

Learnt = TypeVar("Learnt")
Memory = TypeVar("Memory")
Times = TypeVar("Times", Array, np.ndarray)
"""Whole numbers, in numpy or in jax."""


class AbstractMethod(eqx.Module, Generic[Learnt, Memory]):
    """A way of rewarding one or several roles. Hooks never see the loop or the environment's state."""

    spec: eqx.AbstractVar[EnvSpec]
    """The world it is for."""

    @property
    @abc.abstractmethod
    def roles(self) -> tuple[str, ...]:
        """Names of the roles, in the order of `Decision.role`."""

    @property
    @abc.abstractmethod
    def streams(self) -> dict[str, float]:
        """Value streams and the weight of each one's advantage."""

    @property
    @abc.abstractmethod
    def frames(self) -> int:
        """Observations stacked in a view."""

    @property
    @abc.abstractmethod
    def num_features(self) -> int:
        """Density features per entry of the observation."""

    @abc.abstractmethod
    def schedule(self, time: Times) -> Times | None:
        """Which role moves at step `time` of an episode, if that depends on the time alone; else None.

        Plain arithmetic that works on numpy as on jax: turns known beforehand must be known while tracing, and jax
        must not be made to compute in the middle of that.
        """

    @abc.abstractmethod
    def init(self, *, key: PRNGKeyArray) -> Learnt:
        """What is learnt besides the policies, shared by all bodies."""

    @abc.abstractmethod
    def start(self, obs: Shaped[Array, "..."], before: Memory | None = None) -> Memory:
        """A body's memory at the beginning of an episode; `before` is its memory at the end of the last one."""

    @abc.abstractmethod
    def turn(self, memory: Memory) -> Int[Array, ""]:
        """Which role moves next."""

    @abc.abstractmethod
    def see(self, memory: Memory) -> View:
        """What the policies see."""

    @abc.abstractmethod
    def advance(self, learnt: Learnt, memory: Memory, action: Int[Array, ""], timestep: TimeStep) -> tuple[Memory, Any]:
        """After the world moved: the memory within the same episode, and the signal of this step."""

    @abc.abstractmethod
    def score(self, learnt: Learnt, rollout: Rollout) -> tuple[Learnt, dict[str, Score]]:
        """Signals of a whole rollout to rewards for each role."""

    @abc.abstractmethod
    def learn(self, learnt: Learnt, rollout: Rollout, *, key: PRNGKeyArray) -> tuple[Learnt, dict[str, Array]]:
        """Trains the method's own networks, and gives what is worth logging of the rollout."""


def ended(rollout: Rollout) -> Bool[Array, "T B"]:
    """Steps that ended an episode."""
    return rollout.terminated | rollout.truncated


def density_for(spec: EnvSpec) -> AbstractDensity:
    """The model of single observations that fits what a world shows: categories or real numbers."""
    return Categorical(spec.num_classes) if spec.observation_kind == "classes" else Gaussian()
