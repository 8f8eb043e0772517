"""What a run's frozen policies do, training seed by training seed, on layouts or in games that no training used.

python -m advsurprise.experiments.evaluate RUN --episodes 500    # writes RUN/frozen.json

frozen.json is a list: an entry for every number of steps and every player, with the means of each training seed. What
is there is not played again.
"""

import dataclasses
import json
import pathlib
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import tyro

from advsurprise.api import Trained, load
from advsurprise.evaluation.statistics import mean_known
from advsurprise.experiments.figure import ALONE, GREEDY, SAMPLED
from advsurprise.experiments.runs import say, script
from advsurprise.training import files
from advsurprise.training.run import keep_compiled

FILE = "frozen.json"


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
    trained, entries = load(asked.run), read(asked.run)
    steps = trained.updates * trained.config.steps_per_update
    for player in asked.players:
        about = {"steps": steps, "episodes": asked.episodes, "player": player}
        kept = [entry for entry in entries if (entry["steps"], entry["player"]) != (steps, player)]
        same = [entry for entry in entries if entry not in kept and entry["episodes"] == asked.episodes]
        if not same:
            say(f"{asked.run.name}: {player}, {asked.episodes} episodes of each seed after {steps:,} steps")
        measured = same[0]["seeds"] if same else means(trained, asked.episodes, player)
        entries = [*kept, about | {"end": asked.end, "seeds": measured}]
        files.write(asked.run / FILE, json.dumps(entries))


def means(trained: Trained, episodes: int, player: str) -> list[dict[str, Any]]:
    """Means over the episodes of each training seed."""
    role = player.removesuffix(ALONE) if player.endswith(ALONE) else None
    played = trained.played(episodes=episodes, player="greedy" if player == GREEDY else "trained", role=role)
    return [
        {"seed": seed} | {name: mean_known(values) for name, values in measured.items()}
        for seed, measured in zip(trained.config.seeds, played, strict=False)
    ]


def read(run: pathlib.Path) -> list[dict[str, Any]]:
    """What was written; nothing if nothing was. A file of before there were players is of sampled actions."""
    try:
        found = json.loads((run / FILE).read_text())
    except (OSError, ValueError):
        return []
    return [{"player": SAMPLED, "end": True} | found] if isinstance(found, dict) else found


def command(run: pathlib.Path, *, episodes: int, players: Sequence[str], end: bool) -> tuple[str, ...]:
    """The command that plays."""
    words = (sys.executable, "-m", "advsurprise.experiments.evaluate", str(run), "--episodes", str(episodes))
    return (*words, "--players", *players, *(("--end",) if end else ()))


def left(
    entries: Iterable[dict[str, Any]], *, steps: int, episodes: int, players: Sequence[str], end: bool
) -> tuple[str, ...]:
    """Players who have not played after so many steps."""
    asked = {"steps": steps, "episodes": episodes, "end": end}
    there = {entry["player"] for entry in entries if {name: entry[name] for name in asked} == asked}
    return tuple(player for player in players if player not in there)


if __name__ == "__main__":
    script(play, Frozen, __doc__)
