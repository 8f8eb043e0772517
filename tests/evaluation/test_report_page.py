"""What a report says, from rows on disk: notes, medians, final measures."""

import json
import math
import pathlib

import numpy as np
import pytest

from advsurprise.config import RunConfig
from advsurprise.errors import UserError
from advsurprise.evaluation import comparison, report
from advsurprise.evaluation.comparison import Comparison
from advsurprise.evaluation.curves import moving_average, table_of
from advsurprise.evaluation.statistics import estimate
from advsurprise.training.folder import CONFIG, METRICS, write_config

SEEDS, UPDATES = (2, 5, 8), 40
BASE = RunConfig(env="rooms/four", steps=UPDATES * 16, seeds=SEEDS, bodies=1, rollout=16)


def values(name: str, seed: int, update: int) -> float:
    """Rooms of a method's seed: Adversarial Surprise is far ahead, and of its seeds 8 is in the middle."""
    level = {"adversarial-surprise": 3.0, "smirl": 1.0, "task": 1.02}[name]
    return level + {2: 0.2, 5: -0.3, 8: 0.05}[seed] + 0.1 * math.sin(update)


def write_rows(folder: pathlib.Path, cfg: RunConfig, updates: int) -> None:
    """A run that has been trained for some updates, without its checkpoint."""
    write_config(folder / CONFIG, {"config": cfg.as_dict()}, fresh=True)
    rows = [
        {"step": 16 * update, "seed": seed, "episodes": 1, "end/rooms_episode": values(cfg.method, seed, update)}
        for update in range(1, updates + 1)
        for seed in cfg.seeds
    ]
    own = {"adversarial-surprise": 9.0, "smirl": 2.0}
    rows = [row | ({"scored_surprise": own[cfg.method]} if cfg.method in own else {}) for row in rows]
    (folder / METRICS).write_text("".join(json.dumps(row) + "\n" for row in rows))


def make(folder: pathlib.Path, *, task_updates: int = UPDATES) -> pathlib.Path:
    asked = Comparison(BASE, {"adversarial-surprise": {}, "smirl": {}, "task": {}, "random": {}})
    write_config(folder / comparison.FILE, asked.as_dict(), fresh=True)
    for name, cfg in asked.configs.items():
        updates = {"task": task_updates, "random": 0}.get(name, UPDATES)
        write_rows(folder / name, cfg, updates)
    return folder


def test_final_measures_are_the_estimates_over_seeds(tmp_path):
    compared = report.read(make(tmp_path), None)
    assert (compared.columns, compared.window) == (["end/rooms_episode"], 2)
    table = report.measures(compared, table_of(compared.records))
    assert table["runs"] == ["adversarial-surprise", "smirl", "task"]
    rooms, scored = table["rows"]
    for name, cell in zip(table["runs"], rooms["cells"], strict=True):
        each = np.asarray([[values(name, seed, update) for update in range(1, UPDATES + 1)] for seed in SEEDS])
        expected = estimate(moving_average(each, 2)[:, -1], over="training seeds")
        assert cell["mean"] == pytest.approx(expected["mean"])
        assert cell["half"] == pytest.approx(expected["high"] - expected["mean"])
        assert (cell["n"], cell["best"]) == (3, name == "adversarial-surprise")
    assert rooms["label"] == "rooms visited per episode"
    # 9 and 2 are surprises under two different models.
    assert [cell and (cell["mean"], cell["best"]) for cell in scored["cells"]] == [(9.0, False), (2.0, False), None]


def test_what_is_missing_is_said(tmp_path):
    compared = report.read(make(tmp_path, task_updates=10), None)
    assert compared.notes[-1].startswith("3 seeds: intervals are unreliable (")
    assert [note for note in compared.notes if note.startswith("task ")] == [
        "task has been trained for 160 of 640 steps.",
        "task has no checkpoint, so there is no replay.",
    ]
    assert any(note.startswith("random is left out: ") and "no metrics yet" in note for note in compared.notes)
    # Nobody is ahead of a method that had a quarter of the time.
    table = report.measures(compared, table_of(compared.records))
    assert not any(cell["best"] for row in table["rows"] for cell in row["cells"] if cell)
    assert report.median_seeds(compared) == {}
    with pytest.raises(UserError, match="has no metrics yet; continue with: advsurprise resume"):
        report.read(tmp_path / "random", None)


def test_the_median_seed():
    assert report.median_seed((2, 5, 8), np.asarray([0.2, -0.3, 0.05])) == 8
    assert report.median_seed((2, 5, 8, 9), np.asarray([3.0, 1.0, 2.0, 4.0])) == 8
    assert report.median_seed((2, 5, 8), np.asarray([np.nan, 4.0, 1.0])) == 8
    assert report.median_seed((7,), np.asarray([0.0])) == 7


def test_the_highest_is_the_one_above_all_intervals():
    def cell(low, mean, high):
        return {"mean": mean, "low": low, "high": high, "n": 3, "over": "training seeds"}

    assert report.highest([cell(1, 2, 3), cell(3.1, 4, 5), None]) == 1
    assert report.highest([cell(1, 2, 3), cell(2.9, 4, 5), cell(0, 0, 0)]) is None
    assert report.highest([None, cell(3.1, 4, 5)]) is None
    assert report.highest([cell(1, 2, 3), cell(math.nan, 9, math.nan)]) is None


@pytest.mark.parametrize(
    ("mean", "half", "text"),
    [
        (2.3146, 0.1234, "2.31 ± 0.12"),
        (12345.6, 78.9, "12,346 ± 79"),
        (-0.01234, 0.00056, "−0.01234 ± 0.00056"),
        (1.5, 0.0, "1.50 ± 0.00"),
        (0.12345, None, "0.123"),
        (0.0, None, "0.00"),
    ],
)
def test_rounding(mean, half, text):
    assert report.rounded(mean, half) == text


def test_long_curves_are_thinned_and_end_where_they_ended(tmp_path, monkeypatch):
    cfg = RunConfig(env="rooms/four", method="smirl", steps=100 * 16, seeds=(2, 5), bodies=1, rollout=16)
    write_rows(tmp_path, cfg, 100)
    whole = report.report_data(report.read(tmp_path, "rooms"), "")["panels"][0]["curves"][0]
    monkeypatch.setattr(report, "POINTS", 12)
    drawn = report.report_data(report.read(tmp_path, "rooms"), "")["panels"][0]["curves"][0]
    assert len(drawn["steps"]) == 12
    assert (drawn["steps"][0], drawn["steps"][-1]) == (16, 100 * 16)
    places = [whole["steps"].index(step) for step in drawn["steps"]]
    for name in ("iqm", "low", "high"):
        assert drawn[name] == [whole[name][place] for place in places]
