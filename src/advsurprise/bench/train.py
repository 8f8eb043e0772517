"""End-to-end training speed: whole updates (collecting and learning) of one compiled program.

Each row is one size: a method, a number of bodies and a number of seeds. Compilation is timed separately, the first
update is a warm-up, and medians are over the following updates. Collecting is also timed as a separate program, on the
same state. Rates are compared with a matrix product on the same machine, in the same run and precision.
"""

import dataclasses
import functools
import itertools
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from advsurprise.bench import flops
from advsurprise.config import RunConfig
from advsurprise.envs import find
from advsurprise.errors import UserError
from advsurprise.training.fused import Fused

AUTHORS_STEPS_PER_S = 268
"""Speed of the published code of Adversarial Surprise on two cores, 16 bodies."""
STEPS = "1e15"
"""Total steps of the timed runs: more than any number of bodies takes in one update."""
MATMUL_SIZES = {"cpu": (1024, 2048), "other": (4096, 8192)}
"""Sizes of the square matrices whose product is timed; the fastest counts."""
MATMUL_CALLS = 5
FAILURES = (jax.errors.JaxRuntimeError, MemoryError)
"""Errors raised by a size that does not fit."""


def run(
    env: str,
    *,
    methods: Sequence[str],
    bodies: Sequence[int],
    seeds: Sequence[int],
    updates: int,
    settings: Sequence[str],
    resolve: Callable[..., RunConfig],
    log: Callable[[str], None],
) -> dict[str, Any]:
    """One row per method, number of bodies and number of seeds. `resolve` is how the train verb builds its
    configuration."""
    for name, numbers in {"--bodies": bodies, "--seeds": seeds, "--updates": (updates,)}.items():
        if not numbers or min(numbers) < 1:
            raise UserError(f"{name} takes whole numbers from 1")
    if find(env).kind == "host":
        raise UserError(f"bench train needs a pure world, not {env}")
    given = {"config": None, "env": env, "steps": STEPS, "settings": settings}
    cfgs = [
        resolve(method=method, bodies=number, seeds=f"0..{count - 1}", **given)
        for method, count, number in itertools.product(methods, seeds, bodies)
    ]
    loops = [Fused(cfg) for cfg in cfgs]  # errors are reported before the first is timed
    device = jax.devices()[0]
    matmul = matmul_rate(device.platform)
    log(f"{env} on {device.device_kind}: a matrix product runs at {matmul / 1e9:,.0f} Gflop/s")
    return {
        "device": device.device_kind,
        "jax": jax.__version__,
        "cores": os.cpu_count(),
        "matmul_flops_per_s": round(matmul),
        "compilation_cache": bool(jax.config.jax_compilation_cache_dir),  # pyright: ignore[reportAttributeAccessIssue]
        "rows": [_row(loop, updates, matmul, log) for loop in loops],
    }


def text(result: dict[str, Any]) -> str:
    """The result as text."""
    rows = result["rows"]
    width = max(len(row["method"]) for row in rows)
    head = f"{'method':{width}}{HEAD}   on {result['device']}, {result['cores']} cores"
    cached = ["Compiled programs may have come from jax's cache."] if result["compilation_cache"] else []
    return "\n".join([head, *(f"{row['method']:{width}}{_cells(row)}" for row in rows), *cached, _closing(rows)])


HEAD = f"{'bodies':>8}{'seeds':>7}{'steps/s':>13}{'compile':>10}{'collect':>9}"
HEAD += f"{'flop/step':>12}{'of matmul':>11}{'memory':>12}"


def _cells(row: dict[str, Any]) -> str:
    size = f"{row['bodies']:>8}{row['seeds']:>7}"
    if "error" in row:
        return f"{size}  failed: {row['error']}"
    return (
        f"{size}{row['steps_per_s']:>13,.0f}{row['compile_s']:>8.1f} s{row['collect_share']:>9.0%}"
        f"{row['flops_per_step']:>12,.0f}{row['fraction_of_matmul']:>11.2%}{row['peak_bytes'] / 2**20:>8,.0f} MiB"
    )


def _closing(rows: list[dict[str, Any]]) -> str:
    """Compares the fastest row with the authors' code."""
    timed = [row for row in rows if "error" not in row]
    if not timed:
        return "No size could be timed."
    best = max(timed, key=lambda row: row["steps_per_s"])
    speed = best["steps_per_s"]
    return (
        f"Best: {speed:,.0f} steps/s ({best['method']}, {best['bodies']} bodies, {best['seeds']} seed(s)), "
        f"{speed / AUTHORS_STEPS_PER_S:,.1f} times the {AUTHORS_STEPS_PER_S} steps/s of the authors' own code "
        "(2 cores, 16 bodies)"
    )


