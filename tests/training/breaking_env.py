"""A Gymnasium environment whose process ends as soon as a file exists."""

import os

import gymnasium
import numpy as np


class Breaks(gymnasium.Env):
    """Sees its clock; episodes do not end."""

    observation_space = gymnasium.spaces.Box(0.0, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, marker: str):
        self.marker = marker

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        return self._see(), {}

    def step(self, action):
        self.clock += 1
        return self._see(), 1.0, False, False, {}

    def _see(self):
        if os.path.exists(self.marker):
            os._exit(7)
        return np.array([self.clock], np.float32)
