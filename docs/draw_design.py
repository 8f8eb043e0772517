"""Draws docs/figures/design.png from the code: the floors as the imports have them, and one update's way through them.

python docs/draw_design.py
"""

import inspect
import pathlib
import sys
import textwrap

from matplotlib.figure import Figure

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from test_layers import FLOORS, _family, _floor, _imports, _modules  # noqa: E402

from advsurprise import api  # noqa: E402
from advsurprise.config import RunConfig  # noqa: E402
from advsurprise.envs.base import AbstractEnv  # noqa: E402
from advsurprise.evaluation.play import play  # noqa: E402
from advsurprise.learning.advantage import turn_gae  # noqa: E402
from advsurprise.learning.collect import ScanCollector  # noqa: E402
from advsurprise.learning.fit import fit  # noqa: E402
from advsurprise.learning.interaction import absorb, decide  # noqa: E402
from advsurprise.methods.base import AbstractMethod  # noqa: E402
from advsurprise.training import checkpoint  # noqa: E402
from advsurprise.training.fused import Fused  # noqa: E402
from advsurprise.types import Rollout  # noqa: E402

UPDATE = [
    (RunConfig, "what was asked for"),
    (Fused.update, "one update, compiled; for host worlds Hosted.update"),
    (ScanCollector.collect, "scans over steps"),
    (decide, "views, policies, actions"),
    (AbstractEnv.step, "the world moves"),
    (absorb, "memory and signal, by the method"),
    (Rollout, "what was recorded, [T, B, …]"),
    (AbstractMethod.score, "signals to rewards"),
    (turn_gae, "advantages across turns"),
    (fit, "gradient steps on policies and other networks"),
    (checkpoint.save, "state to disk, and a row of metrics"),
    (play, "frozen policies, whole episodes"),
    (api.Trained.evaluate, "means and intervals over training seeds"),
]
"""What one update passes through, in order, and what each does."""
COLOURS = {
    "grid": "#8c6bb1",
    "envs": "#41ab5d",
    "methods": "#d95f0e",
    "learning": "#2b8cbe",
    "training": "#225ea8",
    "evaluation": "#c51b8a",
    "theory": "#8c6bb1",
    "bench": "#737373",
    "experiments": "#737373",
    "cli": "#525252",
}


def floors() -> dict[int, list[str]]:
    """Modules of every floor by its number, lowest first; almost empty modules and floors of nothing else left out."""
    shown = {name for name, path in _modules().items() if name != "__init__" and path.stat().st_size > 150}
    filled = {number: sorted(name for name in shown if _floor(name) == number) for number in range(len(FLOORS))}
    return {number: modules for number, modules in filled.items() if modules}


def draw_floors(axis) -> None:
    height = 0.0
    for number, modules in floors().items():
        lines = [(family, line) for family, own in by_family(modules).items() for line in textwrap.wrap(own, 100)]
        axis.axhspan(height, height + len(lines) + 0.7, color="#f3f3f3" if number % 2 else "#e6e6e6", zorder=0)
        middle = height + 0.35 + len(lines) / 2
        axis.text(0.01, middle, str(number), fontsize=9, weight="bold", va="center")
        for index, (family, line) in enumerate(reversed(lines)):
            colour = COLOURS.get(family, "#000000")
            axis.text(0.05, height + 0.85 + index, line, fontsize=6.6, va="center", color=colour)
        axis.text(0.99, middle, uses(modules), fontsize=5.5, ha="right", va="center", color="#777777")
        height += len(lines) + 0.7
    axis.set_ylim(0, height)
    axis.set_title("floors: a module imports from its own folder, and from floors below its own", fontsize=9)


def by_family(modules: list[str]) -> dict[str, str]:
    """The modules of each folder, as one line; those of no folder share one."""
    families: dict[str, list[str]] = {}
    for name in modules:
        families.setdefault(_family(name) if _family(name) in COLOURS else "", []).append(name)
    return {family: "   ".join(own) for family, own in families.items()}


def uses(modules: list[str]) -> str:
    """Floors that modules import from, other than within their own folder."""
    pairs = [(name, target) for name in modules for target in _imports(_modules()[name]) if target != "__init__"]
    below = sorted({_floor(target) for name, target in pairs if _family(target) != _family(name)})
    return f"uses {', '.join(map(str, below))}" if below else ""


def draw_update(axis) -> None:
    count = len(UPDATE)
    for index, (what, text) in enumerate(UPDATE):
        y = count - index - 0.5
        module = inspect.getmodule(what)
        home = "" if module is None else module.__name__.removeprefix("advsurprise.")
        colour = COLOURS.get(home.split(".")[0], "#000000")
        axis.text(0.06, y, what.__qualname__, fontsize=8, weight="bold", va="center", color=colour)
        axis.text(0.06, y - 0.3, f"{home}: {text}", fontsize=6, va="center", color="#444444")
        if index:
            axis.annotate("", (0.03, y + 0.1), (0.03, y + 0.9), arrowprops={"arrowstyle": "-|>", "color": "#888888"})
    axis.set_ylim(0, count)
    axis.set_title("one update, from configuration to evaluation", fontsize=9)


def main() -> None:
    figure = Figure(figsize=(11, 6.4))
    left, right = figure.subplots(1, 2, width_ratios=(1.75, 1))
    for axis in (left, right):
        axis.set_xlim(0, 1)
        axis.set_axis_off()
    draw_floors(left)
    draw_update(right)
    figure.tight_layout()
    figure.savefig(ROOT / "docs" / "figures" / "design.png", dpi=130)


if __name__ == "__main__":
    main()
