"""Convolutions by patches, by rows, by parity and by blocks, and their gradients, against XLA's own."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from advsurprise.learning.convolution import choose, convolve


def _convolve(x, weight, **how):
    """A sum over every place of the kernel, in float64 numpy."""
    x, weight = np.asarray(x, np.float64), np.asarray(weight, np.float64)
    kernel, stride = weight.shape[1], how["stride"]
    sizes = [-(-size // stride) if how["same"] else (size - kernel) // stride + 1 for size in x.shape[1:3]]
    pads = [
        max((new - 1) * stride + kernel - size, 0) if how["same"] else 0
        for new, size in zip(sizes, x.shape[1:3], strict=True)
    ]
    x = np.pad(x, [(0, 0), *((pad // 2, pad - pad // 2) for pad in pads), (0, 0)])
    result = np.zeros((len(x), *sizes, len(weight)))
    for i, j in np.ndindex(*sizes):
        patch = x[:, i * stride : i * stride + kernel, j * stride : j * stride + kernel]
        result[:, i, j] = np.einsum("nabc,oabc->no", patch, weight)
    return result


def _random(shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


@functools.partial(jax.jit, static_argnames=("stride", "same", "backend"))
def _both(x, weight, mixed, **how):
    """The convolution, and the gradient of a random mixture of its entries."""
    function = _by_xla if how["backend"] == "xla" else convolve
    gradient = jax.grad(lambda *args: jnp.sum(mixed * function(*args, **how)), argnums=(0, 1))(x, weight)
    return function(x, weight, **how), gradient


def _by_xla(x, weight, *, stride, same, backend):
    layout, padding = ("NHWC", "OHWI", "NHWC"), "SAME" if same else "VALID"
    return jax.lax.conv_general_dilated(x, weight, (stride, stride), padding, dimension_numbers=layout)


@pytest.mark.parametrize("backend", ["patches", "rows"])
@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize(
    ("rows", "columns", "kernel", "stride"), [(7, 7, 3, 2), (5, 8, 3, 2), (9, 6, 4, 3), (5, 5, 2, 1), (4, 4, 3, 2)]
)
def test_a_convolution_and_its_gradient(rows, columns, kernel, stride, same, backend):
    x, weight = _random((2, rows, columns, 3)), _random((5, kernel, kernel, 3), 1)
    how = {"stride": stride, "same": same}
    expected = _convolve(x, weight, **how)
    mixed = _random(expected.shape, 2)
    result, gradient = _both(x, weight, mixed, backend=backend, **how)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
    for ours, theirs in zip(gradient, _both(x, weight, mixed, backend="xla", **how)[1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("rows", "columns"), [(7, 7), (5, 5), (11, 11), (4, 6), (7, 8), (2, 3)])
def test_the_convolution_by_parity_and_its_gradient(rows, columns):
    x, weight = _random((2, rows, columns, 3)), _random((4, 3, 3, 3), 1)
    how = {"stride": 2, "same": True}
    expected = _convolve(x, weight, **how)
    mixed = _random(expected.shape, 2)
    (result, (_, ours)), (_, (_, theirs)) = (_both(x, weight, mixed, backend=name, **how) for name in ("parity", "xla"))
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("outputs", [4, 9])
@pytest.mark.parametrize(
    ("rows", "columns", "kernel", "stride"), [(20, 20, 8, 4), (9, 9, 4, 2), (11, 14, 4, 2), (9, 7, 6, 2), (5, 6, 2, 2)]
)
def test_the_convolution_by_blocks_and_its_gradient(rows, columns, kernel, stride, outputs):
    x, weight = _random((2, rows, columns, 3)), _random((outputs, kernel, kernel, 3), 1)
    how = {"stride": stride, "same": False}
    expected = _convolve(x, weight, **how)
    mixed = _random(expected.shape, 2)
    result, gradient = _both(x, weight, mixed, backend="blocks", **how)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
    for ours, theirs in zip(gradient, _both(x, weight, mixed, backend="xla", **how)[1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_blocks_are_encoded_after_they_are_cut():
    parts = (_random((2, 8, 8, 3)), _random((2, 8, 8, 2), 1))
    weight, how = _random((4, 4, 4, 5), 2), {"stride": 2, "same": False}

    def encode(parts):
        return jnp.concatenate([2 * parts[0], parts[1]], axis=-1)

    result = convolve(parts, weight, encode=encode, backend="blocks", **how)
    np.testing.assert_allclose(result, _convolve(encode(parts), weight, **how), rtol=1e-4, atol=1e-4)


def test_images_go_by_blocks_where_the_stride_divides_the_kernel():
    how = {"same": False, "is_data": True}
    assert choose((256, 84, 84, 4), (4, 8, 8, 4), stride=4, **how) == "blocks"
    assert choose((256, 9, 9, 32), (64, 3, 3, 32), stride=1, **how) == "patches"


def test_only_data_goes_by_parity():
    # Its input gets no gradient.
    how = {"stride": 2, "same": True}
    assert choose((256, 7, 7, 60), (16, 3, 3, 60), is_data=True, **how) == "parity"
    assert choose((256, 7, 7, 60), (16, 3, 3, 60), is_data=False, **how) != "parity"
    assert choose((256, 7, 7, 60), (16, 3, 3, 60), is_data=True, stride=1, same=True) != "parity"
