"""Uniform random actions: the baseline of every comparison, run through the same loops."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int

from advsurprise.methods.base import AbstractMethod, Clock, Empty, first_clock, plain_score, plain_view, tick
from advsurprise.types import EnvSpec, Rollout, Score, TimeStep, View


class Random(AbstractMethod[Empty, Clock]):
    """Uniform random actions, as a baseline: nothing is learnt."""

    trains: ClassVar[bool] = False
    spec: EnvSpec = eqx.field(static=True)

    @property
    def roles(self) -> tuple[str, ...]:
        return ("agent",)

    def start(self, timestep: TimeStep, before: Clock | None = None) -> Clock:
        return first_clock(timestep, 1)

    def turn(self, memory: Clock) -> Int[Array, ""]:
        return jnp.int32(0)

    def see(self, memory: Clock) -> View:
        return plain_view(self.spec, memory)

    def advance(self, learnt: Empty, memory: Clock, action: Int[Array, ""], timestep: TimeStep) -> tuple[Clock, Empty]:
        return tick(memory, timestep), Empty()

    def score(self, learnt: Empty, rollout: Rollout) -> tuple[Empty, dict[str, Score]]:
        return learnt, {"agent": plain_score(rollout, jnp.zeros_like(rollout.reward), 0.0)}


METHOD = Random
