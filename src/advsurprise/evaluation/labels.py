"""Human-readable labels of metrics columns, derived from the measures that a world and a method declare, so that a new
measure needs no entry in any table."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from advsurprise import envs, methods
from advsurprise.config import RunConfig
from advsurprise.envs.host import gymnasium
from advsurprise.errors import UserError
from advsurprise.methods.base import AbstractMethod
from advsurprise.types import EnvSpec, Measure

COMMON = Measure(
    "common_surprise", "surprise of all observations (nats per step, common model)", short="surprise", shown=True
)
"""Measured in every rollout, in the same way for every method (`learning.measures.common_surprise`)."""
PER_EPISODE = " per episode"
DRAWN = 2
"""Number of the world's shown measures that are plotted by default."""
ROLE_COLUMNS = {
    "reward": "reward per step",
    "entropy": "entropy of the policy (nats)",
    "value": "value",
    "loss": "loss",
    "grad_norm": "norm of the gradient",
    "step_surprise": "surprise of its steps (nats, the method's own model)",
}
"""Columns `ROLE/NAME` that are logged for every role."""


@dataclasses.dataclass(frozen=True)
class Labels:
    """Labels of the columns of a run."""

    world: tuple[Measure, ...] = ()
    """The world's measures: `end/NAME`, `mean/NAME`, `share/NAME/…` and `handover/ROLE/…/NAME`; `NAME` for measures of
    whole games."""
    method: tuple[Measure, ...] = ()
    """The method's measures: `NAME`."""

    @property
    def games(self) -> list[Measure]:
        """The world's measures of whole games."""
        return [measure for measure in self.world if measure.of_game]

    @property
    def episodes(self) -> list[Measure]:
        """The world's measures at every step of an episode."""
        return [measure for measure in self.world if not measure.of_game]

    @property
    def shorts(self) -> dict[str, str]:
        """Columns by their short names."""
        own = {measure.short: measure.name for measure in (*self.games, *self.method, COMMON) if measure.short}
        for measure in self.episodes:
            if measure.short:
                own |= {measure.short: f"end/{measure.name}", f"{measure.short}-mean": f"mean/{measure.name}"}
        return own

    @property
    def shown(self) -> list[str]:
        """Columns shown by default, in order."""
        own = [measure.name for measure in (*self.games, *self.method, COMMON) if measure.shown]
        shown = [measure.name for measure in self.episodes if measure.shown]
        return own + [f"{when}/{name}" for name in shown for when in ("end", "mean")]

    @property
    def drawn(self) -> list[str]:
        """Columns plotted by default: the first of the world's shown measures, and common surprise."""
        shown = [measure.name for measure in self.games if measure.shown]
        shown += [f"end/{measure.name}" for measure in self.episodes if measure.shown]
        return [*shown[:DRAWN], COMMON.name]

    @property
    def shares(self) -> dict[str, str]:
        """Columns that hold shares of bins, with their labels."""
        return {
            column: f"{measure.label} from {lower:g} to {upper:g}, share of steps"
            for measure in self.episodes
            for column, (lower, upper) in zip(measure.shares, itertools.pairwise(measure.edges), strict=True)
        }

    def handovers(self, roles: Sequence[str]) -> dict[str, list[str]]:
        """Columns at hand-overs, by the label of the moment: each role's first turn, then all its turns."""
        measures = [measure.name for measure in self.world if measure.at_handover]
        return {
            turns_end(role, which): [f"handover/{role}/{which}/{name}" for name in measures]
            for role in roles
            for which in ("first", "all")
        }

    def is_shared(self, column: str) -> bool:
        """Whether a column can be compared between methods: the world's measures and common surprise can, what a method
        measures under its own model cannot."""
        head, _, name = column.partition("/")
        if column in {COMMON.name, *(measure.name for measure in self.games), *self.shares}:
            return True
        world = {measure.name for measure in self.world}
        return (head in ("end", "mean") and name in world) or (head == "handover" and column.split("/")[-1] in world)

    def label(self, column: str) -> str:
        """Label of a column in tables and figures; its name if no world or method declares it."""
        own = {measure.name: measure.label for measure in (*self.games, *self.method, COMMON)} | self.shares
        world = {measure.name: measure.label for measure in self.world}
        head, _, name = column.partition("/")
        if column in own:
            return own[column]
        if head in ("end", "mean") and name in world:
            return at_end(world[name]) if head == "end" else time_mean(world[name])
        match column.split("/"):
            case ["handover", role, "first" | "all" as which, measure] if measure in world:
                return f"{so_far(world[measure])} {turns_end(role, which)}"
            case [role, what] if what in ROLE_COLUMNS:
                return f"{role}: {ROLE_COLUMNS[what]}"
        return column


def turns_end(role: str, which: str) -> str:
    """Label of the moment of a hand-over."""
    return f"when {role}'s first turn ends" if which == "first" else f"when {role}'s turns end"


def at_end(label: str) -> str:
    """Label of a measure on the last step of an episode."""
    return label if label.endswith(PER_EPISODE) else f"{label} at the end of the episode"


def time_mean(label: str) -> str:
    """Label of a measure averaged over all steps."""
    return f"{so_far(label)}, time mean"


def so_far(label: str) -> str:
    """Label of a measure in the middle of an episode."""
    return label.removesuffix(PER_EPISODE) + " so far" if label.endswith(PER_EPISODE) else label


def of_method(method: AbstractMethod) -> Labels:
    """Labels for a method in its world."""
    return Labels(method.spec.measures, method.measures)


def of_config(cfg: RunConfig) -> Labels:
    """Labels for a run, without opening host environments. Columns of a world or a method that no longer exists have no
    labels."""
    spec = _spec(cfg)
    try:
        return of_method(methods.make(cfg.method, spec, **cfg.method_fields))
    except UserError:
        return Labels(spec.measures)


def _spec(cfg: RunConfig) -> EnvSpec:
    """The world's spec; for a world that would have to be opened, a stub with the measures all foreign worlds have."""
    unopened = EnvSpec(cfg.env, (1,), "float32", "vector", 0, 1, 0, (), truncates=True)
    try:
        world = envs.find(cfg.env)
        if world.foreign:
            return unopened._replace(measures=gymnasium.MEASURES)
        return world.read_spec(**cfg.env_fields)
    except UserError:
        return unopened


def union(each: Sequence[Labels]) -> Labels:
    """Labels for several runs."""
    world = {measure.name: measure for labels in each for measure in labels.world}
    method = {measure.name: measure for labels in each for measure in labels.method}
    return Labels(tuple(world.values()), tuple(method.values()))


def live(labels: Labels) -> Mapping[str, str]:
    """Columns in the progress line of a run, with their short names."""
    names = {column: short for short, column in labels.shorts.items()}
    columns = [*(measure.name for measure in labels.method if measure.shown), *labels.drawn]
    return {column: names.get(column, column) for column in columns}
