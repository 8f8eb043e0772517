"""A Gymnasium world through the command line and the library: trained, resumed and evaluated, at the smallest sizes."""

import json

import jax
import numpy as np
import pytest

import advsurprise
from advsurprise.cli import main as cli
from advsurprise.evaluation import play
from advsurprise.experiments import tuning

pytestmark = pytest.mark.slow

SETTINGS = (
    *("rollout=16", "ppo.epochs=1", "ppo.minibatch=16", "env.max_episode_steps=12"),
    *("method.k_explore=4", "method.k_control=4"),
)
UPDATE = 2 * 16
"""Steps of an update: two bodies, rollouts of 16."""


def _json(capsys, *words):
    cli.main([*words, "--json"])
    return json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of three updates that was resumed and made two updates longer."""
    folder = tmp_path_factory.mktemp("runs") / "cartpole"
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    given = ["--env", "CartPole-v1", "--method", "adversarial-surprise", "--bodies", "2", "--steps", str(3 * UPDATE)]
    cli.main(["train", *given, *settings, "--out", str(folder), "--json"])
    before = advsurprise.load(folder)
    cli.main(["resume", str(folder), "--steps", str(5 * UPDATE), "--json"])
    return folder, before


def _policy(trained):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(trained.agents[0].policies)]


def test_training_writes_a_row_per_update_and_resuming_continues(folder, capsys):
    folder, before = folder
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [UPDATE * number for number in range(1, 6)]
    # The world's own setting was used: no episode is longer than twelve steps, and some ended.
    lengths = [row["end/episode_length"] for row in rows if row["episodes"]]
    assert lengths
    assert all(np.isfinite(row[f"{role}/value_loss"]) for row in rows for role in ("explore", "control"))
    assert max(lengths) <= 12
    after = advsurprise.load(folder)
    assert (before.updates, after.updates) == (3, 5)
    assert after.config.env_fields == {"max_episode_steps": 12}
    assert any(not np.array_equal(old, new) for old, new in zip(_policy(before), _policy(after), strict=True))


def test_a_finished_run_is_left_as_it_is(folder, capsys):
    folder, _ = folder
    before = _policy(advsurprise.load(folder))
    result = _json(capsys, "resume", str(folder))
    assert result["steps"] == 5 * UPDATE
    assert all(np.array_equal(old, new) for old, new in zip(before, _policy(advsurprise.load(folder)), strict=True))


def test_evaluating_on_the_command_line_and_in_the_library(folder, capsys, monkeypatch):
    monkeypatch.setattr(play, "CHUNK", 12)
    folder, _ = folder
    result = _json(capsys, "eval", str(folder), "--episodes", "10")
    assert (result["env"], result["updates"], result["episodes"]) == ("CartPole-v1", 5, 10)
    for player in ("measures", "greedy", "random"):
        length, total = (result[player][f"end/episode_{name}"] for name in ("length", "return"))
        # CartPole pays 1 a step; upright for twelve steps, the clock ends the episode.
        assert 5 <= length["mean"] == total["mean"] <= 12
    # The same seed plays the same episodes, through the library too.
    once, again = (advsurprise.load(folder).evaluate(episodes=2, seeds=1, player="random") for _ in range(2))
    assert once["end/episode_length"] == again["end/episode_length"]
    assert 5 <= once["end/episode_length"]["mean"] <= 12


def test_settings_meet_each_other_here_too(folder):
    path, _ = folder
    lengths = []

    def pay(measures):
        lengths.append(measures["end/episode_length"])
        return float(np.mean(lengths[-1])), -1.0

    worth = tuning.round_robin(pay)([path, path], 2)
    assert len(lengths) == 4
    assert all(len(each) == 2 and np.array_equal(each, lengths[0]) for each in lengths)
    np.testing.assert_allclose(worth, np.full((2, 1), (np.mean(lengths[0]) - 1.0) / 2))
