"""When two trees of arrays are the same."""

import jax
import jax.numpy as jnp
import numpy as np


def assert_same(left, right):
    """Integers and flags to the bit, floats to rounding."""
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(left), jax.tree.leaves(right), strict=True):
        name = jax.tree_util.keystr(path)
        assert (a.shape, a.dtype) == (b.shape, b.dtype), name
        if jnp.issubdtype(a.dtype, jnp.floating):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4, err_msg=name)
        else:
            assert np.array_equal(a, b), name


def bits(tree):
    """Type and bytes of every leaf, keys included."""
    leaves = [
        np.asarray(jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)
        for leaf in jax.tree.leaves(tree)
    ]
    return [(leaf.dtype, leaf.tobytes()) for leaf in leaves]
