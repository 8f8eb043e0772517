"""Speed of training in a world of another JAX library: our methods beside a plain PPO in the same world and run.

Every row is whole updates (collecting and learning) of all seeds together, as one compiled program. The first update,
which compiles, is apart; the rate is that of the median update.
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
from advsurprise.envs.foreign import load
from advsurprise.envs.foreign.rules import their_rules
from advsurprise.errors import UserError
from advsurprise.training.fused import Fused

STEPS = "1e15"
"""Steps of the runs that are timed: more than any number of bodies makes in one update."""
PLAIN = "plain PPO"
SHOWN = ("reward", "end/episode_return", "end/episode_length", "common_surprise")
"""Measures of the last update that a row keeps, mean over seeds."""


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
    """A row per method, and one of a plain PPO. `resolve` is what the train verb makes its configuration with."""
    if not load.is_foreign(env):
        raise UserError(
            f"bench foreign needs a world of another JAX library, not {env}; time this one with bench train"
        )
    if min(bodies, seeds, updates) < 1:
        raise UserError("--bodies, --seeds and --updates take whole numbers from 1")
    given = {"config": None, "env": env, "steps": STEPS, "seeds": f"0..{seeds - 1}", "bodies": bodies}
    cfgs = [resolve(method=method, settings=settings, **given) for method in methods]
    loops = [Fused(cfg) for cfg in cfgs]  # all mistakes are reported before the first is timed
    rows = []
    for loop in loops:
        log(f"{loop.cfg.method} in {env}: {bodies} bodies, {seeds} seed(s): compiling …")
        timed = _timed(loop.init, loop.update, updates)
        alone = Fused(dataclasses.replace(loop.cfg, devices=1))
        operations = flops.count(alone.trace(alone.like()).jaxpr)
        rows.append(_row(loop.cfg, loop.cfg.method, loop.devices.count, operations, *timed))
        log(_text(rows[-1]))
    log(f"{PLAIN}: compiling …")
    init, update = of_seeds(PlainPPO(load.make(env, cfgs[0].env_fields), PlainConfig(bodies, cfgs[0].rollout)), seeds)
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
    """The result for a person."""
    head = f"{'method':24}{'bodies':>8}{'seeds':>7}{'steps/s':>13}{'flop/step':>12}{'first update':>14}"
    head += f"   on {result['device']}"
    plain = result["rows"][-1]["steps_per_s"]
    ratios = [f"{row['method']} {row['steps_per_s'] / plain:.2f}" for row in result["rows"][:-1]]
    return "\n".join([head, *map(_text, result["rows"]), f"times the plain PPO's speed: {', '.join(ratios)}"])


def _text(row: dict[str, Any]) -> str:
    size = f"{row['bodies']:>8}{row['seeds']:>7}"
    speed = f"{row['steps_per_s']:>13,.0f}{row['flops_per_step']:>12,}{row['first_update_s']:>12.1f} s"
    return f"{row['method']:24}{size}{speed}"


def _timed(
    init: Callable[[], Any], update: Callable[[Any], tuple[Any, Any]], updates: int
) -> tuple[float, list[float], dict[str, float]]:
    """Seconds of the first update, compiling included, and of those that follow, and what the last one measured."""
    state, measured = jax.block_until_ready(init()), {}
    seconds = []
    for _ in range(updates + 1):
        begun = time.perf_counter()
        state, measured = jax.block_until_ready(update(state))
        seconds.append(time.perf_counter() - begun)
    kept = measured if isinstance(measured, dict) else {"reward": measured}
    last = {name: float(f"{np.mean(value):.4g}") for name, value in kept.items() if name in SHOWN}
    return seconds[0], seconds[1:], last


def _row(
    cfg: RunConfig,
    method: str,
    devices: int,
    operations: int,
    first: float,
    seconds: list[float],
    last: dict[str, float],
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
        "last": last,
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
