"""Adversarial Surprise (Fickinger et al. 2021): Explore and Control take turns and compete over surprise.

With θ the density model fitted on what was seen so far in the episode, Control is paid r_t = log p_θ(o_{t+1}) on the
last part of its turns and Explore minus the sum of what Control is paid in the turn that follows its own.
"""

from decimal import Decimal
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from advsurprise import tree
from advsurprise.errors import check
from advsurprise.learning.fit import FitResult
from advsurprise.learning.stats import RunningMoments, scale, update_moments
from advsurprise.methods.base import (
    SCORED_SURPRISE,
    AbstractBystander,
    AbstractFitted,
    AbstractUnprimed,
    Fitted,
    Times,
    ended,
    first_frames,
    mean_where,
    plain_score,
    push,
)
from advsurprise.types import EnvSpec, Measure, Measured, Rollout, Score, TimeStep, View

EXPLORE, CONTROL = 0, 1


class Signal(eqx.Module):
    """What is noted at each step."""

    log_prob: Float[Array, "..."]
    """log p_θ(o_{t+1}) on scored steps, 0 on others."""
    scored: Bool[Array, "..."]
    """Whether the step was scored."""
    discounted: Float[Array, "..."]
    """Discounted return of Control's raw reward after the step."""
    surprise: Float[Array, "..."]
    """−log p_θ(o_{t+1}) on every step, for the record."""


