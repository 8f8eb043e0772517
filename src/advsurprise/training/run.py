"""A run on disk: its folder, its checkpoints, and the driver that trains, saves, stops and goes on.

config.json     what was asked for
metrics.jsonl   one row per update and seed
checkpoints/    the whole state, twice
card.md         what this is and how to use it, for a person
"""

import dataclasses
import json
import math
import os
import pathlib
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from advsurprise.config import MAY_CHANGE, RunConfig, from_dict
from advsurprise.errors import UserError
from advsurprise.learning.interaction import Agent
from advsurprise.training import checkpoint, metrics
from advsurprise.training.loops import make_loop
from advsurprise.training.state import Loop, TrainState

Log = Callable[[str], None]


class NonFinite(UserError):
    """Training produced a number that is not one."""

    exit_code = 1


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    folder: pathlib.Path
    """Where it lies."""
    state: TrainState
    """Its last state."""
    steps: int
    """Environment steps done per seed."""
    stopped_by: int
    """Number of the signal that stopped it, 0 if it finished."""
    last: dict[str, float]
    """Metrics of the last update, mean over seeds."""
    signal: int = 0
    """Number of the signal that came while it ran, 0 if none: one that comes in the last update stops nothing here."""


def train(
    cfg: RunConfig,
    folder: pathlib.Path,
    *,
    fresh: bool = False,
    log: Log = lambda line: None,
    sinks: Sequence[metrics.Sink] = (),
    loop: Loop | None = None,
) -> Outcome:
    """Trains into a folder; an existing run there is continued. SIGINT and SIGTERM stop it after the current update."""
    prepare_folder(cfg, folder, fresh=fresh)
    loop = make_loop(cfg) if loop is None else loop
    state, done = restore(loop, folder, log)
    if done >= cfg.updates:
        log(f"{folder} is already trained to {done * cfg.steps_per_update} steps")
        return Outcome(folder, state, done * cfg.steps_per_update, 0, {})
    record = metrics.JsonLines(folder / "metrics.jsonl", resume_step=done * cfg.steps_per_update)
    everywhere = metrics.fan_out([record, *sinks])
    last: dict[str, float] = {}
    with stop_signals() as stop:
        try:
            for number in range(done + 1, cfg.updates + 1):
                begun = time.perf_counter()
                state, found = jax.block_until_ready(loop.update(state))
                rows = to_rows(found, cfg, number, time.perf_counter() - begun)
                check_finite(rows, folder)
                for row in rows:
                    everywhere.write(row)
                last = {name: float(np.mean(value)) for name, value in found.items()}
                if number % cfg.save_every == 0 or number == cfg.updates or stop:
                    save(folder, cfg, number, state)
                if stop:
                    break
        finally:
            everywhere.close()
    steps = number * cfg.steps_per_update
    write_text(folder / "card.md", card(cfg, folder, steps, last))
    came = stop[0] if stop else 0
    return Outcome(folder, state, steps, came if number < cfg.updates else 0, last, came)


def prepare_folder(cfg: RunConfig, folder: pathlib.Path, *, fresh: bool) -> None:
    """Makes the folder, or checks that what lies there is this very run, perhaps shorter."""
    path = folder / "config.json"
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file, not a folder")
    if fresh and path.exists():
        for name in ("config.json", "metrics.jsonl", "card.md"):
            (folder / name).unlink(missing_ok=True)
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    if path.exists():
        _check_same(cfg, read_run(folder), folder)
    elif folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty and holds no run; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps({"config": cfg.as_dict(), "versions": checkpoint.versions()}, indent=1) + "\n")


def read_run(folder: pathlib.Path) -> RunConfig:
    """The configuration of the run in a folder."""
    path = folder / "config.json"
    if not path.exists():
        raise UserError(f"there is no run in {folder}: {path.name} is missing")
    try:
        values = json.loads(path.read_text())["config"]
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path} is damaged: it does not hold a run's configuration") from None
    return from_dict(values, source=str(path))


