"""Density models against scipy in float64: at every step the score equals that of a refit on all samples so far."""

import functools
import math

import equinox as eqx
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings

from advsurprise.errors import UserError
from advsurprise.learning.density import Categorical, Gaussian

pytestmark = pytest.mark.slow

SAMPLES, SHAPE = 10, (2, 3)
quick = settings(max_examples=40, deadline=None)

classes = hnp.arrays(np.uint8, (SAMPLES, *SHAPE), elements=st.integers(0, 4))
pixels = hnp.arrays(np.float32, (SAMPLES, *SHAPE), elements=st.floats(0, 1, width=32))

CATEGORICALS = [Categorical(5), Categorical(5, floor=0.1), Categorical(5, floor=0.0, pseudo_count=0.5)]
GAUSSIANS = [Gaussian(), Gaussian(0.5, 0.1, 3.0, 0.05), Gaussian(prior_count=0.0)]


@functools.partial(jax.jit, static_argnums=0)
def play(density, samples):
    """Scores each sample, then adds it; returns scores, entropies and features before each was added."""

    def step(stats, x):
        before = density.log_prob(stats, x), density.entropy(stats), density.features(stats)
        return density.update(stats, x), before

    return jax.lax.scan(step, density.init(samples.shape[1:]), samples)[1]


@functools.partial(jax.jit, static_argnums=(0, 2))
def repeat(density, x, times):
    """Statistics after the same sample `times` times."""
    return jax.lax.fori_loop(0, times, lambda _, stats: density.update(stats, x), density.init(x.shape))


def refit_categorical(density, past):
    """Class probabilities [*shape, C], from all samples."""
    c, a = density.num_classes, density.pseudo_count
    if len(past) + a == 0:
        return np.full((*past.shape[1:], c), 1 / c)
    counts = (past[..., None] == np.arange(c)).sum(0)
    return (counts + a) / (len(past) + c * a)


def refit_gaussian(density, past):
    """Mean and standard deviation, by the textbook formula with raw second moments."""
    m, v, c = density.prior_mean, density.prior_var, density.prior_count
    past = past.astype(np.float64)
    weight = c + len(past)
    if weight == 0:
        return np.full(past.shape[1:], m), np.full(past.shape[1:], math.sqrt(v))
    mean = (c * m + past.sum(0)) / weight
    var = (c * (v + m**2) + (past**2).sum(0)) / weight - mean**2
    return mean, np.maximum(np.sqrt(np.maximum(var, 0)), density.min_std)


