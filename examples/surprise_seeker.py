"""A method in sixty lines: one role that is paid for surprise, the opposite of SMiRL.

advsurprise train --method examples/surprise_seeker.py:SurpriseSeeker --env rooms/four --steps 100k
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from advsurprise.methods.base import AbstractMethod, Clock, Empty, density_for, first_clock, plain_score, tick
from advsurprise.types import EnvSpec, Measure, Measured, Rollout, Score, TimeStep, View


class Memory(eqx.Module):
    """What a body carries through an episode."""

    clock: Clock
    stats: eqx.Module
    """Statistics of the density model p_θ of what it has seen."""


class Signal(eqx.Module):
    """What is recorded at each step."""

    surprise: Float[Array, "..."]
    """−log p_θ(o_{t+1})."""


class SurpriseSeeker(AbstractMethod[Empty, Memory]):
    """Surprise maximisation: one role that is paid −log p_θ(o) on every step."""

    spec: EnvSpec = eqx.field(static=True)
    scale: float = eqx.field(static=True, default=0.01)
    """Factor on the reward."""

    @property
    def roles(self) -> tuple[str, ...]:
        return ("seeker",)

    def start(self, timestep: TimeStep, before: Memory | None = None) -> Memory:
        empty = density_for(self.spec).init(self.spec.observation_shape)
        return Memory(first_clock(timestep, stack=1), empty)

    def turn(self, memory: Memory) -> Int[Array, ""]:
        return jnp.int32(0)

    def see(self, memory: Memory) -> View:
        features = density_for(self.spec).features(memory.stats)
        time = memory.clock.time.astype(jnp.float32) / (self.spec.max_steps or 1000)
        return View(memory.clock.frames, features, time)

    def advance(self, learnt: Empty, memory: Memory, action: Int[Array, ""], timestep: TimeStep):
        density, obs = density_for(self.spec), timestep.final_obs
        surprise = -density.log_prob(memory.stats, obs)  # score first, then add
        clock = tick(memory.clock, timestep)
        return Memory(clock, density.update(memory.stats, obs)), Signal(surprise)

    def score(self, learnt: Empty, rollout: Rollout) -> tuple[Empty, dict[str, Score]]:
        return learnt, {"seeker": plain_score(rollout, self.scale * rollout.signal.surprise, gamma=0.99)}

    @property
    def measures(self) -> tuple[Measure, ...]:
        return (Measure("seeker_surprise", "surprise per step (nats)", shown=True),)

    def measure(self, rollout: Rollout) -> dict[str, Measured]:
        every_step = jnp.ones(rollout.reward.shape, bool)
        return {"seeker_surprise": Measured(rollout.signal.surprise, every_step)}
