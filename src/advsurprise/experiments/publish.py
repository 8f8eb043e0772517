"""Publishes figures in results/, judged and drawn with the current code, and all their claims in one list.

python -m advsurprise.experiments.publish runs/reproduce/*-full    # writes results/FIGURE/ and results/claims.json
python -m advsurprise.experiments.publish --add runs/reproduce/doom-zero-shot-full    # keeps published arms
python -m advsurprise.experiments.publish                          # remakes claims and figures in results/
"""

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
    """Keep published runs of a figure that are not in its folder, and published seeds of those that are if the folder
    has others: its runs can come from several machines."""
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
    """Adds older runs to the new results and to the record about them: those of other arms and worlds, and those of the
    same arm with other seeds. A run that shares a seed with a new one is left out."""
    if old_about["steps"] != about["steps"]:
        raise UserError(
            f"published runs of {about['figure']} have {old_about['steps']:,} steps, these {about['steps']:,}: all "
            "methods must have the same number"
        )
    seeds, old_seeds = _seeds(results), _seeds(old_results)
    again = {run for run in seeds if seeds[run] & old_seeds.get(run, set())}

    def kept(rows: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
        return tuple(row for row in rows if (row["world"], row["arm"]) not in again)

    whole = Results(kept(old_results.rows) + results.rows, kept(old_results.frozen) + results.frozen)
    if not (older := kept(old_about["runs"])):
        return whole, about
    counts = {run: len(each) for run, each in _seeds(whole).items()}
    latest = {(run["world"], run["arm"]): run for run in (*older, *about["runs"])}
    runs: list[dict[str, Any]] = [run | {"seeds": counts[key]} for key, run in latest.items()]
    names = {f"{name}s": list(dict.fromkeys(run[name] for run in runs)) for name in ("world", "arm")}
    tuned = {arm: (old_about["tuned"] | about["tuned"])[arm] for arm in names["arms"]}
    before = [*old_about.get("before", []), {name: old_about[name] for name in ("command", "versions", "date")}]
    figure = find(about["figure"])
    fewest = min((run["seeds"] for run in runs if figure.arms[run["arm"]].learns), default=about["training_seeds"])
    return whole, about | {"runs": runs, **names, "tuned": tuned, "before": before, "training_seeds": fewest}


def _seeds(results: Results) -> dict[tuple[str, str], set[int]]:
    """Training seeds of each run, by world and arm."""
    seeds: dict[tuple[str, str], set[int]] = {}
    for row in results.frozen:
        seeds.setdefault((row["world"], row["arm"]), set()).add(int(row["seed"]))
    return seeds


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
