"""Learning curves of runs: their rows, moving averages, interquartile means over seeds and bootstrap intervals.

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
"""Share of the seeds left out of an interquartile mean at each end."""
RESAMPLES = 2000
"""Bootstrap samples behind an interval."""

Log = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Record:
    """The rows of one run."""

    folder: pathlib.Path
    """The run's folder."""
    config: RunConfig
    """What was asked for."""
    seeds: tuple[int, ...]
    """Its seeds."""
    steps: tuple[int, ...]
    """Environment steps of the updates of which every seed has a row."""
    rows: tuple[tuple[dict[str, Any], ...], ...]
    """For each seed its rows, one per step."""

    @functools.cached_property
    def title(self) -> str:
        """What the run is called where nothing else has that name: its method, or its name in a sweep."""
        place = self.folder.resolve()
        return place.name if sweep.is_sweep(place.parent) else self.config.method

    @functools.cached_property
    def columns(self) -> set[str]:
        """Names that can be drawn."""
        return {name for seed in self.rows for row in seed for name in row} - {"step", "update", "seed"}

    @functools.cached_property
    def labels(self) -> Labels:
        """What the columns are called."""
        return labels.of_config(self.config)

    def column(self, name: str) -> Float[np.ndarray, "S T"]:
        """The values of one column, nan where there is none."""
        return np.asarray([[_number(row, name, self.folder) for row in seed] for seed in self.rows])


@dataclasses.dataclass(frozen=True)
class Curve:
    """What is drawn of one run in one panel. Steps at which no seed has a value are left out."""

    metric: str
    """The column."""
    label: str
    """What the legend calls the run."""
    method: str
    """Its method, which decides the colour."""
    seeds: tuple[int, ...]
    """Its seeds."""
    steps: Int[np.ndarray, " T"]
    """Environment steps per seed."""
    values: Float[np.ndarray, "S T"]
    """Every seed's moving average, nan where it has no value."""
    iqm: Float[np.ndarray, " T"]
    """Interquartile mean over the seeds that have a value."""
    low: Float[np.ndarray, " T"]
    """Lower end of its 95% interval."""
    high: Float[np.ndarray, " T"]
    """Upper end."""

    @property
    def n_seeds(self) -> Int[np.ndarray, " T"]:
        """Seeds that have a value, step by step."""
        return np.isfinite(self.values).sum(axis=0)

    @property
    def end(self) -> dict[str, Any]:
        """The last point."""
        last = {name: float(getattr(self, name)[-1]) for name in ("iqm", "low", "high")}
        return {"step": int(self.steps[-1]), **last, "n_seeds": int(self.n_seeds[-1])}


# ------------------------------------------------------------------------------------------------ statistics


def iqm(values: Float[np.ndarray, "*rest S"]) -> Float[np.ndarray, "*rest"]:
    """Interquartile mean: ⌊S/4⌋ seeds are left out at each end. Of fewer than four seeds it is the plain mean."""
    from scipy import stats  # half a second that those who train need not wait

    return np.asarray(stats.trim_mean(values, TRIM, axis=-1))


def bootstrap(
    values: Float[np.ndarray, "T S"],
    *,
    strata: Sequence[int] | None = None,
    resamples: int = RESAMPLES,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
    """Percentile bootstrap interval of the interquartile mean, step by step.

    Seeds are drawn with replacement within each stratum (the world they were trained in; one if left out). The
    same draws serve every step, so that the ends of the interval are curves of the same imagined experiments.
    """
    picks = draws(np.zeros(values.shape[1], int) if strata is None else np.asarray(strata), resamples, seed)
    resampled = np.stack([iqm(row[picks]) for row in values])
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2], axis=1)
    return low, high


def draws(strata: Int[np.ndarray, " S"], resamples: int, seed: int) -> Int[np.ndarray, "R S"]:
    """Which seeds each bootstrap sample is made of: every place is filled from its own stratum."""
    generator = np.random.default_rng(seed)
    picks = np.empty((resamples, len(strata)), int)
    for stratum in np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        picks[:, members] = generator.choice(members, size=(resamples, len(members)))
    return picks