def restore(loop: Loop, folder: pathlib.Path, log: Log) -> tuple[TrainState, int]:
    """The newest good checkpoint's state and updates done, or a fresh beginning."""
    found, complaints = checkpoint.newest_good(folder / "checkpoints")
    for sentence in complaints:
        log(f"passed over: {sentence}")
    if found is None:
        return loop.init(), 0
    state = loop.resumed(checkpoint.load(found, loop.like()))
    done = int(np.ravel(state.update)[0])
    log(f"going on from update {done} ({found.name})")
    return state, done


def save(folder: pathlib.Path, cfg: RunConfig, number: int, state: TrainState) -> None:
    """Writes a checkpoint after update `number`."""
    checkpoint.save(folder / "checkpoints", number, state, {"config": cfg.as_dict()})


def load_agents(folder: pathlib.Path) -> tuple[RunConfig, list[Agent], int]:
    """A trained run: its configuration, one agent per seed, and the updates done."""
    cfg = read_run(folder)
    found, complaints = checkpoint.newest_good(folder / "checkpoints")
    if found is None:
        reason = f": {complaints[0]}" if complaints else ""
        raise UserError(f"{folder} holds no good checkpoint{reason}")
    loop = make_loop(dataclasses.replace(cfg, devices=1))  # however many trained it, here they may not be
    state = checkpoint.load(found, loop.like())
    return cfg, loop.agents(state), int(np.ravel(state.update)[0])


def to_rows(found: dict[str, Any], cfg: RunConfig, number: int, seconds: float) -> list[dict[str, Any]]:
    """One row of metrics per seed."""
    values = {name: np.asarray(value) for name, value in found.items()}
    rate = round(cfg.steps_per_update * len(cfg.seeds) / seconds, 1)
    return [
        {"step": number * cfg.steps_per_update, "update": number, "seed": seed, "steps_per_s": rate}
        | {name: float(value[index]) for name, value in values.items()}
        for index, seed in enumerate(cfg.seeds)
    ]


def check_finite(rows: list[dict[str, Any]], folder: pathlib.Path) -> None:
    """Stops a run whose losses are no numbers any more, before they are saved."""
    for row in rows:
        for name, value in row.items():
            if name.endswith("loss") and not math.isfinite(value):
                raise NonFinite(
                    f"{name} of seed {row['seed']} is {value} at step {row['step']}: training stopped, the last good "
                    f"checkpoint in {folder / 'checkpoints'} is kept; a lower ppo.lr may help"
                )


@contextmanager
def stop_signals():
    """A list that gets the number of the first SIGINT or SIGTERM; a second one interrupts at once."""
    caught: list[int] = []

    def note(number, frame):
        if caught:
            raise KeyboardInterrupt
        caught.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def write_text(path: pathlib.Path, text: str) -> None:
    """Writes a small file whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text)
    os.replace(temporary, path)


def card(cfg: RunConfig, folder: pathlib.Path, steps: int, last: dict[str, float]) -> str:
    """What a run is, for a person."""
    lines = [
        f"# {cfg.method} in {cfg.env}",
        "",
        f"{steps:,} of {cfg.steps:,} environment steps for each of the seeds {', '.join(map(str, cfg.seeds))}.",
        "",
        f"    advsurprise eval {folder}      # how it plays, against random",
        f"    advsurprise resume {folder}    # train on",
        "",
        "| metric of the last update | mean over seeds |",
        "|---|---:|",
        *(f"| {name} | {value:.4g} |" for name, value in sorted(last.items())),
        "",
        "Configuration: `config.json`. Rows of every update: `metrics.jsonl`. Tensors: `checkpoints/`, safetensors.",
        "",
    ]
    return "\n".join(lines)


def _check_same(cfg: RunConfig, found: RunConfig, folder: pathlib.Path) -> None:
    """An existing run may be made longer, nothing else."""
    for each in dataclasses.fields(RunConfig):
        mine, theirs = getattr(cfg, each.name), getattr(found, each.name)
        if each.name not in MAY_CHANGE and mine != theirs:
            raise UserError(
                f"{folder} holds another run ({each.name} is {_short(theirs)} there, {_short(mine)} asked for); "
                "choose another folder, or --fresh to start over"
            )


def _short(value: Any) -> str:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    return json.dumps(value)
