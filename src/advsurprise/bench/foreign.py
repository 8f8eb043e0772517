"""Training speed in a world of another JAX library: our methods and a plain PPO, in the same world and run.

Every row times whole updates (collecting and learning) of all seeds in one compiled program. The first update, which
compiles, is timed separately; the rate is that of the median update.
"""

import dataclasses
import importlib.metadata
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from advsurprise.bench import flops
from advsurprise.bench.plain_ppo import PlainConfig, PlainPPO, of_seeds
from advsurprise.config import RunConfig
from advsurprise.envs import find
from advsurprise.envs.foreign import load
from advsurprise.envs.foreign.rules import their_rules
from advsurprise.errors import UserError
from advsurprise.training.fused import Fused

STEPS = "1e15"
"""Total steps of the timed runs: more than any number of bodies takes in one update."""
PLAIN = "plain PPO"
SHOWN = (
    "reward",
    "end/episode_return",
    "end/episode_length",
    "scored_surprise",
    "common_surprise",
    "explore/step_surprise",
    "control/step_surprise",
)
"""Measures whose learning curves are kept in a row, for every seed."""
RETURN = "end/episode_return"
TENTH = 10
"""Divisor of the number of updates: means over the first and the last tenth are shown."""


def run(
    env: str,
    *,
    methods: Sequence[str],
    bodies: int,
    seeds: int,
    updates: int,
    settings: Sequence[str],
    resolve: Callable[..., RunConfig],
    log: Callable[[str], None],
) -> dict[str, Any]:
    """One row per method, and one for a plain PPO. `resolve` is how the train verb builds its configuration."""
    world = find(env)
    if not (world.foreign and world.kind == "pure"):
        raise UserError(
            f"bench foreign needs a world of another JAX library, not {env}; time this one with bench train"
        )
    if min(bodies, seeds, updates) < 1:
        raise UserError("--bodies, --seeds and --updates take whole numbers from 1")
    given = {"config": None, "env": env, "steps": STEPS, "seeds": f"0..{seeds - 1}", "bodies": bodies}
    cfgs = [resolve(method=method, settings=settings, **given) for method in methods]
    loops = [Fused(cfg) for cfg in cfgs]  # errors are reported before the first is timed
    rows = []
    for loop in loops:
        log(f"{loop.cfg.method} in {env}: {bodies} bodies, {seeds} seed(s): compiling …")
        timed = _timed(loop.init, loop.update, updates)
        single = Fused(dataclasses.replace(loop.cfg, devices=1))
        operations = flops.count(single.trace(single.like()).jaxpr)
        rows.append(_row(loop.cfg, loop.cfg.method, loop.devices.count, operations, *timed))
        log(_text(rows[-1]))
    log(f"{PLAIN}: compiling …")
    plain = PlainConfig(bodies, cfgs[0].rollout, epochs=cfgs[0].ppo.epochs, lr=cfgs[0].ppo.lr)
    init, update = of_seeds(PlainPPO(load.make(env, cfgs[0].env_fields), plain), seeds)
    with their_rules():
        operations = flops.count(jax.make_jaxpr(update)(jax.eval_shape(init)))
        rows.append(_row(cfgs[0], PLAIN, 1, operations, *_timed(init, update, updates)))
    return {
        "device": jax.devices()[0].device_kind,
        "cores": os.cpu_count(),
        "versions": {name: _version(name) for name in ("jax", env.partition(":")[0].partition(".")[0])},
        "rows": rows,
    }


def text(result: dict[str, Any]) -> str:
    """The result as text."""
    head = f"{'method':24}{'bodies':>8}{'seeds':>7}{'steps/s':>13}{'flop/step':>12}{'first update':>14}"
    head += f"{'episode return':>20}   on {result['device']}"
    plain = result["rows"][-1]["steps_per_s"]
    ratios = [f"{row['method']} {row['steps_per_s'] / plain:.2f}" for row in result["rows"][:-1]]
    return "\n".join([head, *map(_text, result["rows"]), f"times the plain PPO's speed: {', '.join(ratios)}"])


def _text(row: dict[str, Any]) -> str:
    size = f"{row['bodies']:>8}{row['seeds']:>7}"
    speed = f"{row['steps_per_s']:>13,.0f}{row['flops_per_step']:>12,}{row['first_update_s']:>12.1f} s"
    return f"{row['method']:24}{size}{speed}{_ends(row['curves'].get(RETURN, []))}"


def _ends(curve: list[list[float]]) -> str:
    """Episode return in the first and in the last tenth of the updates, mean over seeds."""
    if not curve:
        return ""
    part = max(1, len(curve) // TENTH)
    return f"{np.mean(curve[:part]):>10.3g} →{np.mean(curve[-part:]):>8.3g}"


Curves = dict[str, list[list[float]]]
"""Values of each measure, per update and seed."""


def _timed(
    init: Callable[[], Any], update: Callable[[Any], tuple[Any, dict[str, Any]]], updates: int
) -> tuple[float, list[float], Curves]:
    """Seconds of the first update, including compilation, and of the following ones, and the curves of all."""
    state = jax.block_until_ready(init())
    seconds, measured = [], []
    for _ in range(updates + 1):
        start = time.perf_counter()
        state, measures = jax.block_until_ready(update(state))
        seconds.append(time.perf_counter() - start)
        measured.append({name: np.atleast_1d(value) for name, value in measures.items() if name in SHOWN})
    curves = {name: [[float(f"{seed:.4g}") for seed in each[name]] for each in measured] for name in measured[0]}
    return seconds[0], seconds[1:], curves


def _row(
    cfg: RunConfig, method: str, devices: int, operations: int, first: float, seconds: list[float], curves: Curves
) -> dict[str, Any]:
    steps = cfg.steps_per_update * len(cfg.seeds)
    return {
        "env": cfg.env,
        "method": method,
        "bodies": cfg.bodies,
        "seeds": len(cfg.seeds),
        "rollout": cfg.rollout,
        "devices": devices,
        "steps_per_s": round(steps / float(np.median(seconds)), 1),
        "flops_per_step": round(operations / steps),
        "first_update_s": round(first, 2),
        "update_s": [round(each, 4) for each in seconds],
        "curves": curves,
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
