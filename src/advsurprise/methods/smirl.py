"""SMiRL (Berseth et al. 2019): one role, rewarded for seeing what it has seen before.

With θ the density model fitted on the episode's observations so far, r_t = log p_θ(o_{t+1}) on every step; o_{t+1} is
scored first and then added.
"""

from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from advsurprise import tree
from advsurprise.errors import check, choice_rules
from advsurprise.learning.density import AbstractDensity
from advsurprise.learning.fit import FitResult
from advsurprise.learning.stats import RunningMoments, scale, update_moments
from advsurprise.methods.base import (
    LOG_PROBABILITY,
    SCORED_SURPRISE,
    AbstractMethod,
    DensityMemory,
    density_features,
    density_for,
    final_score,
    first_frames,
    first_small,
    modelled,
    plain_score,
    push,
    push_small,
)
from advsurprise.types import EnvSpec, Measure, Measured, Rollout, Score, TimeStep, View


class Signal(eqx.Module):
    """What is recorded at each step."""

    log_prob: Float[Array, "..."]
    """The raw reward: log p_θ(o_{t+1}), or that of noise if the body died."""
    scored: Bool[Array, "..."]
    """Whether the step was scored; always True."""
    discounted: Float[Array, "..."]
    """Discounted return of the raw reward after the step."""
    over: Bool[Array, "..."]
    """Whether the model's episode ended on this step."""


class Smirl(AbstractMethod[RunningMoments, DensityMemory]):
    """Surprise minimisation: rewarded for familiar observations, on every step."""

    spec: EnvSpec = eqx.field(static=True)
    horizon: int = eqx.field(static=True, default=500)
    """Steps after which the model is reset in worlds without a fixed episode length (death=noise)."""
    death: Literal["noise", "end"] = eqx.field(static=True, default="noise")
    """What a death does in such worlds. `noise`: it is as surprising as an observation of noise, and the model is kept;
    `end`: it resets the model and ends the return."""
    clip: float = eqx.field(static=True, default=0.0)
    """Maximum magnitude of a log-probability before scaling (published: 300); 0 for no limit."""
    scale: float = eqx.field(static=True, default=0.0)
    """Constant factor on rewards (published: 0.001 to 1, depending on the world); 0 divides by the running standard
    deviation of their discounted return, as Adversarial Surprise does."""
    stack: int = eqx.field(static=True, default=4)
    """Number of stacked observations the policy sees."""
    gamma: float = eqx.field(static=True, default=0.99)
    """Discount factor."""
    min_std: float = eqx.field(static=True, default=0.0)
    """Minimum standard deviation of the density model; 0: 0.02 for images, 0.001 for vectors. Unused for classes."""

    def __check_init__(self):
        rules = [
            (self.horizon >= 1, f"horizon must be at least 1, not {self.horizon}"),
            *choice_rules(self),
            (self.clip >= 0, f"clip must be at least 0, not {self.clip}"),
            (self.scale >= 0, f"scale must be at least 0, not {self.scale}"),
            (self.stack >= 1, f"stack must be at least 1, not {self.stack}"),
            (0 <= self.gamma < 1, f"gamma must be at least 0 and below 1, not {self.gamma}"),
            (self.min_std >= 0, f"min_std must be at least 0, not {self.min_std}"),
        ]
        check(rules, subject="smirl")

    @property
    def roles(self) -> tuple[str, ...]:
        return ("agent",)

    @property
    def density(self) -> AbstractDensity:
        """The model p_θ of single observations."""
        return density_for(self.spec, self.min_std)

    @property
    def length(self) -> int:
        """Steps in an episode of the model."""
        return self.spec.max_steps or self.horizon

    def init(self, *, bodies: int, key: PRNGKeyArray) -> RunningMoments:
        return RunningMoments.start()

    def start(self, timestep: TimeStep, before: DensityMemory | None = None) -> DensityMemory:
        frames, small = first_frames(timestep.obs, self.stack), first_small(self.spec, timestep.obs)
        empty = self.density.init(self.spec.modelled_shape)
        if before is None or not self._lives_on:
            return DensityMemory(frames, empty, jnp.int32(0), jnp.float32(0), small)
        return DensityMemory(frames, before.stats, before.time, before.discounted, small)

    def turn(self, memory: DensityMemory) -> Int[Array, ""]:
        return jnp.int32(0)

    def see(self, memory: DensityMemory) -> View:
        time = memory.time.astype(jnp.float32) / self.length
        return View(memory.frames, density_features(self.spec, self.density, memory.stats), time)

    def advance(
        self, learnt: RunningMoments, memory: DensityMemory, action: Int[Array, ""], timestep: TimeStep
    ) -> tuple[DensityMemory, Signal]:
        obs, stats = timestep.final_obs, memory.stats
        small = push_small(self.spec, memory.small, obs)
        seen = modelled(self.spec, small, obs)
        # Score first, then add.
        log_prob = self.density.log_prob(stats, seen)
        dies = timestep.terminated & self._lives_on
        log_prob = jnp.where(dies, self.density.noise_log_prob(stats), log_prob)
        log_prob = jnp.clip(log_prob, -self.clip, self.clip) if self.clip else log_prob
        stats = self.density.update(stats, seen)
        discounted = self.gamma * memory.discounted + log_prob
        over = timestep.terminated | timestep.truncated
        over = memory.time + 1 >= self.length if self._lives_on else over
        signal = Signal(log_prob, jnp.bool_(True), discounted, over)
        after = DensityMemory(push(memory.frames, obs), stats, memory.time + 1, discounted, small)
        return (self._emptied(after, over), signal) if self._lives_on else (after, signal)

    def score(self, learnt: RunningMoments, rollout: Rollout) -> tuple[RunningMoments, dict[str, Score]]:
        signal: Signal = rollout.signal
        learnt = update_moments(learnt, signal.discounted.reshape(-1))
        reward = signal.log_prob * self._factor(learnt)
        if self._lives_on:
            # Only the model's own episodes end the stream: after a death it continues in the next life.
            return learnt, {"agent": final_score(reward, signal.over, self.gamma)}
        return learnt, {"agent": plain_score(rollout, reward, self.gamma)}

    @property
    def measures(self) -> tuple[Measure, ...]:
        return (SCORED_SURPRISE,)

    def measure(self, rollout: Rollout) -> dict[str, Measured]:
        signal: Signal = rollout.signal
        return {SCORED_SURPRISE.name: Measured(-signal.log_prob, signal.scored)}

    def trace(self, learnt: RunningMoments, rollout: Rollout) -> dict[str, Measured]:
        signal: Signal = rollout.signal
        return {LOG_PROBABILITY: Measured(signal.log_prob, signal.scored)}

    def learn(
        self, learnt: RunningMoments, rollout: Rollout, fitted: dict[str, FitResult]
    ) -> tuple[RunningMoments, dict[str, Array]]:
        return learnt, {"reward_scale": self._factor(learnt)}

    def _factor(self, learnt: RunningMoments) -> Float[Array, ""]:
        return jnp.float32(self.scale) if self.scale else scale(learnt)

    @property
    def _lives_on(self) -> bool:
        return not self.spec.max_steps and self.death == "noise"

    def _emptied(self, memory: DensityMemory, over: Bool[Array, ""]) -> DensityMemory:
        empty = self.density.init(self.spec.modelled_shape)
        fresh = DensityMemory(memory.frames, empty, jnp.int32(0), jnp.float32(0), memory.small)
        return tree.select(over, fresh, memory)


METHOD = Smirl
