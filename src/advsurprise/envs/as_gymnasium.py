"""The room worlds as Gymnasium environments: one body at a time, or many with one compiled step.

>>> import gymnasium
>>> env = gymnasium.make("advsurprise/FourRooms-v0", rooms=6, view=5)
>>> envs = gymnasium.make_vec("advsurprise/FourRooms-v0", num_envs=64)
"""

import functools
from collections.abc import Mapping
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from advsurprise.envs.host.pure import as_host
from advsurprise.envs.picture import draw
from advsurprise.envs.rooms import RoomState, RoomWorld, make
from advsurprise.errors import UserError
from advsurprise.types import CONTINUE, RESTART

RENDER_MODES = ("rgb_array",)


class RoomsEnv(gymnasium.Env):
    """One body in a room world. Keyword arguments are the world's fields."""

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 8}  # noqa: RUF012

    def __init__(self, world: str = "rooms/four", render_mode: str | None = None, **fields: Any):
        self.world = make(world, **fields)
        self.metadata = type(self).metadata | _about(self.world)
        self.render_mode = _check_render_mode(render_mode)
        self.observation_space, self.action_space = _spaces(self.world)
        self._state: RoomState | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        """Begins an episode in a fresh layout. Without a seed the body's life continues, and so does `rooms_life`."""
        super().reset(seed=seed)
        forget = seed is not None or self._state is None
        self._state, obs, info = _begin(self.world, None if forget else self._state, self._key())
        return np.array(obs), _plain(info)

    def step(self, action):
        """Takes one step; after the last one of an episode, `reset` begins the next."""
        if self._state is None:
            raise gymnasium.error.ResetNeeded("reset the environment before stepping it")
        if not self.action_space.contains(action):
            raise UserError(f"an action is a whole number from 0 to {self.world.spec.num_actions - 1}, not {action!r}")
        self._state, obs, outcome, info = _advance(self.world, self._state, np.int32(action), self._key())
        ended = bool(outcome.terminated), bool(outcome.truncated)
        return np.array(obs), float(outcome.reward), *ended, _plain(info)

    def render(self):
        """With render_mode="rgb_array": the whole grid, the cells the body sees highlighted."""
        if self.render_mode is None:
            gymnasium.logger.warn('nothing to render: make the environment with render_mode="rgb_array"')
            return None
        if self._state is None:
            raise gymnasium.error.ResetNeeded("reset the environment before rendering it")
        return draw(self.world, self._state)

    def _key(self):
        return jax.random.key(int(self.np_random.integers(2**31)))


