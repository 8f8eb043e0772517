"""The method interface: roles that share one body, what they see, what is recorded at each step, and their rewards.

A method implements six members: `roles`, `start`, `turn`, `see`, `advance` and `score`. Everything else has a default
that does nothing. Hooks act on one body, and `interaction.py` batches them; `score` and the hooks after it get a whole
rollout. A method object is its own configuration: all fields are static.
"""

import abc
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from advsurprise.learning.density import (
    AbstractDensity,
    Categorical,
    CategoricalStats,
    Gaussian,
    GaussianStats,
    pixel_gaussian,
)
from advsurprise.learning.fit import FitResult, FitTask
from advsurprise.learning.images import numbers, shrink
from advsurprise.types import CONTINUE, EnvSpec, Frames, Measure, Measured, Rollout, Score, TimeStep, View

Learnt = TypeVar("Learnt")
Memory = TypeVar("Memory")
Times = TypeVar("Times", Array, np.ndarray)
"""Integer arrays of numpy or jax."""

SETTLED = 10
"""Episodes of the shortest useful length, after which the mean length of episodes is known."""
NEVER = -1e9
"""Logit of an action that a role does not have."""

SCORED_SURPRISE = Measure(
    "scored_surprise", "surprise of scored steps (nats, the method's own model)", short="scored", shown=True
)
"""−log p_θ(o) on the steps a method scores, under the model it scores them with."""
LOG_PROBABILITY = "log-probability of what was seen (nats)"
"""Label of log p_θ(o) in a replay."""


class Empty(eqx.Module):
    """No state, or no signal, for methods that need none."""


class AbstractMethod(eqx.Module, Generic[Learnt, Memory]):
    """A way of rewarding one or several roles. Hooks never see the loop or the environment's state."""

    trains: ClassVar[bool] = True
    """Whether policies are trained; if not, they stay uniform."""
    spec: eqx.AbstractVar[EnvSpec]
    """The world it is for."""

    # Required.

    @property
    @abc.abstractmethod
    def roles(self) -> tuple[str, ...]:
        """Names of the roles, in the order of `Decision.role`."""

    @abc.abstractmethod
    def start(self, timestep: TimeStep, before: Memory | None = None) -> Memory:
        """Returns a body's memory at the start of an episode, from `timestep.obs` and `timestep.place`; `before` is its
        memory at the end of the previous one."""

    @abc.abstractmethod
    def turn(self, memory: Memory) -> Int[Array, ""]:
        """Which role moves next."""

    @abc.abstractmethod
    def see(self, memory: Memory) -> View:
        """What the policies see; the last frame is the current observation."""

    @abc.abstractmethod
    def advance(self, learnt: Learnt, memory: Memory, action: Int[Array, ""], timestep: TimeStep) -> tuple[Memory, Any]:
        """Returns the memory after a step of the same episode, and the signal of that step."""

    @abc.abstractmethod
    def score(self, learnt: Learnt, rollout: Rollout) -> tuple[Learnt, dict[str, Score]]:
        """Returns the rewards of each role, from the signals of a whole rollout."""

    # What is learnt besides the policies.

    def init(self, *, bodies: int, key: PRNGKeyArray) -> Learnt:
        """Returns the initial `learnt`, shared by all bodies or with an entry for each."""
        return Empty()  # pyright: ignore[reportReturnType]

    @property
    def priming(self) -> int:
        """Number of random steps before training, over all bodies, for `prime`; 0 for none."""
        return 0

    def prime(self, learnt: Learnt, rollout: Rollout) -> Learnt:
        """Updates `learnt` with a rollout of random actions, before training."""
        return learnt

    @property
    def networks(self) -> tuple[str, ...]:
        """Names of the networks that the method fits besides its policies."""
        return ()

    def fit_tasks(self, learnt: Learnt, rollout: Rollout, *, key: PRNGKeyArray) -> dict[str, FitTask]:
        """Fit tasks of the method's own networks, by name; policies are fitted in the same loop."""
        return {}

    def learn(self, learnt: Learnt, rollout: Rollout, fitted: dict[str, FitResult]) -> tuple[Learnt, dict[str, Array]]:
        """Returns `learnt` with the fitted networks, and metrics of the rollout."""
        return learnt, {}

    # How roles act.

    @property
    def streams(self) -> dict[str, float]:
        """Value streams, with the weight of each one's advantage."""
        return {"reward": 1.0}

    @property
    def critic_scale(self) -> float:
        """Scale of the critic head's initial weights."""
        return 1.0

    def lr_end_steps(self, role: str) -> int:
        """Environment steps over which a role's learning rate decays linearly to 0; 0: `ppo.lr_end_steps`."""
        return 0

    def remark(self, metrics: Mapping[str, Any], *, steps: int) -> str:
        """What a user should know from the metrics of an update, after so many steps of each body: one sentence, or
        nothing."""
        return ""

    def action_bias(self, role: str) -> tuple[float, ...]:
        """Initial logits of a role's actions, the same number for all roles; `NEVER` for an action that it does not
        have."""
        return (0.0,) * self.spec.num_actions

    def env_action(self, memory: Memory, action: Int[Array, ""]) -> Int[Array, ""]:
        """The world's action for the role's `action`."""
        return action

    def schedule(self, time: Times) -> Times | None:
        """Which role moves at step `time` of an episode, if that depends on the time alone; else None.

        Use plain arithmetic that works on numpy and jax arrays: the schedule is also needed while tracing, when jax
        cannot compute values.
        """
        return time * 0 if len(self.roles) == 1 else None

    def lookback(self, length: int) -> int:
        """Number of steps before a rollout of `length` that are scored with it, for rewards that are earned later than
        the step they belong to."""
        return 0

    def pending(self, length: int) -> int:
        """Number of consecutive steps of a body within which all those lie that it has still to learn from after a
        rollout of `length`, whichever role took them."""
        return self.lookback(length)

    # Requests to the world between two steps.

    @property
    def makes_requests(self) -> bool:
        """Whether the method may request to rewind or restart a body."""
        return False

    def request(self, memory: Memory) -> Int[Array, ""]:
        """The request to the world before the next step: `CONTINUE`, `REWIND` or `RESTART`."""
        return jnp.int32(CONTINUE)

    def after_rewind(self, memory: Memory, timestep: TimeStep) -> Memory:
        """Returns a body's memory after a rewind; `timestep.obs` and `timestep.place` are those of the first state."""
        return memory

    # What it measures.

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The method's own measures, with labels."""
        return ()

    def measure(self, rollout: Rollout) -> dict[str, Measured]:
        """Values of `measures` in a rollout, by name."""
        return {}

    def trace(self, learnt: Learnt, rollout: Rollout) -> dict[str, Measured]:
        """Curves that a replay draws besides rewards and values, by label. Steps that count are those from which the
        method makes its reward."""
        return {}


