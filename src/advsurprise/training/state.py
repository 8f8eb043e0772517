"""What both training loops share: the state of a run between two updates, its keys, and priming."""

import math
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from advsurprise.config import RunConfig
from advsurprise.learning.collect import ScanCollector, rollout_shapes
from advsurprise.learning.interaction import Agent
from advsurprise.learning.learn import Learner, Tail, blank_tail
from advsurprise.learning.players import played_by
from advsurprise.methods.base import AbstractMethod
from advsurprise.types import Rollout


class TrainState(eqx.Module):
    """Full state of a run between two updates. All of it is saved, and in pure worlds nothing else is needed to resume.

    Every leaf has a leading axis S, one entry per seed.
    """

    learner: Learner
    carry: Any
    """State of collecting: worlds and memories of all bodies."""
    update: Int[Array, "..."]
    """Number of updates done."""
    key: Key[Array, "..."]
    """The run's key. Every update's keys are folded from it, so it never changes."""


@runtime_checkable
class Loop(Protocol):
    """Interface of a training loop."""

    @property
    def method(self) -> AbstractMethod:
        """The method that is trained."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know about how the world is run, one line each."""
        ...

    def init(self) -> TrainState:
        """The state before the first update."""
        ...

    def like(self) -> TrainState:
        """Shapes of a state, to load one into."""
        ...

    def resumed(self, state: TrainState) -> TrainState:
        """A loaded state, ready for the next update."""
        ...

    def saved(self, state: TrainState) -> TrainState:
        """The state as it is written to disk."""
        ...

    def update(self, state: TrainState) -> tuple[TrainState, dict[str, Array]]:
        """Collects one rollout and learns from it; metrics have an axis S."""
        ...

    def agents(self, state: TrainState) -> list[Agent]:
        """One agent per seed."""
        ...


def priming_length(method: AbstractMethod, bodies: int) -> int:
    """Steps of each body for priming, rounded up to whole episodes where their length is fixed."""
    unit = method.spec.max_steps or 1
    return math.ceil(method.priming / (bodies * unit)) * unit


def primed(agent: Agent, collector: ScanCollector, *, key: PRNGKeyArray) -> Agent:
    """The agent after its method has seen some random steps, if it asks for them. They do not count as training."""
    if not agent.method.priming:
        return agent
    start_key, collect_key = prime_keys(key)
    carry = collector.start(agent, key=start_key)
    _, rollout = collector.collect(played_by(agent, "random"), carry, key=collect_key)
    return primed_by(agent, rollout)


def primed_by(agent: Agent, rollout: Rollout) -> Agent:
    """The agent after its method has seen a rollout of random steps."""
    return Agent(agent.method, agent.policies, agent.method.prime(agent.learnt, rollout))


def prime_keys(key: PRNGKeyArray) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """Keys of the worlds and of the actions of priming."""
    start_key, collect_key = jax.random.split(key)
    return start_key, collect_key


def split_seeds(agents: Agent, seeds: int) -> list[Agent]:
    """One agent per seed, from the agents of all seeds [S, …]."""
    return [jax.tree.map(lambda leaf, seed=seed: leaf[seed], agents) for seed in range(seeds)]


def seed_keys(seeds: tuple[int, ...]) -> Key[Array, " S"]:
    """One key per seed."""
    return jnp.stack([jax.random.key(seed) for seed in seeds])


def init_keys(key: PRNGKeyArray) -> tuple[PRNGKeyArray, PRNGKeyArray, PRNGKeyArray]:
    """First keys of a seed, for the agent, the world and priming."""
    agent_key, world_key, prime_key = jax.random.split(jax.random.fold_in(key, 0), 3)
    return agent_key, world_key, prime_key


def first_tail(agent: Agent, bodies: int, length: int) -> Tail | None:
    """The tail before the first rollout of `length`, if the agent's method looks back."""
    lookback = agent.method.lookback(length)
    return blank_tail(rollout_shapes(agent, bodies, lookback), agent.method.pending(length)) if lookback else None


def steps_before(cfg: RunConfig, update: Int[Array, ""]) -> Float[Array, ""]:
    """Environment steps before update number `update`, from 0."""
    return update.astype(jnp.float32) * cfg.steps_per_update


def update_keys(key: PRNGKeyArray, update: Int[Array, ""]) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """Keys of update number `update`, from 0, for collecting and for learning."""
    collect_key, learn_key = jax.random.split(jax.random.fold_in(key, update + 1))
    return collect_key, learn_key
