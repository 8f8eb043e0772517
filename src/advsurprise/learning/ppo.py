"""Proximal policy optimisation of one policy on one batch, independent of methods and environments."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from advsurprise.config import PPOConfig
from advsurprise.learning.fit import FitTask, Rows, StaticRows
from advsurprise.learning.networks import ActorCritic
from advsurprise.types import JoinedViews, Views


class Batch(eqx.Module):
    """Samples of one role, axes [N, …]."""

    view: Any
    """What the policy saw: a `View`, or the `Views` of a rollout, whose rows are the samples."""
    action: Int[Array, " N"]
    log_prob: Float[Array, " N"]
    """Log-probability of the action when it was taken."""
    value: Float[Array, "N V"]
    """Value predicted at that time."""
    advantage: Float[Array, " N"]
    target: Float[Array, "N V"]
    """Target of the value."""

    def take(self, rows: Int[Array, " M"]) -> "Batch":
        """Some of the samples, with their views."""
        view, *others = (getattr(self, each.name) for each in dataclasses.fields(self))
        seen = view.take(rows) if isinstance(view, Views | JoinedViews) else jax.tree.map(lambda leaf: leaf[rows], view)
        return Batch(seen, *(leaf[rows] for leaf in others))


@functools.cache
def optimiser(cfg: PPOConfig) -> optax.GradientTransformation:
    """Adam with gradient-norm clipping."""
    return optax.chain(optax.clip_by_global_norm(cfg.max_grad_norm), optax.adam(cfg.lr, eps=cfg.adam_eps))


def rate_factor(end_steps: int, steps: Float[Array, ""]) -> Float[Array, ""] | None:
    """max(0, 1 − steps / end_steps): factor on the learning rate after `steps` environment steps; None if it is
    constant (`end_steps` is 0)."""
    return jnp.maximum(0.0, 1.0 - steps / end_steps) if end_steps else None


def policy_loss(
    log_prob: Float[Array, " N"],
    old_log_prob: Float[Array, " N"],
    advantage: Float[Array, " N"],
    weight: Float[Array, " N"],
    *,
    clip: float,
) -> Float[Array, ""]:
    """−E min(ρ A, clip(ρ, 1 ± ε) A), ρ = π(a|s) / π_old(a|s): Schulman et al. 2017, equation 7."""
    ratio = jnp.exp(log_prob - old_log_prob)
    kept = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)
    return -weighted_mean(kept, weight)


def value_loss(
    value: Float[Array, "N V"],
    old_value: Float[Array, "N V"],
    target: Float[Array, "N V"],
    weight: Float[Array, " N"],
    *,
    clip: float,
) -> Float[Array, ""]:
    """E max((V − R)², (V_old + clip(V − V_old, ±ε) − R)²), summed over streams; ε = 0: E (V − R)²."""
    loss = (value - target) ** 2
    if clip:
        near = old_value + jnp.clip(value - old_value, -clip, clip)
        loss = jnp.maximum(loss, (near - target) ** 2)
    return weighted_mean(jnp.sum(loss, axis=-1), weight)


def weighted_mean(x: Float[Array, " N"], weight: Float[Array, " N"]) -> Float[Array, ""]:
    """Σ w x / Σ w, and 0 where all weights are 0."""
    return jnp.sum(x * weight) / jnp.maximum(jnp.sum(weight), 1e-8)


def loss(
    policy: ActorCritic, batch: Batch, weight: Float[Array, " N"], cfg: PPOConfig
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Policy loss + c_v · value loss − c_e · entropy, and metrics; weight 0 is padding."""
    logits, value = policy(batch.view)
    log_probs = jax.nn.log_softmax(logits)
    log_prob = jnp.take_along_axis(log_probs, batch.action[:, None], axis=1)[:, 0]
    advantage = batch.advantage
    if cfg.normalise_advantage:
        mean = weighted_mean(advantage, weight)
        spread = jnp.sqrt(weighted_mean((advantage - mean) ** 2, weight))
        advantage = (advantage - mean) / (spread + 1e-8)
    pi = policy_loss(log_prob, batch.log_prob, advantage, weight, clip=cfg.clip)
    v = value_loss(value, batch.value, batch.target, weight, clip=cfg.value_clip)
    entropy = weighted_mean(-jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1), weight)
    ratio = log_prob - batch.log_prob
    metrics = {
        "policy_loss": pi,
        "value_loss": v,
        "entropy": entropy,
        "approx_kl": weighted_mean(jnp.exp(ratio) - 1 - ratio, weight),
        "clip_fraction": weighted_mean((jnp.abs(jnp.exp(ratio) - 1) > cfg.clip).astype(jnp.float32), weight),
    }
    return pi + cfg.value_coef * v - cfg.entropy_coef * entropy, metrics


@functools.cache
def minibatch_loss(cfg: PPOConfig) -> Callable:
    """The loss of some rows of a batch; the same function for equal settings, so that roles can be fitted as one."""

    def of_rows(policy: ActorCritic, batch: Batch, rows: Int[Array, " M"], weight: Float[Array, " M"]):
        return loss(policy, batch.take(rows), weight, cfg)

    return of_rows


def fit_task(
    policy: ActorCritic,
    opt_state: optax.OptState,
    batch: Batch,
    cfg: PPOConfig,
    *,
    rows: Rows | None = None,
    rate: Float[Array, ""] | None = None,
    key: PRNGKeyArray,
) -> FitTask[ActorCritic]:
    """Task of fitting one policy to its samples in a batch: those of `rows`, or all.

    Samples are gathered minibatch by minibatch, so roles that share a batch copy nothing.
    """
    rows = StaticRows(batch.action.shape[0]) if rows is None else rows
    return FitTask(
        params=policy,
        opt_state=opt_state,
        data=batch,
        loss=minibatch_loss(cfg),
        optimiser=optimiser(cfg),
        rows=rows,
        epochs=cfg.epochs,
        minibatch=cfg.minibatch_of(rows.expected),
        rate=rate,
        key=key,
    )
