"""Puts figures that were made into results/, judged and drawn by the present code, and all their claims into one list.

python -m advsurprise.experiments.publish runs/reproduce/*-full    # writes results/FIGURE/ and results/claims.json
python -m advsurprise.experiments.publish                          # makes claims and figures in results/ again
"""

import dataclasses
import json
import pathlib
from typing import Any

import tyro

from advsurprise.experiments.figure import Results
from advsurprise.experiments.reproduce import ABOUT, CLAIMS, FIGURES, claims_of, contents, find
from advsurprise.experiments.runs import script
from advsurprise.training import files


@dataclasses.dataclass(frozen=True)
class Publish:
    """What is published, and where."""

    folders: tyro.conf.Positional[tuple[pathlib.Path, ...]] = ()
    """Folders that `advsurprise reproduce` has written."""
    out: pathlib.Path = pathlib.Path("results")
    """Where results go."""


def published(out: pathlib.Path) -> dict[str, Results]:
    """The figures in a folder of results, by name."""
    return {name: Results.read(out / name) for name in FIGURES if (out / name / ABOUT).exists()}


def all_claims(out: pathlib.Path) -> list[dict[str, Any]]:
    """The claims of all published figures, from their numbers."""
    return [claim for name, results in published(out).items() for claim in claims_of(find(name), results)]


def publish(asked: Publish) -> None:
    """Writes figures, claims and the list of all claims."""
    chosen = asked.folders or tuple(asked.out / name for name in published(asked.out))
    for folder in chosen:
        results = Results.read(folder)
        about = json.loads((folder / ABOUT).read_text())
        figure = find(about["figure"])
        to = asked.out / figure.name
        files.make_folder(to)
        files.write_all(contents(figure, results, claims_of(figure, results), about, to))
        print(to)
    files.write(asked.out / CLAIMS, json.dumps(all_claims(asked.out), indent=1))


if __name__ == "__main__":
    script(publish, Publish, __doc__)
