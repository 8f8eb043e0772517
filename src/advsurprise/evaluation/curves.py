"""Learning curves of runs: metric rows, moving averages, interquartile means over seeds and bootstrap intervals.

docs/plots.md has the definitions.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from advsurprise.config import RunConfig
from advsurprise.errors import UserError, nearest
from advsurprise.evaluation import labels, sweep
from advsurprise.evaluation.labels import Labels
from advsurprise.training import metrics
from advsurprise.training.folder import read_run

TRIM = 0.25
"""Share of the seeds trimmed at each end for an interquartile mean."""
RESAMPLES = 2000
"""Number of bootstrap samples for an interval."""

Log = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Record:
    """The metrics of one run."""

    folder: pathlib.Path
    """The run folder."""
    config: RunConfig
    """Its configuration."""
    seeds: tuple[int, ...]
    """Its seeds."""
    steps: tuple[int, ...]
    """Environment steps of the updates that every seed has a row for."""
    rows: tuple[tuple[dict[str, Any], ...], ...]
    """The rows of each seed, one per entry of `steps`."""

    @functools.cached_property
    def title(self) -> str:
        """Display name when it is unique: the method, or the run's name in a sweep."""
        place = self.folder.resolve()
        return place.name if sweep.is_sweep(place.parent) else self.config.method

    @functools.cached_property
    def columns(self) -> set[str]:
        """Names of the columns that can be plotted."""
        return {name for seed in self.rows for row in seed for name in row} - {"step", "update", "seed"}

    @functools.cached_property
    def labels(self) -> Labels:
        """Labels of the columns."""
        return labels.of_config(self.config)

    def column(self, name: str) -> Float[np.ndarray, "S T"]:
        """The values of one column, nan where missing."""
        return np.asarray([[_number(row, name, self.folder) for row in seed] for seed in self.rows])


@dataclasses.dataclass(frozen=True)
class Curve:
    """The curve of one run in one panel. Steps at which no seed has a value are left out."""

    metric: str
    """The column."""
    label: str
    """The run's name in the legend."""
    method: str
    """Its method, which determines the colour."""
    seeds: tuple[int, ...]
    """Its seeds."""
    steps: Int[np.ndarray, " T"]
    """Environment steps per seed."""
    values: Float[np.ndarray, "S T"]
    """Moving average of each seed, nan where it has no value."""
    iqm: Float[np.ndarray, " T"]
    """Interquartile mean over the seeds that have a value."""
    low: Float[np.ndarray, " T"]
    """Lower end of its 95% interval."""
    high: Float[np.ndarray, " T"]
    """Upper end."""

    @property
    def n_seeds(self) -> Int[np.ndarray, " T"]:
        """Number of seeds with a value at each step."""
        return np.isfinite(self.values).sum(axis=0)

    @property
    def end(self) -> dict[str, Any]:
        """The last point."""
        last = {name: float(getattr(self, name)[-1]) for name in ("iqm", "low", "high")}
        return {"step": int(self.steps[-1]), **last, "n_seeds": int(self.n_seeds[-1])}


# ------------------------------------------------------------------------------------------------ statistics


def iqm(values: Float[np.ndarray, "*rest S"]) -> Float[np.ndarray, "*rest"]:
    """Interquartile mean: ⌊S/4⌋ seeds are trimmed at each end. With fewer than four seeds it is the plain mean."""
    from scipy import stats  # half a second to import, which training does not need

    return np.asarray(stats.trim_mean(values, TRIM, axis=-1))


def bootstrap(
    values: Float[np.ndarray, "T S"],
    *,
    strata: Sequence[int] | None = None,
    resamples: int = RESAMPLES,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
    """Percentile bootstrap interval of the interquartile mean at each step.

    Seeds are drawn with replacement within each stratum (the world they were trained in; default: a single stratum).
    All steps share the same draws, so that the ends of the interval are curves over the same resampled seeds.
    """
    picks = draws(np.zeros(values.shape[1], int) if strata is None else np.asarray(strata), resamples, seed)
    resampled = np.stack([iqm(row[picks]) for row in values])
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2], axis=1)
    return low, high


def draws(strata: Int[np.ndarray, " S"], resamples: int, seed: int) -> Int[np.ndarray, "R S"]:
    """Seed indices of each bootstrap sample: every position is drawn from its own stratum."""
    generator = np.random.default_rng(seed)
    picks = np.empty((resamples, len(strata)), int)
    for stratum in np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        picks[:, members] = generator.choice(members, size=(resamples, len(members)))
    return picks


def moving_average(values: Float[np.ndarray, "S T"], window: int) -> Float[np.ndarray, "S T"]:
    """Mean of the known values among the last `window`; nan where none is known."""
    padded = np.concatenate([np.full((len(values), window - 1), np.nan), values], axis=1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, window, axis=1)
    known = np.isfinite(windows)
    count = known.sum(axis=-1)
    return np.where(count > 0, np.where(known, windows, 0.0).sum(axis=-1) / np.maximum(count, 1), np.nan)


