"""What a method is: roles that share one body, what they see, what is noted at each step, and what they learn from it.

Hooks are for one body; `interaction.py` batches them. A method object is its own configuration: all fields are static.
"""

import abc
from typing import Any, ClassVar, Generic, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from advsurprise.learning.density import AbstractDensity, Categorical, Gaussian
from advsurprise.learning.fit import FitResult, FitTask
from advsurprise.learning.stats import RunningMoments
from advsurprise.types import CONTINUE, EnvSpec, Measure, Measured, Rollout, Score, TimeStep, View

Learnt = TypeVar("Learnt")
Memory = TypeVar("Memory")
Times = TypeVar("Times", Array, np.ndarray)
"""Whole numbers, in numpy or in jax."""

NEVER = -1e9
"""Log-weight of an action that a role does not have."""


SCORED_SURPRISE = Measure(
    "scored_surprise", "surprise of scored steps (nats, the method's own model)", short="scored", shown=True
)
"""−log p_θ(o) on the steps a method scores, under the model it scores them with."""


class Nothing(eqx.Module):
    """Learnt besides the policies, or noted at each step, by methods that need nothing there."""


class AbstractMethod(eqx.Module, Generic[Learnt, Memory]):
    """A way of rewarding one or several roles. Hooks never see the loop or the environment's state."""

    trains: ClassVar[bool] = True
    """Whether policies are trained; those of a method that does not train stay uniform."""
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
        """Observations stacked in a view. The last of them is what the body sees now."""

    @property
    @abc.abstractmethod
    def num_features(self) -> int:
        """Density features per entry of the observation."""

    @abc.abstractmethod
    def action_bias(self, role: str) -> tuple[float, ...]:
        """Log-weights of a role's actions before it has learnt anything, the same number for all roles; `NEVER` for an
        action that the role does not have."""

    @abc.abstractmethod
    def env_action(self, memory: Memory, action: Int[Array, ""]) -> Int[Array, ""]:
        """What the body does when its role decides on `action`."""

    @abc.abstractmethod
    def schedule(self, time: Times) -> Times | None:
        """Which role moves at step `time` of an episode, if that depends on the time alone; else None.

        Plain arithmetic that works on numpy as on jax: turns known beforehand must be known while tracing, and jax
        must not be made to compute in the middle of that.
        """

    @abc.abstractmethod
    def init(self, *, bodies: int, key: PRNGKeyArray) -> Learnt:
        """What is learnt besides the policies, shared by all bodies or with an entry for each."""

    @property
    @abc.abstractmethod
    def priming(self) -> int:
        """Random steps of all bodies together before training begins, for `prime`; 0 for none."""

    @abc.abstractmethod
    def prime(self, learnt: Learnt, rollout: Rollout) -> Learnt:
        """What is learnt from a rollout of random actions, before training begins."""

    @abc.abstractmethod
    def start(self, timestep: TimeStep, before: Memory | None = None) -> Memory:
        """A body's memory at the beginning of an episode (`obs` and `place` of the step belong to it); `before` is its
        memory at the end of the last one."""

    @abc.abstractmethod
    def turn(self, memory: Memory) -> Int[Array, ""]:
        """Which role moves next."""

    @abc.abstractmethod
    def see(self, memory: Memory) -> View:
        """What the policies see."""

    @abc.abstractmethod
    def advance(self, learnt: Learnt, memory: Memory, action: Int[Array, ""], timestep: TimeStep) -> tuple[Memory, Any]:
        """After the world moved: the memory within the same episode, and the signal of this step."""

    @property
    @abc.abstractmethod
    def makes_requests(self) -> bool:
        """Whether the method ever makes a request."""

    @abc.abstractmethod
    def request(self, memory: Memory) -> Int[Array, ""]:
        """What the method requests of the world before the next step: `CONTINUE`, `REWIND` or `RESTART`."""

    @abc.abstractmethod
    def rewound(self, memory: Memory, timestep: TimeStep) -> Memory:
        """A body's memory after it was rewound; `obs` and `place` of the step are what it finds there."""

    @abc.abstractmethod
    def score(self, learnt: Learnt, rollout: Rollout) -> tuple[Learnt, dict[str, Score]]:
        """Signals of a whole rollout to rewards for each role."""

    @property
    def measures(self) -> tuple[Measure, ...]:
        """What the method measures of its episodes, with labels."""
        return ()

    def measure(self, rollout: Rollout) -> dict[str, Measured]:
        """The method's own measures of a rollout, by the names in `measures`."""
        return {}

    @property
    @abc.abstractmethod
    def networks(self) -> tuple[str, ...]:
        """Names of the networks that the method fits besides its policies."""

    @abc.abstractmethod
    def fit_tasks(self, learnt: Learnt, rollout: Rollout, *, key: PRNGKeyArray) -> dict[str, FitTask]:
        """What the method's own networks are to be fitted to. Policies are fitted in the same loop."""

    @abc.abstractmethod
    def learn(self, learnt: Learnt, rollout: Rollout, fitted: dict[str, FitResult]) -> tuple[Learnt, dict[str, Array]]:
        """Takes over what came of `fit_tasks`, and gives what is worth logging of the rollout."""


class AbstractBystander(AbstractMethod[Learnt, Memory]):
    """A method that has the world's own actions and lets the world go its way."""

    def action_bias(self, role: str) -> tuple[float, ...]:
        return (0.0,) * self.spec.num_actions

    def env_action(self, memory: Memory, action: Int[Array, ""]) -> Int[Array, ""]:
        return action

    @property
    def makes_requests(self) -> bool:
        return False

    def request(self, memory: Memory) -> Int[Array, ""]:
        return jnp.int32(CONTINUE)

    def rewound(self, memory: Memory, timestep: TimeStep) -> Memory:
        return memory


