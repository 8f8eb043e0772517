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
    of G holds bodies [g · B/G, (g + 1) · B/G) of every seed. Arrays have one row per body, seed by seed: S · B rows, or
    S · B/G rows of a group.
    """

    seeds: int = 1
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
    notes: tuple[str, ...] = ()
    """What a person should know of how the world is run, a line each."""

    @property
    @abc.abstractmethod
    def spec(self) -> EnvSpec:
        """What a learner must know of the world."""

    @abc.abstractmethod
    def reset(self, seed: int | Key[Array, "..."]) -> TimeStep:
        """Begins the first episode of every body: the same seed, or key, gives the same episodes. Of several seeds each
        has a key of its own, and its episodes do not depend on what other seeds there are."""

    @abc.abstractmethod
    def send(self, action: Int[np.ndarray, " rows"], group: int = 0) -> None:
        """Starts a step with every body of a group, and returns at once."""

    @abc.abstractmethod
    def recv(self, group: int = 0) -> TimeStep:
        """Waits for the step that `send` started. Its arrays hold until the group's next `send`: copy what is kept
        longer (`jax.device_put` may only share their memory)."""

    @abc.abstractmethod
    def relocate(self, request: Int[np.ndarray, " rows"], group: int = 0) -> TimeStep:
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


def seed_keys(seed: int | Key[Array, "..."], seeds: int) -> Key[Array, " seeds"]:
    """One key per seed, from an integer, a key or as many keys."""
    key = jax.random.key(seed) if isinstance(seed, int) else seed
    keys = key[None] if key.ndim == 0 else key
    if len(keys) != seeds:
        raise UserError(f"{seeds} seeds need a key each, not {len(keys)}")
    return keys


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
    info: dict[str, Array] = dict.fromkeys(names, number)  # pyright: ignore[reportAssignmentType]
    return jax.tree.structure(TimeStep(number, number, flag, flag, number, info))
