"""Definition of a figure of the paper: its runs, the metrics kept and drawn, and the claims to judge."""

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
"""Columns that identify a row."""

SAMPLED, GREEDY, ALONE = "sampled", "greedy", " alone"
"""Players of frozen policies: sampled actions; the likeliest action; `ROLE alone` lets one role's policy act on every
turn."""

Verdict = Literal["holds", "does not hold", "undecided"]
Scale = Literal["small", "full"]


@dataclass(frozen=True)
class Arm:
    """One line of a figure: a method with its settings."""

    label: str
    """Its label in the figure."""
    method: str
    """The method."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Fields that differ from the common ones, by their names in --set."""
    learns: bool = True
    """Whether it is trained; otherwise it has one seed and one update, and is played once."""
    alone: tuple[str, ...] = ()
    """Roles that are also played alone at the end of training."""
    steps: int | None = None
    """Environment steps after which its learning rate is 0 and training ends, if the figure's are more."""

    def trained_for(self, steps: int) -> int:
        """Environment steps in a figure of `steps`."""
        return steps if self.steps is None else min(steps, self.steps)


@dataclass(frozen=True)
class Batch:
    """Batch sizes of a run; the defaults are those of the room worlds.

    There an update has 8,192 steps and, in minibatches of 256, 64 gradient steps per policy, as in the authors' code,
    which has 16 bodies of 512 steps.
    """

    bodies: int = 64
    """Bodies per seed."""
    rollout: int = 128
    """Steps per body between updates."""
    minibatch: int = 256
    """Samples per gradient step."""
    save_every: int = 200
    """Updates between checkpoints: about ten seconds on a GPU."""

    @property
    def steps(self) -> int:
        """Environment steps per update and seed."""
        return self.bodies * self.rollout


SEEDS: dict[Scale, int] = {"small": 2, "full": 10}
"""Number of training seeds in the room worlds, from 0 on. Seeds from 100 on are for tuning."""
EPISODES: dict[Scale, int] = {"small": 100, "full": 500}
"""Evaluation episodes per training seed in the room worlds."""
RATES = {"two_cores": 20_000, "gpu": 3_000_000}
"""Environment steps per second in the room worlds: on two CPU cores, and of several parallel runs on one H200."""
STARTING_S = {"two_cores": 40, "gpu": 30}
"""Seconds to compile a run in a room world and to evaluate its policies."""


@dataclass(frozen=True)
class Claim:
    """A claim of the paper and our measurement."""

    claim: str
    """The claim."""
    paper: str
    """What the paper reports."""
    measure: str
    """What `ours` measures."""
    ours: float
    """The measured number."""
    low: float
    """Lower end of its 95% interval over training seeds."""
    high: float
    """Upper end."""
    seeds: int
    """Number of training seeds per method."""
    verdict: Verdict
    """Whether the claim holds here."""
    top_half: float | None = None
    """The same number from the better half of each method's seeds, as the paper compares the top three of six."""


Curve = tuple[Float[np.ndarray, " T"], Float[np.ndarray, "S T"]]
"""Steps, and values for each training seed."""


@dataclass(frozen=True)
class Results:
    """The numbers behind a figure: training curves, and evaluations of frozen policies on unseen layouts."""

    rows: tuple[dict[str, Any], ...]
    """Means over equal bins of training, for each world, arm and training seed."""
    frozen: tuple[dict[str, Any], ...]
    """Means over the evaluation episodes of each training seed; empty if nothing was trained."""

    @classmethod
    def read(cls, folder: pathlib.Path) -> "Results":
        """Reads the results in a folder."""
        try:
            frozen = folder / FROZEN
            return cls(tuple(read_csv(folder / ROWS)), tuple(read_csv(frozen)) if frozen.exists() else ())
        except OSError as error:
            raise UserError(f"{folder} holds no results: {error.strerror}") from None

    def files(self, folder: pathlib.Path) -> dict[pathlib.Path, str]:
        """Contents of the files to write."""
        frozen = {folder / FROZEN: as_csv(self.frozen)} if self.frozen else {}
        return {folder / ROWS: as_csv(self.rows), **frozen}

    def curve(self, world: str, arm: str, column: str) -> Curve:
        """Steps and each training seed's values over training, nan where missing."""
        return _by_step(_of(self.rows, world, arm), column)

    def at_end(self, world: str, arm: str, column: str) -> Float[np.ndarray, " S"]:
        """Each training seed's mean over the end of training."""
        steps, values = self.curve(world, arm, column)
        return np.nanmean(values[:, steps > LAST * steps[-1]], axis=1)

    def frozen_curve(self, world: str, arm: str, column: str, player: str = SAMPLED) -> Curve:
        """Steps at which policies were frozen, and each training seed's means over their episodes. Rows without a
        player or a step are of sampled actions at the end of training."""
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
    """How to make a figure with scripted arms, for which nothing is trained."""

    make: Callable[[Scale, int, Callable[[str], None]], Results]
    """Makes the results from the scale, the number of seeds (of layouts and noise) and a logger."""
    seconds: dict[Scale, int]
    """Duration on two CPU cores."""