@pytest.mark.parametrize("density", CATEGORICALS, ids=repr)
@given(samples=classes)
@quick
def test_categorical_equals_a_refit(density, samples):
    scores, entropies, features = map(np.asarray, play(density, samples))
    for n, x in enumerate(samples):
        p = refit_categorical(density, samples[:n])
        of_x = np.take_along_axis(p, x[..., None].astype(int), -1)
        np.testing.assert_allclose(scores[n], np.log(np.maximum(of_x, density.floor)).sum(), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(entropies[n], scipy.stats.entropy(p, axis=-1).sum(), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(features[n], p, rtol=1e-6)


@pytest.mark.parametrize("density", GAUSSIANS, ids=repr)
@given(samples=pixels)
@quick
def test_gaussian_equals_a_refit(density, samples):
    scores, entropies, features = map(np.asarray, play(density, samples))
    for n, x in enumerate(samples):
        mean, std = refit_gaussian(density, samples[:n])
        score = scipy.stats.norm.logpdf(x.astype(np.float64), mean, std)
        # A deviation of up to 1 over a std of 1e-3 squares to 1e6; float32 moments leave 1e-3 of relative error there.
        np.testing.assert_allclose(scores[n], score.sum(), rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(entropies[n], scipy.stats.norm.entropy(mean, std).sum(), rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(features[n], np.stack([mean, std], -1), rtol=1e-3, atol=1e-6)


def test_first_scored_step_is_the_uniform_price_whatever_is_seen():
    density = Categorical(12)
    stats = density.init((7, 7, 3))
    for x in (jnp.zeros((7, 7, 3), jnp.uint8), jnp.full((7, 7, 3), 11, jnp.uint8)):
        # 7 · 7 · 3 = 147 entries; 147 · log(1 / 12) = −147 · 2.484907 = −365.281
        assert density.log_prob(stats, x) == pytest.approx(-365.281, abs=1e-3)


def test_after_one_sample_the_seen_is_free_and_the_unseen_costs_the_floor():
    density = Categorical(12)
    seen, other = jnp.zeros((7, 7, 3), jnp.uint8), jnp.ones((7, 7, 3), jnp.uint8)
    stats = density.update(density.init((7, 7, 3)), seen)
    assert density.log_prob(stats, seen) == 0
    # 147 · log(0.001) = −147 · 6.907755 = −1015.440
    assert density.log_prob(stats, other) == pytest.approx(-1015.440, abs=1e-3)
    assert density.entropy(stats) == 0


def test_the_floor_acts_on_the_score_alone():
    density = Categorical(4, floor=0.3)
    stats = density.init(())
    for x in (0, 0, 0, 1):
        stats = density.update(stats, jnp.uint8(x))
    # p = (3/4, 1/4, 0, 0): 1/4 and 0 are raised to 0.3, 3/4 stays although the sum is then 1.65.
    scores = jax.vmap(density.log_prob, (None, 0))(stats, jnp.arange(4))
    np.testing.assert_allclose(scores, np.log([0.75, 0.3, 0.3, 0.3]), rtol=1e-6)
    np.testing.assert_array_equal(density.features(stats), [0.75, 0.25, 0, 0])
    # −¾ log ¾ − ¼ log ¼ = 0.215762 + 0.346574
    assert density.entropy(stats) == pytest.approx(0.562335, abs=1e-6)


def test_pseudo_counts_smooth():
    density = Categorical(3, pseudo_count=2.0)
    stats = density.update(density.init(()), jnp.int32(2))
    # (0 + 2, 0 + 2, 1 + 2) / (1 + 3 · 2)
    np.testing.assert_allclose(density.features(stats), [2 / 7, 2 / 7, 3 / 7], rtol=1e-6)


def test_a_class_out_of_range_is_not_scored_silently():
    density = Categorical(3)
    empty = density.init((2,))
    for stats in (empty, density.update(empty, jnp.array([0, 1], jnp.uint8))):
        assert jnp.isnan(density.log_prob(stats, jnp.array([0, 3], jnp.uint8)))
        assert not jnp.isnan(density.log_prob(stats, jnp.array([0, 2], jnp.uint8)))


def test_gaussian_by_hand():
    density = Gaussian(prior_mean=0.0, prior_var=1.0, prior_count=1.0)
    stats = density.update(density.init(()), jnp.float32(2))
    # mean = (0 + 2) / 2 = 1;  var = (1 · (1 + 0) + 4) / 2 − 1 = 3/2
    np.testing.assert_allclose(density.features(stats), [1, math.sqrt(1.5)], rtol=1e-6)
    # at x = 1: −½ log(2π · 1.5) = −1.121671;  entropy ½ + 1.121671
    assert density.log_prob(stats, jnp.float32(1)) == pytest.approx(-1.121671, abs=1e-6)
    assert density.entropy(stats) == pytest.approx(1.621671, abs=1e-6)


def test_the_gaussian_integrates_to_one():
    stats = Gaussian().init(())
    stats = eqx.tree_at(lambda s: s.spread, stats, jnp.float32(0.04))
    x = jnp.linspace(-2, 2, 2001)
    mass = jnp.trapezoid(jnp.exp(jax.vmap(Gaussian().log_prob, (None, 0))(stats, x)), x)
    assert mass == pytest.approx(1, abs=1e-4)


def test_gaussian_without_prior_samples_forgets_the_prior():
    density = Gaussian(prior_mean=5.0, prior_var=4.0, prior_count=0.0)
    stats = density.init(())
    np.testing.assert_array_equal(density.features(stats), [5, 2])
    stats = density.update(stats, jnp.float32(1))
    np.testing.assert_allclose(density.features(stats), [1, 1e-3])


@pytest.mark.parametrize("density", CATEGORICALS + GAUSSIANS, ids=repr)
def test_contract(density, getkey):
    dtype = jnp.float32 if isinstance(density, Gaussian) else jnp.uint8
    samples = jax.random.randint(getkey(), (6, 4, *SHAPE), 0, 2).astype(dtype)

    assert jax.tree.leaves(density) == []
    stats = density.init(SHAPE)
    assert {leaf.dtype for leaf in jax.tree.leaves(stats)} == {jnp.dtype(jnp.float32)}
    features = density.features(stats)
    assert features.shape == (*SHAPE, density.num_features)
    assert features.dtype == jnp.float32

    together = jax.vmap(lambda x: play(density, x), in_axes=1, out_axes=1)(samples)
    for body in range(samples.shape[1]):
        alone = play(density, samples[:, body])
        for a, b in zip(together, alone, strict=True):
            assert np.isfinite(b).all()
            np.testing.assert_allclose(a[:, body], b, rtol=1e-5, atol=1e-5)

    eager = density.init(SHAPE)
    for x in samples[:, 0]:
        eager = density.update(eager, x)
    assert eager.count == 6 + getattr(density, "phantom", False)
    compiled = jax.lax.scan(lambda s, x: (density.update(s, x), None), stats, samples[:, 0])[0]
    np.testing.assert_allclose(density.features(compiled), density.features(eager), rtol=1e-6)


MILLION = 1_000_000


def test_a_million_identical_classes():
    density = Categorical(3)
    stats = repeat(density, jnp.array([2, 0], jnp.uint8), MILLION)
    np.testing.assert_array_equal(stats.counts, [[0, 0, MILLION], [MILLION, 0, 0]])
    assert density.log_prob(stats, jnp.array([2, 0], jnp.uint8)) == 0


def test_a_million_identical_pixels():
    density = Gaussian()
    stats = repeat(density, jnp.float32([0.7, 0.1]), MILLION)
    x = np.float64(np.float32([0.7, 0.1]))
    mean = x * MILLION / (MILLION + 1)
    # One prior sample of mean 0 and variance 1 beside n of x:
    # var = (1 + n x²) / (n + 1) − mean² = 1 / (n + 1) + x² n / (n + 1)²
    std = np.sqrt(1 / (MILLION + 1) + x**2 * MILLION / (MILLION + 1) ** 2)
    # Without compensation the mean of 0.7 stalls 1e-4 too low.
    np.testing.assert_allclose(stats.mean, mean, rtol=3e-7)
    np.testing.assert_allclose(density.features(stats)[:, 1], std, rtol=1e-3)


def test_large_mean_and_small_variance(getkey):
    # In float32 the raw second moment 1e6 is resolved to 0.06, six times the variance sought.
    density = Gaussian(prior_count=0.0)
    samples = 1000 + 0.1 * jax.random.normal(getkey(), (20_000,))
    mean, std = play(density, samples)[2][-1]
    exact = np.asarray(samples[:-1], np.float64)
    np.testing.assert_allclose(mean, exact.mean(), rtol=1e-7)
    np.testing.assert_allclose(std, exact.std(), rtol=1e-3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Categorical(0),
        lambda: Categorical(3, floor=1.0),
        lambda: Categorical(3, pseudo_count=-1.0),
        lambda: Categorical(3, floor=0.0),
        lambda: Gaussian(prior_var=-1.0),
        lambda: Gaussian(prior_count=-1.0),
        lambda: Gaussian(min_std=0.0),
    ],
)
def test_senseless_settings_are_refused(make):
    with pytest.raises(UserError):
        make()


@pytest.mark.parametrize("density", [Categorical(5, floor=0.05), Gaussian()])
def test_noise_scores_as_noise_does_in_the_mean(density):
    rng = np.random.default_rng(0)
    draws = {"Categorical": lambda n: rng.integers(0, 5, (n, *SHAPE)), "Gaussian": lambda n: rng.random((n, *SHAPE))}
    draw = draws[type(density).__name__]
    kind = jnp.float32 if isinstance(density, Gaussian) else jnp.uint8
    stats = density.init(SHAPE)
    for x in jnp.asarray(draw(3), kind):
        stats = density.update(stats, x)
    scores = jax.jit(jax.vmap(lambda x: density.log_prob(stats, x)))(jnp.asarray(draw(40_000), kind))
    expected, error = float(np.mean(scores)), float(np.std(scores)) / 200
    assert float(density.noise_log_prob(stats)) == pytest.approx(expected, abs=4 * error)


@pytest.mark.parametrize(
    ("density", "dtype"), [(Categorical(5), jnp.int32), (Gaussian(0.5, 1 / 12, 0.0, 0.02), jnp.float32)]
)
def test_the_largest_log_density_is_that_of_an_unchanging_observation(density, dtype):
    x = jnp.ones(SHAPE, dtype)
    seen = repeat(density, x, 3)
    assert float(density.log_prob(seen, x)) == pytest.approx(density.max_log_prob(SHAPE), abs=1e-4)
    assert float(density.log_prob(density.update(seen, x + 1), x)) < density.max_log_prob(SHAPE) - 0.1
