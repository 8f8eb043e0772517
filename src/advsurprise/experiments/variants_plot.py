"""Draws how variants of Adversarial Surprise trade exploring against stilling, from their rows.

python -m advsurprise.experiments.variants_plot    # docs/results/variants.csv -> docs/figures/variants.png
"""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from advsurprise.evaluation.plot import saved
from advsurprise.experiments.cells import read_csv
from advsurprise.experiments.runs import script
from advsurprise.training import files

ROOMS, STILLED = "end/rooms_episode", "end/stilled"
DRAWN = {
    "turns-32": ("the paper's: one model, turns of 32", "#999999"),
    "turns-16 minibatch-1024": ("one model, turns of 16", "#0072B2"),
    "turns-16 large round no-prior": ("one model, emptied with the round", "#E69F00"),
    "turns-16 large two-models": ("two models, turns of 16", "#56B4E9"),
    "turns-8 large two-models": ("two models, turns of 8", "#009E73"),
    "turns-16/8 large two-models whole-turn": ("two models, turns of 16 and 8, whole turn paid", "#CC79A7"),
}
"""Variants to draw, with their labels and colours."""
SCRIPTED = (3.8, 0.63)
"""Rooms and stilled rooms of scripted players with turns of 16 and 8 (docs/incentive.md): about the maximum."""


@dataclasses.dataclass(frozen=True)
class Drawing:
    """Input and output files."""

    rows: pathlib.Path = pathlib.Path("docs/results/variants.csv")
    """Rows written by `advsurprise.experiments.variants`."""
    out: pathlib.Path = pathlib.Path("docs/figures/variants.png")
    """Output file of the figure."""


def path(rows: Sequence[dict[str, Any]], name: str) -> Float[np.ndarray, "T 2"]:
    """Rooms and stilled rooms of a variant over training, means over its seeds."""
    mine = [row for row in rows if row["arm"] == name]
    steps = sorted({row["step"] for row in mine})
    return np.asarray(
        [
            [np.mean([row[column] for row in mine if row["step"] == step]) for column in (ROOMS, STILLED)]
            for step in steps
        ]
    )


def draw(args: Drawing) -> None:
    """Draws each variant as a line over training, with a dot at its end."""
    from matplotlib.figure import Figure

    rows = read_csv(args.rows)
    made = Figure(figsize=(6.4, 4.0), layout="constrained")
    axis = made.subplots()
    for name, (label, colour) in DRAWN.items():
        rooms, stilled = path(rows, name).T
        axis.plot(rooms, stilled, color=colour, linewidth=1.4, label=label)
        axis.plot(rooms[-1], stilled[-1], "o", color=colour, markersize=6)
    axis.plot(*SCRIPTED, "*", color="black", markersize=10, linestyle="none", label="scripted players")
    axis.set(xlabel="rooms visited per episode", ylabel="noisy rooms stilled at the end", xlim=(1, 4), ylim=(0, 0.75))
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8, loc="lower right")
    files.write(args.out, saved(made)[".png"])


if __name__ == "__main__":
    script(draw, Drawing, __doc__)
