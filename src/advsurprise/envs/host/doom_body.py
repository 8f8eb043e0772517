"""One body in a scenario of Doom, by ViZDoom. Imports no jax: it is stepped in worker processes."""

import dataclasses
import json
import zlib
from typing import Any, ClassVar

import numpy as np
from jaxtyping import UInt8

from advsurprise.envs.host.body import Body, Stepped
from advsurprise.envs.host.doom import MAX_TICS, DoomSettings, config_file, presses
from advsurprise.envs.host.doom_engine import SCREEN, configure, start
from advsurprise.envs.host.doom_screen import AreaMean
from advsurprise.errors import require

GAME_OVER = "game/over"
"""As in `advsurprise.types`, which imports jax."""


def make_body(scenario: str, **settings: Any) -> "DoomBody":
    """Makes a body in a scenario, with some settings changed."""
    return DoomBody(scenario, DoomSettings(**settings))


class DoomBody(Body):
    """A game in a process that ViZDoom starts; an episode is defined by its seed and the actions since.

    ViZDoom returns no frame once an episode has ended by itself: the previous frame is used.
    """

    rewinds: ClassVar[bool] = True
    resumes: ClassVar[bool] = True

    def __init__(self, scenario: str, settings: DoomSettings):
        self._name = {"scenario": scenario, "settings": dataclasses.asdict(settings)}
        self._game = configure(config_file(scenario), skill=settings.skill)
        self._presses = presses(self._game.get_available_buttons_size(), no_action=settings.no_action)
        self._skip = settings.frame_skip
        self._max_tics = settings.max_tics or self._game.get_episode_timeout() or MAX_TICS
        # The time limit is applied here: ViZDoom returns no frame after its own.
        self._game.set_episode_timeout(0)
        self._shrink = AreaMean(*SCREEN, to=(settings.side, settings.side))
        variables = require("vizdoom", extra="doom").GameVariable
        self._measured = {
            "position_x": variables.POSITION_X,
            "position_y": variables.POSITION_Y,
            "health": variables.HEALTH,
        }
        self._generator = np.random.default_rng()
        self._seed = 0
        self._actions: list[int] = []
        self._tics = 0
        self._over = False
        self._frame = np.zeros((settings.side, settings.side), np.uint8)
        start(self._game)

    @property
    def instance_id(self) -> str:
        """ViZDoom's name for the running game."""
        return self._game.get_instance_id()

    def reset(self, seed: int) -> UInt8[np.ndarray, "side side"]:
        """Starts the first episode; returns its first observation. Equal seeds give equal episodes."""
        self._generator = np.random.default_rng(seed)
        return self.begin()

    def begin(self) -> UInt8[np.ndarray, "side side"]:
        """Starts the next episode; returns its first observation."""
        self._seed = int(self._generator.integers(2**32))
        return self.rewind()

    def rewind(self) -> UInt8[np.ndarray, "side side"]:
        """Restarts the current episode; the same actions lead to the same future."""
        self._game.set_seed(self._seed)
        self._game.new_episode()
        self._actions = []
        self._tics = 0
        self._over = False
        return self._look()

    def step(self, action: int) -> Stepped:
        """Holds the action's button for the tics of a step, or those left in the episode."""
        tics = min(self._skip, self._max_tics - self._tics)
        reward = self._game.make_action(self._presses[action], tics)
        self._actions.append(action)
        self._tics += tics
        terminated = self._game.is_episode_finished()
        truncated = not terminated and self._tics >= self._max_tics
        self._over = terminated or truncated
        obs = self._frame if terminated else self._look()
        return Stepped(obs, float(reward), terminated, truncated, self.info())

    def info(self) -> dict[str, float]:
        """Position and health of the body, and the score so far."""
        measured = {name: self._game.get_game_variable(variable) for name, variable in self._measured.items()}
        return measured | {
            "episode_length": float(len(self._actions)),
            "game/score": self._game.get_total_reward(),
            GAME_OVER: float(self._over),
        }

    def save(self) -> bytes:
        """The episode's seed and actions, and the generator of later seeds: JSON after its checksum."""
        state = self._name | {
            "seed": self._seed,
            "actions": self._actions,
            "generator": self._generator.bit_generator.state,
        }
        text = json.dumps(state).encode()
        return zlib.crc32(text).to_bytes(4, "big") + text

    def load(self, state: bytes) -> None:
        """Replays the saved episode: ViZDoom's own saved games are not exact."""
        saved = _read(state)
        if {name: saved[name] for name in self._name} != self._name:
            raise ValueError(f"saved in {saved['scenario']} with {saved['settings']}, not in {self._name}")
        self._generator.bit_generator.state = saved["generator"]
        self._seed = saved["seed"]
        self.rewind()
        for action in saved["actions"]:
            self.step(action)

    def close(self) -> None:
        """Ends the game."""
        self._game.close()

    def _look(self) -> UInt8[np.ndarray, "side side"]:
        state = self._game.get_state()
        if state is None:
            raise RuntimeError("ViZDoom returned no state of a running episode")
        self._frame = self._shrink(state.screen_buffer)
        return self._frame


def _read(state: bytes) -> dict[str, Any]:
    checksum, text = state[:4], state[4:]
    if len(state) < 4 or zlib.crc32(text).to_bytes(4, "big") != checksum:
        raise ValueError("the saved state of a Doom body is damaged")
    return json.loads(text)
