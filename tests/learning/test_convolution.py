"""Convolutions by patches, by rows and by parity, and their gradients, against XLA's own."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from advsurprise.learning.convolution import by_parity, by_rows, halved, patches


def _conv(x, weight, stride, same):
    """XLA's convolution of images [n, rows, columns, channels]."""
    padding = "SAME" if same else "VALID"
    return jax.lax.conv_general_dilated(
        x, weight, (stride, stride), padding, dimension_numbers=("NHWC", "OHWI", "NHWC")
    )


def _by_patches(x, weight, stride, same):
    cut = patches(x, kernel=weight.shape[1], stride=stride, same=same)
    return cut @ weight.reshape(weight.shape[0], -1).T


def _by_rows(x, weight, stride, same):
    return by_rows(x, weight, stride=stride, same=same)


def _random(shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


@pytest.mark.parametrize("ours", [_by_patches, _by_rows])
@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize(
    ("rows", "columns", "kernel", "stride"), [(7, 7, 3, 2), (5, 8, 3, 2), (9, 6, 4, 3), (5, 5, 2, 1), (4, 4, 3, 2)]
)
def test_a_convolution_and_its_gradient(rows, columns, kernel, stride, same, ours):
    x, weight = _random((2, rows, columns, 3)), _random((5, kernel, kernel, 3), 1)
    mixed = _random(jax.eval_shape(lambda: _conv(x, weight, stride, same)).shape, 2)

    @functools.partial(jax.jit, static_argnums=0)
    def both(convolve):
        found = convolve(x, weight, stride, same)
        return found, jax.grad(lambda *args: jnp.sum(mixed * convolve(*args, stride, same)), argnums=(0, 1))(x, weight)

    for found, expected in zip(*map(jax.tree.leaves, (both(ours), both(_conv))), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("rows", "columns"), [(7, 7), (5, 5), (11, 11), (4, 6), (7, 8), (2, 3)])
def test_the_convolution_by_parity_and_its_gradient(rows, columns):
    x, weight = _random((2, rows, columns, 3)), _random((4, 3, 3, 3), 1)
    mixed = _random((2, -(-rows // 2), -(-columns // 2), 4), 2)

    def ours(weight):
        return halved(weight, by_parity(x))

    @functools.partial(jax.jit, static_argnums=0)
    def both(convolve):
        return convolve(weight), jax.grad(lambda weight: jnp.sum(mixed * convolve(weight)))(weight)

    theirs = functools.partial(_conv, x, stride=2, same=True)
    for found, expected in zip(both(ours), both(theirs), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
