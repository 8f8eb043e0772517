"""Sinks for the metrics of a run: JSON lines (the record) and the console; trackers are in `training.track`.

A row is a flat dict. `step` is the row's position in the run; `seed` and `phase` are optional. Names that start with
`wall_` depend on the clock: a resumed run reproduces all other values, but not these.

JSON has no NaN and no infinity: they are written as the strings "nan", "inf" and "-inf", which `float` reads back.
"""

import contextlib
import json
import math
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import rich.console
import rich.text

from advsurprise.errors import UserError
from advsurprise.training import files

Row = Mapping[str, float | int | str]

WALL = "wall_"
"""Prefix of the names of clock-dependent values."""
CLEAR = "\r\x1b[2K"
"""Erases the terminal's line."""


@runtime_checkable
class Sink(Protocol):
    """Something rows are written to."""

    def write(self, row: Row) -> None: ...

    def close(self) -> None: ...


# ------------------------------------------------------------------------------------------------ JSON lines


class JsonLines:
    """One JSON object per line, flushed after every row."""

    def __init__(self, path: pathlib.Path, resume_step: int | None) -> None:
        """Opens the record of a run.

        resume_step: step of the checkpoint the run continues from; rows of later steps are dropped, since they will
            be written again (-1: no checkpoint yet, all rows are dropped). None: a new run, refused if there are rows
            already. Write a step's rows before its checkpoint and none is lost.
        """
        files.make_folder(path.parent)
        self._path, rows = path, read_rows(path)
        if resume_step is None and rows:
            raise UserError(f"{path} already holds the metrics of a run; resume that run or choose another folder")
        _rewrite(path, _up_to(rows, -1 if resume_step is None else resume_step))
        self._file = path.open("a", encoding="utf-8", newline="\n")

    def write(self, row: Row) -> None:
        try:
            self._file.write(_line(row))
            self._file.flush()
        except OSError as error:
            raise files.WriteError(self._path, error) from error

    def close(self) -> None:
        with contextlib.suppress(OSError):  # write errors have been reported already
            self._file.close()


def read_rows(path: pathlib.Path) -> list[dict[str, Any]]:
    """All rows of a file of JSON lines; none if it does not exist. A last line cut short by a kill is skipped."""
    lines = path.read_bytes().split(b"\n") if path.exists() else [b""]
    rows = [_row(path, number, line) for number, line in enumerate(lines[:-1], start=1)]
    # What follows the last line break is empty, cut short, or complete but for its line break.
    with contextlib.suppress(UserError):
        rows.append(_row(path, len(lines), lines[-1]))
    return rows


