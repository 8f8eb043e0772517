"""Density models of observations, fitted online: a config object and an explicit state, its sufficient statistics.

A model sees one body and one observation at a time (callers `vmap` over bodies and `scan` over time) and treats the
entries of an observation as independent. `log_prob(stats, x)` scores x under what has been added to `stats` so far,
so the caller decides on the order: the convention of surprise minimisation is *score first, then add*,

    r_t = log p_θ(o_{t+1}) with θ fitted on o_1 … o_t;  θ ← update(θ, o_{t+1}).

Counts are float32 and exact up to 2²⁴ ≈ 16.8 million observations per body.
"""

import abc
import math
from typing import Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer, Shaped

from advsurprise.errors import UserError

Stats = TypeVar("Stats")


class AbstractDensity(eqx.Module, Generic[Stats]):
    """A family of densities over observations of a fixed shape. Every `Stats` has a field `count`."""

    @property
    @abc.abstractmethod
    def num_features(self) -> int:
        """Features per entry of the observation."""

    @abc.abstractmethod
    def init(self, shape: tuple[int, ...]) -> Stats:
        """Empty statistics; `shape` is the shape of one observation."""

    @abc.abstractmethod
    def update(self, stats: Stats, x: Shaped[Array, "*shape"]) -> Stats:
        """Statistics with the observation `x` added."""

    @abc.abstractmethod
    def log_prob(self, stats: Stats, x: Shaped[Array, "*shape"]) -> Float[Array, ""]:
        """Log-density of `x` in nats, summed over entries, under the observations added so far."""

    @abc.abstractmethod
    def max_log_prob(self, shape: tuple[int, ...]) -> float:
        """The least upper bound of `log_prob`, over all statistics and observations of a shape."""

    @abc.abstractmethod
    def noise_log_prob(self, stats: Stats) -> Float[Array, ""]:
        """Expected log-density of noise: all classes, or all numbers from 0 to 1, equally likely in every entry."""

    @abc.abstractmethod
    def entropy(self, stats: Stats) -> Float[Array, ""]:
        """Entropy of the fitted density in nats, summed over entries."""

    @abc.abstractmethod
    def features(self, stats: Stats) -> Float[Array, "*shape k"]:
        """The fitted parameters as a policy sees them, on a last axis of size `num_features`."""


class CategoricalStats(eqx.Module):
    """How often each entry took each class."""

    counts: Float[Array, "*shape classes"]
    """Observations in which the entry had the class."""
    count: Float[Array, ""]
    """Observations added, n."""


class Categorical(AbstractDensity[CategoricalStats]):
    """One independent categorical per entry, with probabilities

        p_c = (n_c + α) / (n + C α),  and 1 / C if n = α = 0,
        log p(x) = Σ_entries log max(p_x, floor).

    The floor applies only to the score and does not renormalise, as published. It is far below 1 / C: after the first
    observation an unseen class scores log floor, lower than any class before it.
    """

    num_classes: int = eqx.field(static=True)
    """Number of classes C; entries are integers from 0 to C − 1, and a larger one scores nan."""
    floor: float = eqx.field(static=True, default=1e-3)
    """Minimum probability used in a score."""
    pseudo_count: float = eqx.field(static=True, default=0.0)
    """Pseudo-observations α of every class (Laplace smoothing)."""

    def __check_init__(self):
        if self.num_classes < 1:
            raise UserError(f"a categorical needs at least one class, not {self.num_classes}")
        if not 0 <= self.floor < 1 or self.pseudo_count < 0:
            raise UserError("floor must lie in [0, 1) and pseudo_count must be at least 0")
        if self.floor == self.pseudo_count == 0:
            raise UserError("floor and pseudo_count are both zero: a class never seen would score -inf")

    @property
    def num_features(self) -> int:
        return self.num_classes

    def init(self, shape: tuple[int, ...]) -> CategoricalStats:
        return CategoricalStats(jnp.zeros((*shape, self.num_classes), jnp.float32), jnp.float32(0))

    def update(self, stats: CategoricalStats, x: Integer[Array, "*shape"]) -> CategoricalStats:
        seen = jax.nn.one_hot(x, self.num_classes, dtype=jnp.float32)
        return CategoricalStats(stats.counts + seen, stats.count + 1)

    def log_prob(self, stats: CategoricalStats, x: Integer[Array, "*shape"]) -> Float[Array, ""]:
        """log p(x) = Σ_entries log max(p_x, floor)."""
        index = x.astype(jnp.int32)[..., None]
        seen = jnp.take_along_axis(stats.counts, index, axis=-1, mode="fill", fill_value=jnp.nan)
        return _sum(jnp.log(jnp.maximum(self._probability(seen, stats.count), self.floor)))

    def max_log_prob(self, shape: tuple[int, ...]) -> float:
        """0, where every entry has a probability of 1."""
        return 0.0

    def noise_log_prob(self, stats: CategoricalStats) -> Float[Array, ""]:
        """Σ_entries (1 / C) Σ_c log max(p_c, floor)."""
        return _sum(jnp.log(jnp.maximum(self.features(stats), self.floor))) / self.num_classes

    def entropy(self, stats: CategoricalStats) -> Float[Array, ""]:
        """H = −Σ_entries Σ_c p_c log p_c, without the floor."""
        return _sum(jax.scipy.special.entr(self.features(stats)))

    def features(self, stats: CategoricalStats) -> Float[Array, "*shape {self.num_classes}"]:
        """p_c, without the floor."""
        return self._probability(stats.counts, stats.count)

    def _probability(self, counts: Float[Array, "..."], count: Float[Array, ""]) -> Float[Array, "..."]:
        return _ratio(counts + self.pseudo_count, count + self.num_classes * self.pseudo_count, 1 / self.num_classes)


