"""The same small sweep for every method, on seeds that no figure uses. Each method is judged by its own objective,
never by the measures in figures.

python -m advsurprise.experiments.tuning --out runs/tuning --workers 8    # writes OUT/tuning.json
python -m advsurprise.experiments.tuning --sweep games --out runs/tuning-games --workers 4 --env-workers 4
python -m advsurprise.experiments.tuning --sweep doom --out runs/tuning-doom
"""

import contextlib
import dataclasses
import itertools
import json
import math
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from advsurprise import envs
from advsurprise.api import EVALUATION_SEED, Trained, load
from advsurprise.evaluation.play import evaluator, play, play_host
from advsurprise.experiments.cells import seed_means
from advsurprise.experiments.figure import LAST, Arm, Batch
from advsurprise.experiments.runs import say, script, train_all, training
from advsurprise.experiments.settings import FOUR, GAME_BATCH
from advsurprise.learning.interaction import Agent
from advsurprise.training import files
from advsurprise.training.jobs import Job, Log
from advsurprise.training.metrics import read_rows

SEEDS = (100, 101, 102, 103)
DEFAULTS = "defaults"
Settings = dict[str, dict[str, Any]]
"""Non-default fields, by the name of the setting."""
Table = Float[np.ndarray, "settings seeds"]
"""Value of each setting to its method, per seed."""
Worth = Callable[[Sequence[pathlib.Path], int], Table]
"""Computes the table from the folders of the runs and the number of episodes per pair of roles."""


@dataclasses.dataclass(frozen=True)
class Sweep:
    """The settings to try, the world, and the objectives."""

    world: str
    """The world."""
    fields: dict[str, Any]
    """Its fields."""
    seeds: tuple[int, ...]
    """Training seeds."""
    steps: int
    """Environment steps per seed."""
    episodes: int
    """Episodes per pair of settings and seed when two roles play against each other."""
    settings: Settings
    """Settings tried for every method."""
    own: dict[str, Settings]
    """Additional settings per method; its keys are the methods of the sweep."""
    objectives: dict[str, tuple[str, Worth]]
    """Objective of each method, as text and as a function."""
    batch: Batch = Batch()  # noqa: RUF009
    """Batch sizes."""

    def settings_of(self, method: str) -> Settings:
        """All settings tried for a method."""
        return self.settings | self.own[method]


@dataclasses.dataclass(frozen=True)
class Tuning:
    """Trains every method with every setting and chooses the best one by the method's own objective."""

    out: pathlib.Path = pathlib.Path("runs/tuning")
    """Folder of runs and results."""
    sweep: Literal["rooms", "games", "doom"] = "rooms"
    """The sweep: rooms/four; Freeway, for all Atari games; or Take Cover."""
    steps: int | None = None
    """Environment steps per seed; default: those of the sweep."""
    workers: int = 1
    """Number of runs in parallel."""
    env_workers: int | None = None
    """Worker processes per run in a game; default: about one per core."""
    write: pathlib.Path | None = None
    """Extra output file with only the chosen settings, as figures read them."""


def tune(args: Tuning, *, log: Log = say) -> dict[str, Any]:
    """Trains the unfinished runs, judges the settings and writes the results."""
    sweep = SWEEPS[args.sweep]
    files.make_folder(args.out)
    runs = [(method, name) for method in sweep.own for name in sweep.settings_of(method)]
    train_all([_job(args, *each) for each in runs], workers=args.workers, folder=args.out, log=log)
    results = {
        "sweep": args.sweep,
        "seeds": sweep.seeds,
        "steps": args.steps or sweep.steps,
        "methods": {each: judged(args, each) for each in sweep.own},
    }
    contents = {args.out / "tuning.json": json.dumps(results, indent=1)}
    if args.write:
        contents[args.write] = json.dumps(chosen(results), indent=1) + "\n"
    files.write_all(contents)
    return results


