"""A run that is stopped or killed: resumed it ends in the same bytes, stopped it says how to continue."""

import dataclasses
import pathlib
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext

import pytest
from tiny_run import FIELDS, TINY, WORDS, Signals, metric_rows, newest_record, saved_tensors

import advsurprise
from advsurprise.cli import main as cli
from advsurprise.training import checkpoint, loops, run
from advsurprise.training.metrics import read_rows

pytestmark = pytest.mark.slow


def _start(log: pathlib.Path, *words):
    """A command in a process of its own, all that it says in a file."""
    with log.open("w") as said:
        command = [sys.executable, "-m", "advsurprise", *words]
        return subprocess.Popen(command, stdout=said, stderr=said)


def _wait_for_rows(run_folder: pathlib.Path, number: int, process, log: pathlib.Path) -> None:
    path = run_folder / "metrics.jsonl"
    while not (path.exists() and path.read_bytes().count(b"\n") >= number):
        assert process.poll() is None, log.read_text()
        time.sleep(0.002)


def test_killed_and_resumed_a_run_ends_in_the_same_bytes(tmp_path, loop):
    """Killed before its first checkpoint and after one, by a signal that no process can catch; the whole run is this
    process's own."""
    whole, killed, log = tmp_path / "whole", tmp_path / "killed", tmp_path / "log"
    long = dataclasses.replace(TINY, steps=20 * 120, save_every=7)
    run.train(long, whole, loop=loop)
    words = ["train", *WORDS, "--steps", str(20 * 120), "--set", "save_every=7", "--out", str(killed), "--json"]
    for rows in (3, 30):
        process = _start(log, *words)
        _wait_for_rows(killed, rows, process, log)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert len(read_rows(killed / "metrics.jsonl")) < 240, "it was not killed in the middle"
    resumed = run.train(long, killed, loop=loop)
    assert resumed.steps == 20 * 120
    assert saved_tensors(killed) == saved_tensors(whole)
    assert metric_rows(killed) == metric_rows(whole)


def test_a_stopped_command_saves_and_says_how_to_continue(tmp_path):
    run_folder, log = tmp_path / "run", tmp_path / "log"
    process = _start(log, "train", *WORDS, "--steps", "10M", "--out", str(run_folder))
    _wait_for_rows(run_folder, 4, process, log)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 143
    assert f"stopped and saved; continue with: advsurprise resume {run_folder}" in log.read_text()
    saved = checkpoint.read_record(newest_record(run_folder))["step"]
    assert saved == read_rows(run_folder / "metrics.jsonl")[-1]["update"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_after_the_update_and_sets_the_exit_code(tmp_path, loop, monkeypatch, capsys, number, code):
    monkeypatch.setattr(loops, "open_loop", lambda cfg: nullcontext(Signals(loop, 3, number)))
    with pytest.raises(SystemExit) as stopped:
        cli.main(["train", *WORDS, "--steps", "240", "--out", str(tmp_path)])
    assert stopped.value.code == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1] == f"stopped and saved; continue with: advsurprise resume {tmp_path}"
    assert checkpoint.read_record(newest_record(tmp_path))["step"] == 3


class LateSignal(list):
    """Signals received, of which the first comes right after a number of looks at the list."""

    def __init__(self, looks: int):
        super().__init__()
        self.looks = looks

    def __bool__(self):
        received = len(self) > 0
        self.looks -= 1
        if self.looks == 0:
            self.append(signal.SIGTERM)
        return received


@pytest.mark.parametrize("looks", [1, 2, 3, 4])
def test_whenever_a_signal_comes_the_last_update_is_saved(tmp_path, loop, monkeypatch, looks):
    monkeypatch.setattr(run, "stop_signals", lambda: nullcontext(LateSignal(looks)))
    result = run.train(TINY, tmp_path, loop=loop)
    assert (result.stopped_by, result.finished) == (signal.SIGTERM, False)
    assert result.steps > 0
    assert run.updates_done(tmp_path) * 20 == result.steps
    assert metric_rows(tmp_path)[-1]["step"] == result.steps


@pytest.mark.parametrize(("update", "steps"), [(3, 60), (12, 240)])
def test_ctrl_c_in_python_saves_and_raises(tmp_path, loop, monkeypatch, update, steps):
    """Also in the last update, after which the run is whole: a script that trains several must not go to the next."""
    monkeypatch.setattr(loops, "open_loop", lambda cfg: nullcontext(Signals(loop, update, signal.SIGINT)))
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as stopped:
        advsurprise.train("ladder/game", steps=240, out=tmp_path, **FIELDS)
    assert str(stopped.value) == f"stopped after {steps} steps and saved; continue with: advsurprise resume {tmp_path}"
    assert checkpoint.read_record(newest_record(tmp_path))["step"] == update
    assert signal.getsignal(signal.SIGINT) is before


def test_python_trains_off_the_main_thread(tmp_path, shared):
    results: list = []

    def work():
        results.append(advsurprise.train("ladder/game", steps=60, out=tmp_path, **FIELDS))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert [trained.updates for trained in results] == [3]
