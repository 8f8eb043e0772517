"""Colours of lights: uniform, independent over cells and steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from advsurprise.grid import lights, tiles

pytestmark = pytest.mark.slow

RUNS, STEPS, CELLS = 50, 4000, 100
LEAST_P = 1e-3


@pytest.fixture(scope="module")
def colours():
    """Axes [run, step, cell]: runs are repetitions with other random words."""
    words = jax.random.bits(jax.random.key(5), (RUNS, STEPS, 1), jnp.uint32)
    cells = jnp.arange(500, 500 + CELLS, dtype=jnp.int32)
    shape = (RUNS, STEPS, CELLS)
    return np.asarray(lights.colour(jnp.broadcast_to(words, shape), jnp.broadcast_to(cells, shape)))


def _uniform_p_values(samples, categories):
    """Whether the chi-squared test's p-values over independent runs are themselves uniform, as they must be if the
    hypothesis holds: a single p-value would pass a bad hash often and fail a good one once in a while."""
    values = [stats.chisquare(np.bincount(sample.ravel(), minlength=categories)).pvalue for sample in samples]
    return stats.kstest(values, "uniform").pvalue


def _pairs(left, right):
    return left.astype(np.int32) * tiles.NUM_COLOURS + right


def test_every_colour_is_as_likely(colours):
    assert _uniform_p_values(colours, tiles.NUM_COLOURS) > LEAST_P


def test_every_cell_is_uniform(colours):
    by_cell = colours.transpose(2, 0, 1)
    assert _uniform_p_values(by_cell, tiles.NUM_COLOURS) > LEAST_P


@pytest.mark.parametrize("distance", [1, 2, 37])
def test_cells_are_independent_of_each_other(colours, distance):
    # 37 is the length of a row of the padded grid of rooms/four: the cell below.
    pairs = _pairs(colours[:, :, :-distance], colours[:, :, distance:])
    assert _uniform_p_values(pairs, tiles.NUM_COLOURS**2) > LEAST_P


def test_steps_are_independent_of_each_other(colours):
    assert _uniform_p_values(_pairs(colours[:, :-1], colours[:, 1:]), tiles.NUM_COLOURS**2) > LEAST_P


def test_below_is_the_high_word_of_the_product():
    bits = np.random.default_rng(0).integers(0, 2**32, 10_000, dtype=np.uint32)
    for limit in (1, 2, 6, 7, 100, 65_535):
        ours = lights.below(bits, np.uint32(limit))
        np.testing.assert_array_equal(ours, (bits.astype(np.uint64) * limit) >> 32)


def test_mix_is_a_bijection_that_spreads_every_bit():
    words = jax.random.bits(jax.random.key(1), (20_000,), jnp.uint32)
    for bit in range(32):
        flipped = np.asarray(lights.mix(words) ^ lights.mix(words ^ jnp.uint32(1 << bit)))
        share = np.unpackbits(flipped.view(np.uint8)).mean()
        assert 0.49 < share < 0.51
