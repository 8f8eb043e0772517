"""Helpers for pytrees."""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, UInt32

Tree = TypeVar("Tree")
WIDEST = 16
"""Most entries per body of a leaf that is packed."""


def select(choose: Bool[Array, ""], on_true: Tree, on_false: Tree) -> Tree:
    """`on_true` where `choose` holds, else `on_false`, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(choose, a, b), on_true, on_false)


def with_seed_axis(tree: Tree) -> Tree:
    """Adds an axis S of size 1 to the tree of one seed."""
    return jax.tree.map(lambda leaf: leaf[None], tree)


def over_seeds(function: Callable, seeds: int, *, in_turn: bool = False) -> Callable:
    """Maps a function of one seed over an axis S: for all seeds at once, or one after the other. A single seed is not
    vmapped: that would cost a little."""
    if seeds > 1:
        return (lambda *args: jax.lax.map(lambda of_seed: function(*of_seed), args)) if in_turn else jax.vmap(function)

    def one_seed(*args):
        # reshape instead of an index: copies nothing.
        result = function(*jax.tree.map(lambda leaf: leaf.reshape(leaf.shape[1:]), args))
        return with_seed_axis(result)

    return one_seed


@dataclasses.dataclass(frozen=True)
class Packing:
    """Packs a tree of arrays [B, …] for the output of a scan: all entries of its small leaves in one array.

    A scan writes every output leaf at every step, and for small leaves the overhead exceeds the write itself. Packed,
    they are written together.
    """

    like: Any
    """The tree's shapes."""

    @classmethod
    def of(cls, tree: Any) -> "Packing":
        """The packing of trees like this one."""
        return cls(jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree))

    def pack(self, tree: Any) -> tuple[UInt32[Array, "B n"], list[Array]]:
        """Small leaves concatenated as words, and the other leaves."""
        leaves = jax.tree.leaves(tree)
        words = [_words(leaf) for leaf, small in zip(leaves, self._small, strict=True) if small]
        others = [leaf for leaf, small in zip(leaves, self._small, strict=True) if not small]
        return jnp.concatenate(words, axis=1), others

    def unpack(self, packed: tuple[UInt32[Array, "T B n"], list[Array]]) -> Any:
        """The tree of arrays [T, B, …], bit for bit."""
        words, others = packed[0], iter(packed[1])
        leaves, begin = [], 0
        for like, small in zip(jax.tree.leaves(self.like), self._small, strict=True):
            if not small:
                leaves.append(next(others))
                continue
            size = like.size // like.shape[0]
            leaves.append(_leaf(words[..., begin : begin + size], like))
            begin += size
        return jax.tree.unflatten(jax.tree.structure(self.like), leaves)

    @property
    def _small(self) -> list[bool]:
        return [leaf.size <= WIDEST * leaf.shape[0] and leaf.dtype.itemsize <= 4 for leaf in jax.tree.leaves(self.like)]


def _words(leaf: Array) -> UInt32[Array, "B n"]:
    flat = leaf.reshape(leaf.shape[0], leaf.size // leaf.shape[0])
    if flat.dtype.itemsize == 4 and flat.dtype != jnp.bool_:
        return jax.lax.bitcast_convert_type(flat, jnp.uint32)
    return flat.astype(jnp.int32).astype(jnp.uint32)


def _leaf(words: UInt32[Array, "T B n"], like: jax.ShapeDtypeStruct) -> Array:
    if like.dtype.itemsize == 4:
        flat = jax.lax.bitcast_convert_type(words, like.dtype)
    else:
        flat = words.astype(jnp.int32).astype(like.dtype)
    return flat.reshape(*words.shape[:2], *like.shape[1:])
