"""The record of a run survives kills, is always JSON, and the console never gets in the way."""

import io
import json
import math
import pathlib
import tempfile

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from advsurprise.errors import UserError
from advsurprise.training import metrics

ROWS = [{"step": 10 * i, "seed": seed, "loss": 1 / (i + 3), "phase": "é"} for i in range(5) for seed in (0, 1)]


def write(path, rows, resume_step):
    sink = metrics.JsonLines(path, resume_step)
    for row in rows:
        sink.write(row)
    sink.close()


# ------------------------------------------------------------------------------------------------ JSON lines


def test_rows_come_back_as_they_were_written(tmp_path):
    write(tmp_path / "new" / "metrics.jsonl", ROWS, None)
    assert metrics.read_rows(tmp_path / "new" / "metrics.jsonl") == ROWS
    assert metrics.read_rows(tmp_path / "nowhere.jsonl") == []


def test_a_row_is_in_the_file_before_the_next_is_written(tmp_path):
    path = tmp_path / "metrics.jsonl"
    sink = metrics.JsonLines(path, None)
    sink.write(ROWS[0])
    assert metrics.read_rows(path) == ROWS[:1]
    sink.close()


def test_numbers_that_json_does_not_know_are_strings(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, [{"step": 1, "a": math.nan, "b": math.inf, "c": -math.inf, "d": 0.5, "e": True}], None)

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    row = json.loads(path.read_text(), parse_constant=refuse)
    assert row == {"step": 1, "a": "nan", "b": "inf", "c": "-inf", "d": 0.5, "e": True}
    assert math.isnan(float(row["a"]))
    write(path, [], 1)
    assert metrics.read_rows(path) == [row]


# The whole point: wherever the kill falls, and whichever checkpoint was the last before it, the file ends up the same.
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_killed_and_resumed_record_equals_the_uninterrupted_one(data):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "metrics.jsonl")
        write(path, ROWS, None)
        whole = path.read_bytes()
        resume_step = data.draw(st.sampled_from([-1, 0, 10, 15, 30, 40]), label="resume_step")
        # Rows up to the checkpoint were written before it, so a kill after it tears at their end or later.
        kept = [row for row in ROWS if row["step"] <= resume_step]
        earliest = len("".join(map(metrics._line, kept)).encode())
        path.write_bytes(whole[: data.draw(st.integers(earliest, len(whole)), label="torn at")])
        write(path, ROWS[len(kept) :], resume_step)
        assert path.read_bytes() == whole
        assert [file.name for file in path.parent.iterdir()] == ["metrics.jsonl"]


def test_a_whole_last_row_that_lacks_only_its_line_break_is_kept(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}')
    write(path, [{"step": 3}], 2)
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n{"step": 3}\n'


def test_a_tail_of_zeros_after_a_power_cut_is_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n' + b"\0" * 100)
    write(path, [], 5)
    assert path.read_text() == '{"step": 1}\n'


def test_rows_without_a_step_follow_the_row_before(tmp_path):
    path = tmp_path / "metrics.jsonl"
    rows = [{"note": "first"}, {"step": 1}, {"note": "one"}, {"step": 2}, {"note": "two"}]
    write(path, rows, None)
    write(path, [], 1)
    assert metrics.read_rows(path) == rows[:3]
    write(path, [], -1)
    assert metrics.read_rows(path) == []


def test_a_new_run_never_overwrites_a_record(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, ROWS, None)
    with pytest.raises(UserError, match="already holds the metrics of a run"):
        metrics.JsonLines(path, None)
    assert metrics.read_rows(path) == ROWS
    path.write_text('{"step": 0, "to')
    write(path, ROWS, None)
    assert metrics.read_rows(path) == ROWS


