"""A table of runs in one folder, each trained by a command of its own.

sweep.json    what was asked for, and the status of every run
NAME/         an ordinary run folder
NAME.log      what its command has printed
"""

import dataclasses
import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from advsurprise.config import RunConfig, from_dict
from advsurprise.errors import UserError
from advsurprise.evaluation import provenance
from advsurprise.training.folder import METRICS, check_folder, locked, read_json, refuse_other, write_config
from advsurprise.training.jobs import Event, Job, Log, Notice
from advsurprise.training.loops import check_loop
from advsurprise.training.run import updates_done

FILE = "sweep.json"
SHOWN = 3
"""Most fields that differ which a refusal names."""


@runtime_checkable
class Engine(Protocol):
    """Runs jobs and reports the status of each: for each that failed the reason, and the signal that stopped them."""

    def __call__(self, jobs: Sequence[Job], *, notice: Notice) -> tuple[dict[str, str], int]: ...


@dataclasses.dataclass(frozen=True)
class Sweep:
    """What is trained."""

    configs: dict[str, RunConfig]
    """Every run under its name."""
    command: str
    """What was typed: given again, it goes on."""


def is_sweep(folder: pathlib.Path) -> bool:
    """Whether a folder holds a sweep."""
    return (folder / FILE).is_file()


