"""The verbs train and resume."""

import dataclasses
import functools
import pathlib
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from advsurprise.cli.output import show
from advsurprise.config import RunConfig, read_count
from advsurprise.errors import EXIT_FAILED, UserError
from advsurprise.evaluation import comparison, labels, sweep
from advsurprise.evaluation.comparison import Comparison
from advsurprise.training import metrics, run, track
from advsurprise.training.folder import read_run, refuse_frozen

Log = Callable[[str], None]


def train(
    cfg: RunConfig | Comparison,
    out: pathlib.Path | None,
    *,
    trackers: Sequence[str] | None = None,
    fresh: bool,
    quiet: bool,
    log: Log,
) -> dict[str, Any]:
    """Trains one method, or several one after the other and plots them; progress goes to standard error."""
    train_one = functools.partial(_train_one, trackers=trackers, quiet=quiet, log=log)
    if isinstance(cfg, Comparison):
        folder = out or _default_folder(cfg.base.env, "comparison")
        comparison.prepare(cfg, folder, fresh=fresh)
        if trackers is not None:
            for name in cfg.fields:
                track.remember(folder / name, trackers)
        return _compare(cfg, folder, functools.partial(train_one, fresh=False), log)
    folder = out or _default_folder(cfg.env, cfg.method)
    result = train_one(cfg, folder, fresh=fresh)
    _exit_if_stopped(result.stopped_by, folder)
    table = labels.of_config(cfg)
    return {
        "run": str(folder),
        "steps": result.steps,
        "seeds": list(cfg.seeds),
        "last": result.metrics,
        "remark": result.remark,
        "labels": {name: table.label(name) for name in labels.live(table)},
    }


def resume(folder: pathlib.Path, *, steps: str | None, quiet: bool, log: Log) -> dict[str, Any]:
    """Continues a run or a comparison, for longer if `steps` is given."""
    refuse_frozen(folder)
    if sweep.is_sweep(folder):
        raise UserError(f"{folder} holds a sweep; continue it with: {sweep.read(folder).command}")
    if comparison.is_comparison(folder):
        cfg = comparison.read(folder)
        cfg = dataclasses.replace(cfg, base=_longer(cfg.base, steps, folder))
    else:
        cfg = _longer(read_run(folder), steps, folder)
    return train(cfg, folder, fresh=False, quiet=quiet, log=log)


def show_trained(result: dict[str, Any], *, as_json: bool) -> None:
    """Prints what was trained; exits with an error if a method of a comparison failed."""
    show(result, text, as_json=as_json)
    if result.get("failed"):
        raise SystemExit(EXIT_FAILED)


def text(result: dict[str, Any]) -> str:
    """What was trained, as text."""
    if "comparison" in result:
        return comparison.text(result)
    last = result["last"]
    lines = [f"trained {result['steps']:,} steps for {len(result['seeds'])} seed(s): {result['run']}"]
    lines += [f"  {label:60}{last[name]:10.4g}" for name, label in result["labels"].items() if name in last]
    lines += [f"note: {result['remark']}"] if result["remark"] else []
    return "\n".join([*lines, f"Evaluate it: advsurprise eval {result['run']}"])


def _compare(compared: Comparison, folder: pathlib.Path, train_one: comparison.TrainOne, log: Log) -> dict[str, Any]:
    stopped_by, failed = comparison.train(compared, folder, train_one, log=log)
    _exit_if_stopped(stopped_by, folder)
    drawn = comparison.draw([folder], log=log)
    names, seeds = list(compared.fields), list(compared.base.seeds)
    return {"comparison": str(folder), "methods": names, "seeds": seeds, "failed": failed, **drawn}


def _train_one(
    cfg: RunConfig, folder: pathlib.Path, *, trackers: Sequence[str] | None, fresh: bool, quiet: bool, log: Log
) -> run.RunResult:
    lost = cfg.steps - cfg.updates * cfg.steps_per_update
    rounding = f" ({lost:,} fewer than requested, to make whole updates)" if lost else ""
    log(
        f"{cfg.method} in {cfg.env}: {cfg.updates * cfg.steps_per_update:,} steps{rounding}, "
        f"{len(cfg.seeds)} seed(s), {cfg.bodies} bodies, to {folder}"
    )
    progress = None if quiet else functools.partial(_console, cfg)
    return run.train(cfg, folder, fresh=fresh, log=log, progress=progress, trackers=trackers)


def _console(cfg: RunConfig, loop: Any) -> metrics.Sink:
    shown = labels.live(labels.of_config(cfg))

    def remark(row: metrics.Row) -> str:
        return loop.method.remark(row, steps=int(row["step"]) // cfg.bodies)

    return metrics.Console(sys.stderr, cfg.updates * cfg.steps_per_update, shown=shown, remark=remark)


def _default_folder(env: str, name: str) -> pathlib.Path:
    return pathlib.Path("runs") / re.sub(r"[^A-Za-z0-9.]+", "-", f"{env}-{name}").strip("-")


def _exit_if_stopped(number: int, folder: pathlib.Path) -> None:
    if number:
        print(f"stopped and saved; continue with: advsurprise resume {folder}", file=sys.stderr)
        raise SystemExit(128 + number)


def _longer(cfg: RunConfig, steps: str | None, folder: pathlib.Path) -> RunConfig:
    longer = cfg.steps if steps is None else read_count("--steps", steps)
    if longer < cfg.steps:
        raise UserError(f"{folder} is set to {cfg.steps} steps; --steps can only increase that, not set it to {longer}")
    return dataclasses.replace(cfg, steps=longer)