def chosen(results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Each method's settings with the best mean over seeds."""
    sweep = SWEEPS[results["sweep"]]
    return {method: sweep.settings_of(method)[best(each["worth"])] for method, each in results["methods"].items()}


def best(worth: dict[str, list[float]]) -> str:
    """The setting with the largest mean over seeds."""
    return max(worth, key=lambda name: float(np.mean(worth[name])))


def _job(args: Tuning, method: str, name: str) -> Job:
    sweep, folder = SWEEPS[args.sweep], folder_of(args, method, name)
    fields = sweep.fields | ({} if args.env_workers is None else {"workers": args.env_workers})
    arm, steps = Arm(method, method, sweep.settings_of(method)[name]), args.steps or sweep.steps
    return training(sweep.world, fields, arm, seeds=sweep.seeds, steps=steps, folder=folder, batch=sweep.batch)


def folder_of(args: Tuning, method: str, name: str) -> pathlib.Path:
    """Folder of a run."""
    return args.out / f"{method}-{name}"


# ------------------------------------------------------------------------------------------- values of settings


def judged(args: Tuning, method: str) -> dict[str, Any]:
    """The method's objective, and the value of each setting by it."""
    sweep = SWEEPS[args.sweep]
    objective, worth = sweep.objectives[method]
    names = sweep.settings_of(method)
    table = worth([folder_of(args, method, name) for name in names], sweep.episodes)
    rows = {name: [float(f"{value:.6g}") for value in row] for name, row in zip(names, table, strict=True)}
    return {"objective": objective, "worth": rows}


def least_surprise(folders: Sequence[pathlib.Path], episodes: int) -> Table:
    """SMiRL: minus the surprise that it minimises, at the end of training."""
    return -np.stack([_column(folder, "scored_surprise", LAST) for folder in folders])


def most_novelty(folders: Sequence[pathlib.Path], episodes: int) -> Table:
    """RND: the prediction error before scaling, over all of training. All settings have the same predictor."""
    return np.stack([_column(folder, "intrinsic/raw", 0.0) for folder in folders])


def most_divergence(folders: Sequence[pathlib.Path], episodes: int) -> Table:
    """AGAC: the divergence of its policy from what the adversary predicts, over all of training."""
    return np.stack([_column(folder, "adversary/kl", 0.0) for folder in folders])


def least_steps(folders: Sequence[pathlib.Path], episodes: int) -> Table:
    """ASP: the rewards of Alice and Bob at the end of training, playing only against each other."""
    alice, bob = (np.stack([_column(folder, name, LAST) for folder in folders]) for name in ("time_alice", "time_bob"))
    return (np.maximum(bob - alice, 0.0) - bob) / 2


def _column(folder: pathlib.Path, name: str, after: float) -> Float[np.ndarray, " seeds"]:
    """Each seed's mean after a share of training, over updates with a value: in games some updates end no episode."""
    rows = read_rows(folder / "metrics.jsonl")
    known = [row for row in rows if math.isfinite(float(row.get(name, math.nan)))]
    return np.asarray(seed_means(known, name, after * rows[-1]["step"], rows[-1]["step"]))


def surprise_paid(measures: dict[str, np.ndarray]) -> tuple[float, float]:
    """Adversarial Surprise: Explore gains and Control loses the surprise of scored steps; 0 in a game without any."""
    surprise = float(np.mean(np.nan_to_num(measures["scored_surprise"])))
    return surprise, -surprise


def steps_paid(measures: dict[str, np.ndarray]) -> tuple[float, float]:
    """ASP: Alice gains the steps that Bob needs beyond hers, Bob loses his steps; 0 if no task is set."""
    alice, bob = (np.nan_to_num(measures[name]) for name in ("time_alice", "time_bob"))
    return float(np.mean(np.maximum(bob - alice, 0.0))), -float(np.mean(bob))


def round_robin(pay: Callable[[dict[str, np.ndarray]], tuple[float, float]]) -> Worth:
    """Plays each setting's first role against the second role of all settings, and vice versa; the value is the mean
    reward of both roles."""

    def worth(folders: Sequence[pathlib.Path], episodes: int) -> Table:
        runs = [load(folder) for folder in folders]
        numbers = range(len(runs))
        paid = np.zeros((2, len(runs), len(runs), len(runs[0].agents)))
        with _opened(runs[0], episodes) as play_all:
            for one, other in itertools.product(numbers, numbers):
                three = zip(runs[0].agents, runs[one].agents, runs[other].agents, strict=True)
                played = play_all([_mixed(*each) for each in three])
                paid[:, one, other] = np.transpose([pay(measures) for measures in played])
        return over_opponents(paid)

    return worth


@contextlib.contextmanager
def _opened(run: Trained, episodes: int) -> Iterator[Callable[[list[Agent]], list[dict[str, np.ndarray]]]]:
    """Yields a function that plays one agent per training seed in the run's world."""
    world, fields = envs.find(run.config.env), run.config.env_fields
    if world.kind == "pure":
        made = world.make(**fields)
        yield lambda agents: [play(made, agent, episodes=episodes, seed=EVALUATION_SEED) for agent in agents]
        return
    with contextlib.closing(world.open(episodes, seeds=len(run.agents), **fields)) as host:
        collector = evaluator(host)
        yield lambda agents: play_host(collector, agents, episodes=episodes, seed=EVALUATION_SEED)


def over_opponents(paid: Float[np.ndarray, "2 settings settings seeds"]) -> Table:
    """Mean reward of both roles of each setting: `paid[0, i, j]` is the reward of the first role of setting i, and
    `paid[1, i, j]` that of the second role of setting j, when they play each other."""
    return (paid[0].mean(axis=1) + paid[1].mean(axis=0)) / 2


def _mixed(base: Agent, one: Agent, other: Agent) -> Agent:
    """The first role of one agent and the second of another, in the game of a third."""
    first, second = base.method.roles
    return Agent(base.method, {first: one.policies[first], second: other.policies[second]}, base.learnt)


SURPRISE = (
    "surprise of scored steps: won by Explore against every setting's Control, and spared by Control against every "
    "setting's Explore",
    round_robin(surprise_paid),
)
QUIET = ("minus the surprise of all steps, end of training", least_surprise)
NOVELTY = ("prediction error before scaling, mean over training", most_novelty)
[(FOUR_ROOMS, FOUR_FIELDS)] = FOUR.items()
RATES: Settings = {DEFAULTS: {}, "rate-1e-4": {"ppo.lr": 1e-4}, "rate-1e-3": {"ppo.lr": 1e-3}}
LARGER: Settings = {"minibatch-1024": {"ppo.minibatch": 1024}}
FARTHER: Settings = {"gamma-0.995": {"method.gamma": 0.995}}
ROOMS = Sweep(
    world=FOUR_ROOMS,
    fields=FOUR_FIELDS,
    seeds=SEEDS,
    steps=4_000_000,
    episodes=200,
    settings=RATES | {"entropy-0.03": {"ppo.entropy_coef": 0.03}} | LARGER,
    own={
        "adversarial-surprise": FARTHER,
        "smirl": FARTHER,
        "rnd": FARTHER,
        "asp": {"stop-0.03": {"method.first_stop": 0.03}},
    },
    objectives={
        "adversarial-surprise": SURPRISE,
        "smirl": QUIET,
        "rnd": NOVELTY,
        "asp": (
            "steps: won by Alice against every setting's Bob, and spared by Bob against every setting's Alice",
            round_robin(steps_paid),
        ),
    },
)
GAMES = Sweep(
    world="atari/freeway",
    fields={},
    seeds=SEEDS[:2],
    steps=200_000,
    episodes=8,
    settings=RATES | LARGER,
    own={method: {} for method in ("adversarial-surprise", "smirl", "rnd", "agac", "asp")},
    objectives={
        "adversarial-surprise": SURPRISE,
        "smirl": QUIET,
        "rnd": NOVELTY,
        "agac": ("divergence of the policy from its adversary's prediction, mean over training", most_divergence),
        # Whole games are played without rewinding to the episode's first state, which Bob would need.
        "asp": ("steps: won by Alice and spared by Bob against each other, end of training", least_steps),
    },
    batch=GAME_BATCH,
)
SWEEPS = {"rooms": ROOMS, "games": GAMES, "doom": dataclasses.replace(GAMES, world="doom/take-cover", episodes=64)}


if __name__ == "__main__":
    script(tune, Tuning, __doc__)
