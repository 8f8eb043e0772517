"""Adversarial Surprise (Fickinger et al. 2021): Explore and Control take turns and compete over surprise.

With θ the density model fitted on the episode's observations so far, Control's reward is r_t = log p_θ(o_{t+1}) on the
last part of its turns, and Explore's is minus the sum of Control's rewards in the turn that follows its own.
"""

import dataclasses
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal

import equinox as eqx
import jax
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
    Times,
    density_features,
    density_for,
    ended,
    endless_score,
    episodes_too_short,
    first_frames,
    first_small,
    mean_where,
    modelled,
    plain_score,
    push,
    push_small,
)
from advsurprise.types import EnvSpec, Measure, Measured, Rollout, Score, TimeStep, View

EXPLORE, CONTROL = 0, 1
DEFAULT_TURN = 32
"""Steps in a turn in worlds that do not set a number."""


class Signal(eqx.Module):
    """What is recorded at each step."""

    log_prob: Float[Array, "..."]
    """log p_θ(o_{t+1}), less the offset, on rewarded steps, 0 on others."""
    scored: Bool[Array, "..."]
    """Whether the step was scored."""
    discounted: Float[Array, "..."]
    """Discounted return of Control's raw reward after the step."""
    surprise: Float[Array, "..."]
    """−log p_θ(o_{t+1}) on every step, for metrics."""
    explore_log_prob: Float[Array, "..."] | None = None
    """As `log_prob`, under Explore's own model; None if it uses Control's."""
    explore_discounted: Float[Array, "..."] | None = None
    """As `discounted`, of what Explore is rewarded for; None if it uses Control's scale."""


