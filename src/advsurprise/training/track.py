"""Trackers: TensorBoard and Weights & Biases. They get the rows of metrics.jsonl, and never stop a run if they fail.

track/trackers.json     the trackers of the run, for when it is resumed
track/tensorboard/      event files: tensorboard --logdir RUN
track/wandb/            Weights & Biases, offline unless WANDB_MODE says otherwise
"""

import functools
import importlib
import json
import math
import os
import pathlib
import secrets
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from advsurprise.config import RunConfig
from advsurprise.errors import MissingExtra, TrackWarning, UserError, nearest, require
from advsurprise.training import files
from advsurprise.training.folder import TRACK, read_json
from advsurprise.training.metrics import Row, Sink
from advsurprise.types import SHARE

RECORD = "trackers.json"
EXTRA = "track"
NONE = "none"
"""Turns tracking off."""


def read_names(text: str) -> tuple[str, ...]:
    """Names from a comma-separated list; a missing extra is refused here, before anything is trained."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if names == (NONE,):
        return ()
    for name in names:
        if name not in TRACKERS:
            raise UserError(f"unknown tracker {nearest(name, TRACKERS)}")
        require(PACKAGES[name], extra=EXTRA)
    return names


def remember(folder: pathlib.Path, names: Sequence[str]) -> None:
    """Saves the trackers of a run for when it is resumed."""
    path = folder / TRACK / RECORD
    if not names and not path.exists():
        return
    files.make_folder(path.parent)
    id = read_json(path).get("id") or secrets.token_hex(4)
    files.write(path, json.dumps({"trackers": list(names), "id": id}) + "\n")


def remembered(folder: pathlib.Path) -> tuple[str, ...]:
    """The saved trackers of the run in a folder."""
    names = read_json(folder / TRACK / RECORD).get("trackers")
    return tuple(name for name in TRACKERS if isinstance(names, list) and name in names)


def open_trackers(
    cfg: RunConfig, folder: pathlib.Path, names: Sequence[str] | None, *, resume_step: int, log: Callable[[str], None]
) -> list[Sink]:
    """Opens the trackers of a run: those named, which are saved for later, or by default those it had before.

    resume_step: last step that has rows already; trackers get later steps again.
    """
    if names is None:
        names = remembered(folder)
    else:
        remember(folder, names)
    for name in names:
        log(f"logging to {name}; view it with: {LOOK[name].format(folder=folder)}")
    return [Guarded(name, functools.partial(TRACKERS[name], cfg, folder, resume_step)) for name in names]


class Guarded:
    """A tracker that may fail: it then gives one warning and is ignored for the rest of the run."""

    def __init__(self, name: str, make: Callable[[], Sink]) -> None:
        self._name, self._sink = name, None
        self._sink = self._attempt(make)

    def write(self, row: Row) -> None:
        if self._sink is not None:
            self._attempt(self._sink.write, row)

    def close(self) -> None:
        if self._sink is not None:
            self._attempt(self._sink.close)

    def _attempt(self, action: Callable[..., Any], *given: Any) -> Any:
        try:
            return action(*given)
        except Exception as error:
            self._sink = None
            why = str(error) if isinstance(error, MissingExtra) else f"{type(error).__name__}: {error}"
            sentence = f"{self._name} gets no more rows, training continues: {why}"
            warnings.warn(" ".join(sentence.split()), TrackWarning, stacklevel=2)


def numbers(row: Row) -> dict[str, float]:
    """What a tracker gets from a row: finite numbers, grouped by seed; no shares of bins, whose many charts would bury
    the others."""
    heading = f"seed_{row['seed']}/" if "seed" in row else ""
    wanted = {name: row[name] for name in row if name not in ("step", "seed") and not name.startswith(SHARE)}
    return {
        heading + name: float(value)
        for name, value in wanted.items()
        if isinstance(value, float | int) and math.isfinite(value)
    }


class TensorBoard:
    """Event files with one event per row.

    Written synchronously: the queue of tensorboardX's own writer blocks forever when the disk is full.
    """

    def __init__(self, cfg: RunConfig, folder: pathlib.Path, resume_step: int) -> None:
        require("tensorboardX", extra=EXTRA)
        parts = ("event_file_writer", "proto.event_pb2", "proto.summary_pb2")
        writer, self._events, self._summaries = (importlib.import_module(f"tensorboardX.{part}") for part in parts)
        home = folder / TRACK / "tensorboard"
        home.mkdir(parents=True, exist_ok=True)
        # File names contain the second and are read in order: two from the same second must differ.
        self._file = writer.EventsWriter(str(home / "events"), f".{time.time_ns()}")
        # TensorBoard then hides events of earlier files from this step on.
        start = self._events.SessionLog(status=self._events.SessionLog.START)
        self._write(self._events.Event(wall_time=time.time(), step=resume_step + 1, session_log=start))

    def write(self, row: Row) -> None:
        values = [self._summaries.Summary.Value(tag=tag, simple_value=value) for tag, value in numbers(row).items()]
        summary = self._summaries.Summary(value=values)
        self._write(self._events.Event(wall_time=time.time(), step=int(row["step"]), summary=summary))

    def close(self) -> None:
        self._file.close()

    def _write(self, event: Any) -> None:
        self._file.write_event(event)
        self._file.flush()


class WandB:
    """A run of Weights & Biases, the same one when training is resumed; its steps are environment steps."""

    def __init__(self, cfg: RunConfig, folder: pathlib.Path, resume_step: int) -> None:
        wandb = require("wandb", extra=EXTRA)
        mode = os.environ.get("WANDB_MODE", "offline")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "advsurprise"),
            name=os.environ.get("WANDB_NAME", folder.name),
            id=read_json(folder / TRACK / RECORD)["id"],
            dir=str(folder / TRACK),
            config=cfg.as_dict(),
            mode=mode,
            resume=None if mode == "offline" else "allow",
            # Keep wandb off standard output and error.
            settings=wandb.Settings(silent=True, console="off"),
        )

    def write(self, row: Row) -> None:
        # wandb merges the rows of all seeds at a step.
        self._run.log(numbers(row), step=int(row["step"]))

    def close(self) -> None:
        self._run.finish()


TRACKERS: dict[str, Callable[[RunConfig, pathlib.Path, int], Sink]] = {"tensorboard": TensorBoard, "wandb": WandB}
PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb"}
LOOK = {"tensorboard": "tensorboard --logdir {folder}", "wandb": "wandb sync {folder}/track/wandb/offline-run-*"}
"""Command that shows what each has written."""
