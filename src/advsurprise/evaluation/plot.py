"""Plots learning curves and writes the plotted numbers. docs/plots.md has the definitions.

No file is written until the contents of all are ready.
"""

import csv
import io
import pathlib
import textwrap
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from advsurprise.errors import UserError
from advsurprise.evaluation.curves import Curve, Log, Record, choose, panels_of, read_record, run_names, table_of
from advsurprise.evaluation.labels import Labels
from advsurprise.training import files

ENOUGH_SEEDS = 5
"""Number of seeds below which an interval comes with a warning."""
SMOOTHED_SHARE = 20
"""By default the moving average covers 1/20 of the longest run."""

# Okabe and Ito's colour-blind safe palette (without yellow, which is hard to see on white).
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#777777", "#000000", "#56B4E9")
COLOURS: dict[str, str] = dict(
    zip(("adversarial-surprise", "smirl", "rnd", "agac", "asp", "random", "task"), PALETTE, strict=False)
)
STYLES: tuple[Any, ...] = ("-", "--", ":", "-.")
"""Line styles of runs with the same colour."""


def colour(method: str) -> str:
    """The colour of a method, the same in every figure."""
    return COLOURS.get(method, PALETTE[zlib.crc32(method.encode()) % len(PALETTE)])


def looks(drawn: Iterable[Curve]) -> dict[str, tuple[str, str]]:
    """Colour and line style of every label: labels of one method share its colour and differ in style, or, if they are
    crowded, get shades from dark to light."""
    colours = {each.label: colour(each.method) for each in drawn}
    look: dict[str, tuple[str, str]] = {}
    most = most_of_one_colour(colours.values())
    for shared in dict.fromkeys(colours.values()):
        mine = [label for label, its in colours.items() if its == shared]
        if len(mine) > most:
            look |= {label: (shade, "-") for label, shade in zip(mine, shades(len(mine)), strict=True)}
        else:
            look |= {label: (shared, style) for label, style in zip(mine, STYLES, strict=False)}
    return {label: look[label] for label in colours}


def most_of_one_colour(names: Iterable[str]) -> int:
    """How many lines may share a method's colour: two if there is no other method, for then it says nothing, else as
    many as there are styles. `names` are the methods or colours of all lines."""
    return 2 if len(set(names)) == 1 else len(STYLES)


def shades(number: int) -> list[str]:
    """`number` colours from dark to light that stay distinct in print."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colormaps["viridis"](place)) for place in np.linspace(0.0, 0.9, number)]


def figure(panels: dict[str, list[Curve]], caption: str, table: Labels):
    """The figure, with one panel per metric, labelled by `table`."""
    from matplotlib.figure import Figure

    columns = min(3, len(panels))
    lines = -(-len(panels) // columns)
    look = looks(each for drawn in panels.values() for each in drawn)
    words = textwrap.wrap(caption, 70 * columns)
    # Laid out by hand, in inches: an automatic layout would take as long as the drawing.
    above, below = 0.15 + 0.22 * -(-len(look) // (2 * columns)), 0.5 + 0.12 * len(words)
    width, height = 4.0 * columns, 2.4 * lines + 0.5 * (lines - 1) + above + below
    made = Figure(figsize=(width, height))
    axes = made.subplots(lines, columns, squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    for axis, (metric, drawn) in zip(axes.flat, panels.items(), strict=False):
        panel(axis, table.label(metric), drawn, look)
    handles = [handle(*each) for each in look.values()]
    made.legend(handles, list(look), loc="upper center", ncols=2 * columns, frameon=False, fontsize=8)
    made.text(0.5, 0.05 / height, "\n".join(words), ha="center", va="bottom", fontsize=6.5, color="#444444")
    made.subplots_adjust(
        left=0.65 / width,
        right=1 - 0.2 / width,
        bottom=below / height,
        top=1 - above / height,
        hspace=0.5 / 2.4,
        wspace=0.28,
    )
    return made


def panel(axis, label: str, drawn: Iterable[Curve], look: dict[str, tuple[str, str]]) -> None:
    """Draws curves into a matplotlib axis."""
    from matplotlib.ticker import EngFormatter

    for each in drawn:
        shade, style = look[each.label]
        axis.plot(each.steps, each.values.T, color=shade, linestyle=style, linewidth=0.5, alpha=0.45)
        axis.fill_between(each.steps, each.low, each.high, color=shade, alpha=0.18, linewidth=0)
        axis.plot(each.steps, each.iqm, color=shade, linestyle=style, linewidth=2.0)
    axis.set_xlabel("environment steps per seed", fontsize=8)
    axis.set_ylabel("\n".join(textwrap.wrap(label, 40)), fontsize=8)
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    axis.tick_params(labelsize=7)
    axis.spines[["top", "right"]].set_visible(False)


def handle(shade: str, style: Any):
    """A line for a legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], color=shade, linestyle=style, linewidth=2.0)


@np.errstate(over="ignore", invalid="ignore")  # matplotlib adds margins to values near the float maximum
def rendered(panels: dict[str, list[Curve]], caption: str, table: Labels) -> dict[str, bytes]:
    """The figure as the contents of a PNG and of a PDF file."""
    return saved(figure(panels, caption, table))


