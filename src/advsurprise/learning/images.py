"""Pixels as floats, and downscaling of images."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped


def numbers(x: Shaped[Array, "..."]) -> Float[Array, "..."]:
    """Grey levels as floats from 0 to 1; floats unchanged, in single precision."""
    if x.dtype == jnp.uint8:
        return x.astype(jnp.float32) / 255
    return x.astype(jnp.float32)


def shrink(x: Float[Array, "rows columns *rest"], size: tuple[int, int]) -> Float[Array, "..."]:
    """An image downscaled to `size`: every new pixel is the mean of the old ones in the area that it covers, those on
    its edges weighted by their overlap."""
    if x.shape[:2] == tuple(size):
        return x
    rows, columns = (jnp.asarray(area_weights(old, new)) for old, new in zip(x.shape[:2], size, strict=True))
    exact = jax.lax.Precision.HIGHEST
    return jnp.einsum("ri,ij...,cj->rc...", rows, x, columns, precision=exact)


def area_weights(old: int, new: int) -> Float[np.ndarray, "{new} {old}"]:
    """Weight of each of a row's `old` pixels in each of its `new` pixels; the weights of a new pixel sum to 1."""
    edges = np.arange(new + 1) * old / new
    begins, ends = edges[:-1, None], edges[1:, None]
    places = np.arange(old)
    overlap = np.minimum(ends, places + 1) - np.maximum(begins, places)
    return (np.clip(overlap, 0, None) * new / old).astype(np.float32)