@np.errstate(over="ignore", invalid="ignore")  # for values near the float maximum
def curve(record: Record, metric: str, *, label: str, window: int, points: int | None = None) -> Curve | None:
    """One run's curve, or None if no row has the metric. At most `points` points are kept, the last always."""
    values = moving_average(record.column(metric), window)
    known = np.isfinite(values).any(axis=0)
    if not known.any():
        return None
    shown = _thinned(np.flatnonzero(known), points)
    values, steps = values[:, shown], np.asarray(record.steps)[shown]
    centre, low, high = summarise(values)
    return Curve(metric, label, record.config.method, record.seeds, steps, values, centre, low, high)


def _thinned(indices: Int[np.ndarray, " n"], points: int | None) -> Int[np.ndarray, " m"]:
    """At most `points` of the indices, evenly spaced and including the last."""
    if points is None or len(indices) <= points:
        return indices
    return indices[np.rint(np.linspace(len(indices) - 1, 0, points)).astype(int)[::-1]]


def summarise(values: Float[np.ndarray, "S T"]) -> Float[np.ndarray, "3 T"]:
    """Interquartile mean and interval at each step, over the seeds with a value there (at least one)."""
    summary = np.empty((3, values.shape[1]))
    known = np.isfinite(values)
    # Steps at which the same seeds have values are grouped: usually that is one group.
    patterns, group = np.unique(known, axis=1, return_inverse=True)
    for index, seeds in enumerate(patterns.T):
        place = np.flatnonzero(group.reshape(-1) == index)
        chosen = values[np.ix_(seeds, place)].T
        summary[:, place] = np.stack([iqm(chosen), *bootstrap(chosen)])
    return summary


# --------------------------------------------------------------------------------------------------- reading


def read_record(folder: pathlib.Path) -> Record:
    """Reads the metrics of a run; a last update cut short by a kill is left out."""
    config = read_run(folder)
    path = folder / "metrics.jsonl"
    by_seed: dict[int, dict[int, dict[str, Any]]] = {}
    for row in metrics.read_rows(path):
        step, seed = row.get("step"), row.get("seed")
        if not isinstance(step, int) or not isinstance(seed, int):
            raise UserError(f"{path} is damaged: it has a row without a step or a seed")
        by_seed.setdefault(seed, {})[step] = row
    seeds = tuple(sorted(by_seed))
    steps = tuple(sorted(set.intersection(*(set(rows) for rows in by_seed.values())))) if by_seed else ()
    if not steps:
        raise UserError(f"{folder} has no metrics yet; continue it with: advsurprise resume {folder}")
    return Record(folder, config, seeds, steps, tuple(tuple(by_seed[seed][step] for step in steps) for seed in seeds))


def _number(row: dict[str, Any], name: str, folder: pathlib.Path) -> float:
    # Measures at the end of an episode mean nothing in an update in which no episode ended.
    if name not in row or (name.startswith("end/") and row.get("episodes") == 0):
        return float("nan")
    try:
        return float(row[name])
    except (TypeError, ValueError):
        raise UserError(f"{name} is not a number in {folder / 'metrics.jsonl'}: {row[name]!r}") from None


def run_names(records: Sequence[Record]) -> list[str]:
    """Display names: the method, or the run's name in a sweep; names that clash are replaced by the shortest unique
    tail of the folder's path."""
    places = [record.folder.resolve() for record in records]
    if len(set(places)) < len(places):
        raise UserError("a run is given twice")
    named = [record.title for record in records]
    clash = [named.count(name) > 1 for name in named]
    for length in range(1, max(len(place.parts) for place in places) + 1):
        if len(set(named)) == len(named):
            break
        tails = ["/".join(place.parts[-length:]) for place in places]
        named = [tail if clashes else name for name, tail, clashes in zip(named, tails, clash, strict=True)]
    return named


def table_of(records: Sequence[Record]) -> Labels:
    """Labels of the columns of all runs."""
    return labels.union([record.labels for record in records])


def choose(records: Sequence[Record], names: str | None) -> list[str]:
    """Columns to plot, from comma-separated short or full names."""
    available = set().union(*(record.columns for record in records))
    table = table_of(records)
    if names is None:
        drawn = [column for column in table.drawn if column in available and _has_numbers(records, column)]
        if not drawn:
            raise UserError(f"no run has {', '.join(table.drawn)}; name a column of metrics.jsonl with --metric")
        return drawn
    chosen = []
    for word in (part.strip() for part in names.split(",")):
        column = table.shorts.get(word, word)
        if column not in available and word not in table.shorts:
            raise UserError(f"unknown metric {nearest(word, {*table.shorts, *available} - {*table.shares})}")
        chosen.append(column)
    return list(dict.fromkeys(chosen))


def _has_numbers(records: Sequence[Record], column: str) -> bool:
    return any(np.isfinite(record.column(column)).any() for record in records)


def panels_of(
    records: Sequence[Record], columns: Sequence[str], *, window: int, log: Log, points: int | None = None
) -> dict[str, list[Curve]]:
    """The curves of every panel. Runs without the metric are logged and left out; at least one run must have it."""
    panels = {}
    for column in columns:
        made = {
            label: curve(record, column, label=label, window=window, points=points)
            for record, label in zip(records, run_names(records), strict=True)
        }
        missing = [label for label, each in made.items() if each is None]
        if len(missing) == len(made):
            raise UserError(f"no run has {column} in its metrics")
        if missing:
            log(f"no {column} in the metrics, not plotted: {', '.join(missing)}")
        panels[column] = [each for each in made.values() if each is not None]
    return panels
