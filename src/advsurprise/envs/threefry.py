"""JAX's random numbers in a form that is faster on a CPU when few bodies step.

The numbers equal those of `jax.random` bit for bit. On a CPU, `jax.random` runs the rounds of the hash (Salmon et al.
2011, Threefry-2x32, 20 rounds) as a loop with a dozen kernels per iteration, which take longer to launch than to run.
Here the loop is unrolled, and a draw is one kernel.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.random import define_prng_impl
from jaxtyping import Array, Integer, Key, Shaped, UInt32

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
"""Rotation distances in odd and even groups of four rounds."""
PARITY = 0x1BD11BDA
"""Constant in the third word of a key."""

Words = tuple[UInt32[Array, "*n"], UInt32[Array, "*n"]]


def wrap(data: UInt32[Array, "*n 2"]) -> Key[Array, "*n"]:
    """Keys from their `jax.random.key_data`; draws equal those of `jax.random`."""
    settings: Any = jax.config
    return jax.random.wrap_key_data(data, impl=_written_out() if settings.jax_threefry_partitionable else None)


def hashed(key: UInt32[Array, "2"], count: Words) -> Words:
    """Threefry-2x32: two random words for a key and each count."""
    keys = key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(PARITY)
    left, right = count[0] + keys[0], count[1] + keys[1]
    for group in range(1, 6):
        for distance in ROTATIONS[(group - 1) % 2]:
            left = left + right
            right = left ^ ((right << distance) | (right >> (32 - distance)))
        left, right = left + keys[group % 3], right + keys[(group + 1) % 3] + jnp.uint32(group)
    return left, right


@functools.cache
def _written_out() -> Any:
    return define_prng_impl(
        key_shape=(2,),
        seed=_seed,
        split=_split,
        random_bits=_random_bits,
        fold_in=_fold_in,
        name="threefry2x32_written_out",
        tag="fry_written_out",
    )


def _seed(seed: Integer[Array, ""]) -> UInt32[Array, "2"]:
    return jnp.stack([jnp.uint32(0), seed.astype(jnp.uint32)])


def _split(key: UInt32[Array, "2"], shape: tuple[int, ...]) -> UInt32[Array, "*n 2"]:
    return jnp.stack(hashed(key, _counts(shape)), axis=-1)


def _fold_in(key: UInt32[Array, "2"], data: Any) -> UInt32[Array, "2"]:
    return jnp.stack(hashed(key, (jnp.uint32(0), jnp.asarray(data).astype(jnp.uint32))))


def _random_bits(key: UInt32[Array, "2"], width: int, shape: tuple[int, ...]) -> Shaped[Array, "*n"]:
    @jax.jit
    def draw(key):
        left, right = hashed(key, _counts(shape))
        if width == 64:
            return (left.astype(jnp.uint64) << 32) | right.astype(jnp.uint64)
        return (left ^ right).astype(f"uint{width}")

    bits = draw(key)
    # Not inlined: XLA would repeat the draw in every kernel that uses a number, for each of its entries.
    once: Any = set_xla_metadata(bits, inlineable="false") if jax.default_backend() == "cpu" else bits
    return once


def _counts(shape: tuple[int, ...]) -> Words:
    """The counts 0, 1, 2, … as pairs of words."""
    low = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
    return jnp.zeros_like(low), low
