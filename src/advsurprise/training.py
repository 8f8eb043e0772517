"""Training loops: fused (a pure world, one compiled program per update, seeds together) and hosted (any world)."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PRNGKeyArray

from advsurprise import devices, envs, methods
from advsurprise.collect import Carry, HostCollector, ScanCollector
from advsurprise.config import RunConfig
from advsurprise.devices import ALONE, WHOLE
from advsurprise.envs.base import AbstractEnv, Host, as_host
from advsurprise.envs.foreign import open_host
from advsurprise.envs.load import is_foreign
from advsurprise.errors import UserError
from advsurprise.evaluate import everyone
from advsurprise.interaction import Agent, make_agent
from advsurprise.learn import Learner, learn, make_learner, make_optimiser
from advsurprise.methods.base import AbstractMethod
from advsurprise.types import Rollout


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
        seeds, lessons = len(cfg.seeds), lesson_count(self.method)
        self.devices = devices.choose(cfg.devices, seeds=seeds, bodies=cfg.bodies, lessons=lessons)
        self._sharers = self.devices if seeds % self.devices.count else ALONE
        self._collector = ScanCollector(self.env, cfg.bodies, cfg.rollout, self._sharers)
        self._primer = ScanCollector(self.env, cfg.bodies, priming_length(self.method, cfg.bodies))
        self._init = jax.jit(over_seeds(self._init_seed, seeds), compiler_options=devices.run_once())

    def init(self) -> TrainState:
        return self.resumed(self._init(seed_keys(self.cfg.seeds)))

    def like(self) -> TrainState:
        return self._init.eval_shape(seed_keys(self.cfg.seeds))

    def resumed(self, state: TrainState) -> TrainState:
        # On their devices at once: a program that had found them elsewhere would be compiled again for the next update.
        return self.devices.placed(state, self._held)

    def update(self, state: TrainState) -> tuple[TrainState, dict[str, Array]]:
        return self._update(state)

    def collect(self, state: TrainState) -> tuple[Carry, Rollout]:
        """The first half of an update: bodies move on, and nothing is learnt."""
        return self._collect(state)

    def trace(self, state: TrainState) -> jax.stages.Traced:
        """The update's program, for those who measure it: `.lower().compile()` makes it run."""
        return self._update.trace(state)

    def program_bytes(self, program: jax.stages.Compiled) -> int:
        """Memory that a compiled program needs while it runs, its arguments and results included: of one device, or of
        all that share one memory."""
        sizes: Any = program.memory_analysis()
        held = sizes.argument_size_in_bytes + sizes.output_size_in_bytes - sizes.alias_size_in_bytes
        return self.devices.in_one_memory * (sizes.temp_size_in_bytes + held)

    def agents(self, state: TrainState) -> list[Agent]:
        agents = self.devices.on_first(state.learner.agent)
        return [jax.tree.map(lambda leaf, seed=seed: leaf[seed], agents) for seed in range(len(self.cfg.seeds))]

    def trace_collecting(self, state: TrainState) -> jax.stages.Traced:
        """The program of `collect`."""
        return self._collect.trace(state)

    @functools.cached_property
    def _held(self) -> Any:
        """What each device holds of a state [S, …]: its own seeds, or of all seeds its own bodies."""
        own_seeds = devices.shared_out(0)
        return jax.tree.map(lambda _: own_seeds, self.like()) if self._sharers == ALONE else own_bodies(self.like())

    @functools.cached_property
    def _update(self) -> Any:
        return self._program(self._update_seed, self._held)

    @functools.cached_property
    def _collect(self) -> Any:
        return self._program(self._collect_seed, self._held.carry)

    def _program(self, function: Callable, first: Any) -> Any:
        """A function of one seed's state, compiled for all seeds on all devices. `first` is what each device holds of
        the first of two results; the second belongs to whole seeds."""
        alone = self._sharers == ALONE
        seeds = len(self.cfg.seeds) // (self.devices.count if alone else 1)
        second = devices.shared_out(0) if alone else WHOLE
        return self.devices.program(over_seeds(function, seeds), (self._held,), (first, second))

    def _init_seed(self, key: PRNGKeyArray) -> TrainState:
        agent_key, world_key, prime_key = init_keys(key)
        agent = primed(make_agent(self.method, self.cfg.bodies, key=agent_key), self._primer, key=prime_key)
        learner = make_learner(agent, self._optimiser)
        return TrainState(learner, self._collector.start(agent, key=world_key), jnp.int32(0), key)

    def _collect_seed(self, state: TrainState) -> tuple[Carry, Rollout]:
        return self._collector.collect(state.learner.agent, state.carry, key=update_keys(state)[0])

    def _update_seed(self, state: TrainState) -> tuple[TrainState, dict[str, Array]]:
        carry, rollout = self._collect_seed(state)
        key = update_keys(state)[1]
        learner, metrics = learn(state.learner, rollout, self.cfg.ppo, self._optimiser, devices=self._sharers, key=key)
        return TrainState(learner, carry, state.update + 1, state.key), metrics


def own_bodies(state: TrainState) -> Any:
    """What each of several devices that share every seed holds of a state [S, …]: its own bodies, and all the rest."""
    every, own = (jax.tree.map(lambda _, spec=spec: spec, state) for spec in (WHOLE, devices.shared_out(1)))

    def bodies(state):
        return [state.carry.env_state, state.carry.memory, state.carry.first]

    return eqx.tree_at(bodies, every, bodies(own), is_leaf=lambda node: node is None)


def lesson_count(method: AbstractMethod) -> int:
    """Networks that a method fits in an update."""
    return len(method.networks) + (len(method.roles) if method.trains else 0)


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