class GaussianStats(eqx.Module):
    """Moments of each entry, the prior's pseudo-observations included."""

    mean: Float[Array, "*shape"]
    """Mean μ."""
    residue: Float[Array, "*shape"]
    """Rounding error of `mean`, which the next update subtracts (Kahan summation)."""
    spread: Float[Array, "*shape"]
    """Sum of squared deviations from `mean`."""
    count: Float[Array, ""]
    """Observations added, n, without the prior's."""


class Gaussian(AbstractDensity[GaussianStats]):
    """One independent Gaussian per entry, with c₀ pseudo-observations of mean m₀ and variance v₀ as its prior:

        μ  = (c₀ m₀ + Σ x_i) / (c₀ + n)
        σ² = (c₀ (v₀ + m₀²) + Σ x_i²) / (c₀ + n) − μ²,  σ at least min_std
        log p(x) = −½ Σ_entries ( ((x − μ) / σ)² + log(2π σ²) ).

    The moments are updated by Welford's recursion, which has no difference of large numbers; the running mean is
    summed with compensation, since increments of order 1 / n² would otherwise be lost after a few thousand steps.
    With c₀ = 0 the prior holds only until the first observation.
    """

    prior_mean: float = eqx.field(static=True, default=0.0)
    """Mean m₀ of the prior's pseudo-observations."""
    prior_var: float = eqx.field(static=True, default=1.0)
    """Variance v₀ of the prior's pseudo-observations."""
    prior_count: float = eqx.field(static=True, default=1.0)
    """Number c₀ of the prior's pseudo-observations."""
    min_std: float = eqx.field(static=True, default=1e-3)
    """Minimum standard deviation."""

    def __check_init__(self):
        if self.prior_var < 0 or self.prior_count < 0 or self.min_std <= 0:
            raise UserError("prior_var and prior_count must be at least 0 and min_std must be positive")

    @property
    def num_features(self) -> int:
        return 2

    def init(self, shape: tuple[int, ...]) -> GaussianStats:
        return GaussianStats(
            mean=jnp.full(shape, self.prior_mean, jnp.float32),
            residue=jnp.zeros(shape, jnp.float32),
            spread=jnp.full(shape, self.prior_count * self.prior_var, jnp.float32),
            count=jnp.float32(0),
        )

    def update(self, stats: GaussianStats, x: Float[Array, "*shape"]) -> GaussianStats:
        """μ' = μ + (x − μ) / (c₀ + n + 1);  S' = S + (x − μ)(x − μ')."""
        count = stats.count + 1
        deviation = x - stats.mean
        increment = deviation / (count + self.prior_count) - stats.residue
        mean = stats.mean + increment
        residue = (mean - stats.mean) - increment
        return GaussianStats(mean, residue, stats.spread + deviation * (x - mean), count)

    def log_prob(self, stats: GaussianStats, x: Float[Array, "*shape"]) -> Float[Array, ""]:
        """log p(x) = −½ Σ_entries ( ((x − μ) / σ)² + log(2π σ²) )."""
        std = self._std(stats)
        return -0.5 * _sum(((x - stats.mean) / std) ** 2 + math.log(2 * math.pi) + 2 * jnp.log(std))

    def max_log_prob(self, shape: tuple[int, ...]) -> float:
        """−Σ_entries log(min_std √(2π)), where every entry is at its mean and its σ at the floor."""
        return -math.prod(shape) * math.log(self.min_std * math.sqrt(2 * math.pi))

    def noise_log_prob(self, stats: GaussianStats) -> Float[Array, ""]:
        """−½ Σ_entries ( ((μ − ½)² + 1/12) / σ² + log(2π σ²) )."""
        std = self._std(stats)
        spread = ((stats.mean - 0.5) ** 2 + 1 / 12) / std**2
        return -0.5 * _sum(spread + math.log(2 * math.pi) + 2 * jnp.log(std))

    def entropy(self, stats: GaussianStats) -> Float[Array, ""]:
        """H = ½ Σ_entries log(2π e σ²), with the σ of the score."""
        return _sum(0.5 * math.log(2 * math.pi * math.e) + jnp.log(self._std(stats)))

    def features(self, stats: GaussianStats) -> Float[Array, "*shape 2"]:
        """μ and σ."""
        return jnp.stack([stats.mean, self._std(stats)], axis=-1)

    def _std(self, stats: GaussianStats) -> Float[Array, "*shape"]:
        variance = _ratio(stats.spread, stats.count + self.prior_count, self.prior_var)
        # The floor before the root: rounding can make a tiny spread negative.
        return jnp.sqrt(jnp.maximum(variance, self.min_std**2))


PIXEL_STD = 0.02
"""Minimum standard deviation of a pixel, on a scale from 0 to 1: five of 255 grey levels (docs/density.md)."""


def pixel_gaussian(min_std: float = PIXEL_STD) -> Gaussian:
    """The Gaussian for images: the moments of uniform noise from 0 to 1 until the first observation, and only the floor
    after that."""
    return Gaussian(prior_mean=0.5, prior_var=1 / 12, prior_count=0.0, min_std=min_std)


def _ratio(part: Float[Array, "*shape"], whole: Float[Array, ""], empty: float) -> Float[Array, "*shape"]:
    """part / whole, with 0 / 0 = `empty`; a part that is nan stays nan."""
    return (part + jnp.where(whole > 0, 0, empty)) / jnp.where(whole > 0, whole, 1)


def _sum(terms: Float[Array, "..."]) -> Float[Array, ""]:
    """Sum of all entries, as a dot product: in a plain sum XLA computes logarithms one by one on a CPU, 10x slower."""
    flat = terms.reshape(-1)
    return jnp.dot(flat, jnp.ones_like(flat), precision=jax.lax.Precision.HIGHEST)
