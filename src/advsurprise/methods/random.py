"""Uniform random actions: the floor of every comparison, played through the same loops."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from advsurprise.learning.fit import FitResult
from advsurprise.methods.base import (
    AbstractClocked,
    AbstractPoliciesOnly,
    AbstractUnprimed,
    Clock,
    Nothing,
    plain_score,
    tick,
)
from advsurprise.types import EnvSpec, Rollout, Score, TimeStep


class Random(AbstractPoliciesOnly[Nothing, Clock], AbstractUnprimed[Nothing, Clock], AbstractClocked[Nothing]):
    """Uniform random actions, for calibration: nothing is learnt."""

    trains: ClassVar[bool] = False
    stack: ClassVar[int] = 1
    spec: EnvSpec = eqx.field(static=True)

    @property
    def streams(self) -> dict[str, float]:
        return {"nothing": 1.0}

    def init(self, *, bodies: int, key: PRNGKeyArray) -> Nothing:
        return Nothing()

    def advance(
        self, learnt: Nothing, memory: Clock, action: Int[Array, ""], timestep: TimeStep
    ) -> tuple[Clock, Nothing]:
        return tick(memory, timestep), Nothing()

    def score(self, learnt: Nothing, rollout: Rollout) -> tuple[Nothing, dict[str, Score]]:
        return learnt, {"agent": plain_score(rollout, jnp.zeros_like(rollout.reward), 0.0)}

    def learn(
        self, learnt: Nothing, rollout: Rollout, fitted: dict[str, FitResult]
    ) -> tuple[Nothing, dict[str, Array]]:
        return learnt, {}


METHOD = Random
