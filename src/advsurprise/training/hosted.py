"""The hosted loop, for worlds behind the host contract: collecting on the host, learning compiled, seeds together."""

import dataclasses
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, PRNGKeyArray, UInt8

from advsurprise import methods
from advsurprise.config import RunConfig
from advsurprise.envs import find
from advsurprise.envs.host.base import Host
from advsurprise.learning import interaction
from advsurprise.learning.host_collect import HostCollector
from advsurprise.learning.interaction import Agent, make_agent
from advsurprise.learning.learn import Learner, learn, make_learner
from advsurprise.learning.players import played_by
from advsurprise.training.state import (
    TrainState,
    first_tail,
    init_keys,
    prime_keys,
    primed_by,
    priming_length,
    seed_keys,
    split_seeds,
    steps_before,
    update_keys,
)
from advsurprise.training.tensors import ANY_LENGTH
from advsurprise.tree import over_seeds
from advsurprise.types import EnvSpec, Rollout

RESUMED = 2**31 - 1
"""Folded into a run's key for worlds that restart; update numbers, which are folded in too, never get this high."""


class Carry(eqx.Module):
    """State of collecting between two rollouts."""

    memory: Any
    """The method's memories of all bodies, [S, B, …]."""
    world: UInt8[Array, " n"] | jax.ShapeDtypeStruct
    """State of the worlds, in checkpoints of a world that resumes exactly; empty otherwise."""


