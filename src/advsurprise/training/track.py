"""Trackers: what people watch runs with. They get the rows of metrics.jsonl, and none of them ever stops a run.

track/trackers.json     the trackers of the run, for when it is continued
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
"""The word that switches tracking off."""


def read_names(text: str) -> tuple[str, ...]:
    """Names of trackers with commas between them; an extra that is missing shows here, before anything is trained."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if names == (NONE,):
        return ()
    for name in names:
        if name not in TRACKERS:
            raise UserError(f"unknown tracker {nearest(name, TRACKERS)}")
        require(PACKAGES[name], extra=EXTRA)
    return names


def remember(folder: pathlib.Path, names: Sequence[str]) -> None:
    """Keeps the trackers of a run for when it is continued."""
    path = folder / TRACK / RECORD
    if not names and not path.exists():
        return
    files.make_folder(path.parent)
    id = read_json(path).get("id") or secrets.token_hex(4)
    files.write(path, json.dumps({"trackers": list(names), "id": id}) + "\n")


def remembered(folder: pathlib.Path) -> tuple[str, ...]:
    """The trackers of the run in a folder."""
    names = read_json(folder / TRACK / RECORD).get("trackers")
    return tuple(name for name in TRACKERS if isinstance(names, list) and name in names)


def open_trackers(
    cfg: RunConfig, folder: pathlib.Path, names: Sequence[str] | None, *, resume_step: int, log: Callable[[str], None]
) -> list[Sink]:
    """The trackers of a run: those named, which are kept for later, or those it had before.

    resume_step: the last step of which there are rows already; what a tracker has got of later steps is repeated.
    """
    if names is None:
        names = remembered(folder)
    else:
        remember(folder, names)
    for name in names:
        log(f"{name} gets the metrics; look at them with: {LOOK[name].format(folder=folder)}")
    return [Guarded(name, functools.partial(TRACKERS[name], cfg, folder, resume_step)) for name in names]


class Guarded:
    """A tracker that may fail: then there is one warning, and it is left alone for the rest of the run."""

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
            sentence = f"{self._name} gets no more rows, training goes on: {why}"
            warnings.warn(" ".join(sentence.split()), TrackWarning, stacklevel=2)


def numbers(row: Row) -> dict[str, float]:
    """What a tracker gets of a row: finite numbers, under a heading for the seed; no shares of bins, since a chart of
    each would bury the others."""
    heading = f"seed_{row['seed']}/" if "seed" in row else ""
    wanted = {name: row[name] for name in row if name not in ("step", "seed") and not name.startswith(SHARE)}
    return {
        heading + name: float(value)
        for name, value in wanted.items()
        if isinstance(value, float | int) and math.isfinite(value)
    }


class TensorBoard:
    """Event files with one event per row.

    Written at once: the queue of tensorboardX's own writer blocks for ever when the disk is full.
    """

    def __init__(self, cfg: RunConfig, folder: pathlib.Path, resume_step: int) -> None:
        require("tensorboardX", extra=EXTRA)
        parts = ("event_file_writer", "proto.event_pb2", "proto.summary_pb2")
        writer, self._events, self._summaries = (importlib.import_module(f"tensorboardX.{part}") for part in parts)
        home = folder / TRACK / "tensorboard"
        home.mkdir(parents=True, exist_ok=True)
        # Files are named by the second, and read in the order of their names: two of one second must differ.
        self._file = writer.EventsWriter(str(home / "events"), f".{time.time_ns()}")
        # TensorBoard hides what earlier files hold from here on.
        begun = self._events.SessionLog(status=self._events.SessionLog.START)
        self._write(self._events.Event(wall_time=time.time(), step=resume_step + 1, session_log=begun))

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
    """A run of Weights & Biases, the same one when training is continued; its steps are environment steps."""

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
            # Standard output and error are ours.
            settings=wandb.Settings(silent=True, console="off"),
        )

    def write(self, row: Row) -> None:
        # Rows of all seeds at a step become one of theirs.
        self._run.log(numbers(row), step=int(row["step"]))

    def close(self) -> None:
        self._run.finish()


TRACKERS: dict[str, Callable[[RunConfig, pathlib.Path, int], Sink]] = {"tensorboard": TensorBoard, "wandb": WandB}
PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb"}
LOOK = {"tensorboard": "tensorboard --logdir {folder}", "wandb": "wandb sync {folder}/track/wandb/offline-run-*"}
"""How a person gets to see what each has written."""
