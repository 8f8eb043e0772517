"""A run in a notebook: a table, and learning curves as inline SVG, without matplotlib or files."""

import html
import pathlib
from typing import NamedTuple

import numpy as np

from advsurprise.config import RunConfig
from advsurprise.errors import UserError
from advsurprise.evaluation import curves
from advsurprise.evaluation.plot import SMOOTHED_SHARE, colour

WIDTH, HEIGHT = 320, 120
"""Size of a curve in pixels."""
POINTS = 300
"""Most points in a line."""
MAX_ROWS = 8
"""Most metrics in the table."""


class Shown(NamedTuple):
    """One column of the metrics."""

    label: str
    """Its label."""
    steps: np.ndarray
    """Environment steps per seed, [T]."""
    values: np.ndarray
    """Moving average of every seed, [S, T]; nan where missing."""
    last: float
    """Mean over seeds in the last row that has it."""


def plain(folder: pathlib.Path, cfg: RunConfig, updates: int) -> str:
    """One-line text of a run."""
    return f"<Trained: {cfg.method} in {cfg.env}, {_steps(cfg, updates)}, {_seeds(cfg)}, {folder}>"


def rich(folder: pathlib.Path, cfg: RunConfig, updates: int) -> str:
    """HTML of a run. If its metrics cannot be read, the table has none."""
    facts = {"method": cfg.method, "world": cfg.env, "trained": _steps(cfg, updates)}
    facts |= {"seeds": ", ".join(map(str, cfg.seeds)), "folder": str(folder)}
    try:
        record = curves.read_record(folder)
        table = record.labels
        shown = [_shown(record, name, table.label(name)) for name in table.shown if name in record.columns][:MAX_ROWS]
        drawn = [_shown(record, name, table.label(name)) for name in table.drawn if name in record.columns]
    except (UserError, OSError):
        shown = drawn = []
    rows = list(facts.items())
    rows += [(each.label, f"{each.last:.4g}") for each in shown if np.isfinite(each.last)]
    body = "".join(f"<tr>{_cell(name, 'left')}{_cell(text, 'right')}</tr>" for name, text in rows)
    figures = "".join(_figure(each, colour(cfg.method)) for each in drawn if np.isfinite(each.values).any())
    note = f"<p><small>{_note(len(cfg.seeds))}</small></p>" if shown else ""
    return (
        f'<div><p><b>{html.escape(cfg.method)}</b></p><div style="display:flex;flex-wrap:wrap;gap:1.5em">'
        f"<table>{body}</table><div>{figures}</div></div>{note}</div>"
    )


def _note(seeds: int) -> str:
    if seeds == 1:
        return "Metrics: the last update. Curves: moving averages."
    return f"Metrics: the last update, mean of {seeds} seeds. Curves: moving average of each seed; bold: their mean."


def _steps(cfg: RunConfig, updates: int) -> str:
    done, total = updates * cfg.steps_per_update, cfg.updates * cfg.steps_per_update
    return f"{done:,} steps" if done >= total else f"{done:,} of {total:,} steps"


def _seeds(cfg: RunConfig) -> str:
    return f"seed{'s' * (len(cfg.seeds) > 1)} {', '.join(map(str, cfg.seeds))}"


def _shown(record: curves.Record, name: str, label: str) -> Shown:
    values = record.column(name)
    window = max(1, round(values.shape[1] / SMOOTHED_SHARE))
    known = np.flatnonzero(np.isfinite(values).any(axis=0))
    last = float(np.nanmean(values[:, known[-1]])) if known.size else float("nan")
    few = np.unique(np.linspace(0, values.shape[1] - 1, POINTS).round().astype(int))
    return Shown(label, np.asarray(record.steps)[few], curves.moving_average(values, window)[:, few], last)


def _cell(text: str, side: str) -> str:
    return f'<td style="text-align:{side}">{html.escape(text)}</td>'


# ------------------------------------------------------------------------------------------------ curves


def _figure(shown: Shown, shade: str) -> str:
    """One panel. Text and frame use the page's text colour, to be visible in dark notebooks."""
    known = shown.values[np.isfinite(shown.values)]
    low, high = float(known.min()), float(known.max())
    high = high if high > low else low + 1.0
    lines = [*shown.values, _mean(shown.values)] if len(shown.values) > 1 else [shown.values[0]]
    paths = "".join(
        f'<path d="{_path(shown.steps, line, low, high)}" fill="none" stroke="{shade}" '
        f'stroke-width="{2 if number == len(lines) - 1 else 0.7}"/>'
        for number, line in enumerate(lines)
    )
    texts = (
        (WIDTH / 2, -6, "middle", shown.label),
        (-4, 10, "end", f"{high:.3g}"),
        (-4, HEIGHT, "end", f"{low:.3g}"),
        (WIDTH, HEIGHT + 14, "end", f"{shown.steps[-1]:,} steps"),
    )
    letters = "".join(
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="11" fill="currentColor">{html.escape(text)}</text>'
        for x, y, anchor, text in texts
    )
    frame = f'<path d="M0 0V{HEIGHT}H{WIDTH}" fill="none" stroke="currentColor" stroke-width="0.7"/>'
    box = f"-60 -20 {WIDTH + 80} {HEIGHT + 40}"
    size = f'width="{WIDTH + 80}" height="{HEIGHT + 40}" style="max-width:100%"'
    name = html.escape(shown.label, quote=True)
    return f'<svg viewBox="{box}" {size} role="img" aria-label="{name}">{frame}{paths}{letters}</svg>'


def _mean(values: np.ndarray) -> np.ndarray:
    """Mean over the seeds that have a value; nan where none has."""
    known = np.isfinite(values)
    return np.where(known, values, 0).sum(axis=0) / np.where(known.any(axis=0), known.sum(axis=0), np.nan)


def _path(steps: np.ndarray, line: np.ndarray, low: float, high: float) -> str:
    """SVG path of a line, with gaps where it has no value."""
    first, last = float(steps[0]), float(steps[-1])
    x = (steps - first) / ((last - first) or 1.0) * WIDTH
    y = HEIGHT - (line - low) / (high - low) * HEIGHT
    path, pen = [], "M"
    for across, down in zip(x, y, strict=True):
        if np.isfinite(down):
            path.append(f"{pen}{across:.1f} {down:.1f}")
        pen = "L" if np.isfinite(down) else "M"
    return "".join(path)
