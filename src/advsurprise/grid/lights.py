"""Flashing lights without a random number per cell and step.

A room holds one 32-bit word. The colour of a cell is a hash of that word and the cell's index, so only cells in
view cost anything, and a room is stilled by keeping its word.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt8, UInt32

from advsurprise.grid import tiles


def below(bits, limit):
    """Uniform integers in [0, limit) from 32 uniform bits: ⌊bits·limit / 2³²⌋, in 32-bit arithmetic.

    `limit` must be below 2¹⁶ and of the same unsigned type. Works on numpy and jax arrays alike.
    """
    high, low = bits >> 16, bits & 0xFFFF
    return (high * limit + ((low * limit) >> 16)) >> 16


def uniform(bits: UInt32[Array, " n"]) -> Float[Array, " n"]:
    """Uniform in [0, 1) from the upper 24 bits."""
    return (bits >> 8).astype(jnp.float32) * jnp.float32(2.0**-24)


def mix(word: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
    """A bijection of 32-bit words in which every input bit flips every output bit half of the time."""
    word = word ^ (word >> 16)
    word = word * jnp.uint32(0x85EBCA6B)
    word = word ^ (word >> 13)
    word = word * jnp.uint32(0xC2B2AE35)
    return word ^ (word >> 16)


def colour(word: UInt32[Array, "..."], cell: Int[Array, "..."]) -> UInt8[Array, "..."]:
    """Colour that a room's word gives a cell: uniform over colours, independent over cells and words."""
    spread = cell.astype(jnp.uint32) * jnp.uint32(0x9E3779B9)
    return below(mix(word ^ spread), jnp.uint32(tiles.NUM_COLOURS)).astype(jnp.uint8)


def resolve(codes: UInt8[Array, " n"], cells: Int[Array, " n"], words: UInt32[Array, " rooms"]) -> UInt8[Array, " n"]:
    """Replaces lights by floors of the colour they show now."""
    room = jnp.clip(codes.astype(jnp.int32) - tiles.LIGHT, 0, words.shape[0] - 1)
    return jnp.where(tiles.is_light(codes), tiles.FLOOR + colour(words[room], cells), codes)
