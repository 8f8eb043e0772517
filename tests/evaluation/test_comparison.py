"""Several methods in one folder: stopped and continued, made longer, drawn; fields go where they belong."""

import dataclasses
import json
import pathlib
import signal
from contextlib import nullcontext
from typing import NamedTuple

import pytest

from advsurprise.cli import main as cli
from advsurprise.cli import plan, resolve, train
from advsurprise.config import PPOConfig, RunConfig
from advsurprise.errors import UserError
from advsurprise.evaluation import comparison
from advsurprise.evaluation.comparison import Comparison
from advsurprise.training import loops, metrics, run
from advsurprise.training.folder import read_run
from advsurprise.training.fused import Fused

pytestmark = pytest.mark.slow

METHODS = "adversarial-surprise,task"
WORDS = [
    *("--env", "rooms/door", "--set", "env.max_steps=8"),
    *("--set", "ppo.epochs=1", "--set", "ppo.minibatch=8", "--set", "rollout=8", "--bodies", "2", "--seeds", "3..4"),
]
TINY = RunConfig(
    env="rooms/door",
    env_fields={"max_steps": 8},
    ppo=PPOConfig(epochs=1, minibatch=8),
    steps=16 * 4,
    seeds=(3, 4),
    bodies=2,
    rollout=8,
)
ASKED = Comparison(TINY, {"adversarial-surprise": {"k_explore": 2, "k_control": 2}, "task": {}})
CHEAP = Comparison(dataclasses.replace(TINY, method="random"), {"random": {}, "task": {}})
"""Methods whose programs are compiled quickly."""


class StopsTask:
    """A console that stops the method that trains after its second update."""

    def __init__(self, stream, total, *, shown, remark):
        self.rows = []

    def write(self, row):
        self.rows.append(row)
        if len(self.rows) == 4 and "agent/loss" in row:
            signal.raise_signal(signal.SIGTERM)

    def close(self):
        pass


