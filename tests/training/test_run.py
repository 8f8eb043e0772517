"""A run on disk: killed at any moment and resumed it ends in the same bytes; stopped it says how to go on."""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

import advsurprise
from advsurprise.cli import main as cli
from advsurprise.config import PPOConfig, RunConfig
from advsurprise.errors import UserError
from advsurprise.training import checkpoint, run
from advsurprise.training.fused import Fused
from advsurprise.training.metrics import read_rows

TINY = RunConfig(
    env="rooms/door",
    env_fields={"max_steps": 8, "encoding": "shared"},
    method_fields={"k_explore": 2, "k_control": 2},
    ppo=PPOConfig(epochs=1, minibatch=8),
    steps=16 * 12,
    seeds=(3, 4),
    bodies=2,
    rollout=8,
    save_every=5,
)
WORDS = [
    *(
        "--env",
        "rooms/door",
        "--set",
        "env.max_steps=8",
        "--set",
        "env.encoding=shared",
        "--set",
        "method.k_explore=2",
        "--set",
        "method.k_control=2",
    ),
    *("--set", "ppo.epochs=1", "--set", "ppo.minibatch=8", "--set", "rollout=8", "--bodies", "2", "--seeds", "3..4"),
]


@pytest.fixture(scope="module")
def loop():
    return Fused(TINY)


