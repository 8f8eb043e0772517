"""Tables of runs: what they ask for, what they refuse, and one that is trained."""

import json
import pathlib
import re
import sys

import pytest

from advsurprise.cli import main as cli
from advsurprise.cli import table
from advsurprise.cli.table import Table
from advsurprise.config import RunConfig
from advsurprise.errors import UserError
from advsurprise.evaluation import comparison, report, sweep
from advsurprise.training.jobs import Event
from advsurprise.training.metrics import read_rows

TINY = [
    *("--env", "ladder/game", "--method", "task", "--bodies", "2", "--steps", "40"),
    *("--set", "rollout=10", "--set", "ppo.epochs=1", "--set", "ppo.minibatch=8"),
]


def _read(path=None, *, grid=(), settings=(), **flags):
    return table.read(path, flags=flags, settings=settings, grid=grid)


def _refused(capsys, *words):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["sweep", *words])
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    return stopped.value.code, captured.err


# ------------------------------------------------------------------------------------------------------- the table


def test_a_grid_is_every_combination():
    made = table.configs(_read(grid=["ppo.lr=1e-4,3e-4", "method.scope=episode,round"], seeds="0..2", steps="300k"))
    assert list(made) == [f"lr={lr},scope={scope}" for lr in ("1e-4", "3e-4") for scope in ("episode", "round")]
    one = made["lr=1e-4,scope=round"]
    assert (one.ppo.lr, one.method_fields, one.seeds, one.steps) == (1e-4, {"scope": "round"}, (0, 1, 2), 300_000)
    assert one.rollout == 512  # rounded to whole episodes, as train does


def test_a_file_has_what_all_share_runs_of_their_own_and_a_grid(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text(
        '[base]\nenv = "rooms/door"\nsteps = "100k"\nseeds = [3, 7]\nppo.epochs = 2\nmethod.stack = 2\n'
        "[grid]\nppo.lr = [1e-4, 0.001]\n"
        '[[runs]]\nmethod = "smirl"\n[[runs]]\nname = "ours"\nmethod.scope = "round"\nenv.max_steps = 64\n'
    )
    made = table.configs(_read(path, bodies="4"))
    assert list(made) == ["smirl,lr=0.0001", "smirl,lr=0.001", "ours,lr=0.0001", "ours,lr=0.001"]
    first, last = made["smirl,lr=0.0001"], made["ours,lr=0.001"]
    assert (first.env, first.steps, first.seeds, first.bodies) == ("rooms/door", 100_000, (3, 7), 4)
    assert (first.method, first.ppo.lr, first.ppo.epochs) == ("smirl", 1e-4, 2)
    assert (last.method_fields, last.env_fields) == ({"scope": "round", "stack": 2}, {"max_steps": 64})


def test_the_file_of_the_documentation_makes_the_runs_that_it_says(tmp_path):
    page = (pathlib.Path(__file__).parents[2] / "docs" / "scale.md").read_text()
    path = tmp_path / "table.toml"
    path.write_text(page.partition("```toml\n")[2].partition("```")[0])
    named = re.search(r"This makes (.*)\. Names", page)
    assert named is not None
    assert [f"`{name}`" for name in table.configs(_read(path))] == re.split(", | and ", named[1])


def test_what_all_share_goes_to_the_methods_that_have_it():
    made = table.configs(_read(grid=["method=smirl,adversarial-surprise"], settings=["method.scope=round"]))
    assert (made["smirl"].method_fields, made["adversarial-surprise"].method_fields) == ({}, {"scope": "round"})


def test_names_say_what_differs_and_no_more():
    assert list(table.configs(_read())) == ["rooms-four-adversarial-surprise"]
    grid = {"env": ["rooms/four", "rooms/door"], "env.max_steps": ["32", "64"]}
    assert next(iter(table._rows(Table({}, grid, [{}])))) == "rooms-four,max_steps=32"
    both = {"env.gamma": ["1"], "ppo.gamma": ["1"]}
    assert list(table._rows(Table({}, both, [{}]))) == ["env.gamma=1,ppo.gamma=1"]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (Table({"ppo.lr": "1"}, {"ppo.lr": ["1", "2"]}, [{}]), "ppo.lr is both in the grid and set for all runs"),
        (Table({}, {"ppo.lr": ["1"]}, [{"ppo.lr": "2"}]), "ppo.lr is both in the grid and set for a run"),
        (Table({}, {"ppo.lr": ["1", "1"]}, [{}]), "ppo.lr has the value 1 twice in the grid"),
        (Table({}, {"env": ["a/b", "a-b"]}, [{}]), "two runs would be called a-b; give each its own name"),
        (Table({}, {}, [{"name": "a/b"}]), "a run cannot be called 'a/b'"),
        (Table({}, {"ppo.lr": ["1e-4", "0.0001"]}, [{}]), "lr=1e-4 and lr=0.0001 are the same run"),
        (Table({}, {"ppo.lrr": ["1"]}, [{}]), "unknown field 'ppo.lrr'; did you mean 'ppo.lr'"),
    ],
)
def test_tables_that_make_no_sense_are_refused(asked, sentence):
    with pytest.raises(UserError) as refused:
        table.configs(asked)
    assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[grid]\nppo.lr = 1e-4", "ppo.lr in the grid must be a list of values"),
        ("[bases]\n", "unknown table 'bases'; did you mean 'base'?"),
        ("runs = 3", "base and grid must be tables"),
        ("a = ", "could not read"),
    ],
)
def test_files_that_make_no_sense_are_refused(tmp_path, content, sentence):
    path = tmp_path / "a.toml"
    path.write_text(content)
    with pytest.raises(UserError, match=r"a\.toml") as refused:
        _read(path)
    assert sentence in str(refused.value)


