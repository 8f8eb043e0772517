"""Draws scores in games: of frozen policies in the upper row, during training in the lower."""

import textwrap

import numpy as np

from advsurprise import envs
from advsurprise.config import RunConfig
from advsurprise.evaluation import labels
from advsurprise.evaluation.curves import Curve, moving_average
from advsurprise.evaluation.plot import handle, looks, panel, saved
from advsurprise.experiments.drawing import curve_of
from advsurprise.experiments.figure import Figure, Results
from advsurprise.experiments.verdicts import mean

SCORE = "game/score"
BINS = 128
"""Rows kept per run and training seed: the points that are smoothed."""
WINDOWS = {"atari/freeway": 25, "atari/berzerk": 30, "atari/assault": 10, "atari/space-invaders": 10}
"""Points in the moving average of each game, as in the paper (which names four windows for each game without saying
what for; these are the first) and names none for Doom."""
WINDOW = 10
"""Points in the moving average where the paper names none."""
NAME = 24
"""Most characters of a reference line's name beside the columns; longer names take two lines."""
FEW = 10
"""Most points of a curve at which each is drawn as a dot."""
REACH = 1.5
"""A reference line farther above the curves than this many times their range is named instead of drawn."""


def draw(figure: Figure, titles: dict[str, str], results: Results) -> dict[str, bytes]:
    """Two panels for every game with results of a method that learns, as PNG and PDF."""
    from matplotlib.figure import Figure as Canvas

    known = {(row["world"], row["arm"]) for row in results.rows}
    games = [
        world for world in titles if any((world, name) in known for name, arm in figure.arms.items() if arm.learns)
    ]
    frozen = {world: _frozen(figure, results, world) for world in games}
    during = {world: _during(figure, results, world) for world in games}
    look = looks(each for panels in (frozen, during) for drawn in panels.values() for each in drawn)
    width = 3.4 * max(2, len(games))
    made = Canvas(figsize=(width, 6.4), layout="constrained")
    axes = made.subplots(2, max(1, len(games)), squeeze=False)
    for (top, below), world in zip(axes.T, games, strict=False):
        label = labels.of_config(RunConfig(env=world)).label(SCORE)
        staged = any(len(each.steps) > 1 for each in frozen[world])
        (stages if staged else strip)(top, f"{label}: frozen policies", frozen[world], look)
        panel(below, f"{label}: during training", during[world], look)
        _levels(top, levels(results, world))
        top.set_title(titles[world], fontsize=10)
    made.legend(
        [handle(*each) for each in look.values()],
        list(look),
        loc="outside upper center",
        ncols=min(4, max(1, len(look))),
        frameon=False,
        fontsize=8,
    )
    made.supxlabel(
        "\n".join(textwrap.wrap(_caption({world: titles[world] for world in games}), int(26 * width / 2.0))),
        fontsize=7,
        color="#444444",
    )
    return saved(made)


def _frozen(figure: Figure, results: Results, world: str) -> list[Curve]:
    curves = (
        curve_of(SCORE, arm.label, arm.method, *results.frozen_curve(world, name, SCORE))
        for name, arm in figure.arms.items()
        if arm.learns
    )
    return [each for each in curves if each is not None]


def _during(figure: Figure, results: Results, world: str) -> list[Curve]:
    curves = []
    for name, arm in figure.arms.items():
        steps, values = results.curve(world, name, SCORE)
        if arm.learns and values.size:
            # Rows of runs that were kept in fewer points each cover more of training.
            window = round(WINDOWS.get(world, WINDOW) * len(steps) / BINS)
            smooth = moving_average(values, max(1, window))
            curves.append(curve_of(SCORE, arm.label, arm.method, steps, smooth))
    return [each for each in curves if each is not None]


def levels(results: Results, world: str) -> dict[str, float]:
    """Reference scores: random play here, and published ones."""
    random = results.of_frozen(world, "random", SCORE)
    here = {"random here": float(np.mean(random))} if len(random) else {}
    return here | {f"{who}, published": score for who, score in envs.find(world).published.items()}


def stages(axis, label: str, curves: list[Curve], look: dict[str, tuple[str, str]]) -> None:
    """Scores over training, with dots on curves of few points."""
    panel(axis, label, curves, look)
    for each in curves:
        if len(each.steps) <= FEW:
            axis.plot(each.steps, each.iqm, "o", color=look[each.label][0], markersize=4)


def strip(axis, label: str, curves: list[Curve], look: dict[str, tuple[str, str]]) -> None:
    """Scores at a single stage, a column for each arm: every seed, and the mean with its interval."""
    panel(axis, label, [], look)
    for column, each in enumerate(curves):
        shade, scores = look[each.label][0], each.values[:, -1]
        axis.plot(np.full(len(scores), column - 0.12), scores, "o", color=shade, markersize=3, alpha=0.5)
        centre, low, high = mean(scores)
        # One seed has no interval.
        error = np.nan_to_num([[centre - low], [high - centre]])
        axis.errorbar(column + 0.12, centre, error, fmt="o", color=shade, markersize=5, capsize=3)
    names = [textwrap.fill(each.label, 13) for each in curves]
    axis.set_xticks(range(len(curves)), names, fontsize=6, rotation=35, ha="right", rotation_mode="anchor")
    # The reference lines are named on the right.
    axis.set_xlim(-0.5, 1.45 * len(curves))
    axis.set_xlabel("")


def _levels(axis, lines: dict[str, float]) -> None:
    """Draws reference scores as horizontal lines; those far above the curves are named at the top instead."""
    bottom, top = axis.get_ylim()
    # Equal scores share a line.
    by_score: dict[float, list[str]] = {}
    for who, score in lines.items():
        by_score.setdefault(round(score, 1), []).append(who)
    lines = {" and ".join(names): score for score, names in by_score.items()}
    within = {who: score for who, score in lines.items() if score <= top + REACH * (top - bottom)}
    for style, (who, score) in zip((":", "--", "-."), within.items(), strict=False):
        axis.axhline(score, color="#555555", linestyle=style, linewidth=0.9)
        words, place = textwrap.fill(f"{who} {score:,.4g}", NAME), (1.0, score)
        # Two lines may be close: the lowest is named below.
        side = "top" if len(within) > 1 and score == min(within.values()) else "bottom"
        axis.annotate(words, place, xycoords=("axes fraction", "data"), fontsize=6, ha="right", va=side)
    above = [f"{who} {score:,.4g}" for who, score in lines.items() if who not in within]
    if above:
        axis.annotate(
            f"above: {', '.join(above)}", (1.0, 1.0), xycoords="axes fraction", fontsize=6, ha="right", va="top"
        )


def _caption(titles: dict[str, str]) -> str:
    windows = {title: f"{WINDOWS.get(world, WINDOW)}/{BINS}" for world, title in titles.items()}
    several = len(set(windows.values())) > 1
    text = ", ".join(f"{window} ({title})" for title, window in windows.items()) if several else max(windows.values())
    return (
        "Above: whole games of frozen policies, actions sampled; dots and thin lines: each training seed; bold: their "
        "mean (interquartile over training) and its 95% interval. Below: scores during training, smoothed over the "
        f"last {text} of training; shaded: 95% bootstrap interval."
    )
