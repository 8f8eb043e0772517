"""Training loops: fused (a pure world, one compiled program per update, seeds together) and hosted (any world)."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PRNGKeyArray

from advsurprise import envs, methods
from advsurprise.collect import HostCollector, ScanCollector
from advsurprise.config import RunConfig
from advsurprise.envs.base import AbstractEnv, Host, as_host
from advsurprise.envs.foreign import open_host
from advsurprise.envs.load import is_foreign
from advsurprise.errors import UserError
from advsurprise.evaluate import everyone
from advsurprise.interaction import Agent, make_agent
from advsurprise.learn import Learner, learn, make_learner, make_optimiser
from advsurprise.methods.base import AbstractMethod


class TrainState(eqx.Module):
    """All that a run is between two updates. It is saved whole, and in pure worlds nothing else is needed to go on.

    In the fused loop every leaf has a leading axis S, one entry per seed.
    """

    learner: Learner
    carry: Any
    """Where collecting stands: worlds and memories of all bodies."""
    update: Int[Array, "..."]
    """Updates done."""
    key: Key[Array, "..."]
    """The run's key. Every update's keys are folded from it, so it never changes."""


@runtime_checkable
class Loop(Protocol):
    """What a driver needs of a training loop."""

    def init(self) -> TrainState:
        """The state before the first update."""
        ...

    def like(self) -> TrainState:
        """Shapes of a state, to load one into."""
        ...

    def resumed(self, state: TrainState) -> TrainState:
        """A loaded state, ready to go on."""
        ...

    def update(self, state: TrainState) -> tuple[TrainState, dict[str, Array]]:
        """Collects one rollout and learns from it; metrics have an axis S."""
        ...

    def agents(self, state: TrainState) -> list[Agent]:
        """One agent per seed."""
        ...


class Fused:
    """Collecting and learning in one compiled program, mapped over seeds."""

    def __init__(self, cfg: RunConfig, env: AbstractEnv | None = None):
        self.cfg = cfg
        self.env = make_env(cfg) if env is None else env
        self.method = methods.make(cfg.method, self.env.spec, **cfg.method_fields)
        self._optimiser = make_optimiser(cfg.ppo, self.method, cfg.bodies, cfg.rollout)
        self._collector = ScanCollector(self.env, cfg.bodies, cfg.rollout)
        self._primer = ScanCollector(self.env, cfg.bodies, priming_length(self.method, cfg.bodies))
        self._init = jax.jit(over_seeds(self._init_seed, len(cfg.seeds)))
        self._update = jax.jit(over_seeds(self._update_seed, len(cfg.seeds)))

    def init(self) -> TrainState:
        return self._init(seed_keys(self.cfg.seeds))

    def like(self) -> TrainState:
        return jax.eval_shape(self.init)

    def resumed(self, state: TrainState) -> TrainState:
        return state

    def update(self, state: TrainState) -> tuple[TrainState, dict[str, Array]]:
        return self._update(state)

    def trace(self, state: TrainState) -> jax.stages.Traced:
        """The update's program, for those who measure it: `.lower().compile()` makes it run."""
        return self._update.trace(state)

    def agents(self, state: TrainState) -> list[Agent]:
        seeds = range(len(self.cfg.seeds))
        return [jax.tree.map(lambda leaf, seed=seed: leaf[seed], state.learner.agent) for seed in seeds]

    def rollout(self, state: TrainState) -> Any:
        """One rollout from a state, without learning from it."""

        def collect(state):
            return self._collector.collect(state.learner.agent, state.carry, key=update_keys(state)[0])[1]

        return over_seeds(collect, len(self.cfg.seeds))(state)

    def _init_seed(self, key: PRNGKeyArray) -> TrainState:
        agent_key, world_key, prime_key = init_keys(key)
        agent = primed(make_agent(self.method, self.cfg.bodies, key=agent_key), self._primer, key=prime_key)
        learner = make_learner(agent, self._optimiser)
        return TrainState(learner, self._collector.start(agent, key=world_key), jnp.int32(0), key)

    def _update_seed(self, state: TrainState) -> tuple[TrainState, dict[str, Array]]:
        collect_key, learn_key = update_keys(state)
        carry, rollout = self._collector.collect(state.learner.agent, state.carry, key=collect_key)
        learner, metrics = learn(state.learner, rollout, self.cfg.ppo, self._optimiser, key=learn_key)
        return TrainState(learner, carry, state.update + 1, state.key), metrics


def program_bytes(program: jax.stages.Compiled) -> int:
    """Memory that a compiled program needs while it runs, its arguments and results included."""
    sizes: Any = program.memory_analysis()
    held = sizes.argument_size_in_bytes + sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    return sizes.temp_size_in_bytes + held


def over_seeds(function: Callable, seeds: int) -> Callable:
    """The function of one seed for arguments with an axis S. A single seed is not mapped: that would cost a little."""
    if seeds > 1:
        return jax.vmap(function)

    def alone(*args):
        found = function(*jax.tree.map(lambda leaf: leaf[0], args))
        return jax.tree.map(lambda leaf: leaf[None], found)

    return alone