class AdversarialSurprise(AbstractMethod[RunningMoments, DensityMemory]):
    """Explore and Control share one body and take turns: Explore seeks surprise, Control avoids it."""

    spec: EnvSpec = eqx.field(static=True)
    first: Literal["auto", "explore", "control"] = eqx.field(static=True, default="auto")
    """Which role moves first; `auto`: the one the world sets (Control in rooms/door and rooms/lock), else Explore."""
    k_explore: int = eqx.field(static=True, default=0)
    """Steps in an Explore turn; 0: the world's number (64 in Atari and Doom), else 32."""
    k_control: int = eqx.field(static=True, default=0)
    """Steps in a Control turn; 0: the world's number (128 in Atari and Doom), else 32."""
    quiet: float = eqx.field(static=True, default=0.5)
    """Fraction at the start of each Control turn that is neither scored nor (fit_on=scored) added to the model."""
    scope: Literal["episode", "round", "lifetime"] = eqx.field(static=True, default="episode")
    """When the density model is reset: with the episode, after each round (one turn of each role), or never."""
    explore_scope: Literal["same", "round", "episode"] = eqx.field(static=True, default="same")
    """Which model gives Explore's reward. `same`: Control's; else (needs scope=round) a second model. `round`: reset
    after each round, like Control's; `episode`: only with the episode, so that Explore is rewarded for showing Control
    what is new in the whole episode."""
    explore_pay: Literal["scored", "control"] = eqx.field(static=True, default="scored")
    """With a second model, which steps Explore is rewarded for and its model is fitted on: the scored ones, or all of
    Control's, including the quiet part of its turns."""
    quiet_weight: float = eqx.field(static=True, default=0.0)
    """With explore_pay=control, the weight of quiet steps in Control's reward, under Explore's model: 0.1 makes each
    cost Control a tenth of what it pays Explore."""
    explore_scale: Literal["shared", "own"] = eqx.field(static=True, default="shared")
    """With a second model, what Explore's reward is divided by: the standard deviation of Control's discounted return,
    or of its own."""
    explore_lr_end_steps: int = eqx.field(static=True, default=0)
    """Environment steps over which Explore's learning rate decays linearly to 0, while Control goes on learning against
    a fixed Explore; 0: ppo.lr_end_steps, as for Control."""
    fit_on: Literal["scored", "control", "all"] = eqx.field(static=True, default="scored")
    """Which observations are added to the model: scored ones (appendix and authors' code), all of Control's, or all
    (Algorithm 1)."""
    pay_prior: bool = eqx.field(static=True, default=True)
    """Whether a step scored by an empty model is rewarded. With classes its log-probability is the same for every
    observation: leaving it out removes a large constant from both returns and changes no preference."""
    offset: Literal["none", "max"] = eqx.field(static=True, default="none")
    """What is subtracted from every rewarded log-density. `none`: nothing, as in the paper; `max`: the largest one that
    the model can give, so that Control is never paid, and Explore never charged, for a step without surprise. With
    classes it is 0."""
    rounds: int = eqx.field(static=True, default=0)
    """Rounds in a game that may span several episodes: when an episode ends within it, the next one continues the same
    turn, the model is kept and returns are not cut off (a soft reset). 0: the game ends with the episode."""
    stack: int = eqx.field(static=True, default=4)
    """Number of stacked observations the policies see."""
    gamma: float = eqx.field(static=True, default=0.99)
    """Discount factor of both roles."""
    min_std: float = eqx.field(static=True, default=0.0)
    """Minimum standard deviation of the density model; 0: 0.02 for images, 0.001 for vectors. Unused for classes."""

    def __check_init__(self):
        second = "needs explore_scope=round or explore_scope=episode"
        rules = [
            (
                min(self.k_explore, self.k_control) >= 0,
                "k_explore and k_control must be at least 1, or 0 for the world's number",
            ),
            (0 <= self.quiet < 1, f"quiet must be at least 0 and below 1, not {self.quiet}"),
            (self.rounds >= 0, f"rounds must be at least 1, or 0 to end the game with the episode, not {self.rounds}"),
            (
                self.explore_lr_end_steps >= 0,
                f"explore_lr_end_steps must be at least 0, not {self.explore_lr_end_steps}",
            ),
            (self.stack >= 1, f"stack must be at least 1, not {self.stack}"),
            (0 <= self.gamma < 1, f"gamma must be at least 0 and below 1, not {self.gamma}"),
            (self.min_std >= 0, f"min_std must be at least 0, not {self.min_std}"),
            *choice_rules(self),
            (not self._two_models or self.scope == "round", f"explore_scope={self.explore_scope} needs scope=round"),
            (self._two_models or self.explore_pay == "scored", f"explore_pay=control {second}"),
            (
                self.explore_scope != "round" or self.explore_pay == "control",
                "explore_scope=round needs explore_pay=control: else its model would be Control's",
            ),
            (0 <= self.quiet_weight <= 1, f"quiet_weight must be 0 to 1, not {self.quiet_weight}"),
            (self.explore_pay == "control" or not self.quiet_weight, "quiet_weight needs explore_pay=control"),
            (self._two_models or self.explore_scale == "shared", f"explore_scale=own {second}"),
        ]
        check(rules, subject="adversarial-surprise")
        long_enough = self.rounds > 0 or not 0 < self.spec.max_steps < self._least_steps
        sentence = (
            f"episodes of {self.spec.max_steps} steps end before both roles have acted and a step is scored, "
            f"which takes {self._least_steps} steps: reduce k_explore, k_control or quiet"
        )
        check([(long_enough, sentence)], subject="adversarial-surprise")

    @property
    def roles(self) -> tuple[str, ...]:
        return ("explore", "control")

    def lr_end_steps(self, role: str) -> int:
        return self.explore_lr_end_steps if role == "explore" else 0

    def remark(self, metrics: Mapping[str, Any], *, steps: int) -> str:
        """Says so if episodes end before the first scored step on average."""
        first_scored = 1 + self._quiet_steps + (0 if self._control_first else self.explore_steps)
        short = "" if self.rounds else episodes_too_short(metrics, steps=steps, least=first_scored)
        advice = "many end unscored, and Explore may learn to end them early; reduce k_explore, k_control or quiet"
        return f"{short}: {advice}" if short else ""

    def init(self, *, bodies: int, key: PRNGKeyArray) -> RunningMoments:
        """Moments of the discounted return of Control's raw reward, which scale both rewards; with Explore's own scale,
        those of both roles' returns, Control's first."""
        return RunningMoments.start((2,) if self._two_scales else ())

    def start(self, timestep: TimeStep, before: DensityMemory | None = None) -> DensityMemory:
        """Resets θ with the episode, unless its scope is a lifetime or the game continues."""
        stats = self.density.init(self.spec.modelled_shape)
        own = stats if self._two_models else None
        explore_return = jnp.float32(0) if self._two_scales else None
        frames, small = first_frames(timestep.obs, self.stack), first_small(self.spec, timestep.obs)
        if self.rounds and before is not None:
            return dataclasses.replace(before, frames=frames, small=small)
        if self.scope == "lifetime" and before is not None:
            stats = before.stats
        return DensityMemory(frames, stats, jnp.int32(0), jnp.float32(0), small, own, explore_return)

    def turn(self, memory: DensityMemory) -> Int[Array, ""]:
        return self.role_at(memory.time)

    def see(self, memory: DensityMemory) -> View:
        """The last observations, every θ, and the time in the game, or in the round if the game has no fixed length."""
        length = self.rounds * self.round_length or self.spec.max_steps
        time = memory.time if length else memory.time % self.round_length
        time = time.astype(jnp.float32) / (length or self.round_length)
        models = [memory.stats, *([memory.explore_stats] if self._two_models else [])]
        features = [density_features(self.spec, self.density, stats) for stats in models]
        return View(memory.frames, jnp.concatenate(features, axis=-1), time)

    def advance(
        self, learnt: RunningMoments, memory: DensityMemory, action: Int[Array, ""], timestep: TimeStep
    ) -> tuple[DensityMemory, Signal]:
        """Scores the new observation on the last part of a Control turn, then adds it to θ."""
        obs = timestep.final_obs
        is_control = self.role_at(memory.time) == CONTROL
        scored = is_control & (self._step_of_control_turn(memory.time) >= self._quiet_steps)
        small = push_small(self.spec, memory.small, obs)
        seen = modelled(self.spec, small, obs)
        log_prob = self.density.log_prob(memory.stats, seen)
        enters = {"scored": scored, "control": is_control, "all": jnp.bool_(True)}[self.fit_on]

        def added(stats, where):
            return tree.select(where, self.density.update(stats, seen), stats)

        time = memory.time + 1
        stats = self._after_round(self.scope, added(memory.stats, enters), time)
        reward = self._paid(memory.stats, log_prob, scored)
        explore = explore_stats = explore_discounted = None
        if self._two_models:
            counts = is_control if self.explore_pay == "control" else scored
            explore = self._paid(memory.explore_stats, self.density.log_prob(memory.explore_stats, seen), counts)
            explore_stats = self._after_round(self.explore_scope, added(memory.explore_stats, enters | counts), time)
            reward += self.quiet_weight * jnp.where(scored, 0.0, explore)
            if memory.explore_discounted is not None:
                explore_discounted = self.gamma * memory.explore_discounted + explore
        discounted = self.gamma * memory.discounted + reward
        frames = push(memory.frames, obs)
        memory = DensityMemory(frames, stats, time, discounted, small, explore_stats, explore_discounted)
        return self._next_game(memory), Signal(reward, scored, discounted, -log_prob, explore, explore_discounted)

    def _after_round(self, scope: str, stats: Any, time: Int[Array, ""]) -> Any:
        """A model after a step: emptied at a round's end if that is its scope."""
        if scope != "round":
            return stats
        return tree.select(time % self.round_length == 0, self.density.init(self.spec.modelled_shape), stats)

    def _next_game(self, memory: DensityMemory) -> DensityMemory:
        """Resets the clock and the models after a game's last round; without `rounds`, `start` does so."""
        if not self.rounds:
            return memory
        emptied = self.density.init(self.spec.modelled_shape)
        fresh = dataclasses.replace(
            memory,
            stats=memory.stats if self.scope == "lifetime" else emptied,
            time=jnp.int32(0),
            discounted=jnp.float32(0),
            explore_stats=emptied if self._two_models else None,
            explore_discounted=jnp.float32(0) if self._two_scales else None,
        )
        return tree.select(memory.time == self.rounds * self.round_length, fresh, memory)

    def _paid(self, stats: Any, log_prob: Float[Array, ""], scored: Bool[Array, ""]) -> Float[Array, ""]:
        """Reward of a step under a model."""
        paid = scored if self.pay_prior else scored & (stats.count > 0)
        offset = self.density.max_log_prob(self.spec.modelled_shape) if self.offset == "max" else 0.0
        return jnp.where(paid, log_prob - offset, 0.0)

    def score(self, learnt: RunningMoments, rollout: Rollout) -> tuple[RunningMoments, dict[str, Score]]:
        """Control's reward is log p_θ, Explore's minus its sum over the next Control turn, both on one scale unless
        Explore has its own."""
        signal: Signal = rollout.signal
        returns = signal.discounted
        if signal.explore_discounted is not None:
            returns = jnp.stack([signal.discounted, signal.explore_discounted], axis=-1)
        learnt = update_moments(learnt, returns[rollout.old :])
        control_scale, explore_scale = self._scales(learnt)
        control = signal.log_prob * control_scale
        shown = signal.log_prob if signal.explore_log_prob is None else signal.explore_log_prob
        cut = jnp.zeros_like(rollout.terminated) if self.rounds else ended(rollout)
        explore = explore_reward(shown * explore_scale, rollout.decision.role == CONTROL, cut)
        settled = explore_settled(rollout.decision.role, rollout.next_role, cut)
        return learnt, {
            "explore": dataclasses.replace(self._stream(rollout, explore), settled=settled),
            "control": self._stream(rollout, control),
        }

    def _scales(self, learnt: RunningMoments) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Factors on Control's and on Explore's rewards."""
        factors = scale(learnt)
        return (factors[0], factors[1]) if self._two_scales else (factors, factors)

    def _stream(self, rollout: Rollout, reward: Float[Array, "T B"]) -> Score:
        """One stream that ends with the episode or, with `rounds`, never."""
        return endless_score(reward, self.gamma) if self.rounds else plain_score(rollout, reward, self.gamma)

    def schedule(self, time: Times) -> Times | None:
        """None if the game does not start with the episode."""
        return None if self.rounds else self.role_at(time)

    def role_at(self, time: Times) -> Times:
        """Which role moves at a step of the game."""
        step = time % self.round_length
        controls = step < self.control_steps if self._control_first else step >= self.explore_steps
        return controls.astype("int32")

    def lookback(self, length: int) -> int:
        """One round, unless rollouts are whole episodes: Explore's reward is known after the next Control turn."""
        whole = not self.rounds and self.spec.max_steps and length % self.spec.max_steps == 0
        return 0 if whole else self.round_length

    def pending(self, length: int) -> int:
        """One turn of Explore: its last, until the next Control turn is over, or as much of it as has been played and
        the last step of the Control turn before, whose value is bootstrapped from Control's next turn."""
        return self.explore_steps if self.lookback(length) else 0

    @property
    def measures(self) -> tuple[Measure, ...]:
        return (SCORED_SURPRISE,)

    def measure(self, rollout: Rollout) -> dict[str, Measured]:
        signal: Signal = rollout.signal
        return {SCORED_SURPRISE.name: Measured(signal.surprise, signal.scored)}

    def trace(self, learnt: RunningMoments, rollout: Rollout) -> dict[str, Measured]:
        signal: Signal = rollout.signal
        return {LOG_PROBABILITY: Measured(-signal.surprise, signal.scored)}

    def learn(
        self, learnt: RunningMoments, rollout: Rollout, fitted: dict[str, FitResult]
    ) -> tuple[RunningMoments, dict[str, Array]]:
        by_role = {
            f"{role}/step_surprise": mean_where(rollout.decision.role == index, rollout.signal.surprise)
            for index, role in enumerate(self.roles)
        }
        control, explore = self._scales(learnt)
        own = {"explore_reward_scale": explore} if self._two_scales else {}
        return learnt, {"reward_scale": control, **own, **by_role}

    @property
    def density(self) -> AbstractDensity:
        """The model p_θ of single observations."""
        return density_for(self.spec, self.min_std)

    @property
    def explore_steps(self) -> int:
        """Steps in an Explore turn: `k_explore`, or the world's number."""
        return self.k_explore or dict(self.spec.turn_steps).get("explore", DEFAULT_TURN)

    @property
    def control_steps(self) -> int:
        """Steps in a Control turn: `k_control`, or the world's number."""
        return self.k_control or dict(self.spec.turn_steps).get("control", DEFAULT_TURN)

    @property
    def round_length(self) -> int:
        """Steps in a round."""
        return self.explore_steps + self.control_steps

    @property
    def _two_models(self) -> bool:
        """Whether Explore has its own density model."""
        return self.explore_scope != "same"

    @property
    def _two_scales(self) -> bool:
        """Whether Explore's reward has its own scale."""
        return self.explore_scale == "own"

    @property
    def _control_first(self) -> bool:
        return self.first == "control" or (self.first == "auto" and self.spec.first_role == "control")

    @property
    def _quiet_steps(self) -> int:
        # Exact decimals: in floats 0.29 * 100 is 28.999….
        return int(Decimal(str(self.quiet)) * self.control_steps)

    @property
    def _least_steps(self) -> int:
        """Length of the shortest episode in which both roles act and some step is scored."""
        return 1 + (self.control_steps if self._control_first else self.explore_steps + self._quiet_steps)

    def _step_of_control_turn(self, time: Int[Array, ""]) -> Int[Array, ""]:
        """Steps since Control's turn started; meaningful on Control's steps only."""
        start = 0 if self._control_first else self.explore_steps
        return time % self.round_length - start


