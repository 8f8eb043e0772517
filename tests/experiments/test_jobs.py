"""Commands side by side: order, failures, being stopped, and progress."""

import json
import os
import signal
import sys
import threading
import time

from advsurprise.experiments import jobs
from advsurprise.experiments.jobs import Job, last_step, run_jobs


def _python(code):
    return (sys.executable, "-c", code)


def _job(tmp_path, name, *codes):
    return Job(name, tuple(_python(code) for code in codes), tmp_path / name / "metrics.jsonl", steps=10)


def test_one_that_fails_leaves_the_others_alone(tmp_path):
    wrote = "import pathlib, sys; pathlib.Path(sys.argv[1]).touch()"
    first = Job("first", ((*_python(wrote), str(tmp_path / "a")), (*_python(wrote), str(tmp_path / "b"))), tmp_path, 1)
    bad = _job(tmp_path, "bad", "print('fine so far'); raise SystemExit('advsurprise: no such world')", "raise OSError")
    lines: list[str] = []
    failed, stopped = run_jobs([bad, first], workers=2, folder=tmp_path, log=lines.append)
    assert (failed, stopped) == ({"bad": "no such world"}, 0)
    assert (tmp_path / "a").exists()
    assert (tmp_path / "b").exists()
    assert "first: done" in lines
    assert "fine so far" in (tmp_path / "bad.log").read_text()


def test_no_more_run_at_a_time_than_are_asked_for(tmp_path):
    code = "import time; print('from', time.time()); time.sleep(0.5); print('to', time.time())"
    run_jobs([_job(tmp_path, name, code) for name in "ab"], workers=1, folder=tmp_path, log=print)
    spans = [[float(line.split()[1]) for line in (tmp_path / f"{n}.log").read_text().splitlines()] for n in "ab"]
    assert spans[0][1] <= spans[1][0]


def test_ctrl_c_stops_all_of_them_and_begins_no_other(tmp_path):
    waits = (
        "import signal, sys, time; signal.signal(signal.SIGINT, lambda *_: (print('saved'), sys.exit(130)))\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    asked = [_job(tmp_path, "a", waits, "print('second')"), _job(tmp_path, "b", "print('never')")]

    def interrupt():
        while not (log := tmp_path / "a.log").exists() or "ready" not in log.read_text():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    failed, stopped = run_jobs(asked, workers=1, folder=tmp_path, log=print)
    assert (failed, stopped) == ({}, signal.SIGINT)
    assert (tmp_path / "a.log").read_text() == "ready\nsaved\n"
    assert not (tmp_path / "b.log").exists()


def test_several_share_the_memory_of_a_gpu(tmp_path):
    code = "import os; print(os.environ.get('XLA_PYTHON_CLIENT_MEM_FRACTION'))"
    for workers, share in ((1, None), (4, "0.225")):
        folder = tmp_path / str(workers)
        folder.mkdir()
        run_jobs([_job(folder, "a", code)], workers=workers, folder=folder, log=print)
        assert (folder / "a.log").read_text().strip() == str(share)


def test_progress_is_that_of_the_last_whole_row(tmp_path, monkeypatch):
    path = tmp_path / "a" / "metrics.jsonl"
    assert last_step(path) == 0
    path.parent.mkdir()
    rows = [json.dumps({"step": step, "padding": "x" * 100}) for step in range(3000)]
    path.write_text("\n".join([*rows, '{"step": 3000, "pad']))
    assert last_step(path) == 2999
    monkeypatch.setattr(jobs, "REPORT", 0.0)
    lines: list[str] = []
    waits = _job(tmp_path, "a", "import time; time.sleep(0.5)")
    run_jobs([waits], workers=1, folder=tmp_path, log=lines.append)
    assert lines[0].startswith("100% of 10 steps, 0 steps/s; 1 running, 0 waiting")


def test_a_command_that_says_nothing_still_has_a_reason(tmp_path):
    failed, _ = run_jobs([_job(tmp_path, "a", "raise SystemExit(7)")], workers=1, folder=tmp_path, log=print)
    assert failed == {"a": "exit code 7"}