def moving_average(values: Float[np.ndarray, "S T"], window: int) -> Float[np.ndarray, "S T"]:
    """Mean of the last `window` values, of those that there are; nan where there is none."""
    padded = np.concatenate([np.full((len(values), window - 1), np.nan), values], axis=1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, window, axis=1)
    known = np.isfinite(windows)
    count = known.sum(axis=-1)
    return np.where(count > 0, np.where(known, windows, 0.0).sum(axis=-1) / np.maximum(count, 1), np.nan)


@np.errstate(over="ignore", invalid="ignore")  # of numbers near the largest there is
def curve(record: Record, metric: str, *, label: str, window: int, points: int | None = None) -> Curve | None:
    """One run's curve, or None if no row of it has the metric; of at most so many points, the last among them."""
    values = moving_average(record.column(metric), window)
    there = np.isfinite(values).any(axis=0)
    if not there.any():
        return None
    shown = _thinned(np.flatnonzero(there), points)
    values, steps = values[:, shown], np.asarray(record.steps)[shown]
    centre, low, high = summarise(values)
    return Curve(metric, label, record.config.method, record.seeds, steps, values, centre, low, high)


def _thinned(places: Int[np.ndarray, " n"], points: int | None) -> Int[np.ndarray, " m"]:
    """At most so many of these places, evenly spaced back from the last."""
    if points is None or len(places) <= points:
        return places
    return places[np.rint(np.linspace(len(places) - 1, 0, points)).astype(int)[::-1]]


def summarise(values: Float[np.ndarray, "S T"]) -> Float[np.ndarray, "3 T"]:
    """Interquartile mean and interval of each step over the seeds that have a value there; one at least has."""
    summary = np.empty((3, values.shape[1]))
    known = np.isfinite(values)
    # Steps at which the same seeds have values go together: almost always that is all of them.
    patterns, group = np.unique(known, axis=1, return_inverse=True)
    for index, seeds in enumerate(patterns.T):
        place = np.flatnonzero(group.reshape(-1) == index)
        chosen = values[np.ix_(seeds, place)].T
        summary[:, place] = np.stack([iqm(chosen), *bootstrap(chosen)])
    return summary


# --------------------------------------------------------------------------------------------------- reading


def read_record(folder: pathlib.Path) -> Record:
    """The rows of the run in a folder; a last update cut short by a kill is left out."""
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
    # The end of an episode has no measure in an update in which no episode ended, whatever the row says.
    if name not in row or (name.startswith("end/") and row.get("episodes") == 0):
        return float("nan")
    try:
        return float(row[name])
    except (TypeError, ValueError):
        raise UserError(f"{name} is not a number in {folder / 'metrics.jsonl'}: {row[name]!r}") from None


def run_names(records: Sequence[Record]) -> list[str]:
    """Names of methods, or of runs of a sweep; where they clash as much of the end of the folders' paths as
    distinguishes them."""
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
    """What the columns of all runs are called."""
    return labels.union([record.labels for record in records])


def choose(records: Sequence[Record], asked: str | None) -> list[str]:
    """Columns to draw, from short or whole names with commas between them."""
    there = set().union(*(record.columns for record in records))
    table = table_of(records)
    if asked is None:
        drawn = [column for column in table.drawn if column in there and _has_numbers(records, column)]
        if not drawn:
            raise UserError(f"no run has {', '.join(table.drawn)}; name a column of metrics.jsonl with --metric")
        return drawn
    chosen = []
    for word in (part.strip() for part in asked.split(",")):
        column = table.shorts.get(word, word)
        if column not in there and word not in table.shorts:
            raise UserError(f"unknown metric {nearest(word, {*table.shorts, *there} - {*table.shares})}")
        chosen.append(column)
    return list(dict.fromkeys(chosen))


def _has_numbers(records: Sequence[Record], column: str) -> bool:
    return any(np.isfinite(record.column(column)).any() for record in records)


def panels_of(
    records: Sequence[Record], columns: Sequence[str], *, window: int, log: Log, points: int | None = None
) -> dict[str, list[Curve]]:
    """The curves of every panel. Runs without the metric are left out of it, which is logged; one must have it."""
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
            log(f"left out of {column}, which their metrics do not have: {', '.join(missing)}")
        panels[column] = [each for each in made.values() if each is not None]
    return panels