def explore_reward(
    reward: Float[Array, "T B"], is_control: Bool[Array, "T B"], over: Bool[Array, "T B"]
) -> Float[Array, "T B"]:
    """Minus the sum of Control's reward in the turn that follows, on the last step of each Explore turn; 0 elsewhere.

    If the episode ends within Explore's turn, its reward is 0. If the rollout ends within the Control turn, only the
    rewards so far are summed, and `explore_settled` is False.
    """

    def back(owed, step):
        r, controls, ends = step
        owed = jnp.where(ends, 0.0, owed)
        paid = jnp.where(controls, 0.0, -owed)
        return jnp.where(controls, owed + r, 0.0), paid

    return jax.lax.scan(back, jnp.zeros(reward.shape[1]), (reward, is_control, over), reverse=True, unroll=8)[1]


def explore_settled(
    role: Int[Array, "T B"], next_role: Int[Array, " B"], over: Bool[Array, "T B"]
) -> Bool[Array, "T B"]:
    """Whether no later step can change a step's Explore reward: the next Control turn, or the episode, has ended."""
    following = jnp.concatenate([role[1:], next_role[None]])
    closes = over | ((role == CONTROL) & (following == EXPLORE))
    return jax.lax.cummax(closes.astype(jnp.int32), axis=0, reverse=True) > 0


METHOD = AdversarialSurprise
