"""One update: a rollout in, a better agent out. Both loops call it, for every method."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from advsurprise import ppo
from advsurprise.advantage import turn_gae
from advsurprise.config import PPOConfig
from advsurprise.interaction import Agent, role_schedule
from advsurprise.methods.base import AbstractMethod, ended
from advsurprise.types import Rollout, Score

CAPACITY_SLACK = 1.25
"""Where episodes have no fixed length: room for a role's steps, relative to its share of a long episode."""
LONG_EPISODE = 4096
"""Steps over which that share is counted."""


class Learner(eqx.Module):
    """An agent and its optimisers."""

    agent: Agent
    opt_states: dict[str, optax.OptState]


Optimisers = dict[str, optax.GradientTransformation]
"""One optimiser per role: roles that take turns of different lengths take different numbers of gradient steps."""


def make_optimiser(cfg: PPOConfig, method: AbstractMethod, bodies: int, length: int) -> Optimisers:
    """The optimiser of every role; a schedule is told how many environment steps one gradient step stands for."""

    def one(index: int) -> optax.GradientTransformation:
        gradient_steps = cfg.epochs * max(1, batch_size(method, index, length, bodies) // cfg.minibatch)
        return ppo.optimiser(cfg, steps_per_gradient_step=bodies * length / gradient_steps)

    return {role: one(index) for index, role in enumerate(method.roles)}


def make_learner(agent: Agent, optimiser: Optimisers) -> Learner:
    """A learner at the beginning."""
    return Learner(agent, {role: optimiser[role].init(policy) for role, policy in agent.policies.items()})


def learn(
    learner: Learner,
    rollout: Rollout,
    cfg: PPOConfig,
    optimiser: Optimisers,
    *,
    key: PRNGKeyArray,
) -> tuple[Learner, dict[str, Array]]:
    """Scores the rollout, estimates advantages, improves each role, and lets the method train its own networks."""
    agent = learner.agent
    method = agent.method
    method_key, *role_keys = jax.random.split(key, 1 + len(method.roles))
    learnt, scores = method.score(agent.learnt, rollout)
    policies, opt_states, metrics = {}, {}, {}
    for index, (role, role_key) in enumerate(zip(method.roles, role_keys, strict=True)):
        batch, seen = role_batch(rollout, scores[role], index, method, lam=cfg.gae_lambda)
        policies[role], opt_states[role], found = ppo.update(
            agent.policies[role], learner.opt_states[role], batch, cfg, optimiser[role], key=role_key
        )
        metrics |= {f"{role}/{name}": value for name, value in (found | seen).items()}
    learnt, found = method.learn(learnt, rollout, key=method_key)
    metrics |= found | world_metrics(rollout)
    return Learner(Agent(method, policies, learnt), opt_states), metrics


def role_batch(
    rollout: Rollout, score: Score, index: int, method: AbstractMethod, *, lam: float
) -> tuple[ppo.Batch, dict[str, Array]]:
    """The samples of one role with advantages and targets, and what is worth logging of them."""
    role = method.roles[index]
    active = rollout.decision.role == index
    streams = jax.vmap(
        lambda r, v, final, g, cut, last: turn_gae(r, v, final, g, cut, active, last, lam=lam),
        in_axes=-1,
        out_axes=-1,
    )(
        score.reward,
        rollout.decision.value,
        rollout.final_value[role],
        score.discount,
        score.cut,
        rollout.last_value[role],
    )
    weights = jnp.asarray(list(method.streams.values()))
    advantage = streams @ weights + score.bonus
    target = rollout.decision.value + streams + score.target_shift
    decision = rollout.decision
    samples = (decision.view, decision.action, decision.log_prob, decision.value, advantage, target)
    taken, weight = take_role(samples, active, index, method)
    mine = active.astype(jnp.float32)
    reward = jnp.sum(score.reward.sum(-1) * mine) / jnp.maximum(mine.sum(), 1.0)
    seen = {
        "reward": reward,
        "left_out": 1.0 - jnp.sum(weight) / jnp.maximum(mine.sum(), 1.0),
        "value": ppo.weighted_mean(taken[3].sum(-1), weight),
        "explained_variance": explained_variance(taken[3].sum(-1), taken[5].sum(-1), weight),
    }
    return ppo.Batch(*taken, weight=weight), seen


def take_role(samples, active: Bool[Array, "T B"], index: int, method: AbstractMethod):
    """The steps a role took, flattened to [N, …], with weights.

    Where turns are known beforehand this is a slice of the rollout. Where they are not, the role's steps are moved
    to the front and the first so many are kept; what is not filled has weight 0.
    """
    length, bodies = active.shape
    schedule = role_schedule(method, length)
    if schedule is not None:
        steps = np.flatnonzero(schedule == index)
        # The size in words, not -1: a leaf without features has size 0.
        number = len(steps) * bodies
        flat = jax.tree.map(lambda leaf: leaf[steps].reshape(number, *leaf.shape[2:]), samples)
        return flat, jnp.ones(number)
    total = length * bodies
    order = jnp.argsort(~active.reshape(-1), stable=True)[: batch_size(method, index, length, bodies)]
    flat = jax.tree.map(lambda leaf: leaf.reshape(total, *leaf.shape[2:])[order], samples)
    return flat, active.reshape(-1)[order].astype(jnp.float32)


def batch_size(method: AbstractMethod, index: int, length: int, bodies: int) -> int:
    """Samples in a role's batch: as many steps as it takes where that is known beforehand; where rollouts begin
    anywhere in an episode of fixed length, the most it can take; else its share of a long episode, and some room."""
    total = length * bodies
    fixed = method.spec.max_steps
    roles = method.schedule(np.arange(fixed or LONG_EPISODE, dtype=np.int32))
    if roles is None:
        return min(total, math.ceil(CAPACITY_SLACK * total / len(method.roles)))
    if not fixed:
        return min(total, math.ceil(CAPACITY_SLACK * total * np.mean(roles == index)))
    taken = np.cumsum(np.tile(roles == index, 2 + length // fixed))
    return int(np.max(taken[length : length + fixed] - taken[:fixed])) * bodies


def explained_variance(
    value: Float[Array, " N"], target: Float[Array, " N"], weight: Float[Array, " N"]
) -> Float[Array, ""]:
    """1 − Var(target − value) / Var(target): 1 if values predict their targets, 0 if a constant would do as well."""

    def variance(x):
        return ppo.weighted_mean((x - ppo.weighted_mean(x, weight)) ** 2, weight)

    return 1.0 - variance(target - value) / jnp.maximum(variance(target), 1e-8)


def world_metrics(rollout: Rollout) -> dict[str, Array]:
    """The world's measures at the end of episodes (`end/…`) and averaged over time (`mean/…`)."""
    over = ended(rollout).astype(jnp.float32)
    episodes = jnp.sum(over)
    metrics: dict[str, Array] = {"episodes": episodes}
    for name, value in rollout.info.items():
        value = value.astype(jnp.float32)
        metrics[f"end/{name}"] = jnp.sum(value * over) / jnp.maximum(episodes, 1.0)
        metrics[f"mean/{name}"] = jnp.mean(value)
    return metrics
