"""Published claims are those that the published rows give; tuned settings are those that the sweep's rows give."""

import json
import pathlib

import numpy as np
import pytest

from advsurprise.errors import UserError
from advsurprise.experiments import publish, reproduce, settings, tuning
from advsurprise.experiments.figure import SEEDS, Results

ROOT = pathlib.Path(__file__).parents[2]
RESULTS = ROOT / "results"


@pytest.fixture(scope="module")
def claims():
    return publish.all_claims(RESULTS)


def test_the_list_of_claims_follows_from_the_rows(claims):
    assert json.loads((RESULTS / "claims.json").read_text()) == claims
    wanted = {"claim", "paper", "ours", "low", "high", "seeds", "verdict"}
    assert all(wanted <= set(claim) for claim in claims)
    for name in publish.published(RESULTS):
        mine = [claim for claim in claims if claim["figure"] == name]
        assert json.loads((RESULTS / name / "claims.json").read_text()) == mine


@pytest.mark.parametrize("name", ["coverage", "control", "emergence", "horizon", "two-models", "whole-turn"])
def test_published_rows_are_whole(name):
    about = json.loads((RESULTS / name / "about.json").read_text())
    results, seeds = Results.read(RESULTS / name), set(range(about["training_seeds"]))
    for world, arm in reproduce.find(name).runs:
        end = reproduce.find(name).arms[arm].trained_for(about["steps"])
        for rows in (results.rows, results.frozen):
            assert {row["seed"] for row in rows if (row["world"], row["arm"]) == (world, arm)} == seeds
        steps, values = results.curve(world, arm, reproduce.find(name).drawn[0])
        assert end - 100_000 < steps[-1] <= end
        assert np.isfinite(values).all()


def test_another_verdict_is_noticed(tmp_path, claims):
    folder = tmp_path / "control"
    folder.mkdir()
    for name in ("about.json", "rows.csv"):
        (folder / name).write_bytes((RESULTS / "control" / name).read_bytes())
    rows = (RESULTS / "control" / "frozen.csv").read_text()
    for old, new in (("as", "other"), ("as-round", "as"), ("other", "as-round")):
        rows = rows.replace(f"rooms/switch,{old},", f"rooms/switch,{new},")
    (folder / "frozen.csv").write_text(rows)
    swapped = [claim["verdict"] for claim in publish.all_claims(tmp_path)]
    assert swapped != [claim["verdict"] for claim in claims if claim["figure"] == "control"]


def _run(row):
    return row["arm"], row["seed"]


def _part(arms, steps=1000, worth=1.0, seeds=(0, 1)):
    runs = [{"world": "doom/take-cover", "arm": arm, "seeds": len(seeds), "steps": steps} for arm in arms]
    about = {"figure": "doom-zero-shot", "steps": steps, "training_seeds": len(seeds), "runs": runs, "arms": list(arms)}
    about |= {"worlds": ["doom/take-cover"], "tuned": {arm: {} for arm in arms}}
    about |= {"command": f"for {arms}", "versions": {}, "date": "today"}
    rows = [run | {"seed": seed, "step": steps, "game/score": worth} for run in runs for seed in seeds]
    return Results(tuple(rows), tuple(row | {"player": "sampled"} for row in rows)), about


def test_runs_of_a_figure_can_be_published_at_several_times():
    first, second, third = _part(["as", "smirl"]), _part(["rnd"]), _part(["as"], worth=2.0)
    both, about = publish.added(*second, *first)
    assert list(map(_run, both.rows)) == [(a, s) for a in ("as", "rnd", "smirl") for s in (0, 1)]
    assert about["arms"] == ["as", "smirl", "rnd"]
    assert [part["command"] for part in about["before"]] == ["for ['as', 'smirl']"]
    # A run that is made again takes the place of the one before.
    again, about = publish.added(*third, both, about)
    assert {row["arm"]: row["game/score"] for row in again.frozen} == {"smirl": 1.0, "rnd": 1.0, "as": 2.0}
    assert len(about["before"]) == 2
    assert list(map(_run, again.rows)) == list(map(_run, both.rows)), "no row changes its place"
    assert "before" not in publish.added(*first, *third)[1]


def test_seeds_can_be_added_to_a_published_run():
    first, more = _part(["as", "rnd"]), _part(["as"], worth=2.0, seeds=(2, 3, 4))
    whole, about = publish.added(*more, *first)
    assert [row["game/score"] for row in whole.frozen if row["arm"] == "as"] == [1.0, 1.0, 2.0, 2.0, 2.0]
    assert {run["arm"]: run["seeds"] for run in about["runs"]} == {"as": 5, "rnd": 2}
    assert about["training_seeds"] == 2, "that every arm has"
    # A seed that is published already is replaced, and no other.
    whole, about = publish.added(*_part(["as"], worth=3.0, seeds=(4, 5)), whole, about)
    assert [row["game/score"] for row in whole.frozen if row["arm"] == "as"] == [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]
    assert {run["arm"]: run["seeds"] for run in about["runs"]} == {"as": 6, "rnd": 2}


def test_runs_of_other_lengths_are_not_put_together():
    with pytest.raises(UserError, match="have 1,000 steps, these 2,000"):
        publish.added(*_part(["rnd"], steps=2000), *_part(["as"]))


def test_tuned_settings_are_what_the_sweep_chose():
    found = json.loads((ROOT / "docs" / "results" / "tuning.json").read_text())
    assert settings.tuned() == tuning.chosen(found)
    assert found["seeds"] == list(tuning.SEEDS)
    assert not set(tuning.SEEDS) & set(range(SEEDS["full"]))


def test_a_setting_is_worth_what_both_its_roles_are_paid():
    # Explore of setting 1 wins 3 everywhere, that of setting 0 wins 1; Control of setting 1 loses one less.
    won = np.asarray([[1.0, 0.0], [3.0, 2.0]])[..., None]
    worth = tuning.over_opponents(np.stack([won, -won]))
    np.testing.assert_allclose(worth[:, 0], [(0.5 - 2.0) / 2, (2.5 - 1.0) / 2])


def test_pay_of_the_two_games():
    # The third game ended before Control's first scored step.
    assert tuning.surprise_paid({"scored_surprise": np.asarray([2.0, 4.0, np.nan])}) == (2.0, -2.0)
    # Bob needs four steps more than Alice, then fewer; in the third game she set no task.
    games = {"time_alice": np.asarray([2.0, 5.0, np.nan]), "time_bob": np.asarray([6.0, 3.0, np.nan])}
    assert tuning.steps_paid(games) == pytest.approx((4 / 3, -3.0))
