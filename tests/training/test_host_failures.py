"""What goes wrong while worlds run in worker processes, as a user meets it: a line, an exit code, and nothing left."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from advsurprise.training import checkpoint
from advsurprise.training.metrics import read_rows

pytestmark = pytest.mark.slow

TINY = ("--method", "random", "--bodies", "4", "--set", "rollout=8", "--set", "save_every=1000")
ATARI = ("--env", "atari/freeway", "--set", "env.side=8", "--set", "env.max_frames=0")
DOOM = ("--env", "doom/take-cover", "--set", "env.side=8")
BREAKS = f"{pathlib.Path(__file__).parent / 'breaking_env.py'}:Breaks"


class Command:
    """`advsurprise train`, or `resume` the second time, with a folder of its own for temporary files."""

    def __init__(self, folder: pathlib.Path, *words: str):
        self.work, self.temporary, self.run = folder / "work", folder / "tmp", folder / "run"
        self.work.mkdir(exist_ok=True)
        self.temporary.mkdir(exist_ok=True)
        self.shared = _shared()
        self.before = len(self.rows())
        words = (
            ("resume", str(self.run), *words) if self.run.exists() else ("train", *TINY, *words, "--out", str(self.run))
        )
        self.process = subprocess.Popen(
            [sys.executable, "-m", "advsurprise", *words],
            cwd=self.work,
            env={**os.environ, "TMPDIR": str(self.temporary)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for_updates(self, number: int) -> None:
        """Waits until so many more updates are in the metrics."""
        while len(self.rows()) < self.before + number:
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.01)

    def rows(self) -> list[dict]:
        path = self.run / "metrics.jsonl"
        return read_rows(path) if path.exists() else []

    def children(self) -> list[int]:
        """Worker processes."""
        return [int(pid) for pid in _children(self.process.pid)]

    def end(self) -> tuple[int, list[str]]:
        """Waits for the end: exit code, and the lines on standard error that are no progress."""
        out, said = self.process.communicate(timeout=60)
        assert out == "" or self.process.returncode == 0
        lines = said.splitlines()
        return self.process.returncode, [line for line in lines if not line.startswith(("training ", "compiling"))]

    def check_nothing_left(self, pids: list[int]) -> None:
        """No process of the run's workers, no file, no shared memory."""
        deadline = time.monotonic() + 10
        while (left := _of_sessions(pids)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not left
        assert [path.name for path in self.work.iterdir()] == []
        assert [path.name for path in self.temporary.iterdir()] == []
        # Segments of games that other tests are starting appear here too, and go within moments.
        left = {name for name in _shared() - self.shared if "ViZDoom" in name or "advsurprise" in name}
        while (left := left & _shared()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert left == set()


def _children(pid: int) -> list[str]:
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _shared() -> set[str]:
    return {path.name for path in pathlib.Path("/dev/shm").iterdir()}


def _of_sessions(pids: list[int]) -> list[str]:
    """Processes of the sessions that workers were leaders of."""
    found = []
    for status in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) in pids and fields[0] != "Z":
            found.append(status.parent.name)
    return found


@pytest.mark.parametrize(
    ("world", "number", "code"),
    [
        (ATARI, signal.SIGINT, 130),
        (DOOM, signal.SIGTERM, 143),
        pytest.param(DOOM, signal.SIGINT, 130, marks=pytest.mark.long),
    ],
    ids=["atari-int", "doom-term", "doom-int"],
)
def test_a_worker_is_replaced_and_a_stopped_run_leaves_nothing(tmp_path, world, number, code):
    command = Command(tmp_path, *world, "--set", "env.workers=2")
    command.wait_for_updates(2)
    workers = command.children()
    os.kill(workers[0], signal.SIGKILL)
    done = len(command.rows())
    command.wait_for_updates(done + 4)
    later = command.children()
    command.process.send_signal(number)
    exit_code, lines = command.end()
    assert exit_code == code
    died = [line for line in lines if " died " in line]
    assert len(died) == 1, lines
    assert died[0].startswith("advsurprise: worker 1 of ")
    assert died[0].endswith("started new episodes")
    assert len(lines) == 3, lines
    rows = command.rows()
    assert [row["workers_replaced"] for row in rows if row["workers_replaced"]] == [1.0]
    # All episodes of the worker's bodies ended there, or on the first step of the next update if the worker died after
    # one group's last step and before the other's; those of Freeway never end by themselves.
    at = next(index for index, row in enumerate(rows) if row["workers_replaced"])
    ended = sum(row["episodes"] for row in rows[at : at + 2])
    assert ended >= 4 // len(workers)
    if world is ATARI:
        assert sum(row["episodes"] for row in rows) == ended == 4 // len(workers)
    command.check_nothing_left([*workers, *later])


def test_a_finished_run_leaves_nothing(tmp_path):
    command = Command(tmp_path, *DOOM, "--steps", "320", "--json")
    command.wait_for_updates(1)
    workers = command.children()
    assert command.end()[0] == 0
    command.check_nothing_left(workers)


def test_three_deaths_in_a_row_end_the_run_and_what_was_learnt_is_saved(tmp_path):
    marker = tmp_path / "dead"
    command = Command(tmp_path, "--env", BREAKS, "--set", f"env.marker={marker}", "--set", "env.vectorization=async")
    command.wait_for_updates(3)
    workers = command.children()
    assert workers
    marker.touch()
    exit_code, lines = command.end()
    assert exit_code == 4, lines
    assert lines[-1].startswith("advsurprise: ")
    assert "died 3 times in a row" in lines[-1]
    assert not any("Traceback" in line for line in lines)
    last = command.rows()[-1]["update"]
    record, _ = checkpoint.newest_good(command.run / "checkpoints")
    assert checkpoint.read_record(record)["step"] == last
    assert f"{BREAKS} cannot be saved: a resumed run starts new episodes" in lines
    assert f"saved update {last} of {command.run}; a resumed run starts new episodes" in lines
    command.check_nothing_left(workers)
    marker.unlink()
    resumed = Command(tmp_path, "--allow", BREAKS)
    resumed.wait_for_updates(1)
    resumed.process.terminate()
    exit_code, lines = resumed.end()
    assert exit_code == 143
    assert any(line.startswith(f"continuing from update {last} ") for line in lines)
    assert f"{BREAKS} cannot be saved: a resumed run starts new episodes" in lines
