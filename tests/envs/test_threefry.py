"""The hash written out against jax's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from advsurprise.envs import threefry

KEYS = jax.random.split(jax.random.key(2**31 - 3), 5)


@pytest.mark.parametrize(
    "draw",
    [
        lambda key: jax.random.key_data(jax.random.split(key, (3, 2))),
        lambda key: jax.random.key_data(jax.random.fold_in(key, jnp.int32(70_001))),
        lambda key: jax.random.bits(key, (7,), jnp.uint32),
        lambda key: jax.random.bits(key, (2, 3), jnp.uint8),
        lambda key: jax.random.bits(key, (), jnp.uint16),
        lambda key: jax.random.uniform(jax.random.split(key)[1], (4,)),
        lambda key: jax.random.randint(key, (6,), -3, 9),
    ],
    ids=["split", "fold_in", "words", "bytes", "one of two bytes", "uniform", "randint"],
)
def test_whatever_is_drawn_is_the_same(draw):
    ours = jax.jit(jax.vmap(draw))(threefry.wrap(jax.random.key_data(KEYS)))
    np.testing.assert_array_equal(ours, jax.jit(jax.vmap(draw))(KEYS))


def test_other_random_numbers_are_left_alone():
    """Without partitionable keys jax draws by another rule, and so do we."""
    with jax.threefry_partitionable(False):
        ours, theirs = (jax.random.bits(key, (5,)) for key in (threefry.wrap(jax.random.key_data(KEYS[0])), KEYS[0]))
    np.testing.assert_array_equal(ours, theirs)