class Hosted:
    """Collecting on the host, learning compiled; one seed. In pure worlds the same keys as `Fused`, so the same run to
    rounding. The worlds of others cannot be saved: a resumed run begins new episodes there."""

    def __init__(self, cfg: RunConfig, host: Host | None = None):
        if len(cfg.seeds) > 1:
            raise UserError(f"{cfg.env} is trained one seed at a time, not {len(cfg.seeds)}")
        self.cfg = cfg
        self.host = open_world(cfg) if host is None else host
        self.method = methods.make(cfg.method, self.host.spec, **cfg.method_fields)
        self._optimiser = make_optimiser(cfg.ppo, self.method, cfg.bodies, cfg.rollout)
        self._collector = HostCollector(self.host, cfg.rollout)
        self._primer = HostCollector(self.host, priming_length(self.method, cfg.bodies))
        self._learn = jax.jit(lambda learner, rollout, key: learn(learner, rollout, cfg.ppo, self._optimiser, key=key))

    def init(self) -> TrainState:
        key = seed_keys(self.cfg.seeds)[0]
        agent_key, world_key, prime_key = init_keys(key)
        agent = primed(make_agent(self.method, self.cfg.bodies, key=agent_key), self._primer, key=prime_key)
        learner = make_learner(agent, self._optimiser)
        return TrainState(learner, self._collector.start(agent, key=world_key), jnp.int32(0), key)

    def like(self) -> TrainState:
        return self.init()

    def resumed(self, state: TrainState) -> TrainState:
        world_key = jax.random.split(jax.random.fold_in(state.key, state.update))[1]
        carry = self._collector.start(state.learner.agent, key=world_key)
        return TrainState(state.learner, carry, state.update, state.key)

    def update(self, state: TrainState) -> tuple[TrainState, dict[str, Array]]:
        collect_key, learn_key = update_keys(state)
        carry, rollout = self._collector.collect(state.learner.agent, state.carry, key=collect_key)
        learner, metrics = self._learn(state.learner, rollout, learn_key)
        metrics = {name: value[None] for name, value in metrics.items()}
        return TrainState(learner, carry, state.update + 1, state.key), metrics

    def agents(self, state: TrainState) -> list[Agent]:
        return [state.learner.agent]


def make_loop(cfg: RunConfig) -> Fused | Hosted:
    """The loop that fits the world: compiled for ours, hosted for those of others."""
    return Hosted(cfg) if is_foreign(cfg.env) else Fused(cfg)


def open_world(cfg: RunConfig) -> Host:
    """The world of a run behind the host contract."""
    if is_foreign(cfg.env):
        return open_host(cfg.env, cfg.bodies, kwargs=cfg.env_fields)
    return as_host(make_env(cfg), cfg.bodies)


def whole_episodes(cfg: RunConfig) -> RunConfig:
    """The configuration with its rollout rounded to whole episodes where their length is fixed: turns are then known
    beforehand, and no Control turn is paid in two parts."""
    length = 0 if is_foreign(cfg.env) else make_env(cfg).spec.max_steps
    if not length:
        return cfg
    return dataclasses.replace(cfg, rollout=max(1, round(cfg.rollout / length)) * length)


def priming_length(method: AbstractMethod, bodies: int) -> int:
    """Steps of each body for priming, rounded up to whole episodes where their length is fixed."""
    unit = method.spec.max_steps or 1
    return math.ceil(method.priming / (bodies * unit)) * unit


def primed(agent: Agent, collector: ScanCollector | HostCollector, *, key: PRNGKeyArray) -> Agent:
    """The agent after its method has seen some random steps, if it asks for them. They are no part of training."""
    if not agent.method.priming:
        return agent
    start_key, collect_key = jax.random.split(key)
    carry = collector.start(agent, key=start_key)
    _, rollout = collector.collect(everyone(agent, "random"), carry, key=collect_key)
    return Agent(agent.method, agent.policies, agent.method.prime(agent.learnt, rollout))


def make_env(cfg: RunConfig) -> AbstractEnv:
    """The world of a run."""
    return envs.make(cfg.env, **cfg.env_fields)


def seed_keys(seeds: tuple[int, ...]) -> Key[Array, " S"]:
    """One key per seed."""
    return jnp.stack([jax.random.key(seed) for seed in seeds])


def init_keys(key: PRNGKeyArray) -> tuple[PRNGKeyArray, PRNGKeyArray, PRNGKeyArray]:
    """Keys of a seed's beginning, for the agent, the world and priming."""
    agent_key, world_key, prime_key = jax.random.split(jax.random.fold_in(key, 0), 3)
    return agent_key, world_key, prime_key


def update_keys(state: TrainState) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """Keys of the next update, for collecting and for learning."""
    collect_key, learn_key = jax.random.split(jax.random.fold_in(state.key, state.update + 1))
    return collect_key, learn_key
