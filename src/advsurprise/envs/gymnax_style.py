"""Our pure worlds with gymnax's interface, for training loops written for it. Does not need gymnax installed.

>>> env = advsurprise.envs.as_gymnax("rooms/four", one_hot=True)
>>> params = env.default_params
>>> obs, state = env.reset(key, params)
>>> obs, state, reward, done, info = env.step(key, state, action, params)
"""

import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from advsurprise.envs.base import AbstractEnv, if_any
from advsurprise.errors import UserError


class Params(NamedTuple):
    """Parameters that can change from step to step; everything else is fixed when the world is made."""

    max_steps_in_episode: int
    """Steps after which an episode is truncated."""


class State(NamedTuple):
    """State of one body's world."""

    inner: Any
    """The world's own state."""
    time: Int[Array, ""]
    """Steps of the episode so far."""


class Discrete:
    """Integers from 0 to n, exclusive."""

    def __init__(self, n: int):
        self.n, self.shape, self.dtype = n, (), jnp.int32

    def sample(self, key: Array) -> Int[Array, ""]:
        """A uniformly random integer."""
        return jax.random.randint(key, (), 0, self.n)

    def contains(self, x: Any) -> Bool[Array, ""]:
        """Whether x is in the space."""
        return jnp.logical_and(jnp.asarray(x) >= 0, jnp.asarray(x) < self.n)


class Box:
    """Arrays of a given shape with bounded entries."""

    def __init__(self, low: float, high: float, shape: tuple[int, ...], dtype: Any):
        self.low, self.high, self.shape, self.dtype = low, high, shape, dtype

    def sample(self, key: Array) -> Shaped[Array, "..."]:
        """An array of uniformly random entries."""
        if jnp.issubdtype(self.dtype, jnp.integer):
            return jax.random.randint(key, self.shape, int(self.low), int(self.high) + 1).astype(self.dtype)
        return jax.random.uniform(key, self.shape, self.dtype, self.low, self.high)

    def contains(self, x: Any) -> Bool[Array, ""]:
        """Whether every entry lies between the bounds."""
        entries = jnp.asarray(x).astype(jnp.float32)
        return jnp.logical_and(jnp.all(entries >= self.low), jnp.all(entries <= self.high))


class GymnaxStyle:
    """A pure world with gymnax's interface: `step` resets automatically, `step_env` does not."""

    def __init__(self, world: AbstractEnv, *, one_hot: bool = False, values: int = 5):
        """
        Args:
            world: The world.
            one_hot: Whether to one-hot encode classes along a new last axis.
            values: Number of values a step returns: 5 with `done`, as in gymnax before 1.0, or 6 with `terminated` and
                `truncated`.
        """
        if one_hot and world.spec.observation_kind != "classes":
            raise UserError(f"{world.spec.id} has no classes to one-hot encode: set one_hot=False")
        if values not in (5, 6):
            raise UserError(f"a step returns 5 or 6 values, not {values}")
        self.world, self.one_hot, self.values = world, one_hot, values

    @property
    def name(self) -> str:
        """The world's name."""
        return self.world.spec.id

    @property
    def num_actions(self) -> int:
        """Number of actions."""
        return self.world.spec.num_actions

    @property
    def default_params(self) -> Params:
        """The world's own episode length; no limit if it has none."""
        return Params(self.world.spec.max_steps or np.iinfo(np.int32).max)

    def reset(self, key: Array, params: Params | None = None) -> tuple[Array, State]:
        """Starts an episode; returns observation and state."""
        return self.reset_env(key, params)

    def reset_env(self, key: Array, params: Params | None = None) -> tuple[Array, State]:
        """The same as `reset`."""
        inner = self.world.initial(key=_typed_key(key))
        return self._shown(inner), State(inner, jnp.int32(0))

    def step(self, key: Array, state: State, action: Int[Array, ""], params: Params | None = None) -> tuple[Any, ...]:
        """Takes one step. If it ends the episode, the returned observation and state are the first of the next one;
        `info["final_observation"]` is what the step led to."""
        move_key, renew_key = jax.random.split(key)
        obs, moved, reward, terminated, truncated, info = self._moved(move_key, state, action, params)

        def begin_next(operand: Any) -> Any:
            moved, _, key = operand
            inner = self.world.renew(moved.inner, key=_typed_key(key))
            return State(inner, jnp.int32(0)), self._shown(inner)

        done = terminated | truncated
        state, first = if_any(done, begin_next, lambda operand: operand[:2], (moved, obs, renew_key))
        return self._answer(first, state, reward, terminated, truncated, info)

    def step_env(
        self, key: Array, state: State, action: Int[Array, ""], params: Params | None = None
    ) -> tuple[Any, ...]:
        """Takes one step without resetting."""
        return self._answer(*self._moved(key, state, action, params))

    def action_space(self, params: Params | None = None) -> Any:
        """The actions; a gymnax space if gymnax is imported, since its wrappers require one."""
        return _spaces().Discrete(self.num_actions)

    def observation_space(self, params: Params | None = None) -> Any:
        """The observations."""
        spec = self.world.spec
        if self.one_hot:
            return _spaces().Box(0.0, 1.0, (*spec.observation_shape, spec.num_classes), jnp.float32)
        low, high = (0.0, spec.num_classes - 1.0) if spec.num_classes else (-np.inf, np.inf)
        return _spaces().Box(low, high, spec.observation_shape, jnp.dtype(spec.observation_dtype))

    def _moved(self, key: Array, state: State, action: Int[Array, ""], params: Params | None) -> tuple[Any, ...]:
        params = self.default_params if params is None else params
        inner, outcome = self.world.transition(state.inner, jnp.asarray(action, jnp.int32), key=_typed_key(key))
        time = state.time + 1
        truncated = (outcome.truncated | (time >= params.max_steps_in_episode)) & ~outcome.terminated
        obs = self._shown(inner)
        info = self.world.measure(inner) | {"final_observation": obs}
        return obs, State(inner, time), outcome.reward, outcome.terminated, truncated, info

    def _answer(self, obs: Any, state: Any, reward: Any, terminated: Any, truncated: Any, info: Any) -> tuple[Any, ...]:
        discount: Float[Array, ""] = jnp.where(terminated, 0.0, 1.0)
        info = info | {"discount": discount, "terminated": terminated, "truncated": truncated}
        ends = (terminated | truncated,) if self.values == 5 else (terminated, truncated)
        return (obs, state, reward, *ends, info)

    def _shown(self, inner: Any) -> Shaped[Array, "..."]:
        obs = self.world.observe(inner)
        return jax.nn.one_hot(obs, self.world.spec.num_classes) if self.one_hot else obs


def _typed_key(key: Array) -> Array:
    """A typed key; loops written for gymnax may pass raw keys of two words."""
    return key if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(key)


def _spaces() -> Any:
    """The module with the space classes: gymnax's if it is imported, else this one."""
    return sys.modules.get("gymnax.environments.spaces", sys.modules[__name__])