def test_the_command_line_compares_stops_continues_and_draws(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "both"
    words = ["train", "--method", "random,task", *WORDS, "--steps", "64", "--out", str(folder)]
    compiled = {name: Fused(cfg) for name, cfg in CHEAP.configs.items()}
    # The same loops each time: compiling them again would be most of this test's time.
    monkeypatch.setattr(loops, "open_loop", lambda cfg: nullcontext(compiled[cfg.method]))
    monkeypatch.setattr(metrics, "Console", StopsTask)
    with pytest.raises(SystemExit) as stopped:
        cli.main([*words, "--track", "tensorboard"])
    captured = capsys.readouterr()
    assert stopped.value.code == 128 + signal.SIGTERM
    assert captured.out == ""
    assert captured.err.splitlines()[-1] == f"stopped and saved; continue with: advsurprise resume {folder}"
    assert {path.name for path in folder.iterdir()} == {"comparison.json", "random", "task"}
    assert comparison.read(folder) == CHEAP
    assert [comparison.updates_done(folder / name) for name in CHEAP.fields] == [4, 2]
    before = (folder / "random" / "metrics.jsonl").read_bytes()

    cli.main([*words, "--json"])
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert "random is already trained to 64 steps: skipped" in captured.err
    assert "continuing from update 2" in captured.err
    assert (folder / "random" / "metrics.jsonl").read_bytes() == before
    assert (result["comparison"], result["methods"], result["failed"]) == (str(folder), ["random", "task"], {})
    assert {"end/rooms_episode", "end/stilled"} <= set(result["metrics"])
    rows = metrics.read_rows(folder / "task" / "metrics.jsonl")
    assert [(row["update"], row["seed"]) for row in rows] == [(u, s) for u in (1, 2, 3, 4) for s in (3, 4)]
    last = [row["end/rooms_episode"] for row in rows[-2:]]
    assert result["end"]["task"]["end/rooms_episode"]["iqm"] == pytest.approx(sum(last) / 2)
    assert result["end"]["task"]["end/rooms_episode"]["step"] == 64
    # Continued, they have the trackers that they began with.
    events = {name: len(list((folder / name / "track" / "tensorboard").iterdir())) for name in CHEAP.fields}
    assert events == {"random": 1, "task": 2}
    for ending in ("png", "pdf", "csv"):
        assert (folder / f"comparison.{ending}").stat().st_size > 100

    cli.main(["resume", str(folder)])
    captured = capsys.readouterr()
    assert captured.err.count("skipped") == 2
    assert [line.split()[0] for line in captured.out.splitlines()[5:7]] == ["random", "task"]
    assert f"advsurprise plot {folder} --metric life,uses,dark,closed,locked" in captured.out
    assert f"advsurprise eval {folder}/random" in captured.out
    assert "2 seeds: intervals are unreliable" in captured.err
    for verb in ("eval", "resume"):
        with pytest.raises(SystemExit):
            cli.main([verb, str(folder), *(["--steps", "32"] if verb == "resume" else [])])
    error = capsys.readouterr().err
    assert f"choose one of its runs, for example {folder}/random" in error
    assert "--steps can only increase that, not set it to 32" in error


# ------------------------------------------------------------------------------------ the driver, without training


class Ended(NamedTuple):
    """What the driver looks at of a run's result."""

    stopped_by: int
    signal: int


class Fake:
    """In place of the trainer: notes whom it trained; ends by a signal, or in spite of one (negative), or breaks."""

    def __init__(self, ends: dict[str, int | Exception]):
        self.ends = ends
        self.trained = []

    def __call__(self, cfg, folder):
        self.trained.append(cfg.method)
        end = self.ends.get(cfg.method, 0)
        if isinstance(end, Exception):
            raise end
        return Ended(stopped_by=max(end, 0), signal=abs(end))


@pytest.fixture
def three(monkeypatch):
    """A comparison of three methods, none of them trained yet."""
    monkeypatch.setattr(comparison, "updates_done", lambda folder: 0)
    return Comparison(TINY, {"a": {}, "b": {}, "c": {}})


@pytest.mark.parametrize(
    ("ends", "trained", "stopped_by"),
    [
        ({}, ["a", "b", "c"], 0),
        ({"b": 15}, ["a", "b"], 15),
        # A signal in a method's last update lets it finish; the next one is not begun.
        ({"a": -2}, ["a"], 2),
        ({"c": -2}, ["a", "b", "c"], 0),
    ],
)
def test_signals_stop_the_comparison_where_they_come(tmp_path, three, ends, trained, stopped_by):
    fake = Fake(ends)
    assert comparison.train(three, tmp_path, fake, log=print) == (stopped_by, {})
    assert fake.trained == trained


def test_a_signal_between_two_methods_is_not_lost(tmp_path, three):
    def train_one(cfg, folder):
        signal.raise_signal(signal.SIGINT)
        return Ended(stopped_by=0, signal=0)

    assert comparison.train(three, tmp_path, train_one, log=print)[0] == signal.SIGINT


def test_a_method_that_breaks_does_not_keep_the_others_from_their_turn(tmp_path, three, monkeypatch, capsys):
    fake = Fake({"b": run.NonFinite("loss is nan")})
    assert comparison.train(three, tmp_path, fake, log=print) == (0, {"b": "loss is nan"})
    assert fake.trained == ["a", "b", "c"]
    end = {"files": [], "smooth": 1, "metrics": [], "labels": {}, "others": [], "end": {"a": {}}}
    result = {"comparison": "x", "methods": ["a"], "failed": {"b": "loss is nan"}, **end}
    monkeypatch.setattr(train, "train", lambda *args, **named: result)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["train", "--method", METHODS])
    assert stopped.value.code == 4
    assert "b failed: loss is nan" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------- the folder


def test_a_comparison_may_be_made_longer_and_get_more_methods_and_nothing_else(tmp_path):
    folder = tmp_path / "both"
    comparison.prepare(ASKED, folder, fresh=False)
    more = Comparison(dataclasses.replace(TINY, steps=320), {**ASKED.fields, "random": {}})
    comparison.prepare(more, folder, fresh=False)
    assert comparison.read(folder) == more
    assert read_run(folder / "random") == more.configs["random"]
    for other, sentence in [
        (dataclasses.replace(more, base=dataclasses.replace(more.base, bodies=4)), r"bodies is 2 there, 4 asked for"),
        (dataclasses.replace(more, base=TINY), r"is set to 320 steps, more than 64"),
        (dataclasses.replace(more, fields=ASKED.fields), r"random with its defaults is part of it"),
        (
            dataclasses.replace(more, fields={**more.fields, "adversarial-surprise": {}}),
            r'adversarial-surprise with \{"k_explore": 2, "k_control": 2\} is part of it',
        ),
    ]:
        with pytest.raises(UserError, match=sentence):
            comparison.prepare(other, folder, fresh=False)
        assert comparison.read(folder) == more
    (folder / "task" / "metrics.jsonl").write_text("{}\n")
    comparison.prepare(ASKED, folder, fresh=True)
    assert comparison.read(folder) == ASKED
    assert not (folder / "task" / "metrics.jsonl").exists()


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    for fresh in (False, True):
        with pytest.raises(UserError, match="not empty and holds no comparison"):
            comparison.prepare(ASKED, tmp_path, fresh=fresh)
    with pytest.raises(UserError, match="is a file"):
        comparison.prepare(ASKED, tmp_path / "thesis.tex", fresh=False)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_unfinished_comparisons_are_drawn_as_far_as_they_are(tmp_path):
    comparison.prepare(ASKED, tmp_path / "both", fresh=False)
    with pytest.raises(UserError, match="has no metrics yet; continue with: advsurprise resume"):
        comparison.started_runs(tmp_path / "both", print)
    (tmp_path / "both" / "task" / "metrics.jsonl").write_text('{"step": 16, "seed": 3, "end/rooms_episode": 1.0}\n')
    lines = []
    result = comparison.draw([tmp_path / "both"], log=lines.append)
    assert lines[0] == "not trained yet: adversarial-surprise"
    assert (list(result["end"]), result["files"][0]) == (["task"], str(tmp_path / "both" / "comparison.png"))


