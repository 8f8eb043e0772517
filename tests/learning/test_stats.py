"""Running moments against numpy in float64, and the discounted return against a plain loop."""

import functools

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from advsurprise.learning.stats import RunningMoments, discounted_return, scale, update_moments

quick = settings(max_examples=40, deadline=None)
fast_update = jax.jit(update_moments)


def pooled(samples, axis=0):
    """Mean and variance of the samples and 1e-4 of a sample with mean 0 and variance 1, in float64."""
    samples = np.asarray(samples, np.float64)
    n, e = samples.shape[axis], 1e-4
    mean = samples.sum(axis) / (n + e)
    second = (e * 1 + (samples**2).sum(axis)) / (n + e)
    return mean, second - mean**2


def loop_return(previous, reward, cut, discount):
    """The filter as a loop over time and bodies."""
    returns = np.zeros(reward.shape)
    running = np.array(previous, np.float64)
    for t in range(reward.shape[0]):
        for b in range(reward.shape[1]):
            running[b] = discount * running[b] + reward[t, b]
            returns[t, b] = running[b]
            if cut is not None and cut[t, b]:
                running[b] = 0
    return returns, running


def test_start():
    moments = RunningMoments.start((2,))
    np.testing.assert_array_equal(moments.mean, [0, 0])
    np.testing.assert_array_equal(moments.var, [1, 1])
    assert moments.count == jnp.float32(1e-4)
    assert RunningMoments.start().mean.shape == ()
    assert {leaf.dtype for leaf in jax.tree.leaves(moments)} == {jnp.dtype(jnp.float32)}


@given(samples=hnp.arrays(np.float32, (12, 3), elements=st.floats(-8, 8, width=32)), first=st.integers(1, 11))
@quick
def test_two_batches_equal_all_samples_at_once(samples, first):
    moments = RunningMoments.start((3,))
    for batch in (samples[:first], samples[first:]):
        moments = fast_update(moments, jnp.asarray(batch))
    mean, var = pooled(samples)
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(moments.var, var, rtol=1e-4, atol=1e-4)
    assert moments.count == pytest.approx(12, abs=1e-3)


def test_all_leading_axes_are_reduced(getkey):
    batch = 3 + 2 * jax.random.normal(getkey(), (5, 7, 2))
    moments = update_moments(RunningMoments.start((2,)), batch)
    mean, var = pooled(batch.reshape(35, 2))
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(moments.var, var, rtol=1e-4)
    assert moments.count == pytest.approx(35, abs=1e-3)

    everything = update_moments(RunningMoments.start(), batch)
    mean, var = pooled(batch.reshape(70))
    np.testing.assert_allclose([everything.mean, everything.var], [mean, var], rtol=1e-4)

    single = update_moments(RunningMoments.start((2,)), batch[0, 0])
    np.testing.assert_allclose(single.mean, batch[0, 0], rtol=1e-3)
    assert single.count == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("shape", [(2, 3), (3,), ()])
def test_samples_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match="expected on the last axes"):
        update_moments(RunningMoments.start((2,)), jnp.zeros(shape))


def test_moments_by_hand():
    moments = RunningMoments(jnp.float32(1), jnp.float32(2), jnp.float32(2))
    moments = update_moments(moments, jnp.float32([4, 6]))
    # Means 1 and 5 with equal weights: 3. Within: (2 + 1) / 2; between: ½ · ½ · 4² = 4.
    assert moments.mean == pytest.approx(3)
    assert moments.var == pytest.approx(5.5)
    assert moments.count == 4


def test_many_samples_far_from_zero(getkey):
    # In float32 the raw second moment 1e6 is resolved to 0.06, six times the variance sought.
    batches = 1000 + 0.1 * jax.random.normal(getkey(), (100, 10_000))
    start = RunningMoments(jnp.float32(1000), jnp.float32(1), jnp.float32(1e-4))
    moments = jax.jit(lambda: jax.lax.scan(lambda m, x: (update_moments(m, x), None), start, batches)[0])()
    exact = np.asarray(batches, np.float64)
    np.testing.assert_allclose(moments.mean, exact.mean(), rtol=1e-7)
    np.testing.assert_allclose(moments.var, exact.var(), rtol=2e-3)


def test_a_million_identical_samples():
    moments = fast_update(RunningMoments.start(), jnp.full((1000, 1000), 0.1))
    moments = fast_update(moments, jnp.full((1000, 1000), 0.1))
    np.testing.assert_allclose(moments.mean, 0.1, rtol=1e-5)
    np.testing.assert_allclose(moments.var, 0, atol=1e-8)