def test_a_kill_during_the_rewrite_leaves_the_file(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    write(path, ROWS, None)

    def dies(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", dies)
    with pytest.raises(KeyboardInterrupt):
        metrics.JsonLines(path, 0)
    monkeypatch.undo()
    assert metrics.read_rows(path) == ROWS
    write(path, ROWS[2:], 0)
    assert metrics.read_rows(path) == ROWS
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("line", ["not json", "[1]", "", '{"step": 1'])
def test_a_damaged_line_in_the_middle_is_named(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    content = '{"step": 0}\n' + line + '\n{"step": 2}\n'
    path.write_text(content)
    with pytest.raises(UserError, match=r"line 2 of .* is not a JSON object"):
        metrics.JsonLines(path, 2)
    assert path.read_text() == content


# --------------------------------------------------------------------------------------------------- console


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def wide(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")


def row(step, **more):
    return {"step": step, "scored_surprise": 2.0, "common_surprise": 30.25, "end/rooms_episode": 3.5} | more


def test_plain_lines_at_most_every_few_seconds_and_the_last_one(clock):
    stream = io.StringIO()
    shown = {"scored_surprise": "scored", "common_surprise": "surprise", "end/rooms_episode": "rooms", "other": "other"}
    console = metrics.Console(stream, 2_000_000, clock=clock, shown=shown)
    for second in range(21):
        clock.now = 160.0 + second
        console.write(row(10_000 * second))
    console.write(row(205_000))
    console.close()
    lines = stream.getvalue().splitlines()
    assert "\x1b" not in stream.getvalue()
    assert lines[0].startswith("compiling…")
    assert len(lines) == 1 + 5 + 1
    assert lines[2] == "training 2%  50k/2M steps  10k steps/s  ETA 3m15s  scored 2  surprise 30.2  rooms 3.5"
    assert "205k/2M" in lines[-1]


def test_compiling_counts_neither_in_the_speed_nor_in_the_time_left(clock):
    stream = io.StringIO()
    console = metrics.Console(stream, 1000, clock=clock)
    clock.now += 60
    console.started(step=500)
    clock.now += 10
    console.write(row(600, phase="evaluating"))
    line = stream.getvalue().splitlines()[-1]
    assert line.startswith("evaluating 60%  600/1k steps  10 steps/s  ETA 40s")


def test_the_first_row_starts_the_clock_and_has_no_speed_yet(clock):
    stream = io.StringIO()
    metrics.Console(stream, 1000, clock=clock).write({"step": 1000})
    assert stream.getvalue().splitlines()[-1] == "training 100%  1k/1k steps"


def test_seeds_are_averaged_and_what_is_not_a_number_is_left_out(clock):
    stream = io.StringIO()
    console = metrics.Console(stream, 0, clock=clock, shown={"a": "A", "b": "B", "c": "C"})
    console.write({"step": 1, "seed": 0, "a": 1.0, "b": "nan", "c": math.nan})
    console.write({"step": 1, "seed": 1, "a": 2.0, "b": "nan", "c": 1.0})
    console.close()
    assert stream.getvalue().splitlines()[-1] == "training  1/0 steps  A 1.5  C 1"


def test_a_terminal_has_one_line_that_renews_itself(clock, wide):
    stream = Terminal()
    console = metrics.Console(stream, 1000, clock=clock)
    for step in range(0, 1000, 100):
        clock.now += 0.05
        console.write(row(step))
    console.close()
    console.close()
    written = stream.getvalue()
    assert written.count("\n") == 1
    assert written.endswith("\n")
    assert "compiling…" in written.split("\r")[1]
    assert 2 < written.count("\r\x1b[2K") < 10
    assert "900/1k steps" in written.split("\r")[-1]
    assert "\x1b[?25l" not in written  # the cursor stays visible whatever happens


def test_a_narrow_terminal_never_wraps(clock, wide, monkeypatch):
    monkeypatch.setenv("COLUMNS", "24")
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    metrics.Console(stream, 1000, clock=clock).write(row(10))
    visible = stream.getvalue().replace("\x1b[2K", "").replace("\x1b[1m", "").replace("\x1b[0m", "").split("\r")
    assert max(map(len, visible)) < 24
    assert visible[-1].endswith("…")


def test_a_terminal_that_cannot_renew_a_line_gets_plain_ones(clock, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    metrics.Console(stream, 1000, clock=clock).write(row(10))
    assert "\x1b" not in stream.getvalue()
    assert stream.getvalue().count("\n") == 2


class Broken(io.StringIO):
    def write(self, text):
        raise BrokenPipeError


def test_a_stream_that_breaks_does_not_stop_the_run(clock):
    console = metrics.Console(Broken(), 1000, clock=clock)
    console.write(row(10))
    console.close()


def test_a_stream_closed_on_the_way_does_not_stop_the_run(clock):
    stream = io.StringIO()
    console = metrics.Console(stream, 1000, clock=clock)
    stream.close()
    console.write(row(10))
    console.close()


def test_a_stream_of_few_letters(clock):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    metrics.Console(stream, 1000, clock=clock)
    assert raw.getvalue().startswith(b"compiling?")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0s"), (59.6, "1m00s"), (61, "1m01s"), (3600, "1h00m"), (90_000, "25h00m")]
)
def test_durations(seconds, text):
    assert metrics._duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (12.34, "12.3"), (999, "999"), (1500, "1.5k"), (2e6, "2M"), (3.21e9, "3.21G")]
)
def test_counts(number, text):
    assert metrics._count(number) == text


# --------------------------------------------------------------------------------------------------- fan out


class Memory:
    def __init__(self, fails=False):
        self.rows, self.closed, self.fails = [], False, fails

    def write(self, row):
        self.rows.append(row)

    def close(self):
        self.closed = True
        if self.fails:
            raise OSError("disk full")


def test_fan_out_writes_to_all_and_closes_all():
    sinks = [Memory(), Memory(fails=True), Memory()]
    both = metrics.fan_out(sinks)
    both.write({"step": 1})
    with pytest.raises(OSError, match="disk full"):
        both.close()
    assert all(sink.rows == [{"step": 1}] and sink.closed for sink in sinks)


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_the_first_remark_stays_on_a_line_of_its_own(stream, clock, wide):
    console = metrics.Console(
        stream, 1000, clock=clock, remark=lambda row: f"at {row['step']}" if row["step"] > 200 else ""
    )
    for step in range(100, 600, 100):
        clock.now += 10
        console.write(row(step))
    console.close()
    notes = [line for line in stream.getvalue().splitlines() if "note:" in line]
    assert [line.removeprefix("\x1b[2K") for line in notes] == ["note: at 300"]
