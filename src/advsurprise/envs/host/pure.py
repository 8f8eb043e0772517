"""A pure world behind the host contract."""

from typing import Generic

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, PRNGKeyArray

from advsurprise.envs.base import AbstractEnv, State, first_states, relocate_all, reset_all, step_all, step_keys
from advsurprise.envs.host.base import Host
from advsurprise.types import EnvSpec, TimeStep


class PureHost(Host, Generic[State]):
    """A pure world behind the host contract: batched numpy, one compiled step for all bodies."""

    def __init__(self, env: AbstractEnv[State], bodies: int):
        self.env = env
        self.bodies = bodies
        self._count = 0
        self._key = self._keys = self._state = self._first = self._pending = None

    @property
    def spec(self) -> EnvSpec:
        """What a learner must know of the world."""
        return self.env.spec

    def reset(self, seed: int | PRNGKeyArray) -> TimeStep:
        """Begins anew: the same seed (or key) gives the same episodes."""
        key = jax.random.key(seed) if isinstance(seed, int) else seed
        self._key, self._state, timestep = _reset_jit(self.env, self.bodies, key)
        self._first, self._count = self._state, 0
        self._keys = _keys_jit(self._key, jnp.int32(-1), self.bodies)
        return _to_numpy(timestep)

    def send(self, action: Int[np.ndarray, " bodies"]) -> None:
        """Starts a step; jax computes it in the background."""
        if self._key is None:
            raise RuntimeError("reset the world before stepping it")
        actions = jnp.asarray(action, jnp.int32)
        self._keys = _keys_jit(self._key, jnp.int32(self._count), self.bodies)
        self._count += 1
        self._state, self._pending = _step_jit(self.env, self._keys, self._state, actions)
        self._first = _first_jit(self._first, self._state, self._pending)

    def recv(self) -> TimeStep:
        """Waits for the step that `send` started."""
        if self._pending is None:
            raise RuntimeError("send actions before receiving")
        timestep, self._pending = self._pending, None
        return _to_numpy(timestep)

    def relocate(self, request: Int[np.ndarray, " bodies"]) -> TimeStep:
        """Exact: a body that is rewound is in its episode's first state again."""
        if self._keys is None:
            raise RuntimeError("reset the world before relocating bodies")
        if self._pending is not None:
            raise RuntimeError("receive the last step before relocating bodies")
        requests = jnp.asarray(request, jnp.int32)
        self._first, self._state, timestep = _relocate_jit(self.env, self._keys, self._first, self._state, requests)
        # Relocated again before the next step, bodies must get another episode.
        self._keys = _other_keys_jit(self._keys)
        return _to_numpy(timestep)

    def close(self) -> None:
        """Drops the state."""
        self._key = self._keys = self._state = self._first = self._pending = None

    @property
    def state(self) -> State:
        """State of all bodies, batched, for drawing."""
        return self._state  # pyright: ignore[reportReturnType]


def as_host(env: AbstractEnv[State], bodies: int) -> PureHost[State]:
    """Runs a pure world as a host one."""
    return PureHost(env, bodies)


_reset_jit = jax.jit(reset_all, static_argnums=(0, 1))
_keys_jit = jax.jit(step_keys, static_argnums=2)
_other_keys_jit = jax.jit(jax.vmap(jax.vmap(lambda key: jax.random.fold_in(key, 1))))
_step_jit = jax.jit(step_all, static_argnums=0)
_relocate_jit = jax.jit(relocate_all, static_argnums=0)
_first_jit = jax.jit(first_states)


def _to_numpy(timestep: TimeStep) -> TimeStep:
    return jax.tree.map(np.asarray, timestep)
