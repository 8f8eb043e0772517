"""Farama MiniGrid's DoorKey world for `advsurprise train --env examples/door_key.py:DoorKey --method task`.

The image alone is shown, and its numbers are declared as what they are: classes.
"""

import gymnasium
import minigrid  # noqa: F401 (registers the worlds)
import numpy as np
from gymnasium import spaces


class DoorKey(gymnasium.ObservationWrapper):
    """Pick up the key, unlock the door, reach the goal: 5x5 cells, reward 1 − 0.9 · steps / 250 at the goal."""

    def __init__(self):
        super().__init__(gymnasium.make("MiniGrid-DoorKey-5x5-v0"))
        self.observation_space = spaces.Box(0, 10, (7, 7, 3), np.uint8)

    def observation(self, observation):
        return observation["image"]
