"""Commands side by side: order, failures, being stopped, and progress."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from types import ModuleType

import pytest

from advsurprise.errors import UserError
from advsurprise.training import jobs, ray_jobs
from advsurprise.training.jobs import Event, Job, last_step, run_jobs, start


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


def test_ctrl_c_is_passed_on_once_so_that_runs_can_save(tmp_path):
    counts = (
        "import signal, time; got = []; signal.signal(signal.SIGINT, lambda *_: got.append(1))\n"
        "print('ready', flush=True)\n"
        "while not got: time.sleep(0.05)\n"
        "time.sleep(0.6); print(len(got))"
    )

    def interrupt():
        while not (log := tmp_path / "a.log").exists() or "ready" not in log.read_text():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    run_jobs([_job(tmp_path, "a", counts)], workers=1, folder=tmp_path, log=print)
    assert (tmp_path / "a.log").read_text() == "ready\n1\n"


def test_what_something_kills_is_begun_again_so_many_times(tmp_path):
    dies = (
        "import os, sys; open(sys.argv[1], 'a').write('x')\n"
        "if os.path.getsize(sys.argv[1]) < {}: os.kill(os.getpid(), 9)"
    )
    asked = [
        Job(name, ((*_python(dies.format(most)), str(tmp_path / name)),), tmp_path, 1)
        for name, most in (("always", 9), ("once", 2))
    ]
    events: list[Event] = []
    failed, _ = run_jobs(asked, workers=2, folder=tmp_path, log=print, retries=2, notice=events.append)
    assert failed == {"always": "killed by signal 9"}
    assert (tmp_path / "always").read_text() == "xxx"
    assert Event("always", "failed", 2, "killed by signal 9") in events
    once = [event for event in events if event.name == "once"]
    assert once == [Event("once", "running"), Event("once", "running", 1), Event("once", "done", 1)]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells a process that its parent has died")
def test_a_command_does_not_outlive_the_process_that_started_it(tmp_path):
    log = tmp_path / "log"
    parent = (
        "import os, pathlib, sys, time; from advsurprise.training.jobs import start\n"
        "log = pathlib.Path(sys.argv[1])\n"
        "child = 'import os, time; print(os.getpid(), flush=True); time.sleep(60)'\n"
        "start([sys.executable, '-c', child], output=log.open('ab'), env={})\n"
        "while not log.stat().st_size: time.sleep(0.05)\n"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([*_python(parent), log], check=False)
    status, end = pathlib.Path("/proc") / log.read_text().strip() / "status", time.monotonic() + 10
    while status.exists() and "zombie" not in status.read_text() and time.monotonic() < end:
        time.sleep(0.05)
    assert time.monotonic() < end


def test_the_next_attempt_waits_until_the_last_command_is_gone_but_not_for_ever(tmp_path):
    with open(tmp_path / "log", "ab") as first:
        assert ray_jobs.take(first, 0.0)
        command = start(_python("import time; time.sleep(60)"), output=first, env={})
    with open(tmp_path / "log", "ab") as second:
        assert not ray_jobs.take(second, 0.5)  # the command has it still
        threading.Timer(0.5, command.kill).start()
        assert ray_jobs.take(second, 30.0)
    command.wait()


@pytest.mark.parametrize(
    ("cpus", "share", "expected"),
    [(None, None, (1, 1.0)), (None, 0.25, (1, 0.25)), (None, 0.0, (2, 0.0)), (8, 2.0, (8, 2.0)), (9, None, None)],
)
def test_a_run_takes_what_some_node_has(cpus, share, expected):
    nodes = [{"CPU": 8.0, "GPU": 2.0}, {"CPU": 4.0}]
    ray = ModuleType("ray")
    ray.nodes = lambda: [{"Alive": True, "Resources": each} for each in nodes]
    if expected is not None:
        assert ray_jobs._resources(ray, cpus, share) == ray_jobs.Resources(*expected)
        return
    with pytest.raises(UserError, match="no node of the cluster has 9 cores and 1 GPUs for a run: the largest have 8"):
        ray_jobs._resources(ray, cpus, share)


def test_a_cluster_that_does_not_answer_is_refused():
    for address in ("127.0.0.1:1", "ray://127.0.0.1:1"):
        with pytest.raises(UserError, match=f"could not reach the Ray cluster at {address}: "):
            ray_jobs._check_reachable(address)
    ray_jobs._check_reachable("local")


@pytest.mark.parametrize(
    ("workers", "gpus", "seen", "fraction"),
    [
        (1, ["0", "1"], None, None),  # one run may take all of them
        (8, [*"01234567"], "3", None),
        (4, [*"01234567"], "6,7", None),
        (4, ["0", "1"], "1", "0.450"),
        (4, [], None, "0.225"),
    ],
)
def test_each_of_several_has_gpus_of_its_own_where_there_are_enough(workers, gpus, seen, fraction):
    share = jobs.device_share(min(3, workers - 1), workers=workers, gpus=gpus, part=None)
    assert share.get("CUDA_VISIBLE_DEVICES") == seen
    assert share.get("XLA_PYTHON_CLIENT_MEM_FRACTION") == fraction


def test_gpus_are_those_that_a_process_would_see(monkeypatch, tmp_path):
    monkeypatch.setattr(jobs, "GPUS", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert (jobs.visible_gpus(), jobs.room(0.25), jobs.room(None)) == ([], 1, 1)
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / name).mkdir()
    assert (jobs.visible_gpus(), jobs.room(0.25)) == (["0", "1"], 8)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, GPU-a")
    assert jobs.visible_gpus() == ["5", "GPU-a"]


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
    waits = _job(tmp_path, "a", "import time; time.sleep(0.5)")
    for rows, expected in ((5, "40% of 10 steps, 0 steps/s"), (3000, "all 10 steps are trained")):
        path.write_text("".join(json.dumps({"step": step}) + "\n" for step in range(rows)))
        lines: list[str] = []
        run_jobs([waits], workers=1, folder=tmp_path, log=lines.append)
        assert lines[0] == f"{expected}; 1 running, 0 waiting"


def test_a_command_that_says_nothing_still_has_a_reason(tmp_path):
    failed, _ = run_jobs([_job(tmp_path, "a", "raise SystemExit(7)")], workers=1, folder=tmp_path, log=print)
    assert failed == {"a": "exit code 7"}
