"""`advsurprise reproduce`: trains what a figure of the paper needs, measures the frozen policies, draws it, and judges
the claims. Everything can be stopped and goes on where it was.

OUT/WORLD-ARM/    the runs
OUT/rows.csv      means over equal stretches of training, for every training seed
OUT/frozen.csv    what the frozen policies did, for every training seed
OUT/about.json    what was run, on what, with which software
OUT/claims.json   the claims, with intervals and verdicts
OUT/NAME.png      the figure, and as PDF
"""

import dataclasses
import datetime
import json
import math
import pathlib
import sys
from typing import Any

import numpy as np

from advsurprise.config import RunConfig
from advsurprise.errors import UserError, nearest
from advsurprise.evaluation import labels, plot
from advsurprise.evaluation.curves import Curve, summarise
from advsurprise.experiments import control, coverage, emergence, evaluate, horizon, incentive
from advsurprise.experiments.cells import binned
from advsurprise.experiments.figure import Arm, Figure, Results, Scale
from advsurprise.experiments.runs import training
from advsurprise.experiments.settings import BODIES, EPISODES, ROLLOUT, SEEDS, tuned
from advsurprise.training import files
from advsurprise.training.jobs import Job, Log, run_jobs
from advsurprise.training.metrics import read_rows
from advsurprise.training.versions import versions

FIGURES = {each.FIGURE.name: each.FIGURE for each in (coverage, control, emergence, horizon, incentive)}
CLAIMS, ABOUT = "claims.json", "about.json"
BINS = 64
"""Rows that are kept of each run and training seed."""
RATES = {"two_cores": 20_000, "gpu": 1_500_000}
"""Environment steps per second that costs are estimated with: two cores of a CPU, and several runs side by side on one
H200."""


@dataclasses.dataclass(frozen=True)
class Asked:
    """What is to be made of a figure."""

    figure: Figure
    scale: Scale
    seeds: int
    """Training seeds, from 0 on."""
    steps: int
    """Environment steps of each."""
    out: pathlib.Path
    """Where runs and results go."""

    @property
    def episodes(self) -> int:
        """Episodes of each training seed's frozen policies."""
        return EPISODES[self.scale]


def find(name: str) -> Figure:
    """The figure by its name."""
    if name not in FIGURES:
        raise UserError(f"unknown figure {nearest(name, FIGURES, listed='`advsurprise reproduce --list`')}")
    return FIGURES[name]


def ask(name: str, *, scale: Scale, seeds: int | None, steps: int | None, out: pathlib.Path | None) -> Asked:
    """A figure with what is asked for, or with what its scale has."""
    figure = find(name)
    if figure.untrained and steps is not None:
        raise UserError(f"{name} trains nothing: leave out --steps")
    seeds, steps = seeds_of(figure, scale) if seeds is None else seeds, figure.steps[scale] if steps is None else steps
    if seeds < 1:
        raise UserError(f"--seeds must be at least 1, not {seeds}")
    if steps < BODIES * ROLLOUT:
        raise UserError(f"--steps must be at least one update's {BODIES * ROLLOUT:,}, not {steps:,}")
    return Asked(figure, scale, seeds, steps, out or pathlib.Path("runs/reproduce") / f"{name}-{scale}")


def seeds_of(figure: Figure, scale: Scale) -> int:
    """How many seeds a scale has."""
    return figure.untrained.seeds[scale] if figure.untrained else SEEDS[scale]


# --------------------------------------------------------------------------------------------------------- making it


def reproduce(asked: Asked, *, workers: int, log: Log) -> dict[str, Any]:
    """Makes the figure; what is there already is not made again."""
    if workers < 1:
        raise UserError(f"--workers must be at least 1, not {workers}")
    files.make_folder(asked.out)
    if asked.figure.untrained:
        results = asked.figure.untrained.make(asked.scale, asked.seeds, log)
        return {"figure": asked.figure.name, "out": str(asked.out), "signal": 0, "failed": {}} | write(asked, results)
    jobs = [job(asked, world, arm) for world, arm in asked.figure.runs]
    failed, stopped = run_jobs(jobs, workers=workers, folder=asked.out, log=log)
    result: dict[str, Any] = {"figure": asked.figure.name, "out": str(asked.out), "signal": stopped, "failed": failed}
    if failed or stopped:
        return result | {"claims": [], "files": []}
    results = gather(asked)
    return result | write(asked, results)


