"""The hosted loop: any world behind the host contract; collecting on the host, learning compiled."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from advsurprise import methods
from advsurprise.config import RunConfig
from advsurprise.envs import find
from advsurprise.envs.host.base import Host
from advsurprise.errors import UserError
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
from advsurprise.types import Rollout


class Hosted:
    """Collecting on the host, learning compiled; one seed. In pure worlds the same keys as `Fused`, so the same run to
    rounding. The worlds of others cannot be saved: a resumed run begins new episodes there."""

    def __init__(self, cfg: RunConfig, host: Host | None = None):
        if len(cfg.seeds) > 1:
            raise UserError(f"{cfg.env} is trained one seed at a time, not {len(cfg.seeds)}")
        self.cfg = cfg
        self.host = open_world(cfg) if host is None else host
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
        return self.init()

    def resumed(self, state: TrainState) -> TrainState:
        world_key = jax.random.split(jax.random.fold_in(state.key, state.update))[1]
        carry = self._collector.start(state.learner.agent, key=world_key)
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

    def _learn_seed(self, learner: Learner, rollout: Rollout, update: Int[Array, ""], key: PRNGKeyArray):
        return learn(learner, rollout, self.cfg.ppo, rate=rate_factor(self.cfg, update), key=key)


def open_world(cfg: RunConfig) -> Host:
    """The world of a run behind the host contract."""
    return find(cfg.env).open(cfg.bodies, **cfg.env_fields)
