"""What the training verbs of the command line do. `cli.py` parses; this works."""

import dataclasses
import functools
import importlib.metadata
import os
import pathlib
import platform
import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from advsurprise import envs, methods
from advsurprise.config import RunConfig, changed, read_config, read_count, read_seeds
from advsurprise.errors import UserError
from advsurprise.evaluation import comparison, labels
from advsurprise.evaluation.comparison import Comparison
from advsurprise.training import metrics, run
from advsurprise.training.fused import Fused
from advsurprise.training.loops import make_loop, whole_episodes


def resolve(
    *,
    config: pathlib.Path | None,
    env: str | None,
    method: str | None,
    steps: str | None,
    seeds: str | None,
    bodies: int | None,
    settings: Sequence[str],
) -> RunConfig:
    """One configuration from a file, the flags and --set, later ones winning."""
    cfg = read_config(config) if config else RunConfig()
    given: dict[str, Any] = {
        "env": env,
        "method": method,
        "steps": None if steps is None else read_count("--steps", steps),
        "seeds": None if seeds is None else read_seeds(seeds),
        "bodies": bodies,
    }
    given = {name: value for name, value in given.items() if value is not None}
    method_type = methods.method_class(given.get("method", cfg.method))
    world_fields = envs.find(given.get("env", cfg.env)).fields
    found = changed(cfg, settings, world_fields=world_fields, method_type=method_type, **given)
    chosen = config is not None or any(word.startswith("rollout=") for word in settings)
    return found if chosen else whole_episodes(found)


def train(
    asked: RunConfig | Comparison, out: pathlib.Path | None, *, fresh: bool, quiet: bool, log: Callable[[str], None]
) -> dict[str, Any]:
    """Trains, with a live line on standard error; several methods one after the other, and draws them."""
    if isinstance(asked, Comparison):
        folder = out or _default_folder(asked.base.env, "comparison")
        comparison.prepare(asked, folder, fresh=fresh)
        each = functools.partial(_train, fresh=False, quiet=quiet, log=log)
        stopped_by, failed = comparison.train(asked, folder, each, log=log)
        _leave_if_stopped(stopped_by, folder)
        drawn = comparison.draw([folder], log=log)
        names, seeds = list(asked.fields), list(asked.base.seeds)
        return {"comparison": str(folder), "methods": names, "seeds": seeds, "failed": failed, **drawn}
    folder = out or _default_folder(asked.env, asked.method)
    ended = _train(asked, folder, fresh=fresh, quiet=quiet, log=log)
    _leave_if_stopped(ended.stopped_by, folder)
    table = labels.of_config(asked)
    shown = {name: table.label(name) for name in labels.live(table)}
    return {
        "run": str(folder),
        "steps": ended.steps,
        "seeds": list(asked.seeds),
        "last": ended.last,
        "labels": shown,
    }


def _default_folder(env: str, name: str) -> pathlib.Path:
    return pathlib.Path("runs") / f"{re.sub(r'[^A-Za-z0-9.]+', '-', env)}-{name}"


def _train(
    cfg: RunConfig, folder: pathlib.Path, *, fresh: bool, quiet: bool, log: Callable[[str], None]
) -> run.Outcome:
    lost = cfg.steps - cfg.updates * cfg.steps_per_update
    rounding = f" ({lost:,} fewer than asked for, to make whole updates)" if lost else ""
    log(
        f"{cfg.method} in {cfg.env}: {cfg.updates * cfg.steps_per_update:,} steps{rounding}, "
        f"{len(cfg.seeds)} seed(s), {cfg.bodies} bodies, into {folder}"
    )
    loop = make_loop(cfg)
    run.prepare_folder(cfg, folder, fresh=fresh)
    keep_compiled()
    shown = labels.live(labels.of_method(loop.method))
    sinks = [] if quiet else [metrics.Console(sys.stderr, cfg.updates * cfg.steps_per_update, shown=shown)]
    return run.train(cfg, folder, log=log, sinks=sinks, loop=loop)


