"""What a run's frozen policies do, training seed by training seed, on layouts or in games that no training used.

python -m advsurprise.experiments.evaluate RUN --episodes 500    # writes RUN/frozen.json

frozen.json is a list: an entry for every number of steps and every player, with the means of each training seed.
"""

import dataclasses
import json
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
"""Seeds that share the episodes in a pure world."""


@dataclasses.dataclass(frozen=True)
class Frozen:
    """Plays the policies of a run."""

    run: tyro.conf.Positional[pathlib.Path]
    """The run."""
    episodes: int = 500
    """Episodes of each training seed and player."""
    players: tuple[str, ...] = (SAMPLED,)
    """Who plays: sampled, greedy, or ROLE alone (that role's policy on every turn)."""
    end: bool = False
    """Whether this is the end of training."""


def play(asked: Frozen) -> None:
    """Plays, and writes the means of every measure for each training seed."""
    keep_compiled()
    trained = load(asked.run)
    steps = trained.updates * trained.config.steps_per_update
    with trained.playing(episodes=asked.episodes, seeds=min(EVALUATION_SEEDS, asked.episodes)) as play_all:
        for player in asked.players:
            say(f"{asked.run.name} after {steps:,} steps: {player}, {asked.episodes} episodes of each seed")
            role = player.removesuffix(ALONE) if player.endswith(ALONE) else None
            played = play_all("greedy" if player == GREEDY else "trained", role)
            # What learns nothing plays alike whatever its seed, and is played once.
            played = played * len(trained.config.seeds) if len(played) == 1 else played
            about = {"steps": steps, "episodes": asked.episodes, "player": player, "end": asked.end}
            seeds = [_means(*each) for each in zip(trained.config.seeds, played, strict=True)]
            kept = [each for each in read(asked.run) if (each["steps"], each["player"]) != (steps, player)]
            files.write(asked.run / FILE, json.dumps([*kept, about | {"seeds": seeds}]))


def _means(seed: int, measured: dict[str, np.ndarray]) -> dict[str, Any]:
    """Means over the episodes of a training seed."""
    return {"seed": seed} | {name: mean_known(values) for name, values in measured.items()}


def read(run: pathlib.Path) -> list[dict[str, Any]]:
    """What was written; nothing if nothing was. A file of before there were players is of sampled actions."""
    try:
        entries = json.loads((run / FILE).read_text())
    except (OSError, ValueError):
        return []
    return [{"player": SAMPLED, "end": True} | entries] if isinstance(entries, dict) else entries


def command(run: pathlib.Path, *, episodes: int, players: Sequence[str], end: bool) -> tuple[str, ...]:
    """The command that plays."""
    words = (sys.executable, "-m", "advsurprise.experiments.evaluate", str(run), "--episodes", str(episodes))
    return (*words, "--players", *players, *(("--end",) if end else ()))


def left(
    entries: Iterable[dict[str, Any]], *, steps: int, episodes: int, players: Sequence[str], end: bool
) -> tuple[str, ...]:
    """Players who have not played after so many steps; at the end of training, not as its end."""
    asked = {"steps": steps, "episodes": episodes}
    there = [entry for entry in entries if {name: entry[name] for name in asked} == asked and entry["end"] >= end]
    return tuple(player for player in players if player not in {entry["player"] for entry in there})


if __name__ == "__main__":
    script(play, Frozen, __doc__)
