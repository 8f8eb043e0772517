"""A corridor with gymnax's interface, written in each of the ways that such worlds are written, and in wrong ones."""

import itertools
from types import SimpleNamespace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class State(NamedTuple):
    place: jax.Array
    time: int
    noise: jax.Array


class Params(NamedTuple):
    max_steps_in_episode: int = 5
    goal: int = 3
    pay: float = 1.0


class Corridor:
    """Action 1 goes on, 0 stays; goal and clock end the episode, under one name as in gymnax before 1.0."""

    default_params = Params()

    def __init__(self, size: int = 9):
        self.size = size

    def reset(self, key, params):
        state = State(jnp.int32(0), 0, jax.random.uniform(key))
        return self.see(state), state

    def step_env(self, key, state, action, params):
        state = State(state.place + action, state.time + 1, jax.random.uniform(key))
        over = (state.place >= params.goal) | (state.time >= params.max_steps_in_episode)
        return self.see(state), state, params.pay * state.place, over, {}

    def see(self, state):
        return jnp.stack([state.place, state.time, state.noise])

    def action_space(self, params):
        return SimpleNamespace(n=2)


class Newer(Corridor):
    """As from gymnax 1.0 on."""

    def step_env(self, key, state, action, params):
        obs, state, reward, _, info = super().step_env(key, state, action, params)
        return obs, state, reward, state.place >= params.goal, info

    def is_truncated(self, state, params):
        return state.time >= params.max_steps_in_episode


class Six(Newer):
    """Says both by itself."""

    is_truncated = None

    def step_env(self, key, state, action, params):
        obs, state, reward, terminated, info = super().step_env(key, state, action, params)
        return obs, state, reward, terminated, state.time >= params.max_steps_in_episode, info


del Six.is_truncated


class Planes(Corridor):
    """Shows true and false as numbers, as MinAtar does."""

    def see(self, state):
        return jnp.zeros((4, 4, 2), bool).at[0, state.place % 4, 0].set(True).astype(jnp.float32)


def with_params(name, size: int = 9):
    """An environment and its parameters, as `gymnax.make` returns them."""
    assert name == "short"
    return Corridor(size), Params(goal=2)


# Wrong ones.


class Board:
    """Not a pytree."""


class NoStepEnv:
    def reset(self, key, params):
        return jnp.zeros(2), jnp.int32(0)

    def step(self, key, state, action, params):
        return jnp.zeros(2), state, 0.0, False, {}


class NotATree(Corridor):
    def reset(self, key, params):
        obs, state = super().reset(key, params)
        return obs, {"board": Board(), "rest": state}


class Growing(Corridor):
    def step_env(self, key, state, action, params):
        obs, state, *rest = super().step_env(key, state, action, params)
        return obs, state._replace(noise=jnp.zeros(3)), *rest


class Masked(Corridor):
    def see(self, state):
        line = jnp.arange(3.0)
        return line[line > state.noise]


class Branching(Corridor):
    def step_env(self, key, state, action, params):
        if state.place > 2:
            state = state._replace(time=0)
        return super().step_env(key, state, action, params)


class Continuous(Corridor):
    def action_space(self, params):
        return SimpleNamespace(low=-1.0, high=1.0, shape=(2,))


class Remembering(Corridor):
    def step_env(self, key, state, action, params):
        self.last = state.time
        return super().step_env(key, state, action, params)


class Dice(Corridor):
    """Randomness of numpy's, and not of the key."""

    def __init__(self):
        super().__init__()
        self.numbers = (np.float32(np.random.default_rng(number).random()) for number in itertools.count())

    def step_env(self, key, state, action, params):
        return super().step_env(key, state._replace(noise=state.noise + next(self.numbers)), action, params)


class Callback(Corridor):
    """Python in the middle of a step."""

    def __init__(self):
        super().__init__()
        self.numbers = itertools.count()

    def see(self, state):
        number = jax.pure_callback(
            lambda: np.float32(next(self.numbers)), jax.ShapeDtypeStruct((), jnp.float32), vmap_method="sequential"
        )
        return jnp.stack([number, state.noise])


class Short(Corridor):
    def step_env(self, key, state, action, params):
        return super().step_env(key, state, action, params)[:3]


class Narrowing(Corridor):
    def step_env(self, key, state, action, params):
        obs, state, *rest = super().step_env(key, state, action, params)
        return obs, state._replace(noise=jnp.int32(1)), *rest
