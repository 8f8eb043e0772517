"""Steps per second through Gymnasium: our room worlds and Farama MiniGrid, in the same loop."""

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
"""Rounds in which the contenders take turns; the best one counts, so that other load affects all alike."""
STEPS = 128
"""Steps of every body per call, as long as an episode of `rooms/four`, so that each call includes a reset."""
NUM_ACTIONS = 7
"""Actions of MiniGrid and of the room worlds."""


class Contender(NamedTuple):
    """Something that steps bodies."""

    name: str
    """Its display name."""
    bodies: int
    """Number of bodies that step together."""
    first_s: float
    """Seconds until the end of the first step, including compilation."""
    play: Callable[[], int]
    """Plays for a short time, and returns the number of steps over all bodies."""


def minigrid() -> Contender:
    """Farama MiniGrid, one body, without Gymnasium's wrappers."""
    require("minigrid", extra="oracle")
    return _one(MINIGRID, lambda: gymnasium.make(MINIGRID_ID).unwrapped)


def one_body(world: str, fields: dict[str, Any]) -> Contender:
    """One body of a room world."""
    return _one("Gymnasium, one body", lambda: RoomsEnv(world, **fields))


def vector(world: str, fields: dict[str, Any], bodies: int) -> Contender:
    """Many bodies of a room world."""
    start = time.perf_counter()
    envs = RoomsVectorEnv(bodies, world, **fields)
    actions = itertools.cycle(np.random.default_rng(0).integers(0, NUM_ACTIONS, (1000, bodies)))
    envs.reset(seed=0)
    envs.step(next(actions))
    first_s = time.perf_counter() - start
    _step_vector(envs, actions)  # until an episode ends, so that the reset is compiled too
    return Contender("Gymnasium, vector", bodies, first_s, lambda: _step_vector(envs, actions))


def compare(contenders: list[Contender], seconds: float) -> list[dict[str, Any]]:
    """Times the contenders in turn, about `seconds` each in total, and returns one row for each, with its best round.
    Steps per second of CPU time are more reliable if the machine is shared."""
    speeds: list[list[tuple[float, float]]] = [[] for _ in contenders]
    for _ in range(ROUNDS):
        for contender, rates in zip(contenders, speeds, strict=True):
            rates.append(_speed(contender.play, seconds / ROUNDS))
    return [_row(contender, rates) for contender, rates in zip(contenders, speeds, strict=True)]


def _row(contender: Contender, speeds: list[tuple[float, float]]) -> dict[str, Any]:
    rounds, cpu_rounds = ([round(speed, 1) for speed in kind] for kind in zip(*speeds, strict=True))
    return {
        "name": contender.name,
        "bodies": contender.bodies,
        "steps_per_s": max(rounds),
        "rounds": rounds,
        "steps_per_cpu_s": max(cpu_rounds),
        "cpu_rounds": cpu_rounds,
        "first_s": round(contender.first_s, 2),
    }


def _one(name: str, make: Callable[[], gymnasium.Env]) -> Contender:
    start = time.perf_counter()
    env = make()
    actions = itertools.cycle(np.random.default_rng(0).integers(0, NUM_ACTIONS, 10_000))
    env.reset(seed=0)
    env.step(next(actions))
    return Contender(name, 1, time.perf_counter() - start, lambda: _step_one(env, actions))


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


def _speed(play: Callable[[], int], seconds: float) -> tuple[float, float]:
    """Steps per second, and per second of CPU time over all threads."""
    steps, start, cpu_start = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - start < seconds:
        steps += play()
    return steps / (time.perf_counter() - start), steps / (time.process_time() - cpu_start)
