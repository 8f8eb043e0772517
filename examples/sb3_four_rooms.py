"""PPO of Stable-Baselines3 in `advsurprise/FourRooms-v0`, rewarded for every room it enters for the first time.

pip install stable-baselines3, then: python examples/sb3_four_rooms.py [STEPS]
"""

import sys

import gymnasium
import numpy as np
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

import advsurprise  # noqa: F401 (registers the worlds)


class OneHot(gymnasium.ObservationWrapper):
    """Cells are classes, not quantities: one input per cell and class."""

    def __init__(self, env):
        super().__init__(env)
        self._codes = np.eye(int(env.observation_space.high.max()) + 1, dtype=np.float32)
        size = env.observation_space.shape[0] * env.observation_space.shape[1] * len(self._codes)
        self.observation_space = spaces.Box(0, 1, (size,), np.float32)

    def observation(self, observation):
        return self._codes[observation].ravel()


def make() -> gymnasium.Env:
    """One body; fields of the world are keyword arguments."""
    return OneHot(gymnasium.make("advsurprise/FourRooms-v0", reward="rooms", doors="open", max_side=5))


def main(steps: int) -> None:
    """Trains, and prints mean returns before and after: rooms entered beyond the first."""
    envs = make_vec_env(make, n_envs=8, seed=0)
    model = PPO("MlpPolicy", envs, n_steps=256, batch_size=256, ent_coef=0.01, seed=0, device="cpu", verbose=1)
    for when, more in (("before", 0), ("after", steps)):
        if more:
            model.learn(more)
        mean, deviation = evaluate_policy(model, envs, n_eval_episodes=20, deterministic=False)
        print(f"{when} training: {mean:.2f} further rooms in an episode (standard deviation {deviation:.2f})")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