class AbstractSolo(AbstractBystander[Learnt, Memory]):
    """A bystander with a single role, the agent."""

    @property
    def roles(self) -> tuple[str, ...]:
        return ("agent",)

    def schedule(self, time: Times) -> Times:
        return time * 0

    def turn(self, memory: Memory) -> Int[Array, ""]:
        return jnp.int32(0)


class AbstractUnprimed(AbstractMethod[Learnt, Memory]):
    """A method that needs no random steps before training."""

    @property
    def priming(self) -> int:
        return 0

    def prime(self, learnt: Learnt, rollout: Rollout) -> Learnt:
        return learnt


class AbstractPoliciesOnly(AbstractMethod[Learnt, Memory]):
    """A method that trains nothing but its policies."""

    @property
    def networks(self) -> tuple[str, ...]:
        return ()

    def fit_tasks(self, learnt: Learnt, rollout: Rollout, *, key: PRNGKeyArray) -> dict[str, FitTask]:
        return {}


class Clock(eqx.Module):
    """What a body carries through an episode where nothing but time and the last observations matter."""

    frames: Shaped[Array, "..."]
    """The last observations, oldest first."""
    time: Int[Array, ""]
    """Steps taken in this episode."""


class Fitted(eqx.Module):
    """What a body carries through an episode where a density model is fitted to what it sees."""

    frames: Shaped[Array, "..."]
    """The last observations, oldest first."""
    stats: eqx.Module
    """The density model's sufficient statistics."""
    time: Int[Array, ""]
    """Steps taken in this episode."""
    discounted: Float[Array, ""]
    """Discounted return of the raw reward so far in this episode, R ← γ R + r."""


class AbstractFitted(AbstractPoliciesOnly[RunningMoments, Fitted]):
    """A method that fits a density model to what bodies see, shows it to the policies, and is paid by surprise, on the
    scale of what it has been paid so far."""

    stack: eqx.AbstractVar[int]
    """Observations the policies see at once."""

    @property
    def streams(self) -> dict[str, float]:
        return {"surprise": 1.0}

    @property
    def frames(self) -> int:
        return self.stack

    @property
    def density(self) -> AbstractDensity:
        """The model of single observations that fits what the world shows."""
        return density_for(self.spec)

    @property
    def num_features(self) -> int:
        return self.density.num_features

    def init(self, *, bodies: int, key: PRNGKeyArray) -> RunningMoments:
        return RunningMoments.start()


class AbstractClocked(AbstractSolo[Learnt, Clock]):
    """A single role that sees the last observations and the time, and remembers no more than that."""

    stack: eqx.AbstractVar[int]
    """Observations the policy sees at once."""

    @property
    def frames(self) -> int:
        return self.stack

    @property
    def num_features(self) -> int:
        return 0

    def start(self, timestep: TimeStep, before: Clock | None = None) -> Clock:
        return first_clock(timestep, self.stack)

    def see(self, memory: Clock) -> View:
        return plain_view(self.spec, memory)


def first_frames(obs: Shaped[Array, "..."], stack: int) -> Shaped[Array, "..."]:
    """The frames at the beginning of an episode: its first observation, over and over."""
    return jnp.broadcast_to(obs, (stack, *obs.shape))


def push(frames: Shaped[Array, "..."], seen: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
    """The frames with the newest added and the oldest gone."""
    return jnp.concatenate([frames[1:], seen[None]])


def first_clock(timestep: TimeStep, stack: int) -> Clock:
    """The beginning of an episode."""
    return Clock(first_frames(timestep.obs, stack), jnp.int32(0))


def tick(clock: Clock, timestep: TimeStep) -> Clock:
    """One step later in the same episode."""
    return Clock(push(clock.frames, timestep.final_obs), clock.time + 1)


def plain_view(spec: EnvSpec, clock: Clock) -> View:
    """Frames and, where the episode's length is known, the time: elsewhere it would mean nothing."""
    time = clock.time.astype(jnp.float32) / spec.max_steps if spec.max_steps else jnp.float32(0)
    return View(clock.frames, jnp.zeros((*spec.observation_shape, 0)), time)


def plain_score(rollout: Rollout, reward: Float[Array, "T B"], gamma: float) -> Score:
    """One stream with the episode's own ends."""
    return one_stream(reward, jnp.where(rollout.terminated, 0.0, gamma), ended(rollout))


def final_score(reward: Float[Array, "T B"], ends: Bool[Array, "T B"], gamma: float) -> Score:
    """One stream that ends for good on some steps, and on no others."""
    return one_stream(reward, jnp.where(ends, 0.0, gamma), ends)


def one_stream(reward: Float[Array, "T B"], discount: Float[Array, "T B"], cut: Bool[Array, "T B"]) -> Score:
    """A single stream, nothing added to the advantage or the target."""
    nothing = jnp.zeros_like(reward)
    return Score(reward[..., None], discount[..., None], cut[..., None], nothing, nothing[..., None])


def ended(rollout: Rollout) -> Bool[Array, "T B"]:
    """Steps that ended an episode."""
    return rollout.terminated | rollout.truncated


def mean_where(holds: Bool[Array, "T B"], x: Float[Array, "T B"]) -> Float[Array, ""]:
    """Mean over the steps on which something holds; 0 if there are none."""
    return jnp.sum(jnp.where(holds, x, 0.0)) / jnp.maximum(jnp.sum(holds), 1).astype(jnp.float32)


def density_for(spec: EnvSpec) -> AbstractDensity:
    """The model of single observations that fits what a world shows: categories or real numbers."""
    return Categorical(spec.num_classes) if spec.observation_kind == "classes" else Gaussian()