class Hosted:
    """Collects on the host, learning is compiled. Uses the keys of `Fused`: in pure worlds the same run up to rounding.

    Learning and collecting do not overlap: the next rollout's first actions need the updated policies.
    """

    def __init__(self, cfg: RunConfig, host: Host | None = None):
        self.cfg = cfg
        self.collect_seconds = 0.0
        """Seconds that collecting took in the last update."""
        self.host = open_world(cfg) if host is None else host
        try:
            self._build(cfg)
        except BaseException:
            self.close()
            raise

    def _build(self, cfg: RunConfig) -> None:
        self.method = methods.make(cfg.method, self.host.spec, **cfg.method_fields)
        seeds = len(cfg.seeds)
        self._collector = HostCollector(self.host, cfg.rollout)
        self._make = jax.jit(over_seeds(self._make_agent, seeds))
        self._prime = jax.jit(over_seeds(primed_by, seeds))
        self._begin = jax.jit(over_seeds(self._begin_learning, seeds))
        self._keys = jax.jit(over_seeds(update_keys, seeds))
        # Seeds together fill a GPU, but their matrix products have one more axis, which CPUs are a third slower at.
        self._learn = jax.jit(over_seeds(self._learn_seed, seeds, in_turn=jax.default_backend() == "cpu"))

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes of the host, and on resuming and rewinding."""
        world = self.host.spec.id
        notes = {
            f"{world} cannot be saved: a resumed run starts new episodes": not self.host.resumes,
            f"{world} cannot be rewound: {self.cfg.method} gets new episodes instead": self._cannot_rewind,
        }
        return (*self.host.notes, *(note for note, holds in notes.items() if holds))

    @property
    def _cannot_rewind(self) -> bool:
        return self.method.makes_requests and not self.host.rewinds

    def init(self) -> TrainState:
        keys = seed_keys(self.cfg.seeds)
        agent_key, world_key, prime_key = jax.vmap(init_keys)(keys)
        agent = self._primed(self._make(agent_key), prime_key)
        return self._started(self._begin(agent), jnp.zeros(len(keys), jnp.int32), keys, world_key)

    def like(self) -> TrainState:
        return state_shapes(self.cfg, self.host.spec)

    def resumed(self, state: TrainState) -> TrainState:
        """Restores the worlds if they were saved; else starts new episodes, without the tail of the last rollout."""
        if self.host.resumes and state.carry.world.size:
            self.host.load(np.asarray(state.carry.world))
            return _with_world(state, np.zeros(0, np.uint8))
        return self.restarted(state)

    def restarted(self, state: TrainState) -> TrainState:
        """The state with new episodes in all worlds."""
        blank = self._begin(state.learner.agent).tail
        learner = dataclasses.replace(state.learner, tail=blank)
        return self._started(learner, state.update, state.key, resume_keys(state))

    def saved(self, state: TrainState) -> TrainState:
        """The state as it is written to disk: with the state of the worlds."""
        return _with_world(state, self.host.save()) if self.host.resumes else state

    def update(self, state: TrainState) -> tuple[TrainState, dict[str, Array]]:
        replaced, start = self.host.replaced, time.perf_counter()
        carry, rollout = self.collect(state)
        self.collect_seconds = time.perf_counter() - start
        learn_key = self._keys(state.key, state.update)[1]
        learner, metrics = self._learn(state.learner, rollout, state.update, learn_key)
        metrics["workers_replaced"] = jnp.full(len(self.cfg.seeds), float(self.host.replaced - replaced))
        return TrainState(learner, carry, state.update + 1, state.key), metrics

    def collect(self, state: TrainState) -> tuple[Carry, Rollout]:
        """The first half of an update: a rollout, without learning from it. Valid until the next one."""
        collect_key = self._keys(state.key, state.update)[0]
        memory, rollout = self._collector.collect(state.learner.agent, state.carry.memory, key=collect_key)
        return Carry(memory, state.carry.world), rollout

    def learn_bytes(self, state: TrainState) -> int:
        """Bytes of memory that learning needs, including the rollout and the learner before and after."""
        rollout, learn_key = self.collect(state)[1], self._keys(state.key, state.update)[1]
        sizes: Any = self._learn.lower(state.learner, rollout, state.update, learn_key).compile().memory_analysis()
        return sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes

    def agents(self, state: TrainState) -> list[Agent]:
        return split_seeds(state.learner.agent, len(self.cfg.seeds))

    def close(self) -> None:
        """Closes the world."""
        self.host.close()

    def _started(self, learner: Learner, update: Any, keys: Key[Array, " S"], world_keys: Key[Array, " S"]):
        memory = self._collector.start(learner.agent, key=world_keys)
        return TrainState(learner, Carry(memory, jnp.zeros(0, jnp.uint8)), update, keys)

    def _primed(self, agent: Agent, keys: Key[Array, " S"]) -> Agent:
        """Agents after priming, if their method asks for it."""
        if not self.method.priming:
            return agent
        start_key, collect_key = jax.vmap(prime_keys)(keys)
        collector = HostCollector(self.host, priming_length(self.method, self.cfg.bodies))
        memory = collector.start(agent, key=start_key)
        at_random = over_seeds(lambda agent: played_by(agent, "random"), len(self.cfg.seeds))(agent)
        _, rollout = collector.collect(at_random, memory, key=collect_key)
        return self._prime(agent, rollout)

    def _make_agent(self, key: PRNGKeyArray) -> Agent:
        return make_agent(self.method, self.cfg.bodies, network_width=self.cfg.network_width, key=key)

    def _begin_learning(self, agent: Agent) -> Learner:
        return make_learner(agent, self.cfg.ppo, tail=first_tail(agent, self.cfg.bodies, self.cfg.rollout))

    def _learn_seed(self, learner: Learner, rollout: Rollout, update: Int[Array, ""], key: PRNGKeyArray):
        return learn(learner, rollout, self.cfg.ppo, steps=steps_before(self.cfg, update), key=key)


def open_world(cfg: RunConfig) -> Host:
    """The world of a run behind the host contract."""
    return find(cfg.env).open(cfg.bodies, seeds=len(cfg.seeds), **cfg.env_fields)


def resume_keys(state: TrainState) -> Key[Array, " S"]:
    """Keys of the episodes that start when a run is resumed: different from those of its start and of any update."""

    def one(key, update):
        return jax.random.fold_in(jax.random.fold_in(key, RESUMED), update)

    return jax.vmap(one)(state.key, state.update)


def state_shapes(cfg: RunConfig, spec: EnvSpec) -> TrainState:
    """Shapes of a hosted run's state, from the spec of its world; nothing is opened, primed or computed."""
    method = methods.make(cfg.method, spec, **cfg.method_fields)

    def begin(key: PRNGKeyArray) -> TrainState:
        agent = make_agent(method, cfg.bodies, network_width=cfg.network_width, key=key)
        learner = make_learner(agent, cfg.ppo, tail=first_tail(agent, cfg.bodies, cfg.rollout))
        one = interaction.blank_timestep(spec)
        bodies = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (cfg.bodies, *leaf.shape)), one)
        return TrainState(learner, interaction.start(agent, bodies), jnp.int32(0), key)

    state = jax.eval_shape(jax.vmap(begin), seed_keys(cfg.seeds))
    # `tree_at`, since the constructor checks types, and these are shapes.
    return eqx.tree_at(
        lambda state: state.carry, state, Carry(state.carry, jax.ShapeDtypeStruct(ANY_LENGTH, jnp.uint8))
    )


def _with_world(state: TrainState, world: UInt8[np.ndarray, " n"]) -> TrainState:
    return dataclasses.replace(state, carry=Carry(state.carry.memory, jnp.asarray(world)))