# Memories and views.


class Clock(eqx.Module):
    """Memory of a method that needs only the time and the last observations."""

    frames: Frames
    """The last observations."""
    time: Int[Array, ""]
    """Steps taken in this episode."""


class DensityMemory(eqx.Module):
    """Memory of a method that fits a density model to a body's observations."""

    frames: Frames
    """The last observations."""
    stats: CategoricalStats | GaussianStats
    """The density model's sufficient statistics."""
    time: Int[Array, ""]
    """Steps taken in this episode."""
    discounted: Float[Array, ""]
    """Discounted return of the raw reward so far in this episode, R ← γ R + r."""
    small: Float[Array, "rows columns last"] | None = None
    """The last observations downscaled, oldest first, if the model sees these; None if it sees the newest observation
    as it is."""
    explore_stats: CategoricalStats | GaussianStats | None = None
    """Sufficient statistics of a second model, Explore's; None if there is only one model."""
    explore_discounted: Float[Array, ""] | None = None
    """As `discounted`, for a second role that has its own scale; None if there is none."""


def first_frames(obs: Shaped[Array, "..."], stack: int) -> Frames:
    """Frames at the start of an episode: its first observation, repeated."""
    return Frames(jnp.broadcast_to(obs, (stack, *obs.shape)), jnp.int32(0))


def push(frames: Frames, obs: Shaped[Array, "..."]) -> Frames:
    """Frames with `obs` added and the oldest dropped."""
    stack = jnp.concatenate([frames.stack[1:], obs[None]])
    return Frames(stack, jnp.minimum(frames.age + 1, len(stack) - 1))


def first_clock(timestep: TimeStep, stack: int) -> Clock:
    """The clock at the start of an episode."""
    return Clock(first_frames(timestep.obs, stack), jnp.int32(0))


def tick(clock: Clock, timestep: TimeStep) -> Clock:
    """The clock one step later in the same episode."""
    return Clock(push(clock.frames, timestep.final_obs), clock.time + 1)


def plain_view(spec: EnvSpec, clock: Clock) -> View:
    """Frames and, if the episode's length is fixed, the time as a fraction of it; else 0."""
    time = clock.time.astype(jnp.float32) / spec.max_steps if spec.max_steps else jnp.float32(0)
    return View(clock.frames, no_features(spec), time)


