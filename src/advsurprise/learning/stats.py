"""Running mean and variance, and the discounted return whose spread sets the scale of a reward."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class RunningMoments(eqx.Module):
    """Mean and variance of all samples so far, entry by entry."""

    mean: Float[Array, "*shape"]
    """Mean."""
    var: Float[Array, "*shape"]
    """Variance, divided by the number of samples (not by one less)."""
    count: Float[Array, ""]
    """Number of samples; the start counts as 1e-4 of one."""

    @classmethod
    def start(cls, shape: tuple[int, ...] = ()) -> "RunningMoments":
        """Moments before any sample: mean 0 and variance 1 with the weight of 1e-4 samples, as published for RND."""
        return cls(jnp.zeros(shape, jnp.float32), jnp.ones(shape, jnp.float32), jnp.float32(1e-4))


def update_moments(moments: RunningMoments, batch: Float[Array, "..."]) -> RunningMoments:
    """Moments with a batch of samples added (Chan, Golub and LeVeque's merge of two sets).

    With n samples so far, m in the batch, w = m / (n + m) and δ = mean_batch − mean:

        mean' = mean + w δ,  var' = (1 − w) var + w var_batch + w (1 − w) δ².

    `batch` has the shape of the moments after any number of leading axes; all of these are reduced.
    """
    leading = batch.ndim - moments.mean.ndim
    if leading < 0 or batch.shape[leading:] != moments.mean.shape:
        raise ValueError(f"samples of shape {moments.mean.shape} expected on the last axes, got {batch.shape}")
    axes = tuple(range(leading))
    size = math.prod(batch.shape[:leading])

    total = moments.count + size
    new, old = size / total, moments.count / total
    delta = jnp.mean(batch, axis=axes) - moments.mean
    var = old * moments.var + new * jnp.var(batch, axis=axes) + new * old * delta**2
    return RunningMoments(moments.mean + new * delta, var, total)


def scale(moments: RunningMoments, eps: float = 1e-8) -> Float[Array, "*shape"]:
    """1 / √(var + eps): the factor that gives the samples unit variance, without centring."""
    return 1 / jnp.sqrt(moments.var + eps)


def discounted_return(
    previous: Float[Array, " B"],
    reward: Float[Array, "T B"],
    cut: Bool[Array, "T B"] | None,
    discount: float | Float[Array, ""],
) -> tuple[Float[Array, "T B"], Float[Array, " B"]]:
    """Each body's discounted sum of past rewards, forward in time:

        R_t = γ R_{t−1} + r_t,  and R_t counts as 0 for step t + 1 if the episode ended on step t.

    Args:
        previous: R before the first step, as returned by the last call; zeros at the start.
        reward: r_t, steps 0 to T − 1.
        cut: whether the episode ended on step t, its reward still included; None if returns never end (RND).
        discount: γ.

    Returns:
        R_t of every step, before any cut, and what to pass as `previous` next time.
    """
    cut = jnp.zeros(reward.shape, bool) if cut is None else cut

    def step(past, now):
        reward_t, cut_t = now
        return_t = discount * past + reward_t
        return jnp.where(cut_t, 0, return_t), return_t

    last, returns = jax.lax.scan(step, previous, (reward, cut))
    return returns, last