def job(asked: Asked, world: str, arm: str) -> Job:
    """Trains one arm in one world, then plays what was trained."""
    folder, chosen = folder_of(asked, world, arm), asked.figure.arms[arm]
    chosen = dataclasses.replace(chosen, fields=tuned().get(chosen.method, {}) | chosen.fields)
    fields, seeds = asked.figure.worlds[world], tuple(range(asked.seeds))
    train = training(world, fields, chosen, seeds=seeds, steps=asked.steps, folder=folder)
    played = evaluate.read(folder)
    if played is not None and (played.get("steps"), played.get("episodes")) == (train.steps, asked.episodes):
        return train
    play = (sys.executable, "-m", "advsurprise.experiments.evaluate", str(folder), "--episodes", str(asked.episodes))
    return dataclasses.replace(train, commands=(*train.commands, play))


def folder_of(asked: Asked, world: str, arm: str) -> pathlib.Path:
    """Where a run is."""
    return asked.out / f"{world.replace('/', '-')}-{arm}"


def gather(asked: Asked) -> Results:
    """The numbers of finished runs."""
    rows, played = [], []
    for world, arm in asked.figure.runs:
        folder, whose = folder_of(asked, world, arm), {"world": world, "arm": arm}
        columns = asked.figure.columns
        rows += [whose | row for row in binned(read_rows(folder / "metrics.jsonl"), columns, BINS)]
        measured = evaluate.read(folder)
        if measured is None:
            raise UserError(f"{folder} was not evaluated; give the same command again")
        kept = ("seed", *(name for name in columns if name in measured["seeds"][0]))
        played += [whose | {name: _rounded(each[name]) for name in kept} for each in measured["seeds"]]
    return Results(tuple(rows), tuple(played))


def _rounded(value: float | int) -> float | int | str:
    return value if isinstance(value, int) else float(f"{value:.6g}") if math.isfinite(value) else ""


def write(asked: Asked, results: Results) -> dict[str, Any]:
    """Writes the numbers, the claims and the figure."""
    figure = asked.figure
    about = {"figure": figure.name, "scale": asked.scale, **_made_with(asked)}
    about |= {"versions": versions(), "date": datetime.date.today().isoformat()}
    claims = claims_of(figure, results)
    made = contents(figure, results, claims, about, asked.out)
    files.write_all(made)
    return {"claims": claims, "files": [str(path) for path in made]}


def _made_with(asked: Asked) -> dict[str, Any]:
    figure = asked.figure
    command = f"advsurprise reproduce {figure.name} --scale {asked.scale} --seeds {asked.seeds}"
    if figure.untrained:
        return {"layout_seeds": asked.seeds, "steps": asked.steps, "command": command}
    return {
        "training_seeds": asked.seeds,
        "steps": asked.steps,
        "episodes": asked.episodes,
        "bodies": BODIES,
        "rollout": ROLLOUT,
        "command": f"{command} --steps {asked.steps}",
        "tuned": {arm: tuned().get(each.method, {}) for arm, each in figure.arms.items()},
    }


def contents(
    figure: Figure, results: Results, claims: list[dict[str, Any]], about: dict[str, Any], folder: pathlib.Path
) -> dict[pathlib.Path, str | bytes]:
    """Everything that is written about a figure."""
    return {
        **results.files(folder),
        folder / ABOUT: json.dumps(about, indent=1),
        folder / CLAIMS: json.dumps(claims, indent=1),
        **{folder / f"{figure.name}{ending}": data for ending, data in drawn(figure, results).items()},
    }


def claims_of(figure: Figure, results: Results) -> list[dict[str, Any]]:
    """The claims that a figure decides, as they are written: None for what is not a number."""
    claims = [dataclasses.asdict(claim) | {"figure": figure.name} for claim in figure.judge(results)]
    return [{name: _known(value) for name, value in claim.items()} for claim in claims]


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def drawn(figure: Figure, results: Results) -> dict[str, bytes]:
    """The figure as PNG and PDF: a panel for every measure, a line for every arm and world."""
    if figure.untrained:
        return figure.untrained.draw(results)
    worlds = list(figure.worlds)
    panels: dict[str, list[Curve]] = {}
    for column in figure.drawn:
        curves = [_curve(figure, results, world, arm, column) for world, arm in figure.runs]
        panels[column] = [each for each in curves if each is not None]
    spec = labels.of_config(RunConfig(env=worlds[0], env_fields=figure.worlds[worlds[0]]))
    caption = (
        f"{', '.join(worlds)}; bold: interquartile mean over training seeds; shaded: its 95% bootstrap interval; thin: "
        f"each seed; means over 1/{BINS} of training"
    )
    return plot.rendered({name: panel for name, panel in panels.items() if panel}, caption, spec)


