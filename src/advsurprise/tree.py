"""The few helpers on pytrees."""

from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

Tree = TypeVar("Tree")


def select(choose: Bool[Array, ""], on_true: Tree, on_false: Tree) -> Tree:
    """`on_true` where `choose` holds, else `on_false`, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(choose, a, b), on_true, on_false)
