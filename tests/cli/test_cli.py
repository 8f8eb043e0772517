"""The command line as a user meets it: words in, text or one JSON object out, sentences for mistakes."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from advsurprise import __version__
from advsurprise.cli import main as cli


def _run(capsys, *words):
    """Standard output of a command that ends well."""
    cli.main(list(words))
    return capsys.readouterr().out


def _fails(capsys, *words):
    """Exit code and standard error of a command that does not."""
    with pytest.raises(SystemExit) as stopped:
        cli.main(list(words))
    captured = capsys.readouterr()
    assert captured.out == ""
    return stopped.value.code, captured.err


VERBS = (
    "train",
    "resume",
    "eval",
    "plot",
    "replay",
    "film",
    "watch",
    "report",
    "zoo",
    "reproduce",
    "methods",
    "envs",
    "check-env",
    "theory",
    "bench",
    "doctor",
)


def test_help_names_every_verb_and_every_verb_has_help(capsys):
    for words in [(), *((verb,) for verb in VERBS), *(("bench", part) for part in ("worlds", "train", "oracle"))]:
        with pytest.raises(SystemExit) as stopped:
            cli.main([*words, "--help"])
        text = capsys.readouterr().out
        assert stopped.value.code == 0
        assert "{None}" not in text
        assert "default: None" not in text
        assert f"usage: {' '.join(('advsurprise', *words))}" in text
        if not words:
            assert all(verb in text for verb in VERBS)


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--help",), ("methods",), ("envs", "--json")])
def test_a_reader_that_leaves_early_is_no_error(words):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-m", "advsurprise", *words], stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_full_disk_behind_standard_output_is_a_sentence():
    if not pathlib.Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-m", "advsurprise", "zoo"], stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (4, b"advsurprise: No space left on device\n")


@pytest.mark.parametrize("module", ["advsurprise", "advsurprise.cli.main"])
def test_the_package_and_its_command_line_run_as_modules(module):
    done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"advsurprise {__version__}\n")


def test_version(capsys):
    assert _run(capsys, "--version").strip() == f"advsurprise {__version__}"


def test_envs_lists_every_world(capsys):
    listing = json.loads(_run(capsys, "envs", "--json"))
    ids = [env["id"] for env in listing["envs"]]
    assert [id for id in ids if id.startswith("rooms/")] == ["rooms/four", "rooms/door", "rooms/lock", "rooms/switch"]
    assert {"atari/freeway", "atari/berzerk", "atari/assault", "atari/space-invaders"} <= set(ids)
    text = _run(capsys, "envs")
    assert all(env["id"] in text and env["description"] in text for env in listing["envs"])


@pytest.mark.slow
def test_envs_describes_and_draws_one(capsys, tmp_path):
    png = tmp_path / "four.png"
    card = json.loads(_run(capsys, "envs", "rooms/four", "--png", str(png), "--set", "rooms=2", "--json"))
    assert card["fields"]["rooms"] == 2
    assert card["observation"]["shape"] == [7, 7]
    assert card["num_classes"] == len(card["classes"]) == 12
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "rooms = 2" in _run(capsys, "envs", "rooms/four", "--set", "rooms=2")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("envs", "rooms/fuor"), "did you mean 'rooms/four'"),
        (("envs", "rooms/four", "--set", "vew=5"), "did you mean 'view'"),
        (("envs", "rooms/four", "--set", "view"), "write --set FIELD=VALUE"),
        (("envs", "rooms/four", "--set", "view=wide"), "view must be a whole number"),
        (("envs", "rooms/four", "--set", "restart=maybe"), "restart must be true or false"),
        (("envs", "rooms/four", "--png", "four.jpg"), "must name a .png file"),
        (("envs", "rooms/four", "--png", "no/such/folder/four.png"), "does not exist"),
        (("envs", "--png", "four.png"), "need a world"),
        (("bench", "worlds", "--bodies", "0"), "whole numbers from 1"),
        (("bench", "worlds", "--seconds", "0"), "must be positive"),
        (("bench", "worlds", "rooms/five"), "unknown world"),
        (("bench", "oracle", "--steps", "0"), "must be at least 1"),
    ],
)
def test_mistakes_get_one_sentence_and_exit_code_2(capsys, words, sentence):
    code, error = _fails(capsys, *words)
    assert code == 2
    assert sentence in error
    assert error.count("\n") == 1
    assert error.startswith("advsurprise: ")


def test_a_missing_extra_is_named_and_exits_3(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "minigrid", None)
    code, error = _fails(capsys, "bench", "oracle", "--steps", "8")
    assert code == 3
    assert 'pip install "advsurprise[oracle]"' in error


@pytest.mark.slow
def test_bench_worlds_prints_rows_and_the_ratio(capsys, monkeypatch):
    monkeypatch.setattr("advsurprise.bench.face.ROUNDS", 2)
    monkeypatch.setattr("advsurprise.bench.face.STEPS", 8)
    words = ("bench", "worlds", "rooms/door", "--bodies", "1", "8", "--seconds", "0.01")
    result = json.loads(_run(capsys, *words, "--set", "max_steps=4", "--json"))
    assert [row["bodies"] for row in result["rows"]] == [1, 8]
    for row in result["rows"]:
        assert row["env"] == "rooms/door"
        assert row["steps_per_s"] > 0
        assert row["compile_s"] > 0
    assert result["minigrid_steps_per_s"] > 0
    assert result["ratio"] == pytest.approx(result["rows"][1]["steps_per_s"] / result["minigrid_steps_per_s"], rel=0.1)
    assert [(row["name"], row["bodies"]) for row in result["interleaved"]] == [
        ("Farama MiniGrid", 1),
        ("Gymnasium, one body", 1),
        ("Gymnasium, vector", 8),
        ("compiled loop", 8),
    ]
    for row in result["interleaved"]:
        assert row["steps_per_s"] == max(row["rounds"]) > 0
        assert row["steps_per_cpu_s"] == max(row["cpu_rounds"]) > 0
        assert row["ratio"] == pytest.approx(row["steps_per_s"] / result["minigrid_steps_per_s"], abs=0.01)


@pytest.mark.slow
@pytest.mark.long
def test_bench_oracle_prints_steps_and_mismatches(capsys, monkeypatch):
    # Both views are compared at length in tests/bench.
    monkeypatch.setattr("advsurprise.bench.oracle.VIEWS", (5,))
    result = json.loads(_run(capsys, "bench", "oracle", "--steps", "80", "--json"))
    assert result["mismatches"] == 0
    assert result["steps"] == 80