def matmul_rate(platform: str) -> float:
    """Operations per second of a large product of float32 matrices, in jax's default precision."""
    sizes = MATMUL_SIZES.get(platform, MATMUL_SIZES["other"])
    return max(2 * size**3 / _matmul_seconds(size) for size in sizes)


def _matmul_seconds(size: int) -> float:
    """Median time of one product."""
    both = jax.random.normal(jax.random.key(0), (2, size, size), jnp.float32)
    multiply = jax.jit(jnp.matmul)
    jax.block_until_ready(multiply(*both))
    return float(np.median([_seconds(lambda: multiply(*both))[0] for _ in range(MATMUL_CALLS)]))


def _row(loop: Fused, updates: int, matmul: float, log: Callable[[str], None]) -> dict[str, Any]:
    """Times one size; the row has an error instead of numbers if it does not run."""
    cfg = loop.cfg
    row = {
        "env": cfg.env,
        "method": cfg.method,
        "bodies": cfg.bodies,
        "seeds": len(cfg.seeds),
        "rollout": cfg.rollout,
        "devices": loop.devices.count,
    }
    log(f"{cfg.method}, {cfg.bodies} bodies, {len(cfg.seeds)} seed(s): compiling …")
    try:
        row |= time_size(loop, updates, matmul)
    except FAILURES as failure:
        row |= {"error": _sentence(failure)}
    log(f"{cfg.method}{_cells(row)}")
    return row


def time_size(loop: Fused, updates: int, matmul: float) -> dict[str, Any]:
    """All numbers of one size."""
    peak_before = _device_peak()
    state = loop.init()
    start = time.perf_counter()
    update = loop.trace(state).lower().compile()
    compile_s = time.perf_counter() - start
    collect = loop.trace_collecting(state).lower().compile()
    steps = loop.cfg.steps_per_update * len(loop.cfg.seeds)
    # Counted in the single-device program: work that every device repeats counts once.
    single = Fused(dataclasses.replace(loop.cfg, devices=1))
    parts = flops_parts(flops.operations(single.trace(state).jaxpr), flops.count(single.trace_collecting(state).jaxpr))

    # An update may donate its input buffers: only the newest state is ever used.
    state, _ = jax.block_until_ready(update(state))
    durations = []
    for _ in range(updates):
        seconds, (state, _) = _seconds(functools.partial(update, state))
        durations.append(seconds)
    jax.block_until_ready(collect(state))
    collect_s = float(np.median([_seconds(functools.partial(collect, state))[0] for _ in range(updates)]))

    update_s = float(np.median(durations))
    per_step = sum(parts.values()) / steps
    return {
        "steps_per_s": round(steps / update_s, 1),
        "compile_s": round(compile_s, 2),
        "update_s": [round(seconds, 6) for seconds in durations],
        "collect_share": round(collect_s / update_s, 4),
        "learn_share": round(1 - collect_s / update_s, 4),
        "flops_per_step": round(per_step, 1),
        "flops_parts": {name: round(part / steps, 1) for name, part in parts.items()},
        "fraction_of_matmul": float(f"{per_step * steps / update_s / matmul:.4g}"),
        **_costs(update),
        "peak_bytes": loop.program_bytes(update),
        "device_peak_bytes": _risen(peak_before, _device_peak()),
    }


def flops_parts(update: list[flops.Operation], collect: int) -> dict[str, int]:
    """Operations of an update by purpose: collecting, losses, their gradients, and the rest, which is scoring and the
    optimiser."""
    differentiated = [each for each in update if "jvp(" in each.scope]
    backward = flops.total([each for each in differentiated if "transpose(" in each.scope])
    forward = flops.total(differentiated) - backward
    rest = flops.total(update) - collect - forward - backward
    return {"collect": collect, "forward": forward, "backward": backward, "other": rest}


def _costs(program: jax.stages.Compiled) -> dict[str, Any]:
    """XLA's cost analysis of the whole program. It counts every loop body once, so it is for reference only."""
    counted: Any = program.cost_analysis() or {}
    return {
        "flops_xla": counted.get("flops"),
        "bytes_accessed": counted.get("bytes accessed"),
    }


def _device_peak() -> int | None:
    """Peak device memory of the process so far, if the device reports it."""
    return (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")


def _risen(before: int | None, after: int | None) -> int | None:
    """The device's peak if this size raised it: the peak never falls, so one left by a larger size says nothing."""
    return after if before is not None and after is not None and after > before else None


def _seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds until a call's result is ready, and the result."""
    start = time.perf_counter()
    result = jax.block_until_ready(call())
    return time.perf_counter() - start, result


def _sentence(failure: BaseException) -> str:
    """The first line of an error."""
    lines = str(failure).strip().splitlines()
    return lines[0] if lines else type(failure).__name__