def read(folder: pathlib.Path) -> Sweep:
    """The sweep in a folder."""
    path = folder / FILE
    try:
        values = json.loads(path.read_text())
        configs = {name: dict(run["config"]) for name, run in values["runs"].items()}
        command = str(values["command"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{path} is damaged: it does not hold a table of runs") from None
    return Sweep({name: from_dict(config, source=f"{path}, {name}") for name, config in configs.items()}, command)


def check(asked: Sweep, folder: pathlib.Path) -> None:
    """Refuses what cannot be trained, and a folder that holds something else than this very table. Changes nothing."""
    refuse_other(folder, there=is_sweep(folder), kind="sweep")
    if is_sweep(folder):
        _check_same(asked, read(folder), folder)
    for name, cfg in asked.configs.items():
        try:
            # Where it will be trained there may be other devices than here.
            check_loop(dataclasses.replace(cfg, devices=1))
            check_folder(cfg, folder / name, fresh=False)
        except UserError as error:
            raise UserError(f"{name}: {error}") from None


def _check_same(asked: Sweep, existing: Sweep, folder: pathlib.Path) -> None:
    mine, theirs = (_plain(each.configs) for each in (asked, existing))
    if mine == theirs:
        return
    gone, new = (sorted(one.keys() - other.keys()) for one, other in ((theirs, mine), (mine, theirs)))
    if gone or new:
        what = " and ".join([f"{name} is part of it" for name in gone[:1]] + [f"{name} is not" for name in new[:1]])
    else:
        name = next(name for name in mine if mine[name] != theirs[name])
        what = f"{name}: {_difference(mine[name], theirs[name])}"
    raise UserError(f"{folder} holds another sweep than the one asked for ({what}); choose another with --out")


def _plain(configs: Mapping[str, RunConfig]) -> dict[str, Any]:
    """As JSON has them, which knows no tuples."""
    return json.loads(json.dumps({name: cfg.as_dict() for name, cfg in configs.items()}))


def _difference(mine: dict[str, Any], theirs: dict[str, Any]) -> str:
    fields = [f"{key} is {json.dumps(theirs.get(key))} there" for key in mine if mine[key] != theirs.get(key)]
    return ", ".join(fields[:SHOWN])


# ------------------------------------------------------------------------------------------------------ training


def train(asked: Sweep, folder: pathlib.Path, engine: Engine, *, about: dict[str, Any], log: Log) -> dict[str, Any]:
    """Trains the runs that are not finished, and keeps sweep.json up to date: the signal that stopped it (0 if none
    did), and the status of every run."""
    with locked(folder):
        ledger = _Ledger(asked, folder, about)
        left = [name for name, run in ledger.runs.items() if run["status"] != "done"]
        if len(left) < len(asked.configs):
            log(f"{len(asked.configs) - len(left)} of {len(asked.configs)} runs are already trained: skipped")
        jobs = [job(asked.configs[name], folder / name) for name in left]
        failed, signal = engine(jobs, notice=ledger.note) if jobs else ({}, 0)
    runs = {name: {key: run[key] for key in ("status", "retries", "reason")} for name, run in ledger.runs.items()}
    return {"sweep": str(folder), "runs": runs, "failed": failed, "signal": signal, "command": asked.command}


def job(cfg: RunConfig, folder: pathlib.Path) -> Job:
    """The command that trains a run, or goes on with it."""
    words = provenance.train_words({cfg.method: cfg}, folder)
    command = (sys.executable, "-m", "advsurprise", *words, "--json")
    steps = cfg.updates * cfg.steps_per_update
    return Job(folder.name, (command,), folder / METRICS, steps, len(cfg.seeds))


class _Ledger:
    """Writes the status of every run whenever it changes."""

    def __init__(self, asked: Sweep, folder: pathlib.Path, about: dict[str, Any]):
        self._path, self._about = folder / FILE, {"command": asked.command, **about}
        before = read_json(self._path).get("runs", {})
        self._retries = {name: before.get(name, {}).get("retries", 0) for name in asked.configs}
        self.runs = {name: _entry(cfg, folder / name, self._retries[name]) for name, cfg in asked.configs.items()}
        self._write()

    def note(self, event: Event) -> None:
        retries = self._retries[event.name] + event.retries
        self.runs[event.name] |= {"status": event.status, "retries": retries, "reason": event.reason or None}
        self._write()

    def _write(self) -> None:
        write_config(self._path, {**self._about, "runs": self.runs}, fresh=False)


def _entry(cfg: RunConfig, folder: pathlib.Path, retries: int) -> dict[str, Any]:
    done = updates_done(folder) >= cfg.updates
    return {
        "status": "done" if done else "waiting",
        "retries": retries,
        "reason": None,
        "command": provenance.train_command({cfg.method: cfg}, folder),
        "config": cfg.as_dict(),
    }


# ------------------------------------------------------------------------------------------------------- for people


def plan(asked: Sweep, folder: pathlib.Path) -> dict[str, Any]:
    """What would be trained."""
    runs = {
        name: {
            "command": provenance.train_command({cfg.method: cfg}, folder / name),
            "steps": cfg.updates * cfg.steps_per_update,
            "seeds": list(cfg.seeds),
            "done": updates_done(folder / name) * cfg.steps_per_update,
        }
        for name, cfg in asked.configs.items()
    }
    left = sum(max(0, run["steps"] - run["done"]) * len(run["seeds"]) for run in runs.values())
    return {"sweep": str(folder), "runs": runs, "steps_left": left}


def plan_text(result: dict[str, Any]) -> str:
    """What would be trained, for a person."""
    lines = [f"{len(result['runs'])} runs in {result['sweep']}: nothing was trained or written"]
    for name, run in result["runs"].items():
        lines += [
            f"  {name}: {run['done']:,} of {run['steps']:,} steps, {len(run['seeds'])} seed(s)",
            f"    {run['command']}",
        ]
    return "\n".join([*lines, f"{result['steps_left']:,} steps of all seeds are left"])


def text(result: dict[str, Any]) -> str:
    """The status of the runs, for a person."""
    folder, runs = result["sweep"], result["runs"]
    done = sum(run["status"] == "done" for run in runs.values())
    lines = [f"{done} of {len(runs)} runs are trained: {folder}"]
    lines += [f"  {name} failed: {why}" for name, why in result["failed"].items()]
    if done < len(runs):
        return "\n".join([*lines, f"Go on: {result['command']}"])
    return "\n".join([*lines, f"Compare them: advsurprise plot {folder}", f"One page:     advsurprise report {folder}"])