def test_moments_of_seeds_under_vmap(getkey):
    batch = jax.random.normal(getkey(), (4, 6, 2))
    start = jax.vmap(lambda _: RunningMoments.start((2,)))(jnp.arange(4))
    together = jax.vmap(update_moments)(start, batch)
    alone = update_moments(RunningMoments.start((2,)), batch[2])
    np.testing.assert_allclose(together.var[2], alone.var, rtol=1e-6)


def test_scale():
    moments = RunningMoments(jnp.zeros(2), jnp.float32([4, 0]), jnp.float32(1))
    # 1 / √4; and 1 / √1e-8 where nothing varies
    np.testing.assert_allclose(scale(moments), [0.5, 1e4], rtol=1e-6)
    np.testing.assert_allclose(scale(moments, eps=1.0), [1 / 5**0.5, 1], rtol=1e-6)


T, B = 9, 2
rewards = hnp.arrays(np.float32, (T, B), elements=st.floats(-4, 4, width=32))


@functools.partial(jax.jit, static_argnames="discount")
def fast_return(previous, reward, cut, discount):
    return discounted_return(previous, reward, cut, discount)


@given(
    previous=hnp.arrays(np.float32, (B,), elements=st.floats(-4, 4, width=32)),
    reward=rewards,
    cut=st.none() | hnp.arrays(np.bool_, (T, B)),
    discount=st.sampled_from([0.99, 0.5, 0.0]),
)
@quick
def test_return_equals_the_loop(previous, reward, cut, discount):
    returns, last = fast_return(previous, reward, cut, discount=discount)
    expected, expected_last = loop_return(previous, reward, cut, discount)
    np.testing.assert_allclose(returns, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(last, expected_last, rtol=1e-5, atol=1e-5)


def test_return_by_hand():
    reward, cut = jnp.ones((3, 1)), jnp.array([[False], [True], [False]])
    returns, last = discounted_return(jnp.array([4.0]), reward, cut, 0.5)
    # ½ · 4 + 1 = 3;  ½ · 3 + 1 = 2.5, the episode's last step, still whole;  ½ · 0 + 1 = 1
    np.testing.assert_array_equal(returns[:, 0], [3, 2.5, 1])
    np.testing.assert_array_equal(last, [1])
    # Without cuts: 3, 2.5, ½ · 2.5 + 1 = 2.25
    returns, last = discounted_return(jnp.array([4.0]), reward, None, 0.5)
    np.testing.assert_array_equal(returns[:, 0], [3, 2.5, 2.25])
    np.testing.assert_array_equal(last, [2.25])


def test_a_cut_on_the_last_step_empties_what_is_carried():
    returns, last = discounted_return(jnp.zeros(2), jnp.ones((1, 2)), jnp.array([[True, False]]), 0.9)
    np.testing.assert_array_equal(returns, [[1, 1]])
    np.testing.assert_array_equal(last, [0, 1])


def test_the_filter_runs_over_time_and_never_over_bodies():
    # As many steps as bodies, so that a transposed filter would fit the shapes.
    reward = jnp.zeros((3, 3)).at[0, 1].set(8)
    returns, _ = discounted_return(jnp.zeros(3), reward, None, 0.5)
    np.testing.assert_array_equal(returns, [[0, 8, 0], [0, 4, 0], [0, 2, 0]])


@given(reward=rewards, cut=hnp.arrays(np.bool_, (T, B)), split=st.just(4))
@quick
def test_two_rollouts_equal_one(reward, cut, split):
    whole, last = fast_return(jnp.zeros(B), reward, cut, discount=0.9)
    first, carried = fast_return(jnp.zeros(B), reward[:split], cut[:split], discount=0.9)
    second, carried = fast_return(carried, reward[split:], cut[split:], discount=0.9)
    np.testing.assert_allclose(np.concatenate([first, second]), whole, rtol=1e-6)
    np.testing.assert_allclose(carried, last, rtol=1e-6)


def test_return_scale_over_rollouts_equals_all_returns_at_once(getkey):
    reward = jax.random.exponential(getkey(), (6, 16, 4))
    previous, moments = jnp.zeros(4), RunningMoments.start()
    for rollout in reward:
        returns, previous = discounted_return(previous, rollout, None, 0.99)
        moments = update_moments(moments, returns)
    expected, _ = loop_return(np.zeros(4), np.asarray(reward).reshape(96, 4), None, 0.99)
    np.testing.assert_allclose(scale(moments), 1 / np.sqrt(pooled(expected.reshape(-1))[1] + 1e-8), rtol=1e-4)