class RoomsVectorEnv(gymnasium.vector.VectorEnv):
    """Many bodies in a room world, with one compiled step for all. A finished episode is followed by the next within
    the same step: its last observation and measures are in `infos["final_obs"]` and `infos["final_info"]`."""

    metadata = {  # noqa: RUF012
        "render_modes": list(RENDER_MODES),
        "render_fps": 8,
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(self, num_envs: int = 1, world: str = "rooms/four", render_mode: str | None = None, **fields: Any):
        self.world = make(world, **fields)
        self.metadata = type(self).metadata | _about(self.world)
        self.num_envs = num_envs
        self.render_mode = _check_render_mode(render_mode)
        self.single_observation_space, self.single_action_space = _spaces(self.world)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._host = as_host(self.world, num_envs)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        """Begins an episode of every body or, continuing its life, of each body in `options["reset_mask"]`."""
        super().reset(seed=seed)
        mask = (options or {}).get("reset_mask")
        if mask is None:
            timestep = self._host.reset(int(self.np_random.integers(2**31)))
        else:
            timestep = self._host.relocate(np.where(_check_mask(mask, self.num_envs), RESTART, CONTINUE))
        return np.array(timestep.obs), _with_masks(timestep.info)

    def step(self, actions):
        """Takes one step with every body."""
        actions = np.asarray(actions)
        if actions.shape != (self.num_envs,) or not self.action_space.contains(actions.astype(np.int64)):
            raise UserError(
                f"actions must be {self.num_envs} whole numbers from 0 to {self.world.spec.num_actions - 1}"
            )
        self._host.send(actions)
        timestep = self._host.recv()
        done = timestep.terminated | timestep.truncated
        info = timestep.info
        if done.any():
            info = _with_masks(jax.tree.map(np.asarray, _measure_all(self.world, self._host.state)))
            final_obs = np.full(self.num_envs, None, dtype=object)
            for body in np.flatnonzero(done):
                final_obs[body] = np.array(timestep.final_obs[body])
            final_info = {key: np.where(done, value, np.zeros_like(value)) for key, value in timestep.info.items()}
            final_info |= {f"_{key}": done.copy() for key in timestep.info}
            info |= {"final_obs": final_obs, "_final_obs": done.copy()}
            info |= {"final_info": final_info, "_final_info": done.copy()}
        else:
            info = _with_masks(info)
        rewards = timestep.reward.astype(np.float64)
        return (
            np.array(timestep.obs),
            rewards,
            np.array(timestep.terminated),
            np.array(timestep.truncated),
            info,
        )

    def render(self):
        """A picture of every body's world."""
        if self.render_mode is None:
            gymnasium.logger.warn('nothing to render: make the environment with render_mode="rgb_array"')
            return None
        states = self._host.state
        return tuple(
            draw(self.world, jax.tree.map(lambda leaf, body=body: leaf[body], states)) for body in range(self.num_envs)
        )

    def close_extras(self, **kwargs: Any) -> None:
        """Closes the host."""
        self._host.close()


def _check_render_mode(mode: str | None) -> str | None:
    if mode is not None and mode not in RENDER_MODES:
        raise UserError(f"render_mode must be None or one of {', '.join(RENDER_MODES)}, not {mode!r}")
    return mode


def _check_mask(mask: Any, bodies: int) -> np.ndarray:
    if not isinstance(mask, np.ndarray) or mask.dtype != bool or mask.shape != (bodies,):
        raise UserError(f"options['reset_mask'] must be a numpy array of {bodies} booleans, not {mask!r}")
    return mask


def _about(world: RoomWorld) -> dict[str, Any]:
    """What a learner must know beyond the spaces, in the keys that our Gymnasium host reads."""
    return {"noop": world.spec.noop, "first_role": world.spec.first_role}


def _spaces(world: RoomWorld) -> tuple[gymnasium.spaces.Box, gymnasium.spaces.Discrete]:
    spec = world.spec
    box = gymnasium.spaces.Box(0, spec.num_classes - 1, spec.observation_shape, np.uint8)
    return box, gymnasium.spaces.Discrete(spec.num_actions)


def _plain(info: dict[str, Any]) -> dict[str, Any]:
    """Python numbers, which Gymnasium's wrappers can stack."""
    return {key: np.asarray(value).item() for key, value in info.items()}


def _with_masks(info: Mapping[str, Any]) -> dict[str, Any]:
    """Gymnasium's vector convention: beside each key, which bodies have it (here all)."""
    played_by = {f"_{key}": np.ones(value.shape[0], bool) for key, value in info.items()}
    return {key: np.array(value) for key, value in info.items()} | played_by


@functools.partial(jax.jit, static_argnums=0)
def _begin(world: RoomWorld, before: RoomState | None, key):
    state = world.initial(key=key) if before is None else world.renew(before, key=key)
    return state, world.observe(state), world.measure(state)


@functools.partial(jax.jit, static_argnums=0)
def _advance(world: RoomWorld, state: RoomState, action, key):
    state, outcome = world.transition(state, action, key=key)
    return state, world.observe(state), outcome, world.measure(state)


@functools.partial(jax.jit, static_argnums=0)
def _measure_all(world: RoomWorld, states: RoomState):
    return jax.vmap(world.measure)(states)
