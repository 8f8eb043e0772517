"""The fused loop, for pure worlds: one compiled program per update, for all seeds together."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from advsurprise import envs, methods
from advsurprise.config import RunConfig
from advsurprise.envs.base import AbstractEnv
from advsurprise.learning import devices
from advsurprise.learning.collect import Carry, ScanCollector
from advsurprise.learning.devices import PER_BODY, PER_SEED
from advsurprise.learning.interaction import Agent, make_agent
from advsurprise.learning.learn import learn, make_learner
from advsurprise.methods.base import AbstractMethod
from advsurprise.training.state import (
    TrainState,
    first_tail,
    init_keys,
    primed,
    priming_length,
    seed_keys,
    split_seeds,
    steps_before,
    update_keys,
)
from advsurprise.tree import over_seeds
from advsurprise.types import Rollout


class Fused:
    """Collecting and learning in one compiled program, mapped over seeds."""

    def __init__(self, cfg: RunConfig, env: AbstractEnv | None = None):
        self.cfg = cfg
        self.env = make_env(cfg) if env is None else env
        self.method = methods.make(cfg.method, self.env.spec, **cfg.method_fields)
        seeds, networks = len(cfg.seeds), num_networks(self.method)
        self.devices = devices.choose(cfg.devices, seeds=seeds, bodies=cfg.bodies, networks=networks)
        self._collector = ScanCollector(self.env, cfg.bodies, cfg.rollout, self.devices)
        self._primer = ScanCollector(self.env, cfg.bodies, priming_length(self.method, cfg.bodies))
        self._init = jax.jit(over_seeds(self._init_seed, seeds), compiler_options=devices.quick_compile())

    @property
    def notes(self) -> tuple[str, ...]:
        return ()

    def init(self) -> TrainState:
        return self.resumed(self._init(seed_keys(self.cfg.seeds)))

    def like(self) -> TrainState:
        return self._init.eval_shape(seed_keys(self.cfg.seeds))

    def resumed(self, state: TrainState) -> TrainState:
        return self.devices.shard(state, self._layout)

    def saved(self, state: TrainState) -> TrainState:
        return state

    def update(self, state: TrainState) -> tuple[TrainState, dict[str, Array]]:
        result = self._update(state)
        # With several CPU devices, two updates in flight can deadlock in a gather.
        return jax.block_until_ready(result) if self.devices.count > 1 else result

    def collect(self, state: TrainState) -> tuple[Carry, Rollout]:
        """The first half of an update: a rollout, without learning from it."""
        return self._collect(state)

    def trace(self, state: TrainState) -> jax.stages.Traced:
        """The traced program of `update`; `.lower().compile()` makes it callable."""
        return self._update.trace(state)

    def program_bytes(self, program: jax.stages.Compiled) -> int:
        """Bytes of memory that a compiled program needs, including arguments and results: on a GPU, or for all cores of
        a CPU together."""
        sizes: Any = program.memory_analysis()
        arrays = sizes.argument_size_in_bytes + sizes.output_size_in_bytes - sizes.alias_size_in_bytes
        return self.devices.per_memory * (sizes.temp_size_in_bytes + arrays)

    def agents(self, state: TrainState) -> list[Agent]:
        return split_seeds(self.devices.on_first(state.learner.agent), len(self.cfg.seeds))

    def trace_collecting(self, state: TrainState) -> jax.stages.Traced:
        """The traced program of `collect`."""
        return self._collect.trace(state)

    @functools.cached_property
    def _layout(self) -> Any:
        return state_layout(self.like())

    @functools.cached_property
    def _update(self) -> Any:
        return self._program(self._update_seed, (self._layout, PER_SEED))

    @functools.cached_property
    def _collect(self) -> Any:
        return self._program(self._collect_seed, (self._layout.carry, PER_SEED))

    def _program(self, function: Callable, out_specs: Any) -> Any:
        """A function of one seed's state, compiled for all seeds on all devices."""
        local_seeds = len(self.cfg.seeds) // self.devices.seeds
        return self.devices.jit(over_seeds(function, local_seeds), (self._layout,), out_specs)

    def _init_seed(self, key: PRNGKeyArray) -> TrainState:
        agent_key, world_key, prime_key = init_keys(key)
        agent = make_agent(self.method, self.cfg.bodies, network_width=self.cfg.network_width, key=agent_key)
        agent = primed(agent, self._primer, key=prime_key)
        learner = make_learner(agent, self.cfg.ppo, tail=first_tail(agent, self.cfg.bodies, self.cfg.rollout))
        return TrainState(learner, self._collector.start(agent, key=world_key), jnp.int32(0), key)

    def _collect_seed(self, state: TrainState) -> tuple[Carry, Rollout]:
        return self._collector.collect(state.learner.agent, state.carry, key=update_keys(state.key, state.update)[0])

    def _update_seed(self, state: TrainState) -> tuple[TrainState, dict[str, Array]]:
        carry, rollout = self._collect_seed(state)
        key = update_keys(state.key, state.update)[1]
        steps = steps_before(self.cfg, state.update)
        learner, metrics = learn(state.learner, rollout, self.cfg.ppo, steps=steps, devices=self.devices, key=key)
        return TrainState(learner, carry, state.update + 1, state.key), metrics


def state_layout(state: TrainState) -> Any:
    """How devices split a state [S, …]: every leaf by seed, leaves with bodies also by body."""

    def of_bodies(state):
        return [state.carry.env_state, state.carry.memory, state.carry.first]

    per_seed = jax.tree.map(lambda _: PER_SEED, state)
    return eqx.tree_at(of_bodies, per_seed, [PER_BODY] * 3, is_leaf=lambda node: node is None)


def num_networks(method: AbstractMethod) -> int:
    """Number of networks that a method fits in an update."""
    return len(method.networks) + (len(method.roles) if method.trains else 0)


def make_env(cfg: RunConfig) -> AbstractEnv:
    """The world of a run."""
    return envs.find(cfg.env).make(**cfg.env_fields)
