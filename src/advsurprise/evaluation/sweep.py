"""A table of runs in one folder, each trained by its own command.

sweep.json    the configuration and the status of every run
NAME/         the run folder
NAME.log      output of its command
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
"""Most differing fields that an error message names."""


@runtime_checkable
class Engine(Protocol):
    """Runs jobs and reports their status; returns the reason for each failed job, and the signal that stopped them."""

    def __call__(self, jobs: Sequence[Job], *, notice: Notice) -> tuple[dict[str, str], int]: ...


@dataclasses.dataclass(frozen=True)
class Sweep:
    """The configuration of a sweep."""

    configs: dict[str, RunConfig]
    """All runs by name."""
    command: str
    """The command line; running it again resumes the sweep."""


def is_sweep(folder: pathlib.Path) -> bool:
    """Whether a folder holds a sweep."""
    return (folder / FILE).is_file()


def read(folder: pathlib.Path) -> Sweep:
    """Reads the sweep in a folder."""
    path = folder / FILE
    try:
        values = json.loads(path.read_text())
        configs = {name: dict(run["config"]) for name, run in values["runs"].items()}
        command = str(values["command"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{path} is damaged: it is not a valid sweep") from None
    return Sweep({name: from_dict(config, source=f"{path}, {name}") for name, config in configs.items()}, command)


def check(sweep: Sweep, folder: pathlib.Path) -> None:
    """Checks that every run can be trained and that the folder is empty or holds this sweep. Changes nothing."""
    refuse_other(folder, there=is_sweep(folder), kind="sweep")
    if is_sweep(folder):
        _check_same(sweep, read(folder), folder)
    for name, cfg in sweep.configs.items():
        try:
            # The machine that trains the run may have other devices.
            check_loop(dataclasses.replace(cfg, devices=1))
            check_folder(cfg, folder / name, fresh=False)
        except UserError as error:
            raise UserError(f"{name}: {error}") from None


def _check_same(sweep: Sweep, existing: Sweep, folder: pathlib.Path) -> None:
    mine, theirs = (_plain(each.configs) for each in (sweep, existing))
    if mine == theirs:
        return
    gone, new = (sorted(one.keys() - other.keys()) for one, other in ((theirs, mine), (mine, theirs)))
    if gone or new:
        what = " and ".join([f"{name} is part of it" for name in gone[:1]] + [f"{name} is not" for name in new[:1]])
    else:
        name = next(name for name in mine if mine[name] != theirs[name])
        what = f"{name}: {_difference(mine[name], theirs[name])}"
    raise UserError(f"{folder} holds another sweep ({what}); choose another folder with --out")


def _plain(configs: Mapping[str, RunConfig]) -> dict[str, Any]:
    """Configurations as in JSON, which has no tuples."""
    return json.loads(json.dumps({name: cfg.as_dict() for name, cfg in configs.items()}))


def _difference(mine: dict[str, Any], theirs: dict[str, Any]) -> str:
    fields = [f"{key} is {json.dumps(theirs.get(key))} there" for key in mine if mine[key] != theirs.get(key)]
    return ", ".join(fields[:SHOWN])


# ------------------------------------------------------------------------------------------------------ training


def train(sweep: Sweep, folder: pathlib.Path, engine: Engine, *, about: dict[str, Any], log: Log) -> dict[str, Any]:
    """Trains the unfinished runs, keeps sweep.json up to date, and returns the signal that stopped it (0 if none) and
    the status of every run."""
    with locked(folder):
        ledger = _Ledger(sweep, folder, about)
        left = [name for name, run in ledger.runs.items() if run["status"] != "done"]
        if len(left) < len(sweep.configs):
            log(f"{len(sweep.configs) - len(left)} of {len(sweep.configs)} runs are already trained: skipped")
        jobs = [job(sweep.configs[name], folder / name) for name in left]
        failed, signal = engine(jobs, notice=ledger.note) if jobs else ({}, 0)
    runs = {name: {key: run[key] for key in ("status", "retries", "reason")} for name, run in ledger.runs.items()}
    return {"sweep": str(folder), "runs": runs, "failed": failed, "signal": signal, "command": sweep.command}


def job(cfg: RunConfig, folder: pathlib.Path) -> Job:
    """The command that trains or resumes a run."""
    words = provenance.train_words({cfg.method: cfg}, folder)
    command = (sys.executable, "-m", "advsurprise", *words, "--json")
    steps = cfg.updates * cfg.steps_per_update
    return Job(folder.name, (command,), folder / METRICS, steps, len(cfg.seeds))


class _Ledger:
    """Writes the status of every run whenever it changes."""

    def __init__(self, sweep: Sweep, folder: pathlib.Path, about: dict[str, Any]):
        self._path, self._about = folder / FILE, {"command": sweep.command, **about}
        before = read_json(self._path).get("runs", {})
        self._retries = {name: before.get(name, {}).get("retries", 0) for name in sweep.configs}
        self.runs = {name: _entry(cfg, folder / name, self._retries[name]) for name, cfg in sweep.configs.items()}
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


# ------------------------------------------------------------------------------------------------------- output


def plan(sweep: Sweep, folder: pathlib.Path) -> dict[str, Any]:
    """The runs that would be trained, for a dry run."""
    runs = {
        name: {
            "command": provenance.train_command({cfg.method: cfg}, folder / name),
            "steps": cfg.updates * cfg.steps_per_update,
            "seeds": list(cfg.seeds),
            "done": updates_done(folder / name) * cfg.steps_per_update,
        }
        for name, cfg in sweep.configs.items()
    }
    left = sum(max(0, run["steps"] - run["done"]) * len(run["seeds"]) for run in runs.values())
    return {"sweep": str(folder), "runs": runs, "steps_left": left}


def plan_text(result: dict[str, Any]) -> str:
    """The plan as text."""
    lines = [f"{len(result['runs'])} runs in {result['sweep']}: nothing was trained or written"]
    for name, run in result["runs"].items():
        lines += [
            f"  {name}: {run['done']:,} of {run['steps']:,} steps, {len(run['seeds'])} seed(s)",
            f"    {run['command']}",
        ]
    return "\n".join([*lines, f"{result['steps_left']:,} steps left over all seeds"])


def text(result: dict[str, Any]) -> str:
    """The status of the runs as text."""
    folder, runs = result["sweep"], result["runs"]
    done = sum(run["status"] == "done" for run in runs.values())
    lines = [f"{done} of {len(runs)} runs are trained: {folder}"]
    lines += [f"  {name} failed: {why}" for name, why in result["failed"].items()]
    if done < len(runs):
        return "\n".join([*lines, f"Continue: {result['command']}"])
    return "\n".join([*lines, f"Compare them: advsurprise plot {folder}", f"One page:     advsurprise report {folder}"])
