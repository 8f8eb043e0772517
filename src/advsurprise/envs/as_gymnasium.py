"""The room worlds as Gymnasium environments: one body at a time, or many with one compiled step.

>>> import gymnasium
>>> env = gymnasium.make("advsurprise/FourRooms-v0", rooms=6, view=5)
>>> envs = gymnasium.make_vec("advsurprise/FourRooms-v0", num_envs=64)
"""

from collections.abc import Mapping
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from advsurprise.envs.host.base import check_actions
from advsurprise.envs.packed import Shown, many_bodies, one_body
from advsurprise.envs.picture import draw
from advsurprise.envs.rooms import RoomState, RoomWorld, make
from advsurprise.errors import UserError

RENDER_MODES = ("rgb_array",)


class RoomsEnv(gymnasium.Env):
    """One body in a room world. Keyword arguments are the world's fields."""

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 8}  # noqa: RUF012

    def __init__(self, world: str = "rooms/four", render_mode: str | None = None, **fields: Any):
        self.world = make(world, **fields)
        self.metadata = type(self).metadata | _about(self.world)
        self.render_mode = _check_render_mode(render_mode)
        self.observation_space, self.action_space = _spaces(self.world)
        self._programs = one_body(self.world)
        self._packed: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        """Starts an episode in a new layout. Without a seed the body's life, and with it `rooms_life`, continues."""
        super().reset(seed=seed)
        forget = seed is not None or self._packed is None
        before = self._programs.unborn if forget else self._packed
        self._packed = self._programs.begin(before, np.int32(self._seed()))
        obs, _, _, _, info = self._programs.read(self._packed)
        return obs, info

    def step(self, action):
        """Takes one step; after the last one of an episode, `reset` starts the next."""
        if self._packed is None:
            raise gymnasium.error.ResetNeeded("reset the environment before stepping it")
        if not self.action_space.contains(action):
            limit = self.world.spec.num_actions - 1
            raise UserError(f"action must be a whole number from 0 to {limit}, not {action!r}")
        self._packed = self._programs.step(self._packed, np.array((action, self._seed()), np.int32))
        return self._programs.read(self._packed)

    def render(self):
        """With render_mode="rgb_array": the whole grid, with the cells the body sees highlighted."""
        if self.render_mode is None:
            gymnasium.logger.warn('nothing to render: make the environment with render_mode="rgb_array"')
            return None
        if self._packed is None:
            raise gymnasium.error.ResetNeeded("reset the environment before rendering it")
        return draw(self.world, self._state)

    @property
    def _state(self) -> RoomState:
        return self._programs.state(np.asarray(self._packed))

    def _seed(self) -> int:
        return int(self.np_random.integers(2**31))


class RoomsVectorEnv(gymnasium.vector.VectorEnv):
    """Many bodies in a room world, with one compiled step for all. The next episode starts within the step that ends
    one, whose last observation and measures are in `infos["final_obs"]` and `infos["final_info"]`."""

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
        self._programs = many_bodies(self.world, num_envs)
        self._world_spec = self.world.spec
        self._mask_names = [f"_{measure.name}" for measure in self._world_spec.measures]
        self._packed: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        """Starts an episode of every body, or only of those in `options["reset_mask"]`, whose lives continue."""
        super().reset(seed=seed)
        mask = (options or {}).get("reset_mask")
        if mask is None:
            self._packed = self._programs.begin(np.int32(self.np_random.integers(2**31)))
        else:
            self._packed = self._programs.restart(self._current(), _check_mask(mask, self.num_envs))
        shown = self._programs.read(self._packed)
        return shown.obs.copy(), self._with_masks(shown.info)

    def step(self, actions):
        """Takes one step with every body."""
        before = self._current()
        checked = check_actions(self._world_spec, actions, self.num_envs)
        self._packed = self._programs.step(before, checked.astype(np.int32))
        shown = now = self._programs.read(self._packed)
        ended = shown.terminated | shown.truncated
        final = {}
        if ended.any():
            self._packed = self._programs.renew(self._packed, ended)
            final, now = _final(shown, ended), self._programs.read(self._packed)
        # Observations are copied, because callers often keep them.
        rewards, info = shown.reward.astype(np.float64), self._with_masks(now.info) | final
        return now.obs.copy(), rewards, shown.terminated, shown.truncated, info

    def render(self):
        """A picture of every body's world."""
        if self.render_mode is None:
            gymnasium.logger.warn('nothing to render: make the environment with render_mode="rgb_array"')
            return None
        states = self._programs.state(np.asarray(self._current()))
        return tuple(
            draw(self.world, jax.tree.map(lambda leaf, body=body: leaf[body], states)) for body in range(self.num_envs)
        )

    def close_extras(self, **kwargs: Any) -> None:
        """Drops the states."""
        self._packed = None

    def _with_masks(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Adds a mask per key of the bodies that have it (here all), as Gymnasium's vector environments do."""
        masks = np.ones((len(info), self.num_envs), bool)
        return {**info, **dict(zip(self._mask_names, masks, strict=True))}

    def _current(self) -> Any:
        if self._packed is None:
            raise gymnasium.error.ResetNeeded("reset the environments first")
        return self._packed


def _check_render_mode(mode: str | None) -> str | None:
    if mode is not None and mode not in RENDER_MODES:
        raise UserError(f"render_mode must be None or one of {', '.join(RENDER_MODES)}, not {mode!r}")
    return mode


def _check_mask(mask: Any, bodies: int) -> np.ndarray:
    if not isinstance(mask, np.ndarray) or mask.dtype != bool or mask.shape != (bodies,):
        raise UserError(f"options['reset_mask'] must be a numpy array of {bodies} booleans, not {mask!r}")
    return mask


def _about(world: RoomWorld) -> dict[str, Any]:
    """What a learner needs besides the spaces, under the keys that our Gymnasium host reads."""
    return {"noop": world.spec.noop, "first_role": world.spec.first_role}


def _spaces(world: RoomWorld) -> tuple[gymnasium.spaces.Box, gymnasium.spaces.Discrete]:
    spec = world.spec
    box = gymnasium.spaces.Box(0, spec.num_classes - 1, spec.observation_shape, np.uint8)
    return box, gymnasium.spaces.Discrete(spec.num_actions)


def _final(shown: Shown, ended: np.ndarray) -> dict[str, Any]:
    """Last observations and measures of the bodies whose episodes ended."""
    final_obs = np.full(len(ended), None, dtype=object)
    for body in np.flatnonzero(ended):
        final_obs[body] = shown.obs[body].copy()
    final_info = {key: np.where(ended, value, np.zeros_like(value)) for key, value in shown.info.items()}
    final_info |= {f"_{key}": ended.copy() for key in shown.info}
    finals = {"final_obs": final_obs, "final_info": final_info}
    return finals | {f"_{key}": ended.copy() for key in finals}