def _leave_if_stopped(number: int, folder: pathlib.Path) -> None:
    if number:
        print(f"stopped and saved; go on with: advsurprise resume {folder}", file=sys.stderr)
        raise SystemExit(128 + number)


def keep_compiled() -> None:
    """Keeps compiled programs for the next time, unless jax has a setting of its own."""
    home = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update("jax_compilation_cache_dir", str(home / "advsurprise" / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def resume(folder: pathlib.Path, *, steps: str | None, quiet: bool, log: Callable[[str], None]) -> dict[str, Any]:
    """Goes on with a run or a comparison; with `steps` it is made longer."""
    if comparison.is_comparison(folder):
        asked = comparison.read(folder)
        asked = dataclasses.replace(asked, base=_longer(asked.base, steps, folder))
    else:
        asked = _longer(run.read_run(folder), steps, folder)
    return train(asked, folder, fresh=False, quiet=quiet, log=log)


def _longer(cfg: RunConfig, steps: str | None, folder: pathlib.Path) -> RunConfig:
    longer = cfg.steps if steps is None else read_count("--steps", steps)
    if longer < cfg.steps:
        raise UserError(f"{folder} is set to {cfg.steps} steps; --steps can only make it longer, not {longer}")
    return dataclasses.replace(cfg, steps=longer)


def resolve_comparison(method: str, *, settings: Sequence[str], **flags: Any) -> Comparison:
    """What is compared, from method names with commas between them, a file, the flags and --set."""
    words = comparison.share_out(comparison.read_names(method), settings)
    return comparison.of({name: resolve(method=name, settings=own, **flags) for name, own in words.items()})


def train_text(result: dict[str, Any]) -> str:
    """The end of training, for a person."""
    if "comparison" in result:
        return comparison.text(result)
    last = result["last"]
    lines = [f"trained {result['steps']:,} steps for {len(result['seeds'])} seed(s): {result['run']}"]
    lines += [f"  {label:60}{last[name]:10.4g}" for name, label in result["labels"].items() if name in last]
    return "\n".join([*lines, f"How it plays: advsurprise eval {result['run']}"])


def dry_run(asked: RunConfig | Comparison, log: Callable[[str], None]) -> dict[str, Any]:
    """Sizes, memory, and the time the whole run would take, from one update on this machine; of several methods a
    plan for each."""
    if isinstance(asked, Comparison):
        plans = [_plan(cfg, log) for cfg in asked.configs.values()]
        return {"plans": plans, "estimated_s": round(sum(plan["estimated_s"] for plan in plans), 1)}
    return _plan(asked, log)


def _plan(cfg: RunConfig, log: Callable[[str], None]) -> dict[str, Any]:
    if envs.find(cfg.env).kind == "host":
        raise UserError(f"--dry-run needs a pure world, not {cfg.env}")
    loop = Fused(cfg)
    log("compiling and timing one update …")
    begun = time.perf_counter()
    state = loop.init()
    update = loop.trace(state).lower().compile()
    state, _ = jax.block_until_ready(update(state))
    first = time.perf_counter() - begun
    begun = time.perf_counter()
    state, _ = jax.block_until_ready(update(state))
    each = time.perf_counter() - begun
    policies = state.learner.agent.policies
    update_bytes = loop.program_bytes(update)
    return {
        "config": cfg.as_dict(),
        "updates": cfg.updates,
        "steps": cfg.updates * cfg.steps_per_update,
        "parameters_per_role": {
            role: sum(leaf.size for leaf in jax.tree.leaves(policy)) // len(cfg.seeds)
            for role, policy in policies.items()
        },
        "state_bytes": _bytes(state),
        "rollout_bytes": _rollout_bytes(loop),
        "update_bytes": update_bytes,
        "largest_bodies": int(FILLED * _memory() * cfg.bodies / update_bytes),
        "compile_s": round(max(first - each, 0.0), 1),
        "steps_per_s": round(cfg.steps_per_update * len(cfg.seeds) / each, 1),
        "estimated_s": round(each * cfg.updates + first - each, 1),
    }


def dry_run_text(plan: dict[str, Any]) -> str:
    """The plan for a person."""
    if "plans" in plan:
        each = "\n".join(map(dry_run_text, plan["plans"]))
        return f"{each}\nall of them, one after the other: about {plan['estimated_s']:,.0f} s"
    cfg = plan["config"]
    parameters = ", ".join(f"{role} {count:,}" for role, count in plan["parameters_per_role"].items())
    return "\n".join(
        [
            f"{cfg['method']} in {cfg['env']}, seeds {cfg['seeds']}: nothing was trained or written",
            f"  updates      {plan['updates']:,} of {cfg['bodies']} bodies x {cfg['rollout']} steps: {plan['steps']:,}",
            f"  parameters   {parameters}",
            f"  memory       state {_mib(plan['state_bytes'])}, a rollout {_mib(plan['rollout_bytes'])}, "
            f"an update {_mib(plan['update_bytes'])}; about {plan['largest_bodies']:,} bodies would fit",
            f"  speed        {plan['steps_per_s']:,.0f} steps/s here, after {plan['compile_s']:.0f} s of compiling",
            f"  whole run    about {plan['estimated_s']:,.0f} s",
        ]
    )


FILLED = 0.9
"""Share of the memory that a run is thought to be able to fill. What an update needs grows linearly with its bodies."""


def _memory() -> int:
    """Memory of the device: what a GPU lends, or what this machine has."""
    lent = (jax.devices()[0].memory_stats() or {}).get("bytes_limit")
    return lent or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _mib(number: int) -> str:
    return f"{number / 2**20:.1f} MiB"


def _bytes(tree: Any) -> int:
    return sum(leaf.size * np.dtype(getattr(leaf, "dtype", np.uint32)).itemsize for leaf in _arrays(tree))


def _arrays(tree: Any) -> list[Any]:
    leaves = jax.tree.leaves(tree)
    return [jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf for leaf in leaves]


def _rollout_bytes(loop: Fused) -> int:
    shapes = loop.trace_collecting(loop.like()).out_info[1]
    return sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def list_methods() -> dict[str, Any]:
    """Every method in one line."""
    return {"methods": [{"name": name, "description": text} for name, text in methods.list_methods().items()]}


def methods_text(found: dict[str, Any]) -> str:
    """The list for a person."""
    lines = [f"{each['name']:22}{each['description']}" for each in found["methods"]]
    one = "Train one:       advsurprise train --method adversarial-surprise --env rooms/four"
    several = "Compare several: advsurprise train --method adversarial-surprise,random --env rooms/four --seeds 0..4"
    return "\n".join([*lines, "", one, several])


EXTRAS = {
    "atari": "ale-py",
    "doom": "vizdoom",
    "video": "imageio",
    "track": "tensorboardX",
    "ray": "ray",
    "oracle": "minigrid",
}


def doctor() -> dict[str, Any]:
    """What this machine offers, and what is missing with the line that brings it."""
    packages = ("jax", "jaxlib", "equinox", "optax", "gymnasium", "safetensors", "numpy")
    extras = {name: _version(package) for name, package in EXTRAS.items()}
    devices = [f"{device.platform} {device.device_kind}" for device in jax.devices()]
    return {
        "ok": True,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in packages},
        "devices": devices,
        "cores": os.cpu_count(),
        "extras": extras,
    }


def doctor_text(found: dict[str, Any]) -> str:
    """The report for a person."""
    lines = [f"python {found['python']}, {found['cores']} cores, devices: {', '.join(found['devices'])}"]
    lines += [f"  {name:12} {version}" for name, version in found["packages"].items()]
    for name, version in found["extras"].items():
        missing = f'missing; pip install "advsurprise[{name}]"'
        lines.append(f"  extra {name:8} {version or missing}")
    if all(device.startswith("cpu") for device in found["devices"]):
        lines.append('  no GPU is used; for one: pip install "advsurprise[gpu]"')
    return "\n".join([*lines, "OK"])


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
