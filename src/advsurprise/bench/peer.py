"""Times Stable-Baselines3's PPO in the same game, for comparison; only this benchmark needs the package."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

UPDATES = 3
"""Timed updates, after one for warm-up."""

SCRIPT = """
import json, sys, time
import stable_baselines3
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import SubprocVecEnv, VecFrameStack

env_id, bodies, rollout, updates = sys.argv[1], *map(int, sys.argv[2:5])


class Clock(BaseCallback):
    times = []
    def _on_step(self): return True
    def _on_rollout_start(self): self.times.append(time.perf_counter())


if __name__ == "__main__":
    envs = VecFrameStack(make_atari_env(env_id, bodies, seed=0, vec_env_cls=SubprocVecEnv), 4)
    clock = Clock()
    model = PPO("CnnPolicy", envs, n_steps=rollout, batch_size=256, n_epochs=4)
    model.learn(bodies * rollout * (updates + 1), callback=clock)
    times = [*clock.times[1:], time.perf_counter()]
    envs.close()
    rate = bodies * rollout * updates / (times[-1] - times[0])
    print(json.dumps({"steps_per_s": round(rate, 1), "version": stable_baselines3.__version__}))
"""


def measure(env: str, *, bodies: int, rollout: int, log: Callable[[str], None]) -> dict[str, Any] | None:
    """Steps per second of Stable-Baselines3's PPO on an Atari game; None, with a log line, if it cannot be timed."""
    if not env.startswith("atari/"):
        log("Stable-Baselines3 is timed in Atari games only")
        return None
    if importlib.util.find_spec("stable_baselines3") is None:
        log("Stable-Baselines3 is not installed, so it is not timed: pip install stable-baselines3")
        return None
    game = "".join(word.title() for word in env.removeprefix("atari/").split("-"))
    log(f"Stable-Baselines3's PPO in {game}NoFrameskip-v4, {bodies} bodies …")
    words = [sys.executable, "-c", SCRIPT, f"ale_py:{game}NoFrameskip-v4", str(bodies), str(rollout), str(UPDATES)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        log(f"Stable-Baselines3 failed: {(done.stderr.strip().splitlines() or ['no error message'])[-1]}")
        return None
    return {"library": "stable-baselines3", "env": env, "bodies": bodies} | json.loads(done.stdout.splitlines()[-1])


def text(result: dict[str, Any], ours: float) -> str:
    """The result in one line, with the ratio."""
    theirs = result["steps_per_s"]
    return (
        f"Stable-Baselines3 {result['version']} trains PPO with {result['bodies']} bodies at {theirs:,.0f} steps/s: "
        f"{ours / theirs:.2f} times as fast here"
    )
