"""One run: all training goes through `train`, which prepares a run, drives it, saves it and closes its world."""

import dataclasses
import math
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from typing import Any

import jax
import numpy as np

from advsurprise.config import RunConfig
from advsurprise.errors import EXIT_FAILED, UserError
from advsurprise.learning.interaction import Agent
from advsurprise.training import checkpoint, files, loops, memory, metrics, track
from advsurprise.training.folder import CHECKPOINTS, METRICS, check_folder, locked, prepare_folder, read_run, write_card
from advsurprise.training.signals import stop_signals
from advsurprise.training.state import Loop, TrainState

Log = Callable[[str], None]
Progress = Callable[[Any], metrics.Sink]
"""Makes a sink for the metrics of a loop."""


class NonFinite(UserError):
    """Training produced a loss that is not a finite number."""

    exit_code = EXIT_FAILED


@dataclasses.dataclass(frozen=True)
class RunResult:
    """How a run ended."""

    folder: pathlib.Path
    """Its folder."""
    state: TrainState
    """Its last state."""
    steps: int
    """Environment steps done per seed."""
    metrics: dict[str, float]
    """Metrics of the last update, mean over seeds; empty if there was nothing left to train."""
    finished: bool
    """Whether all its updates are done."""
    remark: str = ""
    """What the method has to say about the last update: a sentence, or nothing."""
    signal: int = 0
    """Number of the signal received while it ran, 0 if none; in the last update it comes too late to stop it."""

    @property
    def stopped_by(self) -> int:
        """Number of the signal that stopped it, 0 if it finished."""
        return 0 if self.finished else self.signal


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A run that is ready for its next update."""

    loop: Loop
    """The loop that trains it."""
    state: TrainState
    """Its state."""
    done: int
    """Updates done."""
    sink: metrics.Sink
    """Where its metrics go."""


def train(
    cfg: RunConfig,
    folder: pathlib.Path,
    *,
    fresh: bool = False,
    log: Log = lambda line: None,
    progress: Progress | None = None,
    trackers: Sequence[str] | None = None,
    loop: Loop | None = None,
) -> RunResult:
    """Trains into a folder; an existing run there is continued. SIGINT and SIGTERM stop it after the current update.

    progress: makes another sink for the metrics, such as a console, once the run is ready.
    trackers: names of trackers (`training.track`); default: those that the run had before.
    loop: default: the run's own. A given loop is not closed.
    """
    prepared = prepare(cfg, folder, fresh=fresh, log=log, progress=progress, trackers=trackers, loop=loop)
    with prepared as run, stop_signals() as stop:
        state, done, values = run.state, run.done, {}
        ended = done >= cfg.updates or bool(stop)
        while not ended:
            start = time.perf_counter()
            with memory.refuse_overflow(cfg, run.loop):
                try:
                    state, values = jax.block_until_ready(run.loop.update(state))
                except UserError:
                    save_without_worlds(folder, cfg, done, state, log)
                    raise
            done += 1
            rows = metric_rows(values, cfg, done, time.perf_counter() - start)
            check_finite(rows, folder)
            for row in rows:
                run.sink.write(row)
            # Read once, for the loop and for the checkpoint: a signal between two reads would end a run unsaved.
            ended = done >= cfg.updates or bool(stop)
            if ended or done % cfg.save_every == 0:
                save(folder, cfg, done, run.loop.saved(state))
    steps = done * cfg.steps_per_update
    last = {name: float(np.mean(value)) for name, value in values.items()}
    if last:
        write_card(cfg, folder, steps, last)
    remark = run.loop.method.remark(last, steps=steps // cfg.bodies)
    return RunResult(folder, state, steps, last, done >= cfg.updates, remark, stop[0] if stop else 0)


@contextmanager
def prepare(
    cfg: RunConfig,
    folder: pathlib.Path,
    *,
    fresh: bool,
    log: Log,
    progress: Progress | None,
    trackers: Sequence[str] | None,
    loop: Loop | None,
) -> Iterator[Prepared]:
    """Prepares a run: compilation cache, loop, folder, state and sinks, closed at the end.

    What cannot be trained is refused before anything is written or removed.
    """
    check_folder(cfg, folder, fresh=fresh)
    keep_compiled()
    with loops.open_loop(cfg) if loop is None else nullcontext(loop) as loop, locked(folder):
        for note in loop.notes:
            log(note)
        prepare_folder(cfg, folder, fresh=fresh)
        files.sweep(folder)
        with memory.refuse_overflow(cfg, loop):
            state, done = restore(loop, folder, log)
        step, others = done * cfg.steps_per_update, []
        with closing(metrics.JsonLines(folder / METRICS, resume_step=step)) as rows:
            if done >= cfg.updates:
                log(f"{folder} is already trained to {step:,} steps")
            else:
                others = track.open_trackers(cfg, folder, trackers, resume_step=step, log=log)
                others += [] if progress is None else [progress(loop)]
            with closing(metrics.fan_out([rows, *others])) as sink:
                yield Prepared(loop, state, done, sink)


def keep_compiled() -> None:
    """Caches compiled programs on disk, unless a cache of jax is configured already."""
    home = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update("jax_compilation_cache_dir", str(home / "advsurprise" / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def restore(loop: Loop, folder: pathlib.Path, log: Log) -> tuple[TrainState, int]:
    """State and updates done of the newest good checkpoint, or of a new run."""
    record, skipped = checkpoint.newest_good(folder / CHECKPOINTS)
    for sentence in skipped:
        log(sentence)
    if record is None:
        return loop.init(), 0
    state = loop.resumed(checkpoint.load(record, loop.like()))
    done = int(np.ravel(state.update)[0])
    log(f"continuing from update {done} ({record.name})")
    return state, done


def save(folder: pathlib.Path, cfg: RunConfig, number: int, state: TrainState) -> None:
    """Writes a checkpoint after update `number`."""
    checkpoint.save(folder / CHECKPOINTS, number, state, {"config": cfg.as_dict()})


def save_without_worlds(folder: pathlib.Path, cfg: RunConfig, number: int, state: TrainState, log: Log) -> None:
    """Writes a checkpoint after update `number` of a run whose world failed in the next one, unless it exists."""
    record, _ = checkpoint.newest_good(folder / CHECKPOINTS)
    saved = checkpoint.read_record(record)["step"] if record else 0
    if number > saved:
        save(folder, cfg, number, state)
        log(f"saved update {number} of {folder}; a resumed run starts new episodes")


def updates_done(folder: pathlib.Path) -> int:
    """Number of updates at the newest good checkpoint of a run."""
    record, _ = checkpoint.newest_good(folder / CHECKPOINTS)
    return 0 if record is None else checkpoint.read_record(record)["step"]


def load_agents(folder: pathlib.Path) -> tuple[RunConfig, list[Agent], int]:
    """A trained run: its configuration, one agent per seed, and the updates done."""
    cfg = read_run(folder)
    record, skipped = checkpoint.newest_good(folder / CHECKPOINTS)
    if record is None:
        reason = f": {skipped[0]}" if skipped else ""
        raise UserError(f"{folder} holds no good checkpoint{reason}")
    agents, updates = loops.load_agents(cfg, record)
    return cfg, agents, updates


def metric_rows(values: dict[str, Any], cfg: RunConfig, number: int, seconds: float) -> list[dict[str, Any]]:
    """One row of metrics per seed."""
    arrays = {name: np.asarray(value) for name, value in values.items()}
    rate = round(cfg.steps_per_update * len(cfg.seeds) / max(seconds, 1e-9), 1)
    return [
        {"step": number * cfg.steps_per_update, "update": number, "seed": seed, "steps_per_s": rate}
        | {name: float(array[index]) for name, array in arrays.items()}
        for index, seed in enumerate(cfg.seeds)
    ]


def check_finite(rows: list[dict[str, Any]], folder: pathlib.Path) -> None:
    """Stops a run whose losses are not finite, before they are saved. A role without samples has none."""
    for row in rows:
        for name, value in row.items():
            learned = row.get(f"{name.rpartition('/')[0]}/steps") != 0
            if name.endswith("loss") and learned and not math.isfinite(value):
                raise NonFinite(
                    f"{name} of seed {row['seed']} is {value} at step {row['step']}: training stopped; the last good "
                    f"checkpoint in {folder / CHECKPOINTS} is kept; a lower ppo.lr may help"
                )