def _curve(figure: Figure, results: Results, world: str, arm: str, column: str) -> Curve | None:
    steps, values = results.curve(world, arm, column)
    there = np.isfinite(values).any(axis=0)
    if not there.any():
        return None
    chosen: Arm = figure.arms[arm]
    name = chosen.label if len(figure.worlds) == 1 else f"{world}: {chosen.label}"
    seeds = tuple(range(len(values)))
    return Curve(
        column, name, chosen.method, seeds, steps[there].astype(int), values[:, there], *summarise(values[:, there])
    )


# ------------------------------------------------------------------------------------------------------- listing them


def list_figures(results: pathlib.Path) -> dict[str, Any]:
    """Every figure: what it takes, what it costs, and what came of it where it was made."""
    return {"figures": [_listed(figure, results / figure.name) for figure in FIGURES.values()]}


def _listed(figure: Figure, folder: pathlib.Path) -> dict[str, Any]:
    made = _read(folder / ABOUT)
    claims = _read(folder / CLAIMS) or []
    scales: dict[str, Any] = {}
    for scale in ("small", "full"):
        seeds = seeds_of(figure, scale)
        total = len(figure.runs) * seeds * figure.steps[scale]
        costs = {f"{where}_s": round(total / rate) for where, rate in RATES.items()}
        if figure.untrained:
            costs = {f"{where}_s": figure.untrained.seconds[scale] for where in RATES}
        scales[scale] = {"seeds": seeds, "steps": figure.steps[scale], **costs}
    verdicts = [claim["verdict"] for claim in claims]
    return {
        "name": figure.name,
        "question": figure.question,
        "paper": figure.paper,
        "worlds": list(figure.worlds),
        "methods": [arm.label for arm in figure.arms.values()],
        "scales": scales,
        "status": "not made"
        if made is None
        else f"made with {made.get('training_seeds') or made['layout_seeds']} seeds of {made['steps']:,} steps",
        "claims": [claim["claim"] for claim in claims],
        "verdict": {each: verdicts.count(each) for each in dict.fromkeys(verdicts)},
    }


def _read(path: pathlib.Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def list_text(result: dict[str, Any]) -> str:
    """The list for a person."""
    lines = []
    for each in result["figures"]:
        verdict = ", ".join(f"{number} {name}" for name, number in each["verdict"].items())
        lines.append(f"{each['name']:12}{each['question']} ({each['paper']})")
        lines.append(f"{'':12}{'; '.join(each['worlds'])}: {'; '.join(each['methods'])}")
        for scale, cost in each["scales"].items():
            times = f"about {_time(cost['two_cores_s'])} on two cores, {_time(cost['gpu_s'])} on a GPU"
            lines.append(f"{'':12}{scale}: {cost['seeds']} seeds of {cost['steps']:,} steps, {times}")
        lines.append(f"{'':12}{each['status']}{f': {verdict}' if verdict else ''}\n")
    return "\n".join([*lines, "Make one: advsurprise reproduce coverage --scale small"])


def _time(seconds: int) -> str:
    return f"{seconds / 3600:.1f} h" if seconds > 5400 else f"{max(1, round(seconds / 60))} min"


def text(result: dict[str, Any]) -> str:
    """What was made, for a person."""
    if result["failed"] or result["signal"]:
        words = [f"{name} failed: {reason}" for name, reason in result["failed"].items()]
        return "\n".join([*words, "Give the same command again to go on."])
    lines = []
    for each in result["claims"]:
        lines.append(f"{each['verdict']:14}{each['claim']}")
        known = each["ours"] is not None
        number = f"{each['ours']:.3g} [{each['low']:.3g}, {each['high']:.3g}]" if known else "no number"
        lines.append(f"{'':14}{number}, {each['measure']}, {each['seeds']} seeds")
    return "\n".join([*lines, "", *result["files"]])
