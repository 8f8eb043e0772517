"""Unsupervised methods in a game: trains each, lets the frozen policies play whole games, and writes the rows.

    python -m advsurprise.experiments.games atari/freeway --out runs/freeway --steps 1M --seeds 0..2

Every method is a run of its own in the folder, which is continued if it is there, so the command can be given again.
`rows.csv` has the curves in bins, `scores.json` the scores of whole games: sampled, greedy, random.
"""

import csv
import io
import json
import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from advsurprise.experiments.cells import binned
from advsurprise.training import files
from advsurprise.training.metrics import read_rows

METHODS = ("adversarial-surprise", "smirl", "rnd", "task")
COLUMNS = ("game/score", "end/episode_length", "scored_surprise", "common_surprise", "steps_per_s")
"""What is kept of a run's metrics."""
BINS = 20
"""Rows of each run and seed."""


@dataclass(frozen=True)
class Games:
    """Trains methods in a game and lets them play."""

    env: tyro.conf.Positional[str]
    """The game."""
    out: pathlib.Path
    """Folder of the runs."""
    methods: tuple[str, ...] = METHODS
    """Methods; a setting of one follows it, as in adversarial-surprise:k_explore=16,k_control=16."""
    steps: str = "1M"
    """Environment steps of each seed."""
    seeds: str = "0..2"
    """Training seeds."""
    bodies: int = 64
    """Bodies of each seed."""
    rollout: int = 128
    """Steps of each body between two updates."""
    games: int = 30
    """Whole games that each training seed plays."""
    parallel: int = 2
    """Methods trained at the same time."""
    workers: Annotated[int, tyro.conf.arg(help="Worker processes of each method.")] = 7

    def run(self) -> None:
        """All of it."""
        with ThreadPoolExecutor(self.parallel) as pool:
            done = list(pool.map(self.one, self.methods))
        write_rows(self.out / "rows.csv", [row for rows, _ in done for row in rows])
        scores = [score for _, each in done for score in each]
        files.write(self.out / "scores.json", json.dumps(scores, indent=1).encode())

    def one(self, named: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Trains one method and lets it play: binned rows and scores."""
        method, _, fields = named.partition(":")
        folder = self.out / named.replace(":", "_").replace(",", "_").replace("=", "")
        settings = [f"rollout={self.rollout}", f"env.workers={self.workers}", "save_every=1000"]
        settings += [f"method.{field}" for field in fields.split(",") if field]
        words = ["--env", self.env, "--method", method, "--seeds", self.seeds, "--bodies", str(self.bodies)]
        command(
            "train", *words, "--steps", self.steps, *(f"--set={setting}" for setting in settings), "--out", str(folder)
        )
        played = json.loads(command("eval", str(folder), "--episodes", str(self.games), "--json"))
        about = {"env": self.env, "method": named}
        return [about | row for row in binned(read_rows(folder / "metrics.jsonl"), COLUMNS, BINS)], scores_of(
            about, played
        )


def command(*words: str) -> str:
    """What a command of the library prints; stops with its last line if it fails."""
    done = subprocess.run([sys.executable, "-m", "advsurprise", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit((done.stderr.strip().splitlines() or ["no reason given"])[-1])
    return done.stdout


def scores_of(about: dict[str, Any], played: dict[str, Any]) -> list[dict[str, Any]]:
    """One entry per kind of player, with the score of whole games and the length of episodes."""
    kept = ("episodes", "training_seeds", "updates", "published")
    return [
        about
        | {name: played[name] for name in kept}
        | {"player": player, **{name: played[column].get(name) for name in ("game/score", "end/episode_length")}}
        for player, column in (("random", "random"), ("sampled", "measures"), ("greedy", "greedy"))
    ]


def write_rows(path: pathlib.Path, rows: list[dict[str, Any]]) -> None:
    """Rows as CSV."""
    text = io.StringIO()
    columns: list[str] = ["env", "method", "seed", "step", *COLUMNS]
    table = csv.DictWriter(text, columns, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    files.write(path, text.getvalue())


if __name__ == "__main__":
    tyro.cli(Games, description=__doc__).run()
