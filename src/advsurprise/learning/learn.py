"""One update: a rollout in, a better agent out. Both loops call it, for every method."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from advsurprise.config import PPOConfig
from advsurprise.learning import ppo
from advsurprise.learning.advantage import turn_gae
from advsurprise.learning.devices import ALONE, Devices
from advsurprise.learning.fit import fit, named
from advsurprise.learning.interaction import Agent, role_schedule
from advsurprise.learning.measures import rollout_metrics
from advsurprise.methods.base import AbstractMethod
from advsurprise.types import Rollout, Score

LONG_EPISODE = 4096
"""Steps over which a role's share is counted where episodes have no fixed length."""


class Learner(eqx.Module):
    """An agent and its optimisers."""

    agent: Agent
    opt_states: dict[str, optax.OptState]


Optimisers = dict[str, optax.GradientTransformation]
"""One optimiser per role: roles that take turns of different lengths take different numbers of gradient steps."""


def make_optimiser(cfg: PPOConfig, method: AbstractMethod, bodies: int, length: int) -> Optimisers:
    """The optimiser of every role; a schedule counts how many environment steps one gradient step takes."""

    def one(index: int) -> optax.GradientTransformation:
        samples = round(role_share(method, index) * bodies * length)
        gradient_steps = cfg.epochs * max(1, samples // cfg.minibatch_of(samples))
        return ppo.optimiser(cfg, steps_per_gradient_step=bodies * length / gradient_steps)

    return {role: one(index) for index, role in enumerate(method.roles) if method.trains}


def make_learner(agent: Agent, optimiser: Optimisers) -> Learner:
    """A learner at the beginning."""
    return Learner(agent, {role: optimiser[role].init(agent.policies[role]) for role in optimiser})


def learn(
    learner: Learner,
    rollout: Rollout,
    cfg: PPOConfig,
    optimiser: Optimisers,
    *,
    devices: Devices = ALONE,
    key: PRNGKeyArray,
) -> tuple[Learner, dict[str, Array]]:
    """Scores the rollout, estimates advantages, improves each role, and lets the method train its own networks."""
    agent = learner.agent
    method = agent.method
    method_key, *role_keys = jax.random.split(key, 1 + len(method.roles))
    learnt, scores = method.score(agent.learnt, rollout)
    fit_tasks, metrics = method.fit_tasks(learnt, rollout, key=method_key), {}
    for index, (role, role_key) in enumerate(zip(method.roles, role_keys, strict=True)):
        if role not in optimiser:
            continue
        batch, rows, seen = role_batch(rollout, scores[role], index, method, lam=cfg.gae_lambda)
        fit_tasks[role] = ppo.fit_task(
            agent.policies[role],
            learner.opt_states[role],
            batch,
            cfg,
            optimiser[role],
            rows=rows,
            share=role_share(method, index),
            key=role_key,
        )
        metrics |= {f"{role}/{name}": value for name, value in seen.items()}
    fitted = fit(fit_tasks, devices=devices)
    policies = agent.policies | {role: fitted[role][0] for role in optimiser}
    opt_states = {role: fitted[role][1] for role in optimiser}
    learnt, found = method.learn(learnt, rollout, fitted)
    metrics |= named(fitted)
    metrics |= found | rollout_metrics(rollout, method)
    return Learner(Agent(method, policies, learnt), opt_states), metrics


def role_batch(
    rollout: Rollout, score: Score, index: int, method: AbstractMethod, *, lam: float
) -> tuple[ppo.Batch, Int[np.ndarray, " M"] | Bool[Array, " N"], dict[str, Array]]:
    """The flattened rollout with a role's advantages and targets, which rows of it are its own, and what is worth
    logging of them."""
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
    # The size in words, not -1: a leaf without features has size 0.
    number = active.size
    batch = ppo.Batch(*jax.tree.map(lambda leaf: leaf.reshape(number, *leaf.shape[2:]), samples))
    mine = active.astype(jnp.float32).reshape(-1)
    seen = {
        "reward": ppo.weighted_mean(score.reward.sum(-1).reshape(-1), mine),
        "steps": mine.sum(),
        "value": ppo.weighted_mean(batch.value.sum(-1), mine),
        "explained_variance": explained_variance(batch.value.sum(-1), batch.target.sum(-1), mine),
    }
    return batch, role_rows(active, index, method), seen


def role_rows(
    active: Bool[Array, "T B"], index: int, method: AbstractMethod
) -> Int[np.ndarray, " M"] | Bool[Array, " N"]:
    """The steps a role took, as rows of the flattened rollout: their numbers where turns are known beforehand, else a
    mask."""
    length, bodies = active.shape
    schedule = role_schedule(method, length)
    if schedule is None:
        return active.reshape(-1)
    return np.flatnonzero(np.repeat(schedule == index, bodies))


def role_share(method: AbstractMethod, index: int) -> float:
    """Share of the steps that a role takes; without a schedule, as if all roles took as many."""
    roles = method.schedule(np.arange(method.spec.max_steps or LONG_EPISODE, dtype=np.int32))
    return 1 / len(method.roles) if roles is None else float(np.mean(roles == index))


def explained_variance(
    value: Float[Array, " N"], target: Float[Array, " N"], weight: Float[Array, " N"]
) -> Float[Array, ""]:
    """1 − Var(target − value) / Var(target): 1 if values predict their targets, 0 if a constant would do as well."""

    def variance(x):
        return ppo.weighted_mean((x - ppo.weighted_mean(x, weight)) ** 2, weight)

    return 1.0 - variance(target - value) / jnp.maximum(variance(target), 1e-8)
