"""What a run's frozen policies do, training seed by training seed, on layouts that no training used.

python -m advsurprise.experiments.evaluate RUN --episodes 500    # writes RUN/frozen.json
"""

import dataclasses
import json
import pathlib
from typing import Any

import tyro

from advsurprise.api import Trained, load
from advsurprise.training import files

FILE = "frozen.json"


@dataclasses.dataclass(frozen=True)
class Frozen:
    """Plays the policies of a run."""

    run: tyro.conf.Positional[pathlib.Path]
    """The run."""
    episodes: int = 500
    """Episodes of each training seed."""


def play(asked: Frozen) -> None:
    """Plays, and writes the means of every measure for each training seed."""
    trained = load(asked.run)
    seeds = zip(trained.config.seeds, trained.agents, strict=True)
    measured = [{"seed": seed} | _means(dataclasses.replace(trained, agents=[agent]), asked) for seed, agent in seeds]
    found = {"steps": trained.updates * trained.config.steps_per_update, "episodes": asked.episodes, "seeds": measured}
    files.write(asked.run / FILE, json.dumps(found))


def _means(trained: Trained, asked: Frozen) -> dict[str, float]:
    return {name: each["mean"] for name, each in trained.evaluate(episodes=asked.episodes).items()}


def read(run: pathlib.Path) -> dict[str, Any] | None:
    """What was written; None if nothing was."""
    try:
        return json.loads((run / FILE).read_text())
    except (OSError, ValueError):
        return None


if __name__ == "__main__":
    play(tyro.cli(Frozen, description=__doc__))