def no_features(spec: EnvSpec) -> Float[Array, "..."]:
    """Empty features, for methods without a density model."""
    return jnp.zeros((*spec.modelled_shape, 0))


# What a density model sees.


def density_for(spec: EnvSpec, min_std: float = 0.0) -> AbstractDensity:
    """The density model for a world's observations: classes, pixels or real vectors. `min_std` is the minimum standard
    deviation of pixels and vectors; 0 for the model's default."""
    if spec.observation_kind == "classes":
        return Categorical(spec.num_classes)
    changed = {"min_std": min_std} if min_std else {}
    return pixel_gaussian(**changed) if spec.observation_kind == "image" else Gaussian(**changed)


def small_image(spec: EnvSpec, obs: Shaped[Array, "..."]) -> Float[Array, "rows columns channels"]:
    """An image as floats, downscaled to the density model's size if the world sets one."""
    image = numbers(obs)
    image = shrink(image, spec.density_shape[:2]) if spec.density_shape else image  # pyright: ignore[reportArgumentType]
    return image.reshape(*image.shape[:2], math.prod(image.shape[2:]))


def first_small(spec: EnvSpec, obs: Shaped[Array, "..."]) -> Float[Array, "rows columns last"] | None:
    """The last observations downscaled, at the start of an episode: the first, repeated."""
    return jnp.tile(small_image(spec, obs), spec.density_shape[2]) if spec.density_shape else None


def push_small(
    spec: EnvSpec, small: Float[Array, "rows columns last"] | None, obs: Shaped[Array, "..."]
) -> Float[Array, "rows columns last"] | None:
    """The last observations downscaled, with `obs` added and the oldest dropped."""
    if small is None:
        return None
    newest = small_image(spec, obs)
    return jnp.concatenate([small[..., newest.shape[-1] :], newest], axis=-1)


def modelled(
    spec: EnvSpec, small: Float[Array, "rows columns last"] | None, obs: Shaped[Array, "..."]
) -> Shaped[Array, "..."]:
    """What the density model sees: the last observations downscaled, or the newest as it is."""
    if small is not None:
        return small
    return numbers(obs) if spec.observation_kind == "image" else obs


def density_features(spec: EnvSpec, density: AbstractDensity, stats: Any) -> Float[Array, "..."]:
    """The model's features as policies see them and rollouts store them: for images in half precision."""
    features = density.features(stats)
    return features.astype(jnp.float16) if spec.observation_kind == "image" else features


# Scores.


def plain_score(rollout: Rollout, reward: Float[Array, "T B"], gamma: float) -> Score:
    """One stream that ends with the episode, bootstrapped on truncation."""
    return one_stream(reward, jnp.where(rollout.terminated, 0.0, gamma), ended(rollout))


def final_score(reward: Float[Array, "T B"], ends: Bool[Array, "T B"], gamma: float) -> Score:
    """One stream that terminates on the steps `ends` and on no others."""
    return one_stream(reward, jnp.where(ends, 0.0, gamma), ends)


def endless_score(reward: Float[Array, "T B"], gamma: float) -> Score:
    """One stream that does not end with episodes."""
    return one_stream(reward, jnp.full(reward.shape, gamma), jnp.zeros(reward.shape, bool))


def one_stream(reward: Float[Array, "T B"], discount: Float[Array, "T B"], cut: Bool[Array, "T B"]) -> Score:
    """A single stream, with nothing added to the advantage or the target."""
    nothing = jnp.zeros_like(reward)
    return Score(reward[..., None], discount[..., None], cut[..., None], nothing, nothing[..., None])


def episodes_too_short(metrics: Mapping[str, Any], *, steps: int, least: int) -> str:
    """The beginning of a remark, if episodes end before the first scored step, the `least`-th, on average."""
    length = float(metrics.get("end/episode_length", math.nan))
    # The first episodes to end are short ones.
    if steps < SETTLED * least or not length < least:
        return ""
    return f"episodes last {length:.0f} steps, but the first scored step is number {least}"


def ended(rollout: Rollout) -> Bool[Array, "T B"]:
    """Steps that ended an episode."""
    return rollout.terminated | rollout.truncated


def mean_where(holds: Bool[Array, "T B"], x: Float[Array, "T B"]) -> Float[Array, ""]:
    """Mean of x over the steps on which `holds`; nan if there are none."""
    return jnp.sum(jnp.where(holds, x, 0.0)) / jnp.sum(holds).astype(jnp.float32)
