"""The hosted loop: any world behind the host contract; collecting on the host, learning compiled."""

import contextlib
import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from advsurprise import methods
from advsurprise.config import RunConfig
from advsurprise.envs import find
from advsurprise.envs.host.base import Host
from advsurprise.errors import UserError
from advsurprise.learning import interaction
from advsurprise.learning.collect import HostCollector
from advsurprise.learning.interaction import Agent, make_agent
from advsurprise.learning.learn import Learner, learn, make_learner
from advsurprise.training.state import (
    TrainState,
    first_tail,
    init_keys,
    primed,
    priming_length,
    rate_factor,
    seed_keys,
    update_keys,
)
from advsurprise.types import EnvSpec, Rollout

RESUMED = 2**31 - 1
"""Folded into a run's key for worlds that begin anew; updates, whose numbers are folded in too, never get this far."""


class Hosted:
    """Collecting on the host, learning compiled; one seed. In pure worlds the same keys as `Fused`, so the same run to
    rounding. Host worlds cannot be saved: a resumed run begins new episodes there."""

    def __init__(self, cfg: RunConfig, host: Host | None = None):
        check_seeds(cfg)
        self.cfg = cfg
        self.host = open_world(cfg) if host is None else host
        try:
            self._build(cfg)
        except BaseException:
            self.close()
            raise

    def _build(self, cfg: RunConfig) -> None:
        self.method = methods.make(cfg.method, self.host.spec, **cfg.method_fields)
        self._collector = HostCollector(self.host, cfg.rollout)
        self._primer = HostCollector(self.host, priming_length(self.method, cfg.bodies))
        self._learn = jax.jit(self._learn_seed)

    def init(self) -> TrainState:
        key = seed_keys(self.cfg.seeds)[0]
        agent_key, world_key, prime_key = init_keys(key)
        agent = primed(make_agent(self.method, self.cfg.bodies, key=agent_key), self._primer, key=prime_key)
        learner = make_learner(agent, self.cfg.ppo, tail=first_tail(agent, self.cfg.bodies, self.cfg.rollout))
        return TrainState(learner, self._collector.start(agent, key=world_key), jnp.int32(0), key)

    def like(self) -> TrainState:
        return state_shapes(self.cfg, self.host.spec)

    def resumed(self, state: TrainState) -> TrainState:
        carry = self._collector.start(state.learner.agent, key=resume_key(state))
        # The world begins new episodes: the end of the last rollout does not lead to them.
        tail = first_tail(state.learner.agent, self.cfg.bodies, self.cfg.rollout)
        learner = dataclasses.replace(state.learner, tail=tail)
        return TrainState(learner, carry, state.update, state.key)

    def update(self, state: TrainState) -> tuple[TrainState, dict[str, Array]]:
        collect_key, learn_key = update_keys(state)
        carry, rollout = self._collector.collect(state.learner.agent, state.carry, key=collect_key)
        learner, metrics = self._learn(state.learner, rollout, state.update, learn_key)
        metrics = {name: value[None] for name, value in metrics.items()}
        return TrainState(learner, carry, state.update + 1, state.key), metrics

    def agents(self, state: TrainState) -> list[Agent]:
        return [state.learner.agent]

    def close(self) -> None:
        """Closes the world."""
        self.host.close()

    def _learn_seed(self, learner: Learner, rollout: Rollout, update: Int[Array, ""], key: PRNGKeyArray):
        return learn(learner, rollout, self.cfg.ppo, rate=rate_factor(self.cfg, update), key=key)


def check_seeds(cfg: RunConfig) -> None:
    """Refuses several seeds: a host has the bodies of one."""
    if len(cfg.seeds) > 1:
        raise UserError(f"{cfg.env} is trained one seed at a time, not {len(cfg.seeds)}")


def open_world(cfg: RunConfig) -> Host:
    """The world of a run behind the host contract."""
    return find(cfg.env).open(cfg.bodies, **cfg.env_fields)


def read_spec(cfg: RunConfig) -> EnvSpec:
    """The spec of a host world, from one body of it that is closed at once."""
    with contextlib.closing(find(cfg.env).open(1, **cfg.env_fields)) as host:
        return host.spec


def resume_key(state: TrainState) -> PRNGKeyArray:
    """The key of the episodes that begin when a run is resumed: not that of its beginning, nor of any update."""
    return jax.random.fold_in(jax.random.fold_in(state.key, RESUMED), state.update)


def state_shapes(cfg: RunConfig, spec: EnvSpec) -> TrainState:
    """Shapes of a hosted run's state, from what its world declares; nothing is opened, primed or computed."""
    method = methods.make(cfg.method, spec, **cfg.method_fields)

    def begin(key: PRNGKeyArray) -> TrainState:
        agent = make_agent(method, cfg.bodies, key=key)
        learner = make_learner(agent, cfg.ppo, tail=first_tail(agent, cfg.bodies, cfg.rollout))
        one = interaction.blank_timestep(spec)
        bodies = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (cfg.bodies, *leaf.shape)), one)
        return TrainState(learner, interaction.start(agent, bodies), jnp.int32(0), key)

    return jax.eval_shape(begin, jax.random.key(0))
