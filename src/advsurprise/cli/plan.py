"""train --dry-run: what a run would need."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from advsurprise import envs
from advsurprise.config import RunConfig
from advsurprise.errors import UserError
from advsurprise.evaluation.comparison import Comparison
from advsurprise.training import memory
from advsurprise.training.fused import Fused


def dry_run(cfg: RunConfig | Comparison, log: Callable[[str], None]) -> dict[str, Any]:
    """Sizes, memory and estimated time, from one update on this machine; one plan per method."""
    if isinstance(cfg, Comparison):
        plans = [plan(each, log) for each in cfg.configs.values()]
        return {"plans": plans, "estimated_s": round(sum(each["estimated_s"] for each in plans), 1)}
    return plan(cfg, log)


def plan(cfg: RunConfig, log: Callable[[str], None]) -> dict[str, Any]:
    """The plan of one run."""
    if envs.find(cfg.env).kind == "host":
        raise UserError(f"--dry-run needs a pure world, not {cfg.env}")
    loop = Fused(cfg)
    log("compiling and timing one update …")
    start = time.perf_counter()
    state = loop.init()
    update = loop.trace(state).lower().compile()
    state, _ = jax.block_until_ready(update(state))
    first = time.perf_counter() - start
    start = time.perf_counter()
    state, _ = jax.block_until_ready(update(state))
    each = time.perf_counter() - start
    update_bytes = loop.program_bytes(update)
    return {
        "config": cfg.as_dict(),
        "updates": cfg.updates,
        "steps": cfg.updates * cfg.steps_per_update,
        "parameters_per_role": {
            role: sum(leaf.size for leaf in jax.tree.leaves(policy)) // len(cfg.seeds)
            for role, policy in state.learner.agent.policies.items()
        },
        "state_bytes": _bytes(jax.tree.map(_bits, state)),
        "rollout_bytes": _bytes(loop.trace_collecting(loop.like()).out_info[1]),
        "update_bytes": update_bytes,
        "largest_bodies": memory.largest_bodies(cfg.bodies, update_bytes),
        "compile_s": round(max(first - each, 0.0), 1),
        "steps_per_s": round(cfg.steps_per_update * len(cfg.seeds) / each, 1),
        "estimated_s": round(each * cfg.updates + first - each, 1),
    }


def text(plan: dict[str, Any]) -> str:
    """The plan as text."""
    if "plans" in plan:
        each = "\n".join(map(text, plan["plans"]))
        return f"{each}\nall methods, one after the other: about {plan['estimated_s']:,.0f} s"
    cfg = plan["config"]
    parameters = ", ".join(f"{role} {count:,}" for role, count in plan["parameters_per_role"].items())
    return "\n".join(
        [
            f"{cfg['method']} in {cfg['env']}, seeds {cfg['seeds']}: nothing was trained or written",
            f"  updates      {plan['updates']:,} x {cfg['bodies']} bodies x {cfg['rollout']} steps = {plan['steps']:,}",
            f"  parameters   {parameters}",
            f"  memory       state {_mib(plan['state_bytes'])}, rollout {_mib(plan['rollout_bytes'])}, "
            f"update {_mib(plan['update_bytes'])}; about {plan['largest_bodies']:,} bodies would fit",
            f"  speed        {plan['steps_per_s']:,.0f} steps/s here, after {plan['compile_s']:.0f} s of compiling",
            f"  total time   about {plan['estimated_s']:,.0f} s",
        ]
    )


def _mib(number: int) -> str:
    return f"{number / 2**20:.1f} MiB"


def _bytes(tree: Any) -> int:
    return sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _bits(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
