"""The host contract (docs/contract.md): all bodies of all seeds, in numpy; the world keeps its own state."""

import abc
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, Shaped, UInt8

from advsurprise.errors import UserError
from advsurprise.types import EnvSpec, TimeStep


class Host(abc.ABC):
    """A world that steps outside of jax, for several seeds with the same number of bodies each.

    Bodies form groups of equal size, so that one group's worlds step while another's policies are computed: group g
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
    """Whether rewinding a body restores the exact first state of its episode."""
    replaced: int = 0
    """Worker processes that died and were replaced so far."""
    notes: tuple[str, ...] = ()
    """Notes for the user on how the world is run, one line each."""

    @property
    @abc.abstractmethod
    def spec(self) -> EnvSpec:
        """What a learner needs to know about the world."""

    @abc.abstractmethod
    def reset(self, seed: int | Key[Array, "..."]) -> TimeStep:
        """Starts the first episode of every body; the same seed or key gives the same episodes. Several seeds take one
        key each, and the episodes of a seed do not depend on the other seeds."""

    @abc.abstractmethod
    def send(self, action: Int[np.ndarray, " rows"], group: int = 0) -> None:
        """Starts a step with every body of a group, and returns immediately."""

    @abc.abstractmethod
    def recv(self, group: int = 0) -> TimeStep:
        """Waits for the step that `send` started. Its arrays are valid until the group's next `send`: copy what you
        keep longer (`jax.device_put` may only share their memory)."""

    @abc.abstractmethod
    def relocate(self, request: Int[np.ndarray, " rows"], group: int = 0) -> TimeStep:
        """Relocates bodies between two steps: `REWIND` restores the first state of the episode (or starts a new one, in
        worlds that cannot), `RESTART` starts a new episode. Only `obs` and `place` of the result are meaningful."""

    @abc.abstractmethod
    def close(self) -> None:
        """Closes the world."""

    def save(self) -> UInt8[np.ndarray, " n"]:
        """Saves every body between two steps, in worlds that resume exactly."""
        raise NotImplementedError

    def load(self, state: UInt8[np.ndarray, " n"]) -> None:
        """Continues where `save` was called, instead of `reset`."""
        raise NotImplementedError

    @property
    def group_bodies(self) -> int:
        """Bodies of each seed in a group."""
        return self.bodies // self.groups


def seed_keys(seed: int | Key[Array, "..."], seeds: int) -> Key[Array, " seeds"]:
    """One key per seed, from an integer, a key or one key for each seed."""
    key = jax.random.key(seed) if isinstance(seed, int) else seed
    keys = key[None] if key.ndim == 0 else key
    if len(keys) != seeds:
        raise UserError(f"{seeds} seeds need {seeds} keys, not {len(keys)}")
    return keys


def check_sizes(name: str, *, seeds: int, bodies: int, groups: int) -> None:
    """Refuses sizes below 1, and bodies that cannot be split into equal groups."""
    if min(seeds, bodies, groups) < 1:
        raise UserError(f"{name}: seeds, bodies and groups must be at least 1, not {seeds}, {bodies} and {groups}")
    if bodies % groups:
        raise UserError(f"{name}: {bodies} bodies cannot be split into {groups} equal groups")


def check_actions(spec: EnvSpec, actions: Any, bodies: int) -> Int[np.ndarray, " bodies"]:
    """Refuses anything but one of the world's actions, a whole number, for each body."""
    actions = np.asarray(actions)
    whole = actions.shape == (bodies,) and actions.dtype.kind in "iu"
    # Viewed as unsigned, negative numbers are above the limit.
    if not whole or not (actions.astype(np.int64).view(np.uint64) < spec.num_actions).all():
        raise UserError(f"{spec.id}: actions must be {bodies} whole numbers from 0 to {spec.num_actions - 1}")
    return actions


def as_timestep(
    *,
    obs: Shaped[np.ndarray, "..."],
    reward: Shaped[np.ndarray, "..."],
    terminated: Shaped[np.ndarray, "..."],
    truncated: Shaped[np.ndarray, "..."],
    final_obs: Shaped[np.ndarray, "..."],
    info: Mapping[str, Shaped[np.ndarray, "..."]],
) -> TimeStep:
    """A timestep of numpy arrays, built by unflattening since `TimeStep` declares jax arrays."""
    names = tuple(sorted(info))
    leaves = [obs, reward, terminated, truncated, final_obs, *(info[name] for name in names)]
    return jax.tree.unflatten(_structure(names), leaves)


@functools.cache
def _structure(names: tuple[str, ...]):
    number, flag = jnp.float32(0), jnp.bool_(False)
    info: dict[str, Array] = dict.fromkeys(names, number)  # pyright: ignore[reportAssignmentType]
    return jax.tree.structure(TimeStep(number, number, flag, flag, number, info))
