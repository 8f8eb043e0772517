"""The host contract (docs/contract.md): all bodies of all seeds, in numpy; the world keeps its own state."""

import abc
import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, Shaped, UInt8

from advsurprise.errors import UserError
from advsurprise.types import EnvSpec, TimeStep


class Host(abc.ABC):
    """A world that steps outside of jax, for several seeds with as many bodies each.

    Bodies are in groups of equal size, so that one group's worlds step while the other's policies are computed: group g
    of G holds bodies [g · B/G, (g + 1) · B/G) of every seed. Arrays have the axes [S, B/G, …] of a group, or [S, B, …].
    """

    seeds: int
    """Seeds S."""
    bodies: int
    """Bodies B of each seed."""
    groups: int = 1
    """Groups G, a divisor of B."""
    resumes: bool = False
    """Whether `save` and `load` continue every body exactly where it was."""
    rewinds: bool = False
    """Whether a body that is rewound is in its episode's very first state again."""
    replaced: int = 0
    """Worker processes that died and were replaced so far."""

    @property
    @abc.abstractmethod
    def spec(self) -> EnvSpec:
        """What a learner must know of the world."""

    @abc.abstractmethod
    def reset(self, keys: Key[Array, " S"]) -> TimeStep:
        """Begins the first episode of every body, axes [S, B]: the same key gives the same episodes, whatever other
        seeds there are."""

    @abc.abstractmethod
    def send(self, group: int, action: Int[np.ndarray, "S b"]) -> None:
        """Starts a step with every body of a group, and returns at once."""

    @abc.abstractmethod
    def recv(self, group: int) -> TimeStep:
        """Waits for the step that `send` started, axes [S, b]. Its arrays hold until the group's next `send`."""

    @abc.abstractmethod
    def relocate(self, group: int, request: Int[np.ndarray, "S b"]) -> TimeStep:
        """Relocates bodies between two steps: on `REWIND` back to the first state of their episode (worlds that
        cannot, to the beginning of a new one), on `RESTART` into a new one. Only `obs` and `place` of the result
        count."""

    @abc.abstractmethod
    def close(self) -> None:
        """Closes the world."""

    def save(self) -> UInt8[np.ndarray, " n"]:
        """Where every body is, between two steps, for worlds that resume exactly."""
        raise NotImplementedError

    def load(self, state: UInt8[np.ndarray, " n"]) -> None:
        """Continues where `save` was called, in place of `reset`."""
        raise NotImplementedError

    @property
    def group_bodies(self) -> int:
        """Bodies of each seed in a group."""
        return self.bodies // self.groups


def check_sizes(name: str, *, seeds: int, bodies: int, groups: int) -> None:
    """Refuses sizes that make no groups."""
    if min(seeds, bodies, groups) < 1:
        raise UserError(f"{name}: seeds, bodies and groups must be at least 1, not {seeds}, {bodies} and {groups}")
    if bodies % groups:
        raise UserError(f"{name}: {bodies} bodies cannot be split into {groups} equal groups")


def as_timestep(
    *,
    obs: Shaped[np.ndarray, "..."],
    reward: Shaped[np.ndarray, "..."],
    terminated: Shaped[np.ndarray, "..."],
    truncated: Shaped[np.ndarray, "..."],
    final_obs: Shaped[np.ndarray, "..."],
    info: Mapping[str, Shaped[np.ndarray, "..."]],
) -> TimeStep:
    """A timestep of numpy arrays, filled by unflattening since `TimeStep` declares jax arrays."""
    names = tuple(sorted(info))
    leaves = [obs, reward, terminated, truncated, final_obs, *(info[name] for name in names)]
    return jax.tree.unflatten(_structure(names), leaves)


@functools.cache
def _structure(names: tuple[str, ...]):
    number, flag = jnp.float32(0), jnp.bool_(False)
    return jax.tree.structure(TimeStep(number, number, flag, flag, number, dict.fromkeys(names, number)))
