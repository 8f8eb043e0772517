"""Where each objective spends its time, world by world."""

import pathlib
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from advsurprise.training import files

OBJECTIVES = {
    "maximiser": "surprise maximiser",
    "minimiser": "surprise minimiser",
    "random": "uniform random",
    "game": "the game",
}
COLOURS = {"maximiser": "#c0392b", "minimiser": "#2c3e50", "random": "#95a5a6", "game": "#2980b9"}
MOST_BARS = 12
"""Maximum number of states named in a panel; larger worlds are summed by emission entropy."""


def occupancies(rows: list[dict[str, Any]], path: pathlib.Path) -> None:
    """Bars of d(s) for each state, dark rooms first; a panel for each world."""
    columns = min(3, len(rows))
    lines = -(-len(rows) // columns)
    figure = Figure(figsize=(4.6 * columns, 2.7 * lines))
    axes = figure.subplots(lines, columns, squeeze=False)
    for axis in axes.flat[len(rows) :]:
        axis.set_axis_off()
    for axis, row in zip(axes.flat, rows, strict=False):
        _panel(axis, row)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=4 if columns > 1 else 2, frameon=False)
    # Placed by hand, in inches: letting matplotlib measure every label would take as long as the drawing.
    height, width = 2.7 * lines, 4.6 * columns
    top = height - (0.65 if columns > 1 else 0.9)
    figure.subplots_adjust(
        left=0.4 / width, right=1 - 0.1 / width, bottom=0.7 / height, top=top / height, hspace=0.65, wspace=0.12
    )
    files.write_figure(path, figure, dpi=80)


def _panel(axis, row: dict[str, Any]) -> None:
    labels, groups = _groups(row)
    place, width = np.arange(len(labels)), 0.2
    for index, (name, title) in enumerate(OBJECTIVES.items()):
        mass = row["objectives"][name]["marginal"]
        heights = [sum(mass[state] for state in group) for group in groups]
        axis.bar(place + (index - 1.5) * width, heights, width, color=COLOURS[name], label=title)
    axis.set_xticks(place, labels, rotation=35, ha="right", fontsize=7)
    axis.set_ylim(0, 1.05)
    axis.tick_params(axis="y", labelsize=7)
    holds = "".join(name if row["assumptions"][name] else "–" for name in "abc")
    end = "covers" if row["covers"] else "does not cover"
    axis.set_title(f"{row['name']}, T = {row['horizon']}: assumptions {holds}; game {end}", fontsize=8)


def _groups(row: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Labels and states of the bars, from dark to noisy."""
    order = np.argsort(row["entropies"], kind="stable")
    states, noise = [row["states"][i] for i in order], [row["entropies"][i] for i in order]
    if len(states) <= MOST_BARS:
        return [f"{state} ({h:.1f})" for state, h in zip(states, noise, strict=True)], [[state] for state in states]
    levels = sorted({round(h, 6) for h in noise})
    groups = [[s for s, h in zip(states, noise, strict=True) if round(h, 6) == level] for level in levels]
    return [f"{len(g)} states ({level:.1f})" for g, level in zip(groups, levels, strict=True)], groups
