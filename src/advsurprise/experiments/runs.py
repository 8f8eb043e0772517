"""Runs with the paper's settings: the job that trains one, and all of them side by side."""

import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tyro

from advsurprise.errors import EXIT_FAILED, UserError
from advsurprise.evaluation import provenance
from advsurprise.experiments.figure import Arm
from advsurprise.experiments.settings import BODIES, MINIBATCH, ROLLOUT, SAVE_EVERY
from advsurprise.training.folder import METRICS
from advsurprise.training.jobs import Job, Log, run_jobs


class Failed(UserError):
    """Some run failed."""

    exit_code = EXIT_FAILED


def training(
    world: str, world_fields: Mapping[str, Any], arm: Arm, *, seeds: tuple[int, ...], steps: int, folder: pathlib.Path
) -> Job:
    """Trains one arm in one world; given again it goes on where it was stopped."""
    fields = {"rollout": ROLLOUT, "ppo.minibatch": MINIBATCH, "save_every": SAVE_EVERY}
    fields |= {f"env.{name}": value for name, value in world_fields.items()} | arm.fields
    flags = {"env": world, "method": arm.method, "steps": steps, "seeds": provenance.seeds(seeds)}
    flags["bodies"] = fields.pop("bodies", BODIES)
    changed = {name: provenance.setting(value) for name, value in fields.items()}
    command = (sys.executable, "-m", "advsurprise", *provenance.flag_words(flags, changed, folder), "--json")
    whole = steps - steps % (flags["bodies"] * ROLLOUT)
    return Job(folder.name, (command,), folder / METRICS, whole, len(seeds))


def train_all(jobs: Sequence[Job], *, workers: int, folder: pathlib.Path, log: Log) -> None:
    """Trains what is not trained yet, or says what failed."""
    failed, stopped = run_jobs(jobs, workers=workers, folder=folder, log=log)
    if stopped:
        raise Failed("stopped; give the same command again to go on")
    if failed:
        raise Failed("; ".join(f"{name} failed: {why}" for name, why in failed.items()))


def script(main: Callable[[Any], object], asked: type, description: str | None) -> None:
    """Runs a module as a command: what goes wrong is a sentence and an exit code."""
    try:
        main(tyro.cli(asked, description=description))
    except UserError as error:
        print(error, file=sys.stderr)
        raise SystemExit(error.exit_code) from None


def say(line: str) -> None:
    """Prints a line of progress."""
    print(line, file=sys.stderr, flush=True)
