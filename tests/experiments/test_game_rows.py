"""What is kept of runs in games: means over stretches, scores of whole games."""

import csv

import pytest

from advsurprise.experiments.cells import binned
from advsurprise.experiments.games import BINS, COLUMNS, scores_of, write_rows


def test_curves_are_means_over_equal_stretches_of_each_seed(tmp_path):
    rows = [
        {"seed": seed, "step": 10 * (update + 1), "game/score": 100 * seed + update if update % 2 else float("nan")}
        for update in range(2 * BINS)
        for seed in (3, 5)
    ]
    kept = binned(rows, COLUMNS, BINS)
    assert [row["seed"] for row in kept] == [3] * BINS + [5] * BINS
    # Of each two updates the second has a score.
    assert [row["game/score"] for row in kept[:BINS]] == [300 + 2 * index + 1 for index in range(BINS)]
    assert [row["step"] for row in kept[:2]] == [20, 40]
    assert kept[0]["scored_surprise"] == ""
    write_rows(tmp_path / "rows.csv", [{"env": "doom/take-cover", "method": "rnd"} | row for row in kept])
    with (tmp_path / "rows.csv").open() as file:
        read = list(csv.DictReader(file))
    assert len(read) == 2 * BINS
    assert list(read[0]) == ["env", "method", "seed", "step", *COLUMNS]
    assert float(read[-1]["game/score"]) == kept[-1]["game/score"]


def test_every_kind_of_player_has_its_score():
    estimates = {
        name: {"game/score": {"mean": mean}} for name, mean in {"random": 1, "measures": 2, "greedy": 3}.items()
    }
    played = {"episodes": 30, "training_seeds": 3, "updates": 9, "published": {"human": 29.6}, **estimates}
    scores = scores_of({"method": "rnd"}, played)
    assert {score["player"]: score["game/score"]["mean"] for score in scores} == {
        "random": 1,
        "sampled": 2,
        "greedy": 3,
    }
    assert all(score["end/episode_length"] is None for score in scores)
    with pytest.raises(KeyError):
        scores_of({}, estimates)