# -------------------------------------------------------------------------------------------------------- the verb


def test_a_missing_extra_is_a_sentence_with_the_command_that_installs_it(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    code, error = _refused(capsys, *TINY, "--on", "ray", "--out", str(tmp_path / "a"))
    assert code == 3
    assert error == 'advsurprise: ray is not installed; install it with: pip install "advsurprise[ray]"\n'
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--workers", "0"], "--workers must be at least 1, not 0"),
        (["--gpu-share", "2"], "--gpu-share must be above 0 and at most 1"),
        (["--retries", "-1"], "--retries must be at least 0, not -1"),
        (["--cpus", "2"], "--cpus is for --on ray"),
        (["--grid", "ppo.lr"], "write --grid FIELD=VALUE,VALUE, not 'ppo.lr'"),
        (["--set", "env.fields=3"], "unknown field 'env.fields'"),
        (["no.toml"], "could not read no.toml"),
    ],
)
def test_mistakes_are_refused_before_anything_is_written(capsys, tmp_path, words, sentence):
    code, error = _refused(capsys, *words, "--out", str(tmp_path / "a"))
    assert code == 2
    assert sentence in error
    assert not (tmp_path / "a").exists()


def test_a_dry_run_prints_the_table_and_writes_nothing(capsys, tmp_path):
    cli.main(["sweep", *TINY, "--grid", "ppo.lr=1e-3,1e-2", "--grid", "seeds=0,1", "--dry-run", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert list(result["runs"]) == ["lr=1e-3,seeds=0", "lr=1e-3,seeds=1", "lr=1e-2,seeds=0", "lr=1e-2,seeds=1"]
    assert result["steps_left"] == 4 * 40
    assert not pathlib.Path(result["sweep"]).exists()


def test_the_ledger_counts_retries_over_all_attempts_and_keeps_reasons(tmp_path):
    asked = sweep.Sweep({"a": RunConfig(), "b": RunConfig(method="rnd")}, "advsurprise sweep")

    def engine(jobs, *, notice):
        assert [job.name for job in jobs] == ["a", "b"]  # what has failed is tried again
        notice(Event("a", "running"))
        notice(Event("a", "running", 2))
        notice(Event("a", "failed", 2, "no such world"))
        return {"a": "no such world"}, 0

    for tries in (1, 2):
        result = sweep.train(asked, tmp_path, engine, about={}, log=print)
        assert result["runs"]["a"] == {"status": "failed", "retries": 2 * tries, "reason": "no such world"}
        assert result["runs"]["b"] == {"status": "waiting", "retries": 0, "reason": None}
    assert sweep.read(tmp_path) == asked
    assert json.loads((tmp_path / "sweep.json").read_text())["runs"]["a"]["status"] == "failed"


@pytest.mark.slow
def test_a_table_is_trained_once_and_compared(tmp_path, capsys):
    folder = tmp_path / "both"
    options = ["--set", "method.gamma=0.5", "--workers", "2", "--retries", "1"]
    words = ["sweep", *TINY, *options, "--grid", "ppo.lr=1e-3,1e30", "--json"]
    with pytest.raises(SystemExit) as stopped:
        cli.main([*words, "--out", str(folder)])
    assert stopped.value.code == 4
    result = json.loads(capsys.readouterr().out)
    good, bad = result["runs"]["lr=1e-3"], result["runs"]["lr=1e30"]
    assert good == {"status": "done", "retries": 0, "reason": None}
    assert bad["status"] == "failed"
    assert all(f"{flag} {value}" in result["command"] for flag, value in zip(options[::2], options[1::2], strict=True))
    assert "training stopped; the last good checkpoint" in bad["reason"]
    assert [row["update"] for row in read_rows(folder / "lr=1e-3" / "metrics.jsonl")] == [1, 2]
    kept = json.loads((folder / "sweep.json").read_text())
    assert kept["runs"]["lr=1e30"]["reason"] == bad["reason"]
    assert kept["runs"]["lr=1e-3"]["command"].startswith("advsurprise train --env ladder/game --method task --steps 40")

    code, error = _refused(capsys, *words[1:], "--seeds", "1", "--out", str(folder))
    assert code == 2
    assert f"{folder} holds another sweep (lr=1e-3: seeds is [0] there)" in error
    cli.main([*words, "--out", str(folder), "--dry-run"])
    left = json.loads(capsys.readouterr().out)
    assert [entry["done"] for entry in left["runs"].values()] == [40, 0]

    lines = []
    found = sorted(folder.iterdir())  # as * gives them, with sweep.json and the logs
    drawn = comparison.draw(found, out=tmp_path / "figure", log=lines.append)
    assert list(drawn["end"]) == ["lr=1e-3"]
    assert comparison.started_runs(folder, lines.append) == [folder / "lr=1e-3"]
    assert [line for line in lines if "not trained yet" in line] == ["not trained yet: lr=1e30"] * 2
    compared = report.read(folder, None)
    assert (compared.names, list(compared.configs)) == (["lr=1e-3"], ["lr=1e-3", "lr=1e30"])
    assert compared.notes[0].startswith("lr=1e30 is left out: ")
    data = report.report_data(compared, "")
    assert data["commands"][0]["text"] == result["command"]
    assert data["series"] == [{"name": "lr=1e-3", "colour": 6, "dash": 0}]
    rows = {row["name"]: row["values"] for row in data["settings"]["rows"]}
    assert rows["ppo.lr"] == ["0.001", "1e+30"]
    for verb in ("eval", "resume"):
        with pytest.raises(SystemExit):
            cli.main([verb, str(folder)])
    error = capsys.readouterr().err
    assert f"{folder} holds a sweep; choose one of its runs, for example {folder}/lr=1e-3" in error
    assert f"{folder} holds a sweep; continue it with: {result['command']}" in error
