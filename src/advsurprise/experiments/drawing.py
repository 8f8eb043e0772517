"""Draws a figure's numbers as learning curves."""

import numpy as np
from jaxtyping import Float

from advsurprise.config import RunConfig
from advsurprise.errors import UserError
from advsurprise.evaluation import labels, plot
from advsurprise.evaluation.curves import Curve, summarise
from advsurprise.experiments.figure import Figure, Results


def curve_of(
    column: str, label: str, method: str, steps: Float[np.ndarray, " T"], values: Float[np.ndarray, "S T"]
) -> Curve | None:
    """A curve over training seeds, without the steps at which no seed has a value; None if no step is left."""
    known = np.isfinite(values).any(axis=0)
    if not known.any():
        return None
    values, seeds = values[:, known], tuple(range(len(values)))
    return Curve(column, label, method, seeds, steps[known].astype(int), values, *summarise(values))


def learning_curves(figure: Figure, results: Results) -> dict[str, bytes]:
    """The figure as PNG and PDF: one panel per measure, one line per arm and world."""
    worlds = list(figure.worlds)
    panels: dict[str, list[Curve]] = {}
    for column in figure.drawn:
        curves = [_curve(figure, results, world, arm, column) for world, arm in figure.runs]
        panels[column] = [each for each in curves if each is not None]
    spec = labels.of_config(RunConfig(env=worlds[0], env_fields=figure.worlds[worlds[0]]))
    caption = (
        f"{', '.join(worlds)}; bold: interquartile mean over training seeds; shaded: its 95% bootstrap interval; thin: "
        f"each seed; means over 1/{figure.bins} of training"
    )
    panels = {name: panel for name, panel in panels.items() if panel}
    if not panels:
        raise UserError(f"nothing to draw of {figure.name} yet, as no measure has a value: train for longer")
    return plot.rendered(panels, caption, spec)


def _curve(figure: Figure, results: Results, world: str, arm: str, column: str) -> Curve | None:
    chosen = figure.arms[arm]
    name = chosen.label if len(figure.worlds) == 1 else f"{world}: {chosen.label}"
    return curve_of(column, name, chosen.method, *results.curve(world, arm, column))