@pytest.fixture(scope="module")
def programs():
    """Environment of subprocesses: they keep small programs, too, where conftest.py has put those of the tests."""
    return {**os.environ, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1"}


def _tensors(folder: pathlib.Path) -> bytes:
    record = checkpoint.latest(folder / "checkpoints")
    return (record.parent / checkpoint.read_record(record)["tensors"]["file"]).read_bytes()


def _rows(folder: pathlib.Path) -> list[dict]:
    return [{k: v for k, v in row.items() if k != "steps_per_s"} for row in read_rows(folder / "metrics.jsonl")]


def _start(programs, log: pathlib.Path, *words):
    """A command in a process of its own, all that it says in a file."""
    with log.open("w") as said:
        command = [sys.executable, "-m", "advsurprise", *words]
        return subprocess.Popen(command, env=programs, stdout=said, stderr=said)


def _wait_for_rows(folder: pathlib.Path, number: int, process, log: pathlib.Path) -> None:
    path = folder / "metrics.jsonl"
    while not (path.exists() and path.read_bytes().count(b"\n") >= number):
        assert process.poll() is None, log.read_text()
        time.sleep(0.005)


@pytest.mark.xdist_group("subprocesses")
def test_killed_at_any_moment_and_resumed_a_run_ends_in_the_same_bytes(tmp_path, programs):
    words = [*WORDS, "--steps", str(16 * 150), "--set", "save_every=7"]
    log = tmp_path / "log"
    whole = _start(programs, log, "train", *words, "--out", str(tmp_path / "whole"), "--json")
    assert whole.wait(timeout=300) == 0, log.read_text()
    for moment in (3, 60, 171):
        folder = tmp_path / f"killed-{moment}"
        killed = _start(programs, log, "train", *words, "--out", str(folder), "--json")
        _wait_for_rows(folder, moment, killed, log)
        killed.send_signal(signal.SIGKILL)
        assert killed.wait() == -signal.SIGKILL
        assert len(read_rows(folder / "metrics.jsonl")) < 300, "it was not killed in the middle"
        resumed = _start(programs, log, "resume", str(folder), "--json")
        assert resumed.wait(timeout=300) == 0, log.read_text()
        assert json.loads(log.read_text().splitlines()[-1])["steps"] == 16 * 150
        assert _tensors(folder) == _tensors(tmp_path / "whole")
        assert _rows(folder) == _rows(tmp_path / "whole")


@pytest.mark.xdist_group("subprocesses")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_is_saved_and_says_how_to_go_on(tmp_path, programs, number, code):
    folder, log = tmp_path / "run", tmp_path / "log"
    process = _start(programs, log, "train", *WORDS, "--steps", "1M", "--out", str(folder))
    _wait_for_rows(folder, 4, process, log)
    process.send_signal(number)
    assert process.wait(timeout=60) == code
    assert f"advsurprise resume {folder}" in log.read_text()
    saved = checkpoint.read_record(checkpoint.latest(folder / "checkpoints"))["step"]
    assert saved == read_rows(folder / "metrics.jsonl")[-1]["update"]


def test_trained_in_two_parts_equals_trained_at_once(tmp_path, loop):
    run.train(TINY, tmp_path / "once", loop=loop)
    half = dataclasses.replace(TINY, steps=16 * 6)
    run.train(half, tmp_path / "twice", loop=loop)
    ended = run.train(TINY, tmp_path / "twice", loop=loop)
    assert ended.steps == 16 * 12
    assert _tensors(tmp_path / "once") == _tensors(tmp_path / "twice")
    assert _rows(tmp_path / "once") == _rows(tmp_path / "twice")


def test_an_existing_run_is_continued_never_overwritten(tmp_path, loop):
    run.train(TINY, tmp_path, loop=loop)
    before = _tensors(tmp_path)
    again = run.train(TINY, tmp_path, loop=loop)
    assert again.steps == 16 * 12
    assert _tensors(tmp_path) == before
    with pytest.raises(UserError, match=r"holds another run \(bodies is 2 there, 4 asked for\)"):
        run.train(dataclasses.replace(TINY, bodies=4), tmp_path)
    assert _tensors(tmp_path) == before
    fresh = run.train(dataclasses.replace(TINY, steps=16 * 5), tmp_path, fresh=True, loop=loop)
    assert fresh.steps == 16 * 5
    assert len(_rows(tmp_path)) == 10


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    for fresh in (False, True):
        with pytest.raises(UserError, match="not empty and holds no run"):
            run.train(TINY, tmp_path, fresh=fresh)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(UserError, match="is a file"):
        run.train(TINY, tmp_path / "thesis.tex")


def test_the_folder_holds_what_it_says(tmp_path, loop):
    run.train(TINY, tmp_path, loop=loop)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "metrics.jsonl", "checkpoints", "card.md"}
    assert run.read_run(tmp_path) == TINY
    rows = _rows(tmp_path)
    assert [(row["update"], row["seed"]) for row in rows[:3]] == [(1, 3), (1, 4), (2, 3)]
    assert all(row["explore/surprise"] > 0 and row["control/surprise"] > 0 for row in rows)
    assert {"surprise", "explore/reward", "control/entropy", "end/rooms_episode", "mean/stilled"} <= set(rows[0])
    assert "advsurprise eval" in (tmp_path / "card.md").read_text()


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path, loop):
    run.train(TINY, tmp_path, loop=loop)
    whole, newest = _tensors(tmp_path), checkpoint.latest(tmp_path / "checkpoints")
    tensors = newest.parent / checkpoint.read_record(newest)["tensors"]["file"]
    data = bytearray(tensors.read_bytes())
    data[len(data) // 2] ^= 1
    tensors.write_bytes(data)
    lines = []
    run.train(TINY, tmp_path, loop=loop, log=lines.append)
    assert any(line.startswith("passed over:") and newest.name in line for line in lines)
    assert any("going on from update 10" in line for line in lines)
    assert _tensors(tmp_path) == whole


def test_a_damaged_configuration_is_refused_with_a_sentence(tmp_path, loop):
    run.train(TINY, tmp_path, loop=loop)
    path = tmp_path / "config.json"
    path.write_text(path.read_text()[:100])
    with pytest.raises(UserError, match="is damaged"):
        run.read_run(tmp_path)
    path.write_text(json.dumps({"config": {"boddies": 3}}))
    with pytest.raises(UserError, match="did you mean 'bodies'"):
        run.read_run(tmp_path)
    with pytest.raises(UserError, match="there is no run"):
        run.read_run(tmp_path / "elsewhere")


def test_losses_that_are_no_numbers_stop_the_run_and_keep_the_last_good_checkpoint(tmp_path, loop):
    class Breaks:
        def __init__(self):
            self.updates = 0

        init, like, resumed, agents = loop.init, loop.like, loop.resumed, loop.agents

        def update(self, state):
            self.updates += 1
            state, found = loop.update(state)
            if self.updates == 8:
                found["control/loss"] = found["control/loss"].at[1].set(np.nan)
            return state, found

    with pytest.raises(run.NonFinite, match=r"control/loss of seed 4 is nan at step 128.*is kept"):
        run.train(TINY, tmp_path, loop=Breaks())
    assert checkpoint.read_record(checkpoint.latest(tmp_path / "checkpoints"))["step"] == 5
    ended = run.train(TINY, tmp_path, loop=loop)
    assert ended.steps == 16 * 12


def test_all_leaves_of_the_state_are_arrays(loop):
    leaves = jax.tree.leaves(loop.init())
    assert all(isinstance(leaf, jax.Array) for leaf in leaves)
    assert all(leaf.shape[0] == len(TINY.seeds) for leaf in leaves)


def test_python_trains_loads_and_evaluates_with_the_command_lines_defaults(tmp_path):
    fields = {"env_fields": TINY.env_fields, "method_fields": TINY.method_fields, "ppo": TINY.ppo}
    trained = advsurprise.train("rooms/door", steps=160, seed=3, out=tmp_path / "a", bodies=2, rollout=8, **fields)
    assert trained.updates == 10
    assert advsurprise.load(tmp_path / "a").config == trained.config
    assert RunConfig() == dataclasses.replace(RunConfig(), env="rooms/four", steps=2_000_000, seeds=(0,), bodies=16)
    measures = trained.evaluate(episodes=20)
    scored = measures["scored_surprise"]
    assert 0 < scored["low"] <= scored["mean"] <= scored["high"]
    assert (scored["n"], scored["over"]) == (20, "episodes")
    elsewhere = trained.evaluate(episodes=20, env="rooms/four", env_fields={"max_steps": 8})
    assert elsewhere["end/noisy_rooms"]["mean"] > 1
    with pytest.raises(UserError, match="cannot act in"):
        trained.evaluate(episodes=20, env="rooms/four", env_fields={"view": 5})


def test_the_command_line_trains_resumes_and_evaluates(tmp_path, capsys):
    folder = str(tmp_path / "run")
    cli.main(["train", *WORDS, "--steps", "160", "--out", folder, "--json"])
    trained = json.loads(capsys.readouterr().out)
    assert (trained["run"], trained["steps"], trained["seeds"]) == (folder, 160, [3, 4])
    cli.main(["resume", folder, "--steps", "320"])
    assert "trained 320 steps" in capsys.readouterr().out
    cli.main(["eval", folder, "--episodes", "20", "--json"])
    played = json.loads(capsys.readouterr().out)
    assert (played["method"], played["env"], played["episodes"]) == ("adversarial-surprise", "rooms/door", 20)
    for player in ("measures", "greedy", "random"):
        assert set(played[player]["scored_surprise"]) == {"mean", "low", "high", "n", "over"}
    cli.main(["eval", folder, "--episodes", "20"])
    assert "rooms visited per episode" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("train", "--method", "adversarial-suprise"), "did you mean 'adversarial-surprise'"),
        (("train", "--env", "rooms/fuor"), "did you mean 'rooms/four'"),
        (("train", "--steps", "2Q"), "must be a whole number such as 500, 300k or 2M"),
        (("train", "--steps", "100"), "at least one update's 8192"),
        (("train", "--seeds", "4..0"), "seeds are written"),
        (("train", "--seeds", "1,1"), "seeds must differ"),
        (("train", "--set", "ppo.lrr=1"), "did you mean 'ppo.lr'"),
        (("train", "--set", "ppo.lr=-1"), "ppo.lr must be positive"),
        (("train", "--set", "pop.lr=1"), "fields begin with ppo., env. or method."),
        (("train", "--set", "method.scope=rond"), "did you mean 'round'"),
        (("train", "--set", "method.quiet=2"), "quiet must be at least 0 and below 1"),
        (("train", "--set", "env.view=6"), "view must be odd"),
        (("train", "--set", "bodies"), "write --set FIELD=VALUE"),
        (("train", "--config", "no.yaml"), "a .json or .toml file"),
        (("train", "--config", "no.json"), "could not read no.json"),
        (("resume", "nowhere"), "there is no run in nowhere"),
        (("eval", "nowhere"), "there is no run in nowhere"),
        (("eval", "nowhere", "--episodes", "3"), "must be at least 10"),
    ],
)
def test_mistakes_get_one_sentence(capsys, monkeypatch, tmp_path, words, sentence):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        cli.main(list(words))
    assert stopped.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    last = captured.err.strip().splitlines()[-1]
    assert last.startswith("advsurprise: ")
    assert sentence in last
    assert list(tmp_path.iterdir()) == []


