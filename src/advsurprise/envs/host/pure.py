"""A pure world behind the host contract."""

import functools
from typing import Any, Generic

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from advsurprise.envs.base import AbstractEnv, State, first_states, relocate_all, reset_all, step_all, step_keys
from advsurprise.envs.host.base import Host, check_sizes, seed_keys
from advsurprise.types import EnvSpec, TimeStep


class PureHost(Host, Generic[State]):
    """A pure world behind the host contract: batched numpy, one compiled step for all bodies of a group."""

    rewinds = True

    def __init__(self, env: AbstractEnv[State], bodies: int, *, seeds: int = 1, groups: int = 1):
        check_sizes(env.spec.id, seeds=seeds, bodies=bodies, groups=groups)
        self.env = env
        self.bodies, self.seeds, self.groups = bodies, seeds, groups
        self._key: Any = None
        self._forget()

    def _forget(self) -> None:
        self._count = [0] * self.groups
        self._keys: list[Any] = [None] * self.groups
        self._state: list[Any] = [None] * self.groups
        self._first: list[Any] = [None] * self.groups
        self._pending: list[Any] = [None] * self.groups

    @property
    def spec(self) -> EnvSpec:
        """What a learner needs to know about the world."""
        return self.env.spec

    def reset(self, seed: int | Key[Array, "..."]) -> TimeStep:
        """Starts the first episode of every body; the same seed or key gives the same episodes."""
        self._forget()
        self._key, state, timestep = _reset_jit(self.env, self.bodies, seed_keys(seed, self.seeds))
        for group in range(self.groups):
            here = self._slice(group)
            self._state[group] = self._first[group] = jax.tree.map(lambda leaf, here=here: leaf[:, here], state)
            self._keys[group] = _keys_jit(self._key, jnp.int32(-1), self.bodies)[:, here]
        return _rows(timestep)

    def send(self, action: Int[np.ndarray, " rows"], group: int = 0) -> None:
        """Starts a step; jax computes it in the background."""
        if self._key is None:
            raise RuntimeError("reset the world before stepping it")
        actions = jnp.asarray(action, jnp.int32).reshape(self.seeds, self.group_bodies)
        self._keys[group] = _keys_jit(self._key, jnp.int32(self._count[group]), self.bodies)[:, self._slice(group)]
        self._count[group] += 1
        step = _step_jit(self.env, self._keys[group], self._state[group], self._first[group], actions)
        self._state[group], self._first[group], self._pending[group] = step

    def recv(self, group: int = 0) -> TimeStep:
        """Waits for the step that `send` started."""
        if self._pending[group] is None:
            raise RuntimeError("send actions before receiving")
        timestep, self._pending[group] = self._pending[group], None
        return _rows(timestep)

    def relocate(self, request: Int[np.ndarray, " rows"], group: int = 0) -> TimeStep:
        """Relocates bodies; rewinding is exact."""
        if self._key is None:
            raise RuntimeError("reset the world before relocating bodies")
        if self._pending[group] is not None:
            raise RuntimeError("receive the last step before relocating bodies")
        requests = jnp.asarray(request, jnp.int32).reshape(self.seeds, self.group_bodies)
        moved = _relocate_jit(self.env, self._keys[group], self._first[group], self._state[group], requests)
        # Bodies restarted twice before the next step must get different episodes.
        self._first[group], self._state[group], self._keys[group], timestep = moved
        return _rows(timestep)

    def close(self) -> None:
        """Drops the state."""
        self._key = None
        self._forget()

    @property
    def state(self) -> State:
        """Batched state of the first seed's bodies in the first group, for drawing."""
        return jax.tree.map(lambda leaf: leaf[0], self._state[0])

    def _slice(self, group: int) -> slice:
        return slice(group * self.group_bodies, (group + 1) * self.group_bodies)


def as_host(env: AbstractEnv[State], bodies: int, *, seeds: int = 1, groups: int = 1) -> PureHost[State]:
    """Puts a pure world behind the host contract."""
    return PureHost(env, bodies, seeds=seeds, groups=groups)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _reset_jit(env: AbstractEnv, bodies: int, keys: Key[Array, " S"]):
    return jax.vmap(lambda key: reset_all(env, bodies, key))(keys)


@functools.partial(jax.jit, static_argnums=2)
def _keys_jit(keys: Key[Array, " S"], count: Int[Array, ""], bodies: int):
    return jax.vmap(lambda key: step_keys(key, count, bodies))(keys)


@functools.partial(jax.jit, static_argnums=0)
def _step_jit(env: AbstractEnv, keys: Key[Array, "S b 3"], state: Any, first: Any, action: Int[Array, "S b"]):
    state, timestep = jax.vmap(lambda *each: step_all(env, *each))(keys, state, action)
    return state, jax.vmap(first_states)(first, state, timestep), timestep


@functools.partial(jax.jit, static_argnums=0)
def _relocate_jit(env: AbstractEnv, keys: Key[Array, "S b 3"], first: Any, state: Any, request: Int[Array, "S b"]):
    first, state, timestep = jax.vmap(lambda *each: relocate_all(env, *each))(keys, first, state, request)
    other = jax.vmap(jax.vmap(jax.vmap(lambda key: jax.random.fold_in(key, 1))))(keys)
    return first, state, other, timestep


def _rows(timestep: TimeStep) -> TimeStep:
    """One row per body, seed by seed, in numpy."""
    # Not -1: it cannot be inferred for empty arrays, such as the place in a world without places.
    return jax.tree.map(lambda leaf: np.asarray(leaf).reshape(leaf.shape[0] * leaf.shape[1], *leaf.shape[2:]), timestep)
