"""Steps per second through Gymnasium: our room worlds, and Farama MiniGrid in the same loop."""

import itertools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from advsurprise.envs.as_gymnasium import RoomsEnv, RoomsVectorEnv
from advsurprise.errors import require

MINIGRID = "Farama MiniGrid"
MINIGRID_ID = "MiniGrid-MultiRoom-N4-S5-v1"
ROUNDS = 20
"""Times that every contender has its turn; its best one counts, so that what else the machine does hits all alike."""
STEPS = 128
"""Steps of every body in one stretch, as long as an episode of `rooms/four`: each holds at least one reset."""
NUM_ACTIONS = 7
"""Actions of MiniGrid and of the room worlds."""


class Contender(NamedTuple):
    """Something that steps bodies."""

    name: str
    """What a person calls it."""
    bodies: int
    """Bodies that step together."""
    first_s: float
    """Seconds until the first step was taken, compiling included."""
    play: Callable[[], int]
    """Plays a short stretch; the number of steps that bodies took."""


def minigrid() -> Contender:
    """Farama MiniGrid, one body, as it is without Gymnasium's wrappers."""
    require("minigrid", extra="oracle")
    return _one(MINIGRID, lambda: gymnasium.make(MINIGRID_ID).unwrapped)


def one_body(world: str, fields: dict[str, Any]) -> Contender:
    """One body of a room world."""
    return _one("Gymnasium, one body", lambda: RoomsEnv(world, **fields))


def vector(world: str, fields: dict[str, Any], bodies: int) -> Contender:
    """Many bodies of a room world."""
    begun = time.perf_counter()
    envs = RoomsVectorEnv(bodies, world, **fields)
    actions = itertools.cycle(np.random.default_rng(0).integers(0, NUM_ACTIONS, (1000, bodies)))
    envs.reset(seed=0)
    envs.step(next(actions))
    return Contender("Gymnasium, vector", bodies, time.perf_counter() - begun, lambda: _step_vector(envs, actions))


def compare(contenders: list[Contender], seconds: float) -> list[dict[str, Any]]:
    """A row for each: the best of several rounds in which they take turns, together about `seconds` each."""
    speeds: list[list[float]] = [[] for _ in contenders]
    for _ in range(ROUNDS):
        for contender, found in zip(contenders, speeds, strict=True):
            found.append(_speed(contender.play, seconds / ROUNDS))
    rows = zip(contenders, speeds, strict=True)
    return [
        {
            "name": contender.name,
            "bodies": contender.bodies,
            "steps_per_s": round(max(found), 1),
            "rounds": [round(speed, 1) for speed in found],
            "first_s": round(contender.first_s, 2),
        }
        for contender, found in rows
    ]


def _one(name: str, make: Callable[[], gymnasium.Env]) -> Contender:
    begun = time.perf_counter()
    env = make()
    actions = itertools.cycle(np.random.default_rng(0).integers(0, NUM_ACTIONS, 10_000))
    env.reset(seed=0)
    env.step(next(actions))
    return Contender(name, 1, time.perf_counter() - begun, lambda: _step_one(env, actions))


def _step_one(env: gymnasium.Env, actions: Any) -> int:
    for action in itertools.islice(actions, STEPS):
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()
    return STEPS


def _step_vector(envs: RoomsVectorEnv, actions: Any) -> int:
    for action in itertools.islice(actions, STEPS):
        envs.step(action)
    return STEPS * envs.num_envs


def _speed(play: Callable[[], int], seconds: float) -> float:
    steps, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        steps += play()
    return steps / (time.perf_counter() - begun)
