"""Promises of docs/reliability.md that no other file tests: damage at every 64th byte, folders that cannot be written,
clocks that go backwards, and a signal while a run compiles."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import jax.numpy as jnp
import numpy as np
import pytest

from advsurprise.cli import main as cli
from advsurprise.config import RunConfig
from advsurprise.training import checkpoint, metrics, run

TREE = {"weight": jnp.arange(300, dtype=jnp.float32), "update": jnp.array(6)}
WORDS = ("--env", "ladder/game", "--method", "random", "--bodies", "2", "--steps", "100", "--set", "rollout=10")


def two_checkpoints(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Records of an older checkpoint and of a newer one."""
    older = checkpoint.save(folder, 5, TREE, {})
    return older, checkpoint.save(folder, 6, {**TREE, "update": jnp.array(7)}, {})


@pytest.mark.parametrize("file", ["record", "tensors"])
def test_cut_or_flipped_at_every_64th_byte_a_checkpoint_is_named_and_the_last_good_one_used(tmp_path, file):
    older, newer = two_checkpoints(tmp_path)
    tensors = newer.with_name(checkpoint.read_record(newer)["tensors"]["file"])
    path = newer if file == "record" else tensors
    data = path.read_bytes()
    damaged = [data[:place] for place in range(0, len(data), 64)]
    damaged += [data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :] for place in range(0, len(data), 64)]
    for content in damaged:
        path.write_bytes(content)
        found, sentences = checkpoint.newest_good(tmp_path)
        assert found == older
        [sentence] = sentences
        assert sentence.startswith("skipped a checkpoint: ")
        assert path.name in sentence
        assert "\n" not in sentence
    assert np.array_equal(checkpoint.load(older, TREE)["weight"], TREE["weight"])


def test_the_newest_checkpoint_is_that_of_the_last_update_whatever_the_clock_says(tmp_path):
    older, newer = two_checkpoints(tmp_path)
    os.utime(newer, (0, 0))
    os.utime(older, (2**31, 2**31))
    assert checkpoint.newest_good(tmp_path) == (newer, [])
    # Neither does a clock that stands still make a rate infinite.
    [row] = run.metric_rows({"loss": np.zeros(1)}, RunConfig(), 1, 0.0)
    assert np.isfinite(row["steps_per_s"])


def test_the_console_goes_on_when_the_clock_goes_backwards(monkeypatch, capsys):
    times = iter([100.0, 90.0, 80.0, 70.0, 60.0, 50.0, 40.0, 30.0] * 9)
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    monkeypatch.setattr(time, "perf_counter", lambda: next(times))
    console = metrics.Console(sys.stderr, 100, shown={})
    for step in (10, 20, 100):
        console.write({"step": step, "update": step // 10, "seed": 0, "steps_per_s": 5.0})
    console.close()
    assert "Traceback" not in capsys.readouterr().err


@pytest.fixture
def sealed(tmp_path):
    """A folder that not even root can write to."""
    folder = tmp_path / "sealed"
    folder.mkdir()
    yield folder
    subprocess.run(["chattr", "-i", str(folder)], capture_output=True)


def seal(folder: pathlib.Path) -> None:
    try:
        done = subprocess.run(["chattr", "+i", str(folder)], capture_output=True)
    except FileNotFoundError:
        pytest.skip("chattr is not installed")
    if done.returncode:
        pytest.skip(f"no folder can be made read-only here: {done.stderr.decode().strip()}")


def test_a_folder_that_cannot_be_written_to_is_a_sentence(sealed, capsys):
    config = RunConfig(env="ladder/game", method="random", bodies=2, steps=100, rollout=10).as_dict()
    (sealed / "config.json").write_text(json.dumps({"config": config}))
    before = {path: path.read_bytes() for path in sealed.iterdir()}
    seal(sealed)
    for words in (["train", *WORDS, "--out", str(sealed / "run")], ["resume", str(sealed)]):
        with pytest.raises(SystemExit) as left:
            cli.main(words)
        assert left.value.code == 4
        last = capsys.readouterr().err.strip().splitlines()[-1]
        assert last.startswith("advsurprise: could not write ")
        assert last.endswith("Operation not permitted")
    assert {path: path.read_bytes() for path in sealed.iterdir()} == before


@pytest.mark.long
@pytest.mark.parametrize("seconds", [0.5, 3.0, 6.0])
def test_a_run_that_is_ended_while_it_compiles_leaves_no_traceback_and_can_be_asked_for_again(tmp_path, seconds):
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "programs")}
    words = [sys.executable, "-m", "advsurprise", "train", "--env", "rooms/four", "--bodies", "2", "--steps", "64"]
    words += ["--set", "rollout=16", "--set", "env.grid=12", "--set", "env.max_side=5", "--out", str(tmp_path / "run")]
    process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(seconds)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=300)
    assert process.returncode in (-signal.SIGTERM, 128 + signal.SIGTERM, 0)
    assert "Traceback" not in said
    again = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
