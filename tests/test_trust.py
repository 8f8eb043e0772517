"""Files and packages that the folder of a run names are not run until the user names them."""

import contextlib
import dataclasses
import json

import jax.numpy as jnp
import pytest

import advsurprise
from advsurprise import trust, zoo
from advsurprise.cli import main as cli
from advsurprise.config import RunConfig
from advsurprise.errors import UserError
from advsurprise.training import checkpoint

CODE = "import pathlib\npathlib.Path({marker!r}).touch()\nclass Mine: pass\n"
READERS = ("resume", "eval", "replay", "film", "report", "plot")


@pytest.fixture
def planted(tmp_path):
    """A file that leaves a mark when it is run, and where."""
    marker = tmp_path / "was-run"
    (tmp_path / "planted.py").write_text(CODE.format(marker=str(marker)))
    return f"{tmp_path / 'planted.py'}:Mine", marker


def run_that_names(folder, **names):
    """A folder as anybody could make it: whole, and with one row of metrics."""
    cfg = dataclasses.replace(RunConfig(method="random"), **names)
    checkpoint.save(folder / "checkpoints", 1, {"update": jnp.ones(1)}, {})
    (folder / "config.json").write_text(json.dumps({"config": cfg.as_dict()}))
    (folder / "metrics.jsonl").write_text('{"step": 8192, "update": 1, "seed": 0, "loss": 0.5}\n')
    return folder


@pytest.mark.parametrize("part", ["env", "method"])
def test_no_verb_runs_a_file_that_only_a_folder_names(planted, tmp_path, capsys, part):
    name, marker = planted
    run = run_that_names(tmp_path / "run", **{part: name})
    for verb in READERS:
        # A report or a plot does without what it may not run.
        with contextlib.suppress(SystemExit):
            cli.main([verb, str(run)])
        assert not marker.exists(), verb
    said = capsys.readouterr()
    assert said.err.count(f"if you trust it, add --allow {name}") >= 4
    with pytest.raises(UserError, match="if you trust it, add --allow"):
        advsurprise.load(run)
    assert not marker.exists()
    # Named, it is run: what it holds is then looked at.
    with pytest.raises(UserError, match="Mine is not a subclass"):
        advsurprise.load(run, allow=name)
    assert marker.exists()


def test_neither_watch_nor_a_package_nor_a_comparison_gets_round_it(planted, tmp_path, capsys):
    name, marker = planted
    for verb, run in {
        "watch": run_that_names(tmp_path / "a", env=name),
        "eval": run_that_names(tmp_path / "b", env="planted:Name-v0"),
        "resume": tmp_path / "c",
    }.items():
        if verb == "resume":
            run.mkdir()
            shared = {key: value for key, value in RunConfig().as_dict().items() if not key.startswith("method")}
            (run / "comparison.json").write_text(json.dumps({"config": shared, "methods": {name: {}}}))
        with pytest.raises(SystemExit) as left:
            cli.main([verb, str(run)])
        assert left.value.code == 2
        assert "if you trust it, add --allow" in capsys.readouterr().err
        assert not marker.exists()


def test_a_card_of_the_zoo_is_no_word_of_the_users(planted, tmp_path, monkeypatch):
    name, marker = planted
    monkeypatch.setattr(zoo, "AGENTS", tmp_path)
    run = run_that_names(tmp_path / "agent", method=name)
    (run / "card.json").write_text("{}")
    with pytest.raises(UserError, match="if you trust it, add --allow"):
        advsurprise.load("zoo:agent")
    assert not marker.exists()


def test_train_and_python_are_the_users_own_word(planted, tmp_path, capsys):
    name, _ = planted
    with pytest.raises(SystemExit):
        cli.main(["train", "--method", name, "--out", str(tmp_path / "run")])
    assert "Mine is not a subclass" in capsys.readouterr().err
    with pytest.raises(UserError, match="Mine is not a subclass"):
        advsurprise.train(method=name, out=tmp_path / "run")


@pytest.mark.parametrize("part", ["env", "method"])
def test_settings_of_a_run_are_no_word_of_the_users(planted, tmp_path, capsys, part):
    name, marker = planted
    run = run_that_names(tmp_path / "run", **{part: name})
    words = ["train", "--config", str(run), "--out", str(tmp_path / "new")]
    for given in ([], ["--allow", name]):
        with pytest.raises(SystemExit) as left:
            cli.main([*words, *given])
        assert left.value.code == 2
        assert marker.exists() == bool(given)
    said = capsys.readouterr().err
    assert f"if you trust it, add --allow {name}" in said
    assert "Mine is not a subclass" in said


def test_one_file_has_one_name_however_it_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trust.allow("mine.py:World")
    trust.check_named(f"{tmp_path}/mine.py:World")
    with pytest.raises(UserError, match=r"--allow mine\.py:Other"):
        trust.check_named("mine.py:Other")