def test_configurations_come_from_files_and_flags_win(tmp_path, capsys):
    path = tmp_path / "run.toml"
    path.write_text(
        'env = "rooms/door"\nsteps = 160\nbodies = 2\nrollout = 8\n[ppo]\nminibatch = 8\n[env_fields]\nmax_steps = 8\n'
    )
    words = [
        "train",
        "--config",
        str(path),
        "--set",
        "ppo.epochs=1",
        "--set",
        "method.k_explore=2",
        "--dry-run",
        "--json",
    ]
    cli.main([*words, "--set", "method.k_control=2", "--steps", "320"])
    plan = json.loads(capsys.readouterr().out)
    assert plan["config"]["env"] == "rooms/door"
    assert plan["config"]["ppo"] == {**dataclasses.asdict(PPOConfig()), "minibatch": 8, "epochs": 1}
    assert (plan["updates"], plan["steps"]) == (20, 320)
    assert plan["rollout_bytes"] > 8 * 2 * 4 * 49
    # An update holds at least its rollout, and more bodies fit than the two that were planned.
    assert plan["update_bytes"] > plan["rollout_bytes"]
    assert plan["largest_bodies"] > 2
    assert plan["parameters_per_role"]["explore"] == plan["parameters_per_role"]["control"] > 10_000
    path.write_text('enw = "rooms/door"\n')
    with pytest.raises(SystemExit):
        cli.main(["train", "--config", str(path)])
    assert "did you mean 'env'" in capsys.readouterr().err
