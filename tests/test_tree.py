"""Packing: what a scan gives out comes back to the bit. Mapping over seeds: at once and in turn."""

import jax
import jax.numpy as jnp
import numpy as np

from advsurprise.tree import Packing, over_seeds


def _step(count, key):
    """Leaves of every kind that a rollout holds, small and large, special numbers among them."""
    bits = jax.random.bits(key, (3, 2), jnp.uint32)
    return count + 1, {
        "flag": bits[:, 0] % 2 == 1,
        "small": bits.astype(jnp.uint8),
        "signed": jax.lax.bitcast_convert_type(bits, jnp.int32),
        "short": bits[:, 0].astype(jnp.int16),
        "words": bits,
        "numbers": jnp.array([jnp.nan, -jnp.inf, -0.0], jnp.float32),
        "none": jnp.zeros((3, 0)),
        "wide": jax.random.normal(key, (3, 4, 5)),
    }


def test_a_packed_scan_gives_out_the_same_bits(getkey):
    keys = jax.random.split(getkey(), 7)
    packing = Packing.of(jax.eval_shape(_step, 0, keys[0])[1])
    plain = jax.lax.scan(_step, 0, keys)[1]

    def packed_step(count, key):
        count, found = _step(count, key)
        return count, packing.pack(found)

    packed = jax.lax.scan(packed_step, 0, keys)[1]
    # Everything small in one array, the rest as it was.
    assert packed[0].shape == (7, 3, 1 + 2 + 2 + 1 + 2 + 1)
    assert [leaf.shape for leaf in packed[1]] == [(7, 3, 4, 5)]
    for (path, found), expected in zip(
        jax.tree_util.tree_leaves_with_path(packing.unpack(packed)), jax.tree.leaves(plain), strict=True
    ):
        assert found.dtype == expected.dtype, path
        assert np.asarray(found).tobytes() == np.asarray(expected).tobytes(), path


def test_seeds_in_turn_have_the_results_of_seeds_at_once(getkey):
    def one(key, weights, missing):
        assert missing is None
        x = jax.random.normal(key, (3,))
        return {"x": weights["w"] @ x, "n": weights["n"] + 1}

    keys = jax.random.split(getkey(), 2)
    weights = {"w": jax.random.normal(getkey(), (2, 4, 3)), "n": jnp.array([3, 5])}
    at_once, in_turn = (jax.jit(over_seeds(one, 2, in_turn=each))(keys, weights, None) for each in (False, True))
    assert in_turn["n"].tolist() == at_once["n"].tolist() == [4, 6]
    np.testing.assert_allclose(in_turn["x"], at_once["x"], rtol=1e-6)
