"""How the theory reads the states of a pure world: what decides the future, and what is noise."""

import abc
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

if TYPE_CHECKING:
    from advsurprise.envs.base import AbstractEnv

RANDOM = -1
"""Marks an entry of a view that is redrawn at every step."""


class Read(NamedTuple):
    """One state as the theory sees it."""

    identity: Int[Array, "*batch n"]
    """Everything that decides what can happen next; equal for states that are the same true state."""
    seen: Int[Array, "*batch m"]
    """What the body sees, `RANDOM` where the entry is noise."""


class Reader(abc.ABC):
    """How to read the states of a world."""

    choices: int
    """Number of equally likely values of a random entry."""

    @abc.abstractmethod
    def read(self, state: Any) -> Read:
        """The state as the theory sees it; traced by jax."""

    @abc.abstractmethod
    def name(self, state: Any) -> str:
        """A readable name for a single state, in numpy."""


class WholeState(Reader):
    """Reads the whole state; for worlds without noise in it."""

    choices = 1

    def __init__(self, env: "AbstractEnv"):
        self.env = env

    def read(self, state: Any) -> Read:
        leaves = [jnp.ravel(leaf).astype(jnp.int32) for leaf in jax.tree.leaves(state)]
        return Read(jnp.concatenate(leaves), jnp.ravel(self.env.observe(state)).astype(jnp.int32))

    def name(self, state: Any) -> str:
        return "state " + " ".join(str(int(x)) for leaf in jax.tree.leaves(state) for x in np.ravel(leaf))
