"""The drill: its commands end as promised, and it notices what does not."""

import contextlib
import json
import pathlib
import random
import time

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from advsurprise.bench import cases, fuzz, kills, scene
from advsurprise.bench.cases import Case
from advsurprise.bench.mutate import DEEP, damage_json, damage_tree
from advsurprise.cli import main as cli
from advsurprise.training import checkpoint

DEEP_JSON = b'{"a":' * DEEP


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    """The folder of everything that commands read."""
    return scene.make(tmp_path_factory.mktemp("scene"))


# ------------------------------------------------------------------------------------------------------------- fuzz


@pytest.mark.slow
@settings(
    max_examples=30,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(rng=st.randoms(use_true_random=False), number=st.integers(0, 10**9))
def test_whatever_is_asked_and_read_ends_with_a_sentence_and_changes_no_file(there, rng, number):
    case = cases.draw(there, random.Random(f"{number} {rng.random()}"))
    assert fuzz.attempt(there, case, cli.main) is None, case


def config_with(**values):
    return json.dumps({"config": scene.CFG.as_dict() | values}).encode()


def world_with(**values):
    return json.dumps({"moves": {"a": ["a"]}, "entropies": {"a": 0}} | values).encode()


@pytest.mark.parametrize(
    ("words", "planted", "sentence"),
    [
        (["plot", "run"], {"run/config.json": DEEP_JSON}, "is damaged"),
        (["plot", "run"], {"run/metrics.jsonl": DEEP_JSON + b"\n"}, "line 1 of run/metrics.jsonl is not a JSON object"),
        (["plot", "compared"], {"compared/comparison.json": DEEP_JSON}, "is damaged"),
        (["train", "--config", "settings.json"], {"settings.json": DEEP_JSON}, "could not read settings.json"),
        (["plot", "run"], {"run/config.json": config_with(seeds=3)}, "seeds must be a list, not 3"),
        (["plot", "run"], {"run/config.json": config_with(env=0.5)}, "env must be a word, not 0.5"),
        (["plot", "run"], {"run/config.json": config_with(ppo=[0])}, "ppo must be a table, not [0]"),
        (["plot", "run"], {"run/config.json": config_with(ppo={"lr": "x"})}, "ppo.lr must be a number, not 'x'"),
        (["plot", "run"], {"run/config.json": config_with(bodies=2.5)}, "bodies must be a whole number, not 2.5"),
        (["film", "run", "--out", "x.png"], {"run/config.json": config_with(method_fields={"stack": "x"})}, "random"),
        (["theory", "world.json"], {"world.json": b"1" * 5000}, "world.json is not valid JSON"),
        (["theory", "world.json"], {"world.json": world_with(entropies={"a": 1e12})}, "from 0 to 700 nats"),
        (["theory", "world.json"], {"world.json": world_with(horizon=10**12)}, "from 1 to 10,000"),
        (["eval", "x" * 300], {}, "File name too long"),
        (["train", "--bodies", "1000000000000", "--steps", "1e20"], {}, "an update has fewer than 2,147,483,648 steps"),
        (["train", "--seeds", "0..999999999"], {}, "at most 10,000 seeds, not 0..999999999"),
        (["train", "--seeds", "99999999999"], {}, "seeds must be from 0 to 4,294,967,295"),
    ],
)
def test_what_the_drill_has_found_is_a_sentence(there, capsys, words, planted, sentence):
    with there.planted(planted), contextlib.chdir(there.folder), pytest.raises(SystemExit) as left:
        cli.main(words)
    said = capsys.readouterr().err
    assert left.value.code in (2, 4)
    assert said.startswith("advsurprise: ")
    assert sentence in said


def test_a_checkpoint_of_absurd_shapes_is_refused_before_memory_is_asked_for(there, capsys):
    record = json.loads(there.files[there.record])
    del record["record_sha256"]
    for leaf in record["leaves"].values():
        leaf["shape"] = [10**12]
    planted = {there.record: cases.seal(record)}
    begun = time.monotonic()
    with there.planted(planted), contextlib.chdir(there.folder), pytest.raises(SystemExit):
        cli.main(["eval", "run"])
    assert time.monotonic() - begun < 20
    assert "has shape [1000000000000], but" in capsys.readouterr().err


def test_numbers_near_the_largest_there_is_are_drawn_without_warnings(there):
    rows = there.files["run/metrics.jsonl"].replace(b'"common_surprise": 1.0', b'"common_surprise": 1e308')
    words = ["plot", "run", "--metric", "common_surprise", "--out", "out/plot"]
    assert fuzz.attempt(there, Case("metrics", words, {"run/metrics.jsonl": rows}), cli.main) is None


def test_ends_that_break_the_promises_are_noticed(there, monkeypatch):
    monkeypatch.setattr(fuzz, "LIMIT", 0.05)

    def raises(words):
        raise KeyError("x")

    def leaves(words):
        raise SystemExit(7)

    def is_silent(words):
        raise SystemExit(2)

    def writes(words):
        pathlib.Path("run/new").write_text("x")

    def hangs(words):
        time.sleep(5)

    found = {each.__name__: fuzz.attempt(there, Case("", [], {}), each) for each in (raises, leaves, is_silent, hangs)}
    assert found["raises"].startswith("KeyError: 'x'")
    assert found["leaves"] == "exit code 7"
    assert found["is_silent"] == "exit code 2 without a word"
    assert found["hangs"].startswith("it did not end")
    assert fuzz.attempt(there, Case("", [], {"run/new": None}), writes) == "changed run/new"
    assert fuzz.attempt(there, Case("", [], {}), lambda words: print("done")) is None


def test_a_planted_file_is_gone_afterwards_and_the_real_one_is_back(there):
    with there.planted({there.record: b"x", "run/extra": b"y", "world.json": None}):
        assert scene.contents(there.folder)["run/extra"] == b"y"
        assert not (there.folder / "world.json").exists()
    assert scene.contents(there.folder) == there.files
    record, complaints = checkpoint.newest_good(there.folder / "run" / "checkpoints")
    assert record is not None
    assert not complaints


def test_the_same_seed_draws_the_same_damage():
    data = json.dumps({"a": [1, {"b": 2}], "c": "x"}).encode()
    assert [damage_json(data, random.Random(n)) for n in range(50)] == [
        damage_json(data, random.Random(n)) for n in range(50)
    ]
    changed = [damage_tree(json.loads(data), random.Random(n)) for n in range(50)]
    assert sum(each == json.loads(data) for each in changed) < 10
    assert json.loads(data) == {"a": [1, {"b": 2}], "c": "x"}


# ------------------------------------------------------------------------------------------------------------ kills


def test_every_file_is_compared_but_for_the_clock(tmp_path):
    row = {"step": 1, "steps_per_s": 5.0, "loss": 0.5}
    for name, rate in (("a", 5.0), ("b", 6.0)):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
        (tmp_path / name / "metrics.jsonl").write_text(json.dumps(row | {"steps_per_s": rate}) + "\n")
        (tmp_path / name / "checkpoints" / "x.json").write_text("{}")
    assert kills.differences(tmp_path / "a", tmp_path / "b") == []
    (tmp_path / "b" / ".config.json.7.tmp").touch()
    (tmp_path / "b" / "checkpoints" / "x.json").write_text("{ }")
    (tmp_path / "b" / "metrics.jsonl").write_text(json.dumps(row | {"loss": 0.25}) + "\n")
    assert kills.differences(tmp_path / "a", tmp_path / "b") == [
        ".config.json.7.tmp",
        "checkpoints/x.json",
        "metrics.jsonl",
    ]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--kills", "-1"], "must be at least 0"),
        (["--kills", "1", "--methods", "smirll"], "did you mean 'smirl'"),
        (["--kills", "1", "--envs", "CartPole-v1"], "the drill has no world 'CartPole-v1'"),
        (["--workers", "0"], "--workers must be at least 1"),
    ],
)
def test_mistakes_are_sentences(capsys, words, sentence):
    with pytest.raises(SystemExit) as left:
        cli.main(["bench", "drill", *words])
    assert left.value.code == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.long
def test_a_killed_run_is_the_run_left_alone(capsys):
    cli.main(["bench", "drill", "--kills", "2", "--fuzz", "3", "--methods", "random", "--envs", "rooms/four", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert {name: result[name] for name in ("kills", "differences", "fuzzed", "tracebacks")} == {
        "kills": 2,
        "differences": 0,
        "fuzzed": 3,
        "tracebacks": 0,
    }