def saved(made) -> dict[str, bytes]:
    """A matplotlib figure as the contents of a PNG and of a PDF file."""
    import matplotlib

    contents = {}
    # Type 42 fonts, which journals require; no dates, so that the same curves give the same file.
    with matplotlib.rc_context({"pdf.fonttype": 42}):
        for kind, metadata in (("png", {"Software": None}), ("pdf", {"CreationDate": None})):
            buffer = io.BytesIO()
            made.savefig(buffer, format=kind, dpi=150, metadata=metadata)
            contents[f".{kind}"] = buffer.getvalue()
    return contents


# -------------------------------------------------------------------------------------------------- the command


def tables(panels: dict[str, list[Curve]]) -> dict[str, bytes]:
    """The plotted numbers as the contents of two CSV files: the curves, and each seed's line."""
    drawn = [each for panel in panels.values() for each in panel]
    curves_head = ("metric", "method", "step", "iqm", "low", "high", "n_seeds")
    curve_rows = (
        (each.metric, each.label, *point)
        for each in drawn
        for point in zip(*(x.tolist() for x in (each.steps, each.iqm, each.low, each.high, each.n_seeds)), strict=True)
    )
    seed_rows = (
        (each.metric, each.label, seed, step, value)
        for each in drawn
        for seed, line in zip(each.seeds, each.values.tolist(), strict=True)
        for step, value in zip(each.steps.tolist(), line, strict=True)
        if np.isfinite(value)
    )
    seeds_head = ("metric", "method", "seed", "step", "value")
    return {".csv": _csv(curves_head, curve_rows), "_seeds.csv": _csv(seeds_head, seed_rows)}


def _csv(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue().encode()


def draw(
    folders: Sequence[pathlib.Path],
    *,
    metric: str | None = None,
    out: pathlib.Path,
    smooth: int | None = None,
    log: Log = lambda line: None,
) -> dict[str, Any]:
    """Plots the runs in these folders into OUT.png, OUT.pdf, OUT.csv and OUT_seeds.csv."""
    if smooth is not None and smooth < 1:
        raise UserError(f"--smooth must be at least 1 update, not {smooth}")
    records = [read_record(folder) for folder in folders]
    window = smooth or default_window(records)
    panels = panels_of(records, choose(records, metric), window=window, log=log)
    for sentence in few_seeds(records):
        log(sentence)
    table = table_of(records)
    written = write(out, {**rendered(panels, _caption(records, window), table), **tables(panels)})
    drawn = [each for panel in panels.values() for each in panel]
    end = {name: {each.metric: each.end for each in drawn if each.label == name} for name in run_names(records)}
    available = set().union(*(record.columns for record in records)) - set(panels)
    others = [name for name, column in table.shorts.items() if column in available and not name.endswith("-mean")]
    return {
        "files": written,
        "smooth": window,
        "metrics": list(panels),
        "labels": {name: table.label(name) for name in panels},
        "others": others,
        "end": end,
    }


def default_window(records: Sequence[Record]) -> int:
    """Default number of updates in the moving average."""
    return max(1, round(max(len(record.steps) for record in records) / SMOOTHED_SHARE))


def few_seeds(records: Sequence[Record]) -> list[str]:
    """A warning for each number of seeds that is too small for an interval."""
    by_number: dict[int, list[str]] = {}
    for record, name in zip(records, run_names(records), strict=True):
        by_number.setdefault(len(record.seeds), []).append(name)
    return [
        f"{number} seed{'s' * (number > 1)}: intervals are unreliable ({', '.join(names)})"
        for number, names in sorted(by_number.items())
        if number < ENOUGH_SEEDS
    ]


def _caption(records: Sequence[Record], window: int) -> str:
    worlds = ", ".join(sorted({record.config.env for record in records}))
    smoothing = f"mean of the last {window} updates" if window > 1 else "not smoothed"
    lines = (
        "bold: interquartile mean over training seeds",
        "shaded: its 95% bootstrap interval",
        "thin: each seed",
        smoothing,
    )
    return f"{worlds}; {'; '.join(lines)}"


def write(out: pathlib.Path, contents: dict[str, bytes]) -> list[str]:
    """Writes the files OUT + ending and returns their paths."""
    out = out.with_suffix("") if out.suffix in contents else out
    paths = {out.with_name(out.name + ending): content for ending, content in contents.items()}
    files.make_folder(out.parent)
    files.write_all(paths)
    return [str(path) for path in paths]


def end_text(result: dict[str, Any]) -> str:
    """The last point of every curve and the figure's files, as text."""
    names = result["metrics"]
    width = max(len(label) for label in result["end"]) + 2
    last = f"mean of the last {result['smooth']} updates" if result["smooth"] > 1 else "the last update"
    lines = [
        f"interquartile mean over training seeds and 95% interval, {last}",
        *(f"{name}: {label}" for name, label in result["labels"].items()),
        f"{'':{width}}{'steps':>12}{'seeds':>7}" + "".join(f"{name:>26}" for name in names),
    ]
    for label, last_points in result["end"].items():
        points = list(last_points.values())
        cells = "".join(f"{_cell(last_points.get(name)):>26}" for name in names)
        steps, seeds = (f"{points[0]['step']:,}", str(points[0]["n_seeds"])) if points else ("", "")
        lines.append(f"{label:{width}}{steps:>12}{seeds:>7}{cells}")
    return "\n".join([*lines, f"drawn: {' '.join(result['files'])}"])


def _cell(point: dict[str, Any] | None) -> str:
    return "–" if point is None else f"{point['iqm']:.3g} [{point['low']:.3g}, {point['high']:.3g}]"
