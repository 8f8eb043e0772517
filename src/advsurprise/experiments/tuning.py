"""The same small sweep for every method, on seeds that no figure uses; each is judged by its own objective, never by
what figures compare.

python -m advsurprise.experiments.tuning --out runs/tuning --workers 8    # writes OUT/tuning.json
"""

import dataclasses
import itertools
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from advsurprise import envs
from advsurprise.api import EVALUATION_SEED, load
from advsurprise.evaluation.play import play
from advsurprise.experiments.cells import seed_means
from advsurprise.experiments.figure import LAST, Arm
from advsurprise.experiments.runs import say, script, train_all, training
from advsurprise.experiments.settings import FOUR
from advsurprise.learning.interaction import Agent
from advsurprise.training import files
from advsurprise.training.jobs import Job, Log
from advsurprise.training.metrics import read_rows

SEEDS = (100, 101, 102, 103)
STEPS = 4_000_000
EPISODES = 200
"""Episodes of each pair of settings and seed."""
DEFAULTS = "defaults"
SETTINGS: dict[str, dict[str, Any]] = {
    DEFAULTS: {},
    "rate-1e-4": {"ppo.lr": 1e-4},
    "rate-1e-3": {"ppo.lr": 1e-3},
    "entropy-0.03": {"ppo.entropy_coef": 0.03},
    "minibatch-1024": {"ppo.minibatch": 1024},
}
"""What is tried of every method."""
OWN: dict[str, dict[str, dict[str, Any]]] = {
    "adversarial-surprise": {"gamma-0.995": {"method.gamma": 0.995}},
    "smirl": {"gamma-0.995": {"method.gamma": 0.995}},
    "rnd": {"gamma-0.995": {"method.gamma": 0.995}},
    "asp": {"stop-0.03": {"method.first_stop": 0.03}},
}
"""What is tried of one method."""

Table = Float[np.ndarray, "settings seeds"]
"""What a setting is worth to its method, seed by seed."""


@dataclasses.dataclass(frozen=True)
class Tuning:
    """Trains every method with every setting and chooses the one that serves its own objective best."""

    out: pathlib.Path = pathlib.Path("runs/tuning")
    """Where runs and results go."""
    steps: int = STEPS
    """Environment steps of each seed."""
    workers: int = 1
    """Runs side by side."""
    episodes: int = EPISODES
    """Episodes of each pair of settings and seed, where two roles play against each other."""
    write: pathlib.Path | None = None
    """A second file for the chosen settings alone, as figures read them."""


def settings_of(method: str) -> dict[str, dict[str, Any]]:
    """Everything that is tried of a method."""
    return SETTINGS | OWN[method]


def tune(asked: Tuning, *, log: Log = say) -> dict[str, Any]:
    """Trains what is not trained yet, judges and writes."""
    files.make_folder(asked.out)
    runs = [(method, name) for method in OWN for name in settings_of(method)]
    train_all([_job(asked, *each) for each in runs], workers=asked.workers, folder=asked.out, log=log)
    found = {"seeds": SEEDS, "steps": asked.steps, "methods": {each: judged(asked, each) for each in OWN}}
    contents = {asked.out / "tuning.json": json.dumps(found, indent=1)}
    if asked.write:
        contents[asked.write] = json.dumps(chosen(found), indent=1) + "\n"
    files.write_all(contents)
    return found


