"""What a figure of the paper is made of: the runs, what is kept and drawn of them, and the claims it is to decide."""

import csv
import io
import pathlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from advsurprise.errors import UserError
from advsurprise.experiments.cells import read_csv

LAST = 0.9
"""The end of training: steps after this share of it."""
ROWS, FROZEN = "rows.csv", "frozen.csv"
ABOUT = ("world", "arm", "seed")
"""Columns that say whose row it is."""

Verdict = Literal["holds", "does not hold", "undecided"]
Scale = Literal["small", "full"]


@dataclass(frozen=True)
class Arm:
    """One line of a figure: a method with its settings."""

    label: str
    """What the figure calls it."""
    method: str
    """The method."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Fields that differ from what all runs have, by the names that --set knows."""


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, and what was measured of it."""

    claim: str
    """The statement."""
    paper: str
    """What the paper reports."""
    measure: str
    """What `ours` is a number of."""
    ours: float
    """The number."""
    low: float
    """Lower end of its 95% interval over training seeds."""
    high: float
    """Upper end."""
    seeds: int
    """Training seeds of each method."""
    verdict: Verdict
    """Whether the statement holds here."""
    top_half: float | None = None
    """The same number from the better half of each method's seeds, as the paper compares the top three of six."""


@dataclass(frozen=True)
class Results:
    """The numbers behind a figure: curves of training, and what frozen policies did on layouts no training used."""

    rows: tuple[dict[str, Any], ...]
    """Means over equal stretches of training, for each world, arm and training seed."""
    frozen: tuple[dict[str, Any], ...]
    """Means over the episodes of each training seed's frozen policies; none if nothing was trained."""

    @classmethod
    def read(cls, folder: pathlib.Path) -> "Results":
        """From the files of a folder."""
        try:
            frozen = folder / FROZEN
            return cls(tuple(read_csv(folder / ROWS)), tuple(read_csv(frozen)) if frozen.exists() else ())
        except OSError as error:
            raise UserError(f"{folder} holds no results: {error.strerror}") from None

    def files(self, folder: pathlib.Path) -> dict[pathlib.Path, str]:
        """The files, to be written."""
        frozen = {folder / FROZEN: as_csv(self.frozen)} if self.frozen else {}
        return {folder / ROWS: as_csv(self.rows), **frozen}

    def curve(self, world: str, arm: str, column: str) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, "S T"]]:
        """Steps and each training seed's values over training; nan where there is none."""
        mine = [row for row in self.rows if (row["world"], row["arm"]) == (world, arm)]
        steps, seeds = (sorted({row[name] for row in mine}) for name in ("step", "seed"))
        values = np.full((len(seeds), len(steps)), np.nan)
        for row in mine:
            value = row.get(column, "")
            values[seeds.index(row["seed"]), steps.index(row["step"])] = np.nan if value == "" else value
        return np.asarray(steps, np.float64), values

    def at_end(self, world: str, arm: str, column: str) -> Float[np.ndarray, " S"]:
        """Each training seed's mean over the end of training."""
        steps, values = self.curve(world, arm, column)
        return np.nanmean(values[:, steps > LAST * steps[-1]], axis=1)

    def of_frozen(self, world: str, arm: str, column: str) -> Float[np.ndarray, " S"]:
        """Each training seed's mean over the episodes of its frozen policies."""
        mine = [row for row in self.frozen if (row["world"], row["arm"]) == (world, arm)]
        return np.asarray([row[column] for row in sorted(mine, key=lambda row: row["seed"])], np.float64)


@dataclass(frozen=True)
class Untrained:
    """How a figure is made for which nothing is trained: its arms are scripted."""

    make: Callable[[Scale, int, Callable[[str], None]], Results]
    """From the scale, the number of seeds and a function that logs a line."""
    draw: Callable[[Results], dict[str, bytes]]
    """The figure as the contents of files, by their endings."""
    seeds: dict[Scale, int]
    """Seeds that layouts and noise are drawn with, from 0 on."""
    seconds: dict[Scale, int]
    """How long it takes on two cores of a CPU."""


@dataclass(frozen=True)
class Figure:
    """A figure of the paper."""

    name: str
    """What `advsurprise reproduce` calls it."""
    question: str
    """What it is about, in a line."""
    paper: str
    """Where the paper has it."""
    worlds: dict[str, dict[str, Any]]
    """Worlds, each with its fields that differ from the defaults."""
    arms: dict[str, Arm]
    """What is compared, in every world."""
    steps: dict[Scale, int]
    """Environment steps of each training seed."""
    columns: tuple[str, ...]
    """Metrics that are kept; frozen policies are measured on those that they have."""
    drawn: tuple[str, ...]
    """Of these the panels."""
    judge: Callable[[Results], list[Claim]]
    """The claims, from the numbers."""
    untrained: Untrained | None = None
    """Of a figure for which nothing is trained: how it is made."""

    @property
    def runs(self) -> list[tuple[str, str]]:
        """World and arm of every run."""
        return [(world, arm) for world in self.worlds for arm in self.arms]


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as CSV: whose they are, then every column that one of them has."""
    text = io.StringIO()
    others = dict.fromkeys(name for row in rows for name in row if name not in ABOUT)
    table = csv.DictWriter(text, [*ABOUT, *others], lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()
