"""Reads rows of results, and formats them as Markdown cells and tables."""

import csv
import math
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from advsurprise.evaluation import curves
from advsurprise.evaluation.statistics import estimate


def read_csv(path: pathlib.Path) -> list[dict[str, Any]]:
    """Rows of a CSV file, with numbers parsed."""
    with open(path, newline="") as file:
        return [_numbers(row) for row in csv.DictReader(file)]


def _numbers(row: dict[str, str]) -> dict[str, Any]:
    """Parses the numbers in a row."""
    values: dict[str, Any] = dict(row)
    for name, text in row.items():
        try:
            values[name] = float(text)
        except ValueError:
            continue
    return values


def seed_means(rows: Iterable[dict[str, Any]], column: str, first: float, last: float) -> list[float]:
    """Each training seed's mean of a column over the steps after `first` up to `last`."""
    by_seed: dict[float, list[float]] = {}
    for row in rows:
        if first < row["step"] <= last:
            by_seed.setdefault(row["seed"], []).append(row[column])
    return [float(np.mean(values)) for values in by_seed.values()]


def binned(rows: Sequence[dict[str, Any]], columns: Sequence[str], bins: int) -> list[dict[str, Any]]:
    """Means of some columns over equal bins of each seed's updates; empty if no update in a bin has a value."""
    result = []
    for seed in sorted({row["seed"] for row in rows}):
        mine = [row for row in rows if row["seed"] == seed]
        size = math.ceil(len(mine) / bins)
        parts = [mine[start : start + size] for start in range(0, len(mine), size)]
        result += [{"seed": seed, "step": each[-1]["step"]} | _means(each, columns) for each in parts]
    return result


def _means(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> dict[str, Any]:
    values = {name: [float(row[name]) for row in rows if name in row] for name in columns}
    known = {name: [value for value in each if math.isfinite(value)] for name, each in values.items()}
    return {name: float(f"{sum(each) / len(each):.6g}") if each else "" for name, each in known.items()}


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """A Markdown table; its first `left` columns are left-aligned, the others right-aligned."""
    rule = ["---" if index < left else "---:" for index in range(len(head))]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *rows)) + "\n"


def with_interval(mean: float, low: float, high: float, digits: int) -> str:
    """Formats a mean and its interval."""
    # Adding 0 turns a rounded −0 into 0.
    centre, below, above = (f"{round(value, digits) + 0.0:.{digits}f}" for value in (mean, low, high))
    return f"{centre} [{below}, {above}]"


def over_seeds(values: Sequence[float], digits: int) -> str:
    """Mean and Student's interval over training seeds; a single value has no interval, and none is an empty cell."""
    if len(values) < 2:
        return f"{values[0]:.{digits}f}" if values else ""
    seeds = estimate(np.asarray(values), over="training seeds")
    return with_interval(seeds["mean"], seeds["low"], seeds["high"], digits)


def bootstrapped(values: Sequence[float], digits: int) -> str:
    """Interquartile mean and bootstrap interval over training seeds, as in plots."""
    centre, low, high = curves.summarise(np.asarray(values)[:, None])[:, 0]
    return with_interval(centre, low, high, digits)


def played(measures: dict[str, Any], column: str, digits: int, *, interval: bool) -> str:
    """Formats a measure of an evaluation."""
    cell = measures[column]
    if interval:
        return with_interval(cell["mean"], cell["low"], cell["high"], digits)
    return f"{cell['mean']:.{digits}f}"
