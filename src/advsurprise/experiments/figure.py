"""What a figure of the paper is made of: the runs, what is kept and drawn of them, and the claims it is to decide."""

import csv
import io
import math
import pathlib
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
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

SAMPLED, GREEDY, ALONE = "sampled", "greedy", " alone"
"""Who plays frozen policies: actions are sampled; the likeliest is taken; `ROLE alone` has one role's policy act on
every turn."""

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
    learns: bool = True
    """Whether it is trained; if not, it has one seed and one update, and is played once."""
    alone: tuple[str, ...] = ()
    """Roles whose policies are also played alone, at the end of training."""


@dataclass(frozen=True)
class Batch:
    """How much of a run is collected between two updates and two checkpoints; by default as in the room worlds.

    There an update has 8,192 steps and, in minibatches of 256, 64 gradient steps of each policy, as the authors have;
    theirs come from 16 bodies of 512 steps.
    """

    bodies: int = 64
    """Bodies per seed."""
    rollout: int = 128
    """Steps of each between two updates."""
    minibatch: int = 256
    """Samples per gradient step."""
    save_every: int = 200
    """Updates between two checkpoints: on a GPU some ten seconds."""

    @property
    def steps(self) -> int:
        """Environment steps of an update, per seed."""
        return self.bodies * self.rollout


SEEDS: dict[Scale, int] = {"small": 2, "full": 10}
"""Training seeds in the room worlds, from 0 on. Seeds from 100 on are those that settings are chosen on."""
EPISODES: dict[Scale, int] = {"small": 100, "full": 500}
"""Episodes of each training seed's frozen policies in the room worlds."""
RATES = {"two_cores": 20_000, "gpu": 3_000_000}
"""Environment steps per second in the room worlds: two cores of a CPU, and several runs side by side on one H200."""
STARTING_S = {"two_cores": 40, "gpu": 30}
"""Seconds in which a run in a room world is compiled and its policies are played."""


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


Curve = tuple[Float[np.ndarray, " T"], Float[np.ndarray, "S T"]]
"""Steps, and values for each training seed."""


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

    def curve(self, world: str, arm: str, column: str) -> Curve:
        """Steps and each training seed's values over training; nan where there is none."""
        return _by_step(_of(self.rows, world, arm), column)

    def at_end(self, world: str, arm: str, column: str) -> Float[np.ndarray, " S"]:
        """Each training seed's mean over the end of training."""
        steps, values = self.curve(world, arm, column)
        return np.nanmean(values[:, steps > LAST * steps[-1]], axis=1)

    def frozen_curve(self, world: str, arm: str, column: str, player: str = SAMPLED) -> Curve:
        """Steps after which policies were frozen, and each training seed's means over their episodes. Rows that do not
        say so are of sampled actions, at the end of training."""
        mine = [row for row in _of(self.frozen, world, arm) if row.get("player", SAMPLED) == player]
        return _by_step([{"step": math.inf} | row for row in mine], column)

    def of_frozen(self, world: str, arm: str, column: str, player: str = SAMPLED) -> Float[np.ndarray, " S"]:
        """Each training seed's mean over the episodes of its frozen policies, at the end of training."""
        _, values = self.frozen_curve(world, arm, column, player)
        return values[:, -1] if values.size else np.empty(0)


def _of(rows: Sequence[dict[str, Any]], world: str, arm: str) -> list[dict[str, Any]]:
    return [row for row in rows if (row["world"], row["arm"]) == (world, arm)]


def _by_step(rows: Sequence[dict[str, Any]], column: str) -> Curve:
    steps, seeds = (sorted({row[name] for row in rows}) for name in ("step", "seed"))
    values = np.full((len(seeds), len(steps)), np.nan)
    for row in rows:
        value = row.get(column, "")
        values[seeds.index(row["seed"]), steps.index(row["step"])] = np.nan if value == "" else value
    return np.asarray(steps, np.float64), values


@dataclass(frozen=True)
class Untrained:
    """How a figure is made for which nothing is trained: its arms are scripted."""

    make: Callable[[Scale, int, Callable[[str], None]], Results]
    """From the scale, the number of seeds (of layouts and noise) and a function that logs a line."""
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
    _: KW_ONLY
    draw: Callable[[Results], dict[str, bytes]] | None = None
    """Draws it, as the contents of files by their endings; learning curves if left out."""
    batch: Batch = field(default_factory=Batch)
    """Batches of its runs."""
    small_batch: Batch | None = None
    """Batches of the small scale, if they are others."""
    bins: int = 64
    """Rows that are kept of each run and training seed."""
    seeds: dict[Scale, int] = field(default_factory=lambda: dict(SEEDS))
    """Training seeds, from 0 on."""
    episodes: dict[Scale, int] = field(default_factory=lambda: dict(EPISODES))
    """Episodes of each training seed's frozen policies, and of each player; in games with lives, whole games."""
    stages: dict[Scale, int] = field(default_factory=lambda: {"small": 1, "full": 1})
    """How often, at equal distances of training, frozen policies are played, with actions sampled."""
    players: tuple[str, ...] = (SAMPLED,)
    """Who plays them at the end of training, besides the roles that an arm plays alone."""
    judges_parts: bool = False
    """Whether claims can be judged while some runs are missing; if not, there are none until all are there."""
    small_worlds: tuple[str, ...] = ()
    """Worlds of the small scale; all of them if left out."""
    tuned: str = "tuned.json"
    """The file of the settings that were chosen for each method."""
    trained_for: str = ""
    """Another figure, whose runs it shows; its own if left out."""
    rates: dict[str, int] = field(default_factory=lambda: dict(RATES))
    """Environment steps per second that costs are estimated with."""
    starting_s: dict[str, int] = field(default_factory=lambda: dict(STARTING_S))
    """Seconds in which each stage of each run is started and its policies are played."""

    @property
    def runs(self) -> list[tuple[str, str]]:
        """World and arm of every run."""
        return [(world, arm) for world in self.worlds for arm in self.arms]

    def batch_of(self, scale: Scale) -> Batch:
        """The batches of a scale."""
        return (scale == "small" and self.small_batch) or self.batch

    def worlds_of(self, scale: Scale) -> tuple[str, ...]:
        """The worlds of a scale."""
        return (scale == "small" and self.small_worlds) or tuple(self.worlds)


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as CSV: whose they are, then every column that one of them has."""
    text = io.StringIO()
    others = dict.fromkeys(name for row in rows for name in row if name not in ABOUT)
    table = csv.DictWriter(text, [*ABOUT, *others], lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()
