"""A report: curves, final measures, replays and settings of a comparison as one HTML file. docs/report.md describes its
contents, docs/plots.md the curves."""

import dataclasses
import math
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from advsurprise import __version__
from advsurprise.config import RunConfig
from advsurprise.errors import UserError
from advsurprise.evaluation import comparison, pages, plot, provenance, sweep
from advsurprise.evaluation.curves import Curve, Record, choose, curve, panels_of, read_record, run_names, table_of
from advsurprise.evaluation.labels import Labels
from advsurprise.evaluation.replay import Replayed, run_data
from advsurprise.evaluation.statistics import Estimate, estimate
from advsurprise.training import checkpoint
from advsurprise.training.folder import CHECKPOINTS, CONFIG, METRICS, read_json, read_run
from advsurprise.training.versions import versions

POINTS = 400
"""Most points in a curve: more than a screen can show."""
DIGITS = 5
"""Significant digits of points in curves."""


@dataclasses.dataclass(frozen=True)
class Compared:
    """The trained runs in a folder."""

    folder: pathlib.Path
    """A comparison, or a single run."""
    configs: dict[str, RunConfig]
    """All runs, in training order."""
    records: list[Record]
    """Metrics of the runs that have any."""
    columns: list[str]
    """Metrics whose curves are plotted."""
    window: int
    """Updates in the moving average."""
    notes: list[str]
    """One sentence for each thing that is missing."""

    @property
    def names(self) -> list[str]:
        """Names of the runs with metrics."""
        return run_names(self.records)

    @property
    def is_even(self) -> bool:
        """Whether all runs with metrics have been trained for the same number of steps."""
        return len({record.steps[-1] for record in self.records}) == 1


# --------------------------------------------------------------------------------------------------- reading


def read(folder: pathlib.Path, metric: str | None) -> Compared:
    """Reads a comparison or a single run; methods that are untrained or unfinished are noted."""
    configs = comparison.gathered(folder)
    if configs is None:
        cfg = read_run(folder)
        configs, homes = {cfg.method: cfg}, {cfg.method: folder}
    else:
        homes = {name: folder / name for name in configs}
    records, notes = [], []
    for name, home in homes.items():
        try:
            records.append(read_record(home))
        except UserError as error:
            notes.append(f"{name} is left out: {error}.")
            continue
        notes += _unfinished(name, configs[name], records[-1])
    if not records:
        raise UserError(f"{folder} has no metrics yet; continue with: {comparison.go_on(folder)}")
    notes += [f"{sentence}." for sentence in plot.few_seeds(records)]
    return Compared(folder, configs, records, choose(records, metric), plot.default_window(records), notes)


def _unfinished(name: str, cfg: RunConfig, record: Record) -> list[str]:
    done, total = record.steps[-1], cfg.updates * cfg.steps_per_update
    notes = [f"{name} has been trained for {done:,} of {total:,} steps."] if done < total else []
    if checkpoint.newest_good(record.folder / CHECKPOINTS)[0] is None:
        notes.append(f"{name} has no checkpoint, so there is no replay.")
    return notes


def median_seeds(compared: Compared) -> dict[str, int]:
    """For each run with a checkpoint, the seed with the median final value of the first metric (the lower one if the
    number of seeds is even); the first seed if the run does not have the metric."""
    chosen = {}
    for name, record in zip(compared.names, compared.records, strict=True):
        if checkpoint.newest_good(record.folder / CHECKPOINTS)[0] is None:
            continue
        drawn = curve(record, compared.columns[0], label=name, window=compared.window, points=1)
        chosen[name] = record.seeds[0] if drawn is None else median_seed(drawn.seeds, drawn.values[:, -1])
    return chosen


