"""Publishes figures in results/, judged and drawn with the current code, and all their claims in one list.

python -m advsurprise.experiments.publish runs/reproduce/*-full    # writes results/FIGURE/ and results/claims.json
python -m advsurprise.experiments.publish --add runs/reproduce/doom-zero-shot-full    # keeps published arms
python -m advsurprise.experiments.publish                          # remakes claims and figures in results/
"""

import collections
import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import tyro

from advsurprise.errors import UserError
from advsurprise.experiments.figure import Results
from advsurprise.experiments.reproduce import ABOUT, CLAIMS, FIGURES, claims_of, contents, find
from advsurprise.experiments.runs import script
from advsurprise.training import files


@dataclasses.dataclass(frozen=True)
class Publish:
    """What to publish, and where."""

    folders: tyro.conf.Positional[tuple[pathlib.Path, ...]] = ()
    """Folders written by `advsurprise reproduce`."""
    add: bool = False
    """Keep what is published of a figure and not in its folder, seed by seed: runs can come from several machines."""
    out: pathlib.Path = pathlib.Path("results")
    """Output folder."""


def published(out: pathlib.Path) -> dict[str, Results]:
    """The published figures, by name."""
    return {name: Results.read(out / name) for name in FIGURES if (out / name / ABOUT).exists()}


def all_claims(out: pathlib.Path) -> list[dict[str, Any]]:
    """Judges the claims of all published figures from their numbers."""
    return [claim for name, results in published(out).items() for claim in claims_of(find(name), results)]


def added(
    results: Results, about: dict[str, Any], old_results: Results, old_about: dict[str, Any]
) -> tuple[Results, dict[str, Any]]:
    """Adds older runs to the new results and to the record about them: those of other worlds, arms and seeds."""
    if old_about["steps"] != about["steps"]:
        raise UserError(
            f"published runs of {about['figure']} have {old_about['steps']:,} steps, these {about['steps']:,}: all "
            "methods must have the same number"
        )
    new = {_trained(row) for row in results.frozen}

    def joined(old: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
        # In the order of runs: publishing one again moves no other's rows.
        return tuple(sorted([*(row for row in old if _trained(row) not in new), *rows], key=_trained))

    whole = Results(joined(old_results.rows, results.rows), joined(old_results.frozen, results.frozen))
    trained = {_trained(row) for row in whole.frozen}
    if trained == new:
        return whole, about
    counts = collections.Counter((world, arm) for world, arm, _ in trained)
    latest = {(run["world"], run["arm"]): run for run in (*old_about["runs"], *about["runs"])}
    runs: list[dict[str, Any]] = [run | {"seeds": counts[key]} for key, run in latest.items()]
    names = {f"{name}s": list(dict.fromkeys(run[name] for run in runs)) for name in ("world", "arm")}
    tuned = {arm: (old_about["tuned"] | about["tuned"])[arm] for arm in names["arms"]}
    before = [*old_about.get("before", []), {name: old_about[name] for name in ("command", "versions", "date")}]
    figure = find(about["figure"])
    fewest = min((run["seeds"] for run in runs if figure.arms[run["arm"]].learns), default=about["training_seeds"])
    return whole, about | {"runs": runs, **names, "tuned": tuned, "before": before, "training_seeds": fewest}


def _trained(row: dict[str, Any]) -> tuple[str, str, int]:
    """World, arm and training seed of a row."""
    return row["world"], row["arm"], int(row["seed"])


def publish(args: Publish) -> None:
    """Writes the figures, their claims and the list of all claims."""
    chosen = args.folders or tuple(args.out / name for name in published(args.out))
    for folder in chosen:
        results = Results.read(folder)
        about = json.loads((folder / ABOUT).read_text())
        figure = find(about["figure"])
        to = args.out / figure.name
        if args.add and (to / ABOUT).exists():
            results, about = added(results, about, Results.read(to), json.loads((to / ABOUT).read_text()))
        files.make_folder(to)
        files.write_all(contents(figure, results, claims_of(figure, results), about, to))
        print(to)
    files.write(args.out / CLAIMS, json.dumps(all_claims(args.out), indent=1))


if __name__ == "__main__":
    script(publish, Publish, __doc__)
