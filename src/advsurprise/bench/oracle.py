"""Farama MiniGrid as the oracle of the room worlds: both play the same actions, and every step is compared.

A mirror takes the first state of our episode, and after that only our actions and our noise (colours of lights, moves
of balls). Everything else is MiniGrid's own code, except what MiniGrid does not have: switches, and locking a door with
a key, which the mirror implements itself.
"""

import concurrent.futures
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from advsurprise.errors import UserError, require

VIEWS = (5, 7)
BODIES = 16
"""Episodes recorded per batch."""


class Task(NamedTuple):
    """One world in one setting, played for some steps."""

    world: str
    fields: dict[str, Any]
    steps: int
    seed: int


def run(*, steps: int, seed: int = 0, log: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """Compares the four worlds in both views over `steps` steps in total, on all cores."""
    from advsurprise.envs import rooms

    if steps < 1:
        raise UserError(f"--steps must be at least 1, not {steps}")
    require("minigrid", extra="oracle")
    settings = [(world, view) for world in rooms.WORLDS for view in VIEWS]
    share = -(-steps // len(settings))
    tasks = [Task(world, {"view": view}, share, seed + i) for i, (world, view) in enumerate(settings)]
    start = time.perf_counter()
    workers = min(os.cpu_count() or 1, len(tasks))
    log(f"comparing {len(tasks)} worlds, {share} steps each, on {workers} cores with Farama MiniGrid …")
    rows = []
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as pool:
        for done in concurrent.futures.as_completed([pool.submit(compare, task) for task in tasks]):
            rows.append(done.result())
            log(_row_text(rows[-1]))
    rows.sort(key=lambda row: (row["world"], row["view"]))
    return {
        "steps": sum(row["steps"] for row in rows),
        "mismatches": sum(row["mismatches"] for row in rows),
        "seconds": round(time.perf_counter() - start, 1),
        "rows": rows,
    }


def text(result: dict[str, Any]) -> str:
    """The result as text."""
    lines = [_row_text(row) for row in result["rows"]]
    verdict = "identical on every step" if not result["mismatches"] else "they differ: please report this"
    lines.append(f"{result['steps']} steps, {result['mismatches']} mismatches in {result['seconds']} s: {verdict}")
    return "\n".join(lines)


def _row_text(row: dict[str, Any]) -> str:
    events = ", ".join(f"{count} {name}" for name, count in row["events"].items())
    return f"{row['world']:13} view {row['view']}: {row['steps']} steps, {row['mismatches']} mismatches ({events})"


def compare(task: Task) -> dict[str, Any]:
    """Plays one world and its mirror; counts the steps on which they differ, and the events."""
    from advsurprise.bench.mirror import Mirror
    from advsurprise.bench.record import record_episodes
    from advsurprise.envs.rooms import make

    env = make(task.world, **{**task.fields, "encoding": "symbolic"})
    events: Counter[str] = Counter()
    compared = mismatches = batch = 0
    while compared < task.steps:
        episodes = record_episodes(env, bodies=BODIES, seed=task.seed * 100_003 + batch)
        batch += 1
        for body in range(BODIES):
            mirror = Mirror(env, episodes.at(0, body), episodes.lights[body])
            mismatches += not np.array_equal(mirror.image(), episodes.obs[0, body])
            for moment in range(1, min(env.max_steps, task.steps - compared) + 1):
                seen = episodes.at(moment, body)
                mirror.stir(seen)
                mirror.act(int(episodes.action[moment - 1, body]))
                mismatches += not mirror.agrees(seen)
                compared += 1
            mismatches += not mirror.agrees_everywhere(seen)
            events.update(mirror.events)
            if compared >= task.steps:
                break
    return {
        "world": task.world,
        "view": env.view,
        "steps": compared,
        "mismatches": mismatches,
        "events": dict(sorted(events.items())),
    }