class AdversarialSurprise(
    AbstractFitted, AbstractUnprimed[RunningMoments, Fitted], AbstractBystander[RunningMoments, Fitted]
):
    """Explore and Control take turns for one body: Explore seeks surprise, Control avoids it."""

    spec: EnvSpec = eqx.field(static=True)
    first: Literal["auto", "explore", "control"] = eqx.field(static=True, default="auto")
    """Who begins an episode; `auto`: whom the world names (Control in rooms/door and rooms/lock), else Explore."""
    k_explore: int = eqx.field(static=True, default=32)
    """Steps of an Explore turn."""
    k_control: int = eqx.field(static=True, default=32)
    """Steps of a Control turn."""
    quiet: float = eqx.field(static=True, default=0.5)
    """Share of a Control turn, from its beginning, that is neither scored nor (fit_on=scored) added to the model."""
    scope: Literal["episode", "round", "lifetime"] = eqx.field(static=True, default="episode")
    """When the density model is emptied: with the episode, after each round of one turn each, or never."""
    fit_on: Literal["scored", "control", "all"] = eqx.field(static=True, default="scored")
    """Which observations enter the model: scored ones (appendix and authors' code), all of Control's, or all steps
    (Algorithm 1)."""
    stack: int = eqx.field(static=True, default=4)
    """Observations the policies see at once."""
    gamma: float = eqx.field(static=True, default=0.99)
    """Discount of both roles."""

    def __check_init__(self):
        rules = [
            (min(self.k_explore, self.k_control) >= 1, "k_explore and k_control must be at least 1"),
            (0 <= self.quiet < 1, f"quiet must be at least 0 and below 1, not {self.quiet}"),
            (self.stack >= 1, f"stack must be at least 1, not {self.stack}"),
            (0 <= self.gamma < 1, f"gamma must be at least 0 and below 1, not {self.gamma}"),
            (
                self.first in ("auto", "explore", "control"),
                f"first must be auto, explore or control, not {self.first!r}",
            ),
            (
                self.scope in ("episode", "round", "lifetime"),
                f"scope must be episode, round or lifetime, not {self.scope!r}",
            ),
            (
                self.fit_on in ("scored", "control", "all"),
                f"fit_on must be scored, control or all, not {self.fit_on!r}",
            ),
        ]
        check(rules, subject="adversarial-surprise")
        reached = not 0 < self.spec.max_steps < self._least_steps
        sentence = (
            f"episodes of {self.spec.max_steps} steps end before both roles have acted and a step is scored; that "
            f"takes {self._least_steps}: make k_explore, k_control or quiet smaller"
        )
        check([(reached, sentence)], subject="adversarial-surprise")

    @property
    def roles(self) -> tuple[str, ...]:
        return ("explore", "control")

    @property
    def round_length(self) -> int:
        """Steps of one turn each."""
        return self.k_explore + self.k_control

    def schedule(self, time: Times) -> Times:
        place = time % self.round_length
        controls = place < self.k_control if self._control_begins else place >= self.k_explore
        return controls.astype("int32")

    def start(self, timestep: TimeStep, before: Fitted | None = None) -> Fitted:
        stats = self.density.init(self.spec.observation_shape)
        if self.scope == "lifetime" and before is not None:
            stats = before.stats
        return Fitted(first_frames(timestep.obs, self.stack), stats, jnp.int32(0), jnp.float32(0))

    def turn(self, memory: Fitted) -> Int[Array, ""]:
        return self.schedule(memory.time)

    def see(self, memory: Fitted) -> View:
        if self.spec.max_steps:
            time = memory.time.astype(jnp.float32) / self.spec.max_steps
        else:
            time = (memory.time % self.round_length).astype(jnp.float32) / self.round_length
        return View(memory.frames, self.density.features(memory.stats), time)

    def advance(
        self, learnt: RunningMoments, memory: Fitted, action: Int[Array, ""], timestep: TimeStep
    ) -> tuple[Fitted, Signal]:
        seen = timestep.final_obs
        is_control = self.schedule(memory.time) == CONTROL
        scored = is_control & (self._place_in_turn(memory.time) >= self._quiet_steps)
        # Score first, then add.
        found = self.density.log_prob(memory.stats, seen)
        log_prob = jnp.where(scored, found, 0.0)
        enters = {"scored": scored, "control": is_control, "all": jnp.bool_(True)}[self.fit_on]
        stats = tree.select(enters, self.density.update(memory.stats, seen), memory.stats)
        time = memory.time + 1
        if self.scope == "round":
            emptied = self.density.init(self.spec.observation_shape)
            stats = tree.select(time % self.round_length == 0, emptied, stats)
        discounted = self.gamma * memory.discounted + log_prob
        return Fitted(push(memory.frames, seen), stats, time, discounted), Signal(log_prob, scored, discounted, -found)

    def score(self, learnt: RunningMoments, rollout: Rollout) -> tuple[RunningMoments, dict[str, Score]]:
        signal: Signal = rollout.signal
        learnt = update_moments(learnt, signal.discounted.reshape(-1))
        reward = signal.log_prob * scale(learnt)
        explore = explore_reward(reward, rollout.decision.role == CONTROL, ended(rollout))
        rewards = {"explore": explore, "control": reward}
        return learnt, {role: plain_score(rollout, rewards[role], self.gamma) for role in self.roles}

    @property
    def measures(self) -> tuple[Measure, ...]:
        return (SCORED_SURPRISE,)

    def measure(self, rollout: Rollout) -> dict[str, Measured]:
        signal: Signal = rollout.signal
        return {SCORED_SURPRISE.name: Measured(signal.surprise, signal.scored)}

    def learn(
        self, learnt: RunningMoments, rollout: Rollout, fitted: dict[str, FitResult]
    ) -> tuple[RunningMoments, dict[str, Array]]:
        signal: Signal = rollout.signal
        by_role = {
            f"{role}/step_surprise": mean_where(rollout.decision.role == index, signal.surprise)
            for index, role in enumerate(self.roles)
        }
        return learnt, {"reward_scale": scale(learnt), **by_role}

    @property
    def _control_begins(self) -> bool:
        return self.first == "control" or (self.first == "auto" and self.spec.first_role == "control")

    @property
    def _quiet_steps(self) -> int:
        # Exact decimals: in floats 0.29 of 100 is 28.999….
        return int(Decimal(str(self.quiet)) * self.k_control)

    @property
    def _least_steps(self) -> int:
        """The shortest episode in which both roles act and some step is scored."""
        return 1 + (self.k_control if self._control_begins else self.k_explore + self._quiet_steps)

    def _place_in_turn(self, time: Int[Array, ""]) -> Int[Array, ""]:
        """Steps since Control's turn began, on steps of Control."""
        begins = 0 if self._control_begins else self.k_explore
        return time % self.round_length - begins


def explore_reward(
    reward: Float[Array, "T B"], is_control: Bool[Array, "T B"], over: Bool[Array, "T B"]
) -> Float[Array, "T B"]:
    """Minus the sum of Control's reward in the turn that follows, on the last step of each Explore turn; 0 elsewhere.

    An episode that ends within Explore's turn pays it nothing; a Control turn that the rollout's end cuts in two pays
    what it earned so far.
    """

    def back(owed, step):
        r, controls, ends = step
        owed = jnp.where(ends, 0.0, owed)
        paid = jnp.where(controls, 0.0, -owed)
        return jnp.where(controls, owed + r, 0.0), paid

    return jax.lax.scan(back, jnp.zeros(reward.shape[1]), (reward, is_control, over), reverse=True, unroll=8)[1]


METHOD = AdversarialSurprise
