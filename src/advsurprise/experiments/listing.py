"""`advsurprise reproduce --list`: what the figures compare and cost, and their status."""

import json
import pathlib
from typing import Any

from advsurprise.experiments.figure import Figure, Scale
from advsurprise.experiments.reproduce import ABOUT, CLAIMS, FIGURES

WIDTH = 17
"""Width of the column of names."""
SCALES: tuple[Scale, ...] = ("small", "full")


def list_figures(results: pathlib.Path) -> dict[str, Any]:
    """Every figure with its runs, its cost, its status and its claims."""
    return {"figures": [_listed(figure, results / figure.name) for figure in FIGURES.values()]}


def _listed(figure: Figure, folder: pathlib.Path) -> dict[str, Any]:
    made = _read(folder / ABOUT)
    claims = _read(folder / CLAIMS) or []
    scales = {scale: _cost(figure, scale) for scale in SCALES}
    verdicts = [claim["verdict"] for claim in claims]
    return {
        "name": figure.name,
        "question": figure.question,
        "paper": figure.paper,
        "worlds": list(figure.worlds),
        "methods": [arm.label for arm in figure.arms.values()],
        "scales": scales,
        "status": _status(figure, made),
        "claims": [claim["claim"] for claim in claims],
        "verdict": {each: verdicts.count(each) for each in dict.fromkeys(verdicts)},
    }


def _cost(figure: Figure, scale: Scale) -> dict[str, Any]:
    """Seeds and steps at a scale, and how long it takes."""
    seeds, steps, worlds = figure.seeds[scale], figure.steps[scale], figure.worlds_of(scale)
    size: dict[str, Any] = {"seeds": seeds, "steps": steps}
    size |= {"worlds": list(worlds)} if len(worlds) < len(figure.worlds) else {}
    if figure.untrained:
        return size | {f"{where}_s": figure.untrained.seconds[scale] for where in figure.rates}
    shared = FIGURES[figure.trained_for].arms if figure.trained_for else {}
    if shared:
        size["trained_for"] = figure.trained_for
    learning = [arm for name, arm in figure.arms.items() if arm.learns and name not in shared]
    if own := {arm.trained_for(steps) for arm in learning} - {steps}:
        size["own_steps"] = max(own)
    total = len(worlds) * seeds * sum(arm.trained_for(steps) for arm in learning)
    starts = len(worlds) * len(learning) * figure.stages[scale]
    return size | {
        f"{where}_s": round(total / rate + starts * figure.starting_s[where]) for where, rate in figure.rates.items()
    }


def _status(figure: Figure, made: dict[str, Any] | None) -> str:
    """Which results of a figure exist."""
    if made is None:
        return "not made"
    words = f"made with {made.get('training_seeds') or made['layout_seeds']} seeds of {made['steps']:,} steps"
    missing = len(figure.runs) - len(made.get("runs", figure.runs))
    return f"{words}, without {missing} of {len(figure.runs)} runs" if missing else words


def _read(path: pathlib.Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def list_text(result: dict[str, Any]) -> str:
    """The list as text."""
    lines = []
    for each in result["figures"]:
        verdict = ", ".join(f"{number} {_plural(name, number)}" for name, number in each["verdict"].items())
        lines.append(f"{each['name']:{WIDTH}}{each['question']} ({each['paper']})")
        lines.append(f"{'':{WIDTH}}{'; '.join(each['worlds'])}: {'; '.join(each['methods'])}")
        lines += [f"{'':{WIDTH}}{scale}: {_cost_text(cost)}" for scale, cost in each["scales"].items()]
        lines.append(f"{'':{WIDTH}}{each['status']}{f': {verdict}' if verdict else ''}\n")
    return "\n".join([*lines, "Make one: advsurprise reproduce coverage --scale small"])


def _plural(verdict: str, number: int) -> str:
    return verdict if number == 1 else {"holds": "hold", "does not hold": "do not hold"}.get(verdict, verdict)


def _cost_text(cost: dict[str, Any]) -> str:
    where = f" in {', '.join(cost['worlds'])}" if "worlds" in cost else ""
    times = f"about {_time(cost['two_cores_s'])} on two cores, {_time(cost['gpu_s'])} on a GPU"
    if "trained_for" in cost:
        times = f"the runs of {cost['trained_for']}" + (f" and {times} more" if cost["two_cores_s"] else "")
    own = f" (its own runs {cost['own_steps']:,})" if "own_steps" in cost else ""
    return f"{cost['seeds']} seeds of {cost['steps']:,} steps{own}{where}, {times}"


def _time(seconds: int) -> str:
    if seconds > 3 * 86400:
        return f"{seconds / 86400:.0f} days"
    return f"{seconds / 3600:.1f} h" if seconds > 5400 else f"{max(1, round(seconds / 60))} min"