def chosen(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings of each method whose mean over seeds is best."""
    return {method: settings_of(method)[best(each["worth"])] for method, each in found["methods"].items()}


def best(worth: dict[str, list[float]]) -> str:
    """The setting whose mean over seeds is largest."""
    return max(worth, key=lambda name: float(np.mean(worth[name])))


def _job(asked: Tuning, method: str, name: str) -> Job:
    [(world, fields)] = FOUR.items()
    arm = Arm(method, method, settings_of(method)[name])
    return training(world, fields, arm, seeds=SEEDS, steps=asked.steps, folder=folder_of(asked, method, name))


def folder_of(asked: Tuning, method: str, name: str) -> pathlib.Path:
    """Where a run is."""
    return asked.out / f"{method}-{name}"


# ------------------------------------------------------------------------------------------- what a setting is worth


def judged(asked: Tuning, method: str) -> dict[str, Any]:
    """What each setting is worth by the method's objective, and what that is."""
    objective, worth = OBJECTIVES[method]
    folders = [folder_of(asked, method, name) for name in settings_of(method)]
    table = worth(folders, asked.episodes)
    names = settings_of(method)
    rows = {name: [float(f"{value:.6g}") for value in row] for name, row in zip(names, table, strict=True)}
    return {"objective": objective, "worth": rows}


def least_surprise(folders: Sequence[pathlib.Path], episodes: int) -> Table:
    """SMiRL: minus the surprise that it minimises, at the end of training."""
    return -np.stack([_column(folder, "scored_surprise", LAST) for folder in folders])


def most_novelty(folders: Sequence[pathlib.Path], episodes: int) -> Table:
    """RND: the prediction error before scaling, over all of training. The predictor's settings are the same in all."""
    return np.stack([_column(folder, "intrinsic/raw", 0.0) for folder in folders])


def _column(folder: pathlib.Path, name: str, after: float) -> Float[np.ndarray, " seeds"]:
    rows = read_rows(folder / "metrics.jsonl")
    return np.asarray(seed_means(rows, name, after * rows[-1]["step"], rows[-1]["step"]))


def surprise_paid(measures: dict[str, np.ndarray]) -> tuple[float, float]:
    """Adversarial Surprise: Explore wins what Control loses, the surprise of scored steps."""
    surprise = float(np.nanmean(measures["scored_surprise"]))
    return surprise, -surprise


def steps_paid(measures: dict[str, np.ndarray]) -> tuple[float, float]:
    """ASP: Alice wins the steps that Bob needs more than she did, Bob loses his; nothing where no task is set."""
    alice, bob = (np.nan_to_num(measures[name]) for name in ("time_alice", "time_bob"))
    return float(np.mean(np.maximum(bob - alice, 0.0))), -float(np.mean(bob))


def round_robin(pay: Callable[[dict[str, np.ndarray]], tuple[float, float]]) -> Callable[..., Table]:
    """Each setting's first role against the second role of all settings, and the other way round: the mean of what both
    are paid."""

    def worth(folders: Sequence[pathlib.Path], episodes: int) -> Table:
        runs = [load(folder) for folder in folders]
        cfg = runs[0].config
        world = envs.find(cfg.env).make(**cfg.env_fields)
        numbers = range(len(runs))
        paid = np.zeros((2, len(runs), len(runs), len(cfg.seeds)))
        for one, other, seed in itertools.product(numbers, numbers, range(len(cfg.seeds))):
            agent = _mixed(runs[0].agents[seed], runs[one].agents[seed], runs[other].agents[seed])
            paid[:, one, other, seed] = pay(play(world, agent, episodes=episodes, seed=EVALUATION_SEED))
        return over_opponents(paid)

    return worth


def over_opponents(paid: Float[np.ndarray, "2 settings settings seeds"]) -> Table:
    """The mean of what both roles of each setting are paid: `paid[0, i, j]` is what the first role of setting i, and
    `paid[1, i, j]` what the second of setting j gets when they meet."""
    return (paid[0].mean(axis=1) + paid[1].mean(axis=0)) / 2


def _mixed(base: Agent, one: Agent, other: Agent) -> Agent:
    """The first role of one agent and the second of another, in the game of a third."""
    first, second = base.method.roles
    return Agent(base.method, {first: one.policies[first], second: other.policies[second]}, base.learnt)


OBJECTIVES: dict[str, tuple[str, Callable[[Sequence[pathlib.Path], int], Table]]] = {
    "adversarial-surprise": (
        "surprise of scored steps: won by Explore against every setting's Control, and spared by Control against every "
        "setting's Explore",
        round_robin(surprise_paid),
    ),
    "smirl": ("minus the surprise of all steps, end of training", least_surprise),
    "rnd": ("prediction error before scaling, mean over training", most_novelty),
    "asp": (
        "steps: won by Alice against every setting's Bob, and spared by Bob against every setting's Alice",
        round_robin(steps_paid),
    ),
}


if __name__ == "__main__":
    script(tune, Tuning, __doc__)
