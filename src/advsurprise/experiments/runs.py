"""Runs with the paper's settings: the job that trains one, and several in parallel."""

import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tyro

from advsurprise import envs, methods
from advsurprise.config import RunConfig, changed
from advsurprise.errors import EXIT_FAILED, UserError
from advsurprise.evaluation import sweep
from advsurprise.evaluation.provenance import setting
from advsurprise.experiments.figure import Arm, Batch
from advsurprise.training.jobs import Job, Log, run_jobs


class Failed(UserError):
    """A run failed or was stopped."""

    exit_code = EXIT_FAILED


def run_config(
    world: str, world_fields: Mapping[str, Any], arm: Arm, *, seeds: tuple[int, ...], steps: int, batch: Batch
) -> RunConfig:
    """The configuration of one arm in one world."""
    fields = {"rollout": batch.rollout, "ppo.minibatch": batch.minibatch, "save_every": batch.save_every}
    fields |= {f"env.{name}": value for name, value in world_fields.items()} | arm.fields
    bodies = fields.pop("bodies", batch.bodies)
    return changed(
        # A placeholder: `changed` sets the real number of steps.
        RunConfig(steps=10**12),
        [f"{name}={setting(value)}" for name, value in fields.items()],
        world_fields=envs.find(world).all_fields,
        method_type=methods.method_class(arm.method),
        **{"env": world, "method": arm.method, "seeds": seeds, "steps": steps, "bodies": bodies},
    )


def training(
    world: str,
    world_fields: Mapping[str, Any],
    arm: Arm,
    *,
    seeds: tuple[int, ...],
    steps: int,
    folder: pathlib.Path,
    batch: Batch | None = None,
) -> Job:
    """The job that trains one arm in one world, or resumes it."""
    cfg = run_config(world, world_fields, arm, seeds=seeds, steps=steps, batch=batch or Batch())
    return sweep.job(cfg, folder)


def train_all(jobs: Sequence[Job], *, workers: int, folder: pathlib.Path, log: Log) -> None:
    """Trains the unfinished runs; raises `Failed` if any fails."""
    failed, stopped = run_jobs(jobs, workers=workers, folder=folder, log=log)
    if stopped:
        raise Failed("stopped; run the same command again to continue")
    if failed:
        raise Failed("; ".join(f"{name} failed: {why}" for name, why in failed.items()))


def script(main: Callable[[Any], object], args: type, description: str | None) -> None:
    """Runs a module as a command: a user error becomes one sentence and an exit code."""
    try:
        main(tyro.cli(args, description=description))
    except UserError as error:
        print(error, file=sys.stderr)
        raise SystemExit(error.exit_code) from None


def say(line: str) -> None:
    """Prints a progress line to standard error."""
    print(line, file=sys.stderr, flush=True)
