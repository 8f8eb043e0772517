"""One body of a Gymnasium environment. Imports no jax."""

import json
import os
import time
from typing import Any

import gymnasium
import numpy as np

from advsurprise.envs.host.body import Body, Maker, Stepped
from advsurprise.envs.host.load import make_body, sentence
from advsurprise.envs.host.spaces import read_actions, read_observations
from advsurprise.errors import UserError

MAKE = f"{__name__}:make"
"""The function of this module that makes a body."""
TRIED_STEPS = 64
"""Random steps used to measure the time of a step."""


class GymnasiumBody(Body):
    """A Gymnasium environment: it cannot be saved or rewound, so every restart is a new episode."""

    def __init__(self, env: gymnasium.Env, name: str):
        self._env, self._name = env, name
        self._reading = read_observations(env.observation_space, name)
        self._first_action = int(read_actions(env.action_space, name).start)
        self._return, self._length = 0.0, 0

    def reset(self, seed: int) -> np.ndarray:
        return self._begin(seed)

    def begin(self) -> np.ndarray:
        return self._begin(None)

    def step(self, action: int) -> Stepped:
        obs, reward, terminated, truncated, _ = self._env.step(action + self._first_action)
        self._return += float(reward)
        self._length += 1
        return Stepped(self._shown(obs), float(reward), bool(terminated), bool(truncated), self.info())

    def info(self) -> dict[str, float]:
        return {"episode_return": self._return, "episode_length": self._length}

    def close(self) -> None:
        self._env.close()

    def _begin(self, seed: int | None) -> np.ndarray:
        obs, _ = self._env.reset(seed=seed)
        self._return, self._length = 0.0, 0
        return self._shown(obs)

    def _shown(self, obs: Any) -> np.ndarray:
        try:
            return self._reading.encode(np.asarray(obs)[None])[0]
        except ValueError as error:
            raise UserError(f"{self._name}: {error} (see observation_space)") from error


def make(name: str, kwargs: dict[str, Any]) -> GymnasiumBody:
    """Makes a body in a worker."""
    return GymnasiumBody(make_body(name, kwargs), name)


def maker(name: str, kwargs: dict[str, Any]) -> Maker | None:
    """How a worker makes a body; None if the keywords are not JSON-serializable."""
    try:
        same = json.loads(json.dumps(kwargs)) == kwargs
    except (TypeError, ValueError):
        return None
    # Workers run in this working directory, since file names may be relative to it.
    return Maker(MAKE, {"name": name, "kwargs": kwargs}, os.getcwd()) if same else None


def step_seconds(env: gymnasium.Env, name: str) -> float:
    """Seconds per step of the environment; refuses one in which a random step fails."""
    try:
        return _fastest_step(env)
    except Exception as error:
        raise UserError(f"{name}: a random step failed: {sentence(error)}; try advsurprise check-env") from error


def _fastest_step(env: gymnasium.Env) -> float:
    """Seconds of the fastest of a few random steps: the first may do more."""
    env.reset(seed=0)
    env.action_space.seed(0)
    fastest = float("inf")
    for _ in range(TRIED_STEPS):
        action = env.action_space.sample()
        start = time.perf_counter()
        _, _, terminated, truncated, _ = env.step(action)
        fastest = min(fastest, time.perf_counter() - start)
        if terminated or truncated:
            env.reset()
    return fastest
