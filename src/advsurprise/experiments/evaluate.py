"""Evaluates a run's frozen policies, per training seed, on layouts or in games that training did not use.

python -m advsurprise.experiments.evaluate RUN --episodes 500    # writes RUN/frozen.json

frozen.json is a list with one entry per number of steps and player, which holds the means of each training seed.
"""

import dataclasses
import json
import math
import pathlib
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tyro

from advsurprise.api import load
from advsurprise.evaluation.statistics import mean_known
from advsurprise.experiments.figure import ALONE, GREEDY, SAMPLED
from advsurprise.experiments.runs import say, script
from advsurprise.training import files
from advsurprise.training.run import keep_compiled

FILE = "frozen.json"
EVALUATION_SEEDS = 10
"""Evaluation seeds that share the episodes in a pure world."""


@dataclasses.dataclass(frozen=True)
class Frozen:
    """Evaluates the policies of a run."""

    run: tyro.conf.Positional[pathlib.Path]
    """The run folder."""
    episodes: int = 500
    """Episodes per training seed and player."""
    players: tuple[str, ...] = (SAMPLED,)
    """Who plays: sampled, greedy, or ROLE alone (that role's policy on every turn)."""
    end: bool = False
    """Whether training has finished."""


def play(args: Frozen) -> None:
    """Plays, and writes the mean of every measure for each training seed."""
    keep_compiled()
    trained = load(args.run)
    steps = trained.updates * trained.config.steps_per_update
    with trained.playing(episodes=args.episodes, seeds=min(EVALUATION_SEEDS, args.episodes)) as play_all:
        for player in args.players:
            say(f"{args.run.name} after {steps:,} steps: {player}, {args.episodes} episodes of each seed")
            role = player.removesuffix(ALONE) if player.endswith(ALONE) else None
            played = play_all("greedy" if player == GREEDY else "trained", role)
            # A method that learns nothing plays the same for every seed, so it is played once.
            played = played * len(trained.config.seeds) if len(played) == 1 else played
            about = {"steps": steps, "episodes": args.episodes, "player": player, "end": args.end}
            seeds = [_means(*each) for each in zip(trained.config.seeds, played, strict=True)]
            kept = [each for each in read(args.run) if (each["steps"], each["player"]) != (steps, player)]
            files.write(args.run / FILE, json.dumps([*kept, about | {"seeds": seeds}]))


def _means(seed: int, measured: dict[str, np.ndarray]) -> dict[str, Any]:
    """Means over the episodes of a training seed."""
    return {"seed": seed} | {name: mean_known(values) for name, values in measured.items()}


def read(run: pathlib.Path) -> list[dict[str, Any]]:
    """Entries of the file; none if it does not exist. Files from before there were players hold sampled actions."""
    try:
        entries = json.loads((run / FILE).read_text())
    except (OSError, ValueError):
        return []
    return [{"player": SAMPLED, "end": True} | entries] if isinstance(entries, dict) else entries


def rows(entries: Iterable[dict[str, Any]], columns: Sequence[str]) -> list[dict[str, Any]]:
    """Entries as rows of a table, one for each training seed, in the order of training."""
    made = []
    for entry in sorted(entries, key=lambda entry: entry["steps"]):
        about = {"player": entry["player"], "step": entry["steps"]}
        made += [{"seed": each["seed"]} | about | _kept(each, columns) for each in entry["seeds"]]
    return made


def _kept(measured: dict[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    return {name: _rounded(measured[name]) for name in columns if name in measured}


def _rounded(value: float | int) -> float | int | str:
    return value if isinstance(value, int) else float(f"{value:.6g}") if math.isfinite(value) else ""


def command(run: pathlib.Path, *, episodes: int, players: Sequence[str], end: bool) -> tuple[str, ...]:
    """The command that evaluates a run."""
    words = (sys.executable, "-m", "advsurprise.experiments.evaluate", str(run), "--episodes", str(episodes))
    return (*words, "--players", *players, *(("--end",) if end else ()))


def left(
    entries: Iterable[dict[str, Any]], *, steps: int, episodes: int, players: Sequence[str], end: bool
) -> tuple[str, ...]:
    """Players that have no entry for this number of steps (at the end of training, none marked as its end)."""
    size = {"steps": steps, "episodes": episodes}
    done = [entry for entry in entries if {name: entry[name] for name in size} == size and entry["end"] >= end]
    return tuple(player for player in players if player not in {entry["player"] for entry in done})


if __name__ == "__main__":
    script(play, Frozen, __doc__)
