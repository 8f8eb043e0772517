"""Grey levels as numbers, and images averaged down, against loops in float64."""

import jax.numpy as jnp
import numpy as np
import pytest

from advsurprise.learning.images import area_weights, numbers, shrink


def _shared(new, old):
    """How much of each of `old` cells each of `new` ones covers, on a line of their common length."""
    ratio, shared = old / new, np.zeros((new, old))
    for n, o in np.ndindex(new, old):
        shared[n, o] = max(min((n + 1) * ratio, o + 1) - max(n * ratio, o), 0)
    return shared


def _shrunk(image, size):
    """Every new pixel as a sum over the old ones of the area that they share."""
    (rows, columns), (tall, wide) = size, image.shape[:2]
    area = tall / rows * wide / columns
    return np.einsum("ri,cj,ij...->rc...", _shared(rows, tall), _shared(columns, wide), image) / area


@pytest.mark.parametrize(
    ("shape", "size"), [((84, 84), (20, 20)), ((21, 17, 3), (20, 5)), ((12, 12, 1), (4, 6)), ((5, 7), (5, 3))]
)
def test_an_image_is_averaged_by_area(shape, size):
    image = np.random.default_rng(0).random(shape)
    np.testing.assert_allclose(shrink(jnp.asarray(image, jnp.float32), size), _shrunk(image, size), atol=1e-6)


def test_shares_of_a_pixel_sum_to_one_and_nothing_is_lost():
    weights = area_weights(84, 20).astype(np.float64)
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-6)
    np.testing.assert_allclose(weights.sum(0), 20 / 84, atol=1e-6)


def test_an_image_of_the_right_size_stays_as_it_is():
    image = jnp.asarray(np.random.default_rng(0).random((20, 20)), jnp.float32)
    assert shrink(image, (20, 20)) is image


def test_grey_levels_are_from_0_to_1_and_floats_stay():
    levels = jnp.arange(256, dtype=jnp.uint8)
    np.testing.assert_allclose(numbers(levels), np.arange(256) / 255, rtol=1e-7)
    assert numbers(levels).dtype == numbers(jnp.zeros(3, jnp.float16)).dtype == jnp.float32
    np.testing.assert_array_equal(numbers(jnp.asarray([-3.0, 300.0])), [-3.0, 300.0])