def _row(path: pathlib.Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise UserError(f"line {number} of {path} is not a JSON object; fix or remove that line")
    return row


def _line(row: Row) -> str:
    return json.dumps({name: _json_value(value) for name, value in row.items()}, allow_nan=False) + "\n"


def _json_value(value: float | int | str) -> float | int | str:
    return str(float(value)) if isinstance(value, float) and not math.isfinite(value) else value


def _up_to(rows: list[dict[str, Any]], last: int) -> list[dict[str, Any]]:
    """Rows of steps up to `last`; a row without a step belongs to the step before it, the first ones to 0."""
    kept, step = [], 0
    for row in rows:
        step = row.get("step", step)
        if step <= last:
            kept.append(row)
    return kept


def _rewrite(path: pathlib.Path, rows: list[dict[str, Any]]) -> None:
    """Atomically replaces the file with these rows, unless it holds exactly them."""
    content = "".join(map(_line, rows)).encode()
    if path.exists() and path.read_bytes() == content:
        return
    files.write(path, content)


# --------------------------------------------------------------------------------------------------- console


@runtime_checkable
class Stream(Protocol):
    """What the console needs from standard error or a file."""

    def write(self, text: str, /) -> Any: ...

    def flush(self) -> None: ...

    def isatty(self) -> bool: ...


class Console:
    """Progress of a run: one line that updates in place on a terminal, plain lines every few seconds elsewhere.

    `shown` maps the columns to show to their labels; columns that a row does not have are skipped. Several seeds give
    one line with their means. Time is counted from `started`, or else from the first row, so that speed and ETA exclude
    compiling. The first sentence that `remark` makes of a row gets a line of its own. A broken stream does not stop the
    run.
    """

    def __init__(
        self,
        stream: Stream,
        total_steps: int,
        *,
        shown: Mapping[str, str] | None = None,
        remark: Callable[[Row], str] = lambda row: "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream, self._total, self._shown, self._clock = stream, total_steps, shown or {}, clock
        self._terminal = _terminal(stream)
        self._interval = 0.1 if self._terminal else 5.0
        self._remark, self._remarked = remark, False
        self._start: tuple[int, float] | None = None
        self._rows: dict[Any, Row] = {}
        self._step, self._silent = 0, False
        self._drawn_at, self._pending = -math.inf, False
        self._draw("compiling… (once; this can take a minute)")

    def started(self, step: int = 0) -> None:
        """Marks the end of compiling; the run continues from `step`."""
        self._start, self._step = (step, self._clock()), step

    def write(self, row: Row) -> None:
        self._step = int(row.get("step", self._step))
        self._rows[row.get("seed")] = row
        if self._start is None:
            self.started(self._step)
        self._pending = True
        if not self._remarked and (sentence := self._remark(row)):
            # Not cut to one line: it stays.
            self._send(f"{CLEAR if self._terminal else ''}note: {sentence}\n")
            self._remarked = True
        if self._clock() - self._drawn_at >= self._interval:
            self._draw_progress()

    def close(self) -> None:
        if self._pending:
            self._draw_progress()
        if self._terminal:
            self._send("\n")
        # The line is no longer ours to overwrite: others may write to the stream from now on.
        self._terminal = None

    def _draw_progress(self) -> None:
        self._drawn_at, self._pending = self._clock(), False
        self._draw(self._text())

    def _text(self) -> str:
        latest = list(self._rows.values())
        share = f"{100 * self._step // self._total}%" if self._total else ""
        means = {label: _mean([row.get(name) for row in latest]) for name, label in self._shown.items()}
        parts = [
            f"{latest[-1].get('phase', 'training')} {share}".rstrip(),
            f"{_count(self._step)}/{_count(self._total)} steps",
            *self._speed(),
            *(f"{label} {mean:.3g}" for label, mean in means.items() if mean is not None),
        ]
        return "  ".join(parts)

    def _speed(self) -> list[str]:
        step, at = self._start or (self._step, self._clock())
        done, seconds = self._step - step, self._clock() - at
        if done <= 0 or seconds <= 0:
            return []
        left = max(self._total - self._step, 0) * seconds / done
        return [f"{_count(done / seconds)} steps/s", f"ETA {_duration(left)}"]

    def _draw(self, text: str) -> None:
        # CLEAR rather than a live display: nothing hides the cursor, so a kill leaves it visible.
        self._send(CLEAR + _fitted(text, self._terminal) if self._terminal else text + "\n")

    def _send(self, text: str) -> None:
        if self._silent:
            return
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        try:
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
            self._stream.flush()
        except (OSError, ValueError):
            self._silent = True


def _terminal(stream: Stream) -> rich.console.Console | None:
    """The terminal behind the stream, if it can overwrite a line."""
    console = rich.console.Console(force_terminal=True)
    return console if stream.isatty() and not console.is_dumb_terminal else None


def _fitted(text: str, terminal: rich.console.Console) -> str:
    """The text, coloured, and cut to one line: a wrapped line could not be overwritten."""
    line = rich.text.Text(text, no_wrap=True, overflow="ellipsis", end="")
    line.highlight_regex(r"^\S+( \d+%)?", "bold cyan")
    line.truncate(terminal.width - 1, overflow="ellipsis")
    with terminal.capture() as captured:
        terminal.print(line, end="", highlight=False)
    return captured.get()


def _mean(values: Sequence[Any]) -> float | None:
    numbers = [value for value in values if isinstance(value, float | int) and math.isfinite(value)]
    return sum(numbers) / len(numbers) if numbers else None


def _count(number: float | int) -> str:
    for size, letter in [(1e9, "G"), (1e6, "M"), (1e3, "k")]:
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"


def _duration(seconds: float | int) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{seconds:02d}s" if minutes else f"{seconds}s"


# ---------------------------------------------------------------------------------------------------- fan out


class _FanOut:
    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = list(sinks)

    def write(self, row: Row) -> None:
        for sink in self._sinks:
            sink.write(row)

    def close(self) -> None:
        # Closes all even if one of them fails.
        with contextlib.ExitStack() as stack:
            for sink in reversed(self._sinks):
                stack.callback(sink.close)


def fan_out(sinks: Sequence[Sink]) -> Sink:
    """One sink that writes every row to all of these, in this order."""
    return _FanOut(sinks)
