"""A run that is still being trained, as a web page. Nothing is written into the run's folder."""

import json
import math
import pathlib
import time
from collections.abc import Callable
from typing import Any

from advsurprise.config import RunConfig
from advsurprise.errors import UserError
from advsurprise.evaluation import labels, pages
from advsurprise.evaluation.replay import Replayed, live_page, run_data
from advsurprise.evaluation.serve import Answer, Answers
from advsurprise.training import checkpoint
from advsurprise.training.folder import CHECKPOINTS, METRICS, read_run

TAIL = 1 << 18
"""Bytes at the end of the metrics file that are searched for the newest rows."""
QUIET = 60
"""Seconds without a new row after which the page says so."""
JSON, HTML = "application/json", "text/html; charset=utf-8"


class Live:
    """Content of a run's page. One thread polls `look`, others serve the answers."""

    def __init__(self, folder: pathlib.Path, play: Callable[[], Replayed]):
        """`play` records episodes of the newest good checkpoint."""
        self.folder, self._play = folder, play
        self._seen: tuple[str, int] | None = None
        self._problem, self._playing = "", False
        # Number of recordings, training steps of the last one, and its JSON: replaced together.
        self._newest: tuple[int, int, bytes] = (0, 0, b"{}")
        self._columns = labels.live(labels.of_config(read_run(folder)))

    @property
    def answers(self) -> Answers:
        """Answers for the server."""
        page = live_page(str(self.folder)).encode()
        return {
            "/": lambda: Answer(HTML, page),
            "/status.json": lambda: Answer(JSON, json.dumps(self.status()).encode()),
            "/episodes.json": lambda: Answer(JSON, self._newest[2]),
        }

    def look(self) -> bool:
        """Plays the newest checkpoint if one has been saved since the last call, and returns whether it did."""
        saved = checkpoint.newest_saved(self.folder / CHECKPOINTS)
        if saved is None or saved == self._seen:
            return False
        # Set before playing: a checkpoint saved in the meantime is for the next call.
        self._seen, self._playing = saved, True
        try:
            run = run_data(self._play())
        except UserError as error:
            self._problem = str(error)
            return False
        finally:
            self._playing = False
        number = self._newest[0] + 1
        body = pages.as_json({"number": number, "run": run}).encode()
        self._newest, self._problem = (number, run["steps"], body), ""
        return True

    def status(self) -> dict[str, Any]:
        """Progress of the run and number of recordings, as texts for the page."""
        number, steps, _ = self._newest
        return {"text": self._text(), "waiting": self._waiting(), "episodes": number, "from": steps}

    def _waiting(self) -> str:
        if self._newest[0]:
            return "Loading …"
        if self._problem:
            return f"No episodes: {self._problem}"
        if self._playing:
            return "Playing the first episodes …"
        return "There is no checkpoint yet. The first episodes appear here when one is saved."

    def _text(self) -> str:
        try:
            cfg = read_run(self.folder)
        except UserError as error:
            return str(error)
        rows = newest_rows(self.folder / METRICS)
        if not rows:
            return "No update yet."
        problem = [self._problem] if self._problem else []
        return " · ".join(progress(cfg, rows, self._columns) + self._silence(cfg, rows) + problem)

    def _silence(self, cfg: RunConfig, rows: list[dict[str, Any]]) -> list[str]:
        """Says that the run is finished, or for how long there has been no new row."""
        if rows[0]["step"] >= cfg.updates * cfg.steps_per_update:
            return ["finished"]
        try:
            quiet = time.time() - (self.folder / METRICS).stat().st_mtime
        except OSError:
            return []
        return [f"no new update for {quiet / 60:.0f} min"] if quiet > QUIET else []


def progress(cfg: RunConfig, rows: list[dict[str, Any]], columns: Any) -> list[str]:
    """Steps done, speed, and means over seeds of the shown measures."""
    step, total, rate = rows[0]["step"], cfg.updates * cfg.steps_per_update, rows[0].get("steps_per_s")
    parts = [f"{step:,} of {total:,} steps ({100 * step // total}%)"]
    parts += [f"{rate:,.0f} steps/s"] if isinstance(rate, float | int) else []
    for column, name in columns.items():
        known = [row[column] for row in rows if isinstance(row.get(column), float | int)]
        known = [value for value in known if math.isfinite(value)]
        parts += [f"{name} {sum(known) / len(known):.3g}"] if known else []
    return parts


def newest_rows(path: pathlib.Path) -> list[dict[str, Any]]:
    """Rows of the newest update, read from the end of the file; incomplete lines are skipped."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            lines = file.read().splitlines()
    except OSError:
        return []
    rows = [row for line in lines if (row := _row(line)) is not None]
    return [row for row in rows if row["step"] == rows[-1]["step"]]


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and isinstance(row.get("step"), int) else None