@dataclass(frozen=True)
class Figure:
    """A figure of the paper."""

    name: str
    """Its name in `advsurprise reproduce`."""
    question: str
    """What it shows, in one line."""
    paper: str
    """Its section in the paper."""
    worlds: dict[str, dict[str, Any]]
    """Worlds, each with its non-default fields."""
    arms: dict[str, Arm]
    """The arms compared in every world."""
    steps: dict[Scale, int]
    """Environment steps per training seed."""
    columns: tuple[str, ...]
    """Metrics that are kept, from training and, where measured, from evaluations."""
    drawn: tuple[str, ...]
    """The metrics that are drawn, one panel each."""
    judge: Callable[[Results], list[Claim]]
    """Judges the claims from the results."""
    untrained: Untrained | None = None
    """How to make it if nothing is trained."""
    _: KW_ONLY
    draw: Callable[[Results], dict[str, bytes]] | None = None
    """Draws it, as file contents by ending; default: learning curves."""
    batch: Batch = field(default_factory=Batch)
    """Batch sizes of its runs."""
    small_batch: Batch | None = None
    """Batch sizes at the small scale, if different."""
    bins: int = 64
    """Rows kept per run and training seed."""
    seeds: dict[Scale, int] = field(default_factory=lambda: dict(SEEDS))
    """Number of training seeds, from 0 on."""
    episodes: dict[Scale, int] = field(default_factory=lambda: dict(EPISODES))
    """Evaluation episodes per training seed and player; whole games where a game has several lives."""
    stages: dict[Scale, int] = field(default_factory=lambda: {"small": 1, "full": 1})
    """Number of evaluations, equally spaced over training, with sampled actions."""
    players: tuple[str, ...] = (SAMPLED,)
    """Players at the end of training, in addition to the roles that an arm plays alone."""
    judges_parts: bool = False
    """Whether claims can be judged while some runs are missing; otherwise there are none until all are finished."""
    small_worlds: tuple[str, ...] = ()
    """Worlds at the small scale; default: all."""
    tuned: str = "tuned.json"
    """File with the tuned settings of each method."""
    trained_for: str = ""
    """Another figure whose runs it uses; default: its own."""
    rates: dict[str, int] = field(default_factory=lambda: dict(RATES))
    """Environment steps per second, for cost estimates."""
    starting_s: dict[str, int] = field(default_factory=lambda: dict(STARTING_S))
    """Seconds to start each stage of a run and evaluate its policies, for cost estimates."""

    @property
    def runs(self) -> list[tuple[str, str]]:
        """World and arm of every run."""
        return [(world, arm) for world in self.worlds for arm in self.arms]

    def batch_of(self, scale: Scale) -> Batch:
        """Batch sizes at a scale."""
        return (scale == "small" and self.small_batch) or self.batch

    def worlds_of(self, scale: Scale) -> tuple[str, ...]:
        """Worlds at a scale."""
        return (scale == "small" and self.small_worlds) or tuple(self.worlds)


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as CSV: the identifying columns first, then all others."""
    text = io.StringIO()
    others = dict.fromkeys(name for row in rows for name in row if name not in ABOUT)
    table = csv.DictWriter(text, [*ABOUT, *others], lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()