def median_seed(seeds: Sequence[int], values: np.ndarray) -> int:
    """The seed with the median value, the lower one if their number is even; nan is ignored."""
    known = sorted((value, seed) for value, seed in zip(values.tolist(), seeds, strict=True) if math.isfinite(value))
    return known[(len(known) - 1) // 2][1]


# ---------------------------------------------------------------------------------------------------- the page


def page(compared: Compared, replays: Sequence[Replayed], *, notes: Sequence[str] = (), command: str) -> str:
    """The HTML page."""
    data = {
        "version": __version__,
        "runs": [run_data(run) for run in replays],
        "report": report_data(compared, command) | {"notes": [*compared.notes, *notes]},
    }
    return pages.fill(
        "report.html",
        title=f"Report: {compared.folder}",
        data=data,
        styles=["replay.css", "report.css"],
        scripts=[*pages.SCRIPTS, "curves.js", "report.js"],
    )


def report_data(compared: Compared, command: str) -> dict[str, Any]:
    """All data of the page except the replays."""
    table = table_of(compared.records)
    panels = panels_of(compared.records, compared.columns, window=compared.window, log=lambda line: None, points=POINTS)
    return {
        "name": str(compared.folder),
        "about": _about(compared),
        "series": _series(compared),
        "smoothing": compared.window,
        "panels": [_panel(column, table.label(column), drawn) for column, drawn in panels.items()],
        "measures": measures(compared, table),
        "settings": {"runs": list(compared.configs), "rows": provenance.settings(compared.configs)},
        "versions": _versions(compared),
        "commands": [
            {"title": "Train it again", "text": _train_command(compared)},
            {"title": "Make this page again", "text": command},
        ],
    }


def _train_command(compared: Compared) -> str:
    if sweep.is_sweep(compared.folder):
        return sweep.read(compared.folder).command
    return provenance.train_command(compared.configs, compared.folder)


def _about(compared: Compared) -> list[list[str]]:
    """Terms and descriptions of what was compared."""
    worlds = dict.fromkeys(cfg.env for cfg in compared.configs.values())
    methods = dict.fromkeys(cfg.method for cfg in compared.configs.values())
    newest = max((record.folder / METRICS).stat().st_mtime for record in compared.records)
    seeds = sorted({seed for record in compared.records for seed in record.seeds})
    return [
        ["World" if len(worlds) == 1 else "Worlds", ", ".join(worlds)],
        ["Method" if len(methods) == 1 else "Methods", ", ".join(methods)],
        ["Seeds", f"{provenance.seeds(seeds)} ({len(seeds)})"],
        ["Steps of each seed", f"{max(record.steps[-1] for record in compared.records):,}"],
        ["Trained until", _date(newest)],
        ["Report made", _date(time.time())],
    ]


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def _series(compared: Compared) -> list[dict[str, Any]]:
    """Name, colour index and line style index of every run. Colours are those of methods, unless one method has too
    many runs for that, as in a sweep."""
    methods = [record.config.method for record in compared.records]
    crowded = max(map(methods.count, methods)) > plot.most_of_one_colour(methods)
    used: dict[int, int] = {}
    series = []
    for number, (name, method) in enumerate(zip(compared.names, methods, strict=True)):
        colour = number % len(plot.PALETTE) if crowded else plot.PALETTE.index(plot.colour(method))
        series.append({"name": name, "colour": colour, "dash": used.get(colour, 0) % len(plot.STYLES)})
        used[colour] = used.get(colour, 0) + 1
    return series


def _panel(column: str, label: str, drawn: Sequence[Curve]) -> dict[str, Any]:
    return {"column": column, "label": label, "curves": [_curve(each) for each in drawn]}


def _curve(drawn: Curve) -> dict[str, Any]:
    return {
        "name": drawn.label,
        "steps": drawn.steps.tolist(),
        **{name: _short(getattr(drawn, name)) for name in ("iqm", "low", "high")},
        "seeds": [{"seed": seed, "values": _short(line)} for seed, line in zip(drawn.seeds, drawn.values, strict=True)],
    }


def _short(values: np.ndarray) -> list[float | None]:
    return [float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None for value in values.tolist()]


# ------------------------------------------------------------------------------------------------ final measures


def measures(compared: Compared, table: Labels) -> dict[str, Any]:
    """The table of final measures: `runs` in columns, `rows` of measures; each cell has an estimate, its text, and
    whether it is clearly the highest; None if a run does not have the measure."""
    rows = []
    for column in dict.fromkeys([*compared.columns, *table.shown]):
        cells = [_final(record, column, compared.window) for record in compared.records]
        if any(cell is not None for cell in cells):
            best = highest(cells) if compared.is_even and table.is_shared(column) else None
            shown = [_cell(cell, number == best) for number, cell in enumerate(cells)]
            rows.append({"column": column, "label": table.label(column), "cells": shown})
    return {"runs": compared.names, "even": compared.is_even, "rows": rows}


def _final(record: Record, column: str, window: int) -> Estimate | None:
    """Mean over seeds of the last point of their curves."""
    drawn = curve(record, column, label="", window=window, points=1)
    return None if drawn is None else estimate(drawn.values[:, -1], over="training seeds")


def highest(cells: Sequence[Estimate | None]) -> int | None:
    """Index of the cell whose interval lies above those of all others; None if there is none."""
    known = {number: cell for number, cell in enumerate(cells) if cell is not None}
    if len(known) < 2 or not all(math.isfinite(cell["low"]) for cell in known.values()):
        return None
    top = max(known, key=lambda number: known[number]["mean"])
    others = [cell["high"] for number, cell in known.items() if number != top]
    return top if known[top]["low"] > max(others) else None


def _cell(cell: Estimate | None, best: bool) -> dict[str, Any] | None:
    if cell is None:
        return None
    half = (cell["high"] - cell["low"]) / 2
    known = half if math.isfinite(half) else None
    return {"mean": cell["mean"], "half": known, "n": cell["n"], "text": rounded(cell["mean"], known), "best": best}


def rounded(mean: float, half: float | None) -> str:
    """Formats a mean and the half-width of its interval, to two digits of the latter; without it, to three digits."""
    size = abs(mean) / 10 if half is None else half
    decimals = min(6, max(0, 1 - math.floor(math.log10(size)))) if size > 0 else 2
    text = f"{mean:,.{decimals}f}" + ("" if half is None else f" ± {half:,.{decimals}f}")
    return text.replace("-", "−")


# ---------------------------------------------------------------------------------------------------- versions


def _versions(compared: Compared) -> dict[str, Any]:
    """Package versions that trained the runs, resumed them and made the page."""
    known = (comparison.FILE, sweep.FILE, CONFIG)
    values = next(read_json(compared.folder / name) for name in known if (compared.folder / name).exists())
    made = [("trained with", values.get("versions", {}))]
    made += [("continued with", each) for each in values.get("resumed_with", [])]
    made.append(("this page", versions()))
    names = dict.fromkeys(name for _, each in made for name in each)
    rows = [{"name": name, "values": [each.get(name) for _, each in made]} for name in names]
    return {"heads": [head for head, _ in made], "rows": rows}