# --------------------------------------------------------------------------------------------------- settings


def test_fields_go_to_the_methods_that_have_them():
    words = ["bodies=4", "env.rooms=2", "method.stack=2", "method.quiet=0.5", "task.gamma=0.5", "ppo.lr=1"]
    shares = comparison.share_out(["adversarial-surprise", "task"], words)
    assert shares["task"] == ["bodies=4", "env.rooms=2", "method.stack=2", "method.gamma=0.5", "ppo.lr=1"]
    shared = ["method.stack=2"] if "stack" in comparison.known("adversarial-surprise") else []
    assert shares["adversarial-surprise"] == ["bodies=4", "env.rooms=2", *shared, "method.quiet=0.5", "ppo.lr=1"]


def test_fields_of_a_file_go_to_the_methods_that_have_them(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('env = "rooms/door"\nsteps = 160\nbodies = 2\nrollout = 8\n[method_fields]\nquiet = 0.5\n')
    flags = {"env": None, "steps": None, "seeds": "0..1", "bodies": None}
    asked = resolve.resolve_comparison(METHODS, config=path, settings=["task.gamma=0.5"], **flags)
    assert asked.fields == {"adversarial-surprise": {"quiet": 0.5}, "task": {"gamma": 0.5}}
    assert (asked.base.env, asked.base.bodies, asked.base.seeds) == ("rooms/door", 2, (0, 1))
    path.write_text("[method_fields]\nquite = 0.5\n")
    with pytest.raises(UserError, match=r"did you mean 'method\.quiet'"):
        resolve.resolve_comparison(METHODS, config=path, settings=[], **flags)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--method", "task,adversarial-suprise"), "did you mean 'adversarial-surprise'"),
        (("--method", "task,"), "unknown method ''"),
        (("--method", "task,random,task"), "task is named twice in --method"),
        (
            ("--method", METHODS, "--set", "method.gama=0.5"),
            "unknown field 'method.gama'; did you mean 'method.gamma'?",
        ),
        (("--method", METHODS, "--set", "task.gama=0.5"), "did you mean 'method.gamma'"),
        (
            ("--method", METHODS, "--set", "random.gamma=0.5"),
            "random is not one of the methods compared",
        ),
        (("--method", METHODS, "--set", "tsak.gamma=0.5"), "unknown field 'tsak.gamma'"),
        (("--method", METHODS, "--set", "task.gamma=2"), "gamma must be at least 0 and below 1"),
        (("--method", METHODS, "--set", "bodies"), "write --set FIELD=VALUE"),
        (("--method", METHODS, "--steps", "100"), "at least 8192, one update"),
    ],
)
def test_mistakes_get_one_sentence_before_anything_is_made(tmp_path, monkeypatch, capsys, words, sentence):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["train", *words])
    assert stopped.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("advsurprise: ")
    assert captured.err.count("\n") == 1
    assert sentence in captured.err
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_plans_every_method(monkeypatch, capsys):
    def plan_one(cfg, log):
        sizes = {"updates": cfg.updates, "steps": cfg.steps, "state_bytes": 1, "rollout_bytes": 1}
        sizes |= {"update_bytes": 1, "largest_bodies": 99}
        times = {"compile_s": 1.0, "steps_per_s": 10.0, "estimated_s": 6.25}
        return {"config": cfg.as_dict(), "parameters_per_role": {"agent": 1}, **sizes, **times}

    monkeypatch.setattr(plan, "plan", plan_one)
    words = ["--set", "method.k_explore=2", "--set", "method.k_control=2", *WORDS, "--dry-run"]
    cli.main(["train", "--method", METHODS, *words, "--json"])
    plans = json.loads(capsys.readouterr().out)
    assert [each["config"]["method"] for each in plans["plans"]] == METHODS.split(",")
    assert plans["estimated_s"] == 12.5
    cli.main(["train", "--method", METHODS, *words])
    assert "all methods, one after the other: about 12 s" in capsys.readouterr().out
    assert not pathlib.Path("runs/rooms-door-comparison").exists()
