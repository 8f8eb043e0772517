"""Curves against hand-made rows and independent statistics; the figure, its numbers on disk, and what is refused."""

import csv
import json
import math
import pathlib

import numpy as np
import pytest

from advsurprise.cli import main as cli
from advsurprise.config import RunConfig
from advsurprise.evaluation import curves, plot

STEP = 64


def make_run(folder: pathlib.Path, method: str, seeds: int, updates: int = 12, *, names=("end/rooms_episode",), seed=0):
    """A run folder with made-up rows; returns their values, [metric, seed, update]."""
    values = np.random.default_rng(seed).normal(3.0, 1.0, (len(names), seeds, updates))
    folder.mkdir(parents=True)
    cfg = RunConfig(method=method, seeds=tuple(range(seeds)))
    (folder / "config.json").write_text(json.dumps({"config": cfg.as_dict()}))
    rows = [
        {"step": STEP * (update + 1), "update": update + 1, "seed": number, "episodes": 4.0}
        | {name: values[index, number, update] for index, name in enumerate(names)}
        for update in range(updates)
        for number in range(seeds)
    ]
    write_rows(folder, rows)
    return values


def write_rows(folder: pathlib.Path, rows: list[dict]) -> None:
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def read_csv(path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def hand_iqm(values) -> float:
    """Mean of what is left when a quarter of the sorted values, rounded down, is taken off each end."""
    ordered = sorted(values)
    cut = math.floor(len(ordered) / 4)
    kept = ordered[cut : len(ordered) - cut]
    return sum(kept) / len(kept)


# ------------------------------------------------------------------------------------------------ statistics


@pytest.mark.parametrize("seeds", [1, 2, 3, 4, 5, 7, 8, 30])
def test_interquartile_mean_is_the_one_by_hand(seeds):
    values = np.random.default_rng(seeds).normal(size=(3, seeds))
    assert curves.iqm(values) == pytest.approx([hand_iqm(row) for row in values])


def test_the_interval_is_that_of_a_plain_loop_over_the_same_draws():
    values = np.random.default_rng(1).exponential(size=(2, 9))
    strata = (0, 0, 0, 0, 1, 1, 1, 1, 1)
    low, high = curves.bootstrap(values, strata=strata, resamples=300, level=0.9, seed=5)
    picks = curves.draws(np.asarray(strata), 300, 5)
    for step in range(2):
        samples = sorted(hand_iqm([values[step, place] for place in pick]) for pick in picks)
        # Linear interpolation between order statistics, at 5% and 95% of the way through 300 of them.
        for end, share in ((low, 0.05), (high, 0.95)):
            below = math.floor(share * 299)
            part = share * 299 - below
            assert end[step] == pytest.approx((1 - part) * samples[below] + part * samples[below + 1])


def test_draws_stay_in_their_stratum_and_are_uniform_there():
    picks = curves.draws(np.asarray([7, 2, 7, 2, 2]), 4000, 0)
    for place, members in enumerate([(0, 2), (1, 3, 4), (0, 2), (1, 3, 4), (1, 3, 4)]):
        found, counts = np.unique(picks[:, place], return_counts=True)
        assert tuple(found) == members
        # Five standard deviations of a binomial count.
        assert np.all(np.abs(counts - 4000 / len(members)) < 5 * math.sqrt(4000 / len(members)))
    # Places of one stratum are filled independently of each other.
    assert abs(np.corrcoef(picks[:, 0], picks[:, 2])[0, 1]) < 5 / math.sqrt(4000)


def test_the_interval_has_the_width_that_theory_gives_for_normal_values():
    """The asymptotic variance of a trimmed mean is Winsorised variance / ((1 − 2·trim)² S)."""
    seeds, steps = 200, 20
    values = np.random.default_rng(3).normal(size=(steps, seeds))
    low, high = curves.bootstrap(values)
    quartile = 0.6744897501960817
    density = math.exp(-(quartile**2) / 2) / math.sqrt(2 * math.pi)
    winsorised = 0.5 - 2 * quartile * density + 2 * 0.25 * quartile**2
    half = 1.959964 * math.sqrt(winsorised / (0.5**2 * seeds))
    assert np.mean(high - low) / 2 == pytest.approx(half, rel=0.05)
    assert np.mean((low < 0) & (high > 0)) >= 0.8


def test_intervals_move_with_the_values_and_collapse_where_there_is_nothing_to_resample():
    values = np.random.default_rng(4).normal(size=(3, 6))
    low, high = curves.bootstrap(values)
    moved_low, moved_high = curves.bootstrap(10 - 2 * values)
    assert moved_low == pytest.approx(10 - 2 * high)
    assert moved_high == pytest.approx(10 - 2 * low)
    single = np.asarray([[1.5], [2.5]])
    assert [list(end) for end in curves.bootstrap(single)] == [[1.5, 2.5], [1.5, 2.5]]


def test_moving_averages_are_those_of_a_plain_loop_and_pass_over_gaps():
    values = np.random.default_rng(5).normal(size=(2, 9))
    values[0, 2] = values[1, 0] = np.nan
    for window in (1, 3, 20):
        found = curves.moving_average(values, window)
        for seed in range(2):
            for step in range(9):
                last = [v for v in values[seed, max(0, step + 1 - window) : step + 1] if not math.isnan(v)]
                expected = sum(last) / len(last) if last else math.nan
                assert found[seed, step] == pytest.approx(expected, nan_ok=True)


# ------------------------------------------------------------------------------------------- figure and files


def test_what_is_drawn_is_what_is_written(tmp_path, capsys):
    names = ("end/rooms_episode", "common_surprise")
    first = make_run(tmp_path / "a", "adversarial-surprise", 6, names=names)
    second = make_run(tmp_path / "b", "task", 5, names=names, seed=1)
    out = tmp_path / "figures" / "both"
    words = ["plot", str(tmp_path / "a"), str(tmp_path / "b"), "--metric", "rooms,common_surprise", "--out", str(out)]
    cli.main([*words, "--smooth", "3", "--json"])
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert captured.err == ""
    assert {path.name for path in out.parent.iterdir()} == {"both.png", "both.pdf", "both.csv", "both_seeds.csv"}
    assert result["files"] == [f"{out}{ending}" for ending in (".png", ".pdf", ".csv", "_seeds.csv")]
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert out.with_suffix(".pdf").read_bytes().startswith(b"%PDF-")
    rows = read_csv(f"{out}.csv")
    assert list(rows[0]) == ["metric", "method", "step", "iqm", "low", "high", "n_seeds"]
    assert len(rows) == 2 * 2 * 12
    for row in rows:
        values = (first if row["method"] == "adversarial-surprise" else second)[names.index(row["metric"])]
        update = int(row["step"]) // STEP
        averages = values[:, max(0, update - 3) : update].mean(axis=1)
        assert float(row["iqm"]) == pytest.approx(hand_iqm(averages))
        assert averages.min() <= float(row["low"]) <= float(row["iqm"]) <= float(row["high"]) <= averages.max()
        assert int(row["n_seeds"]) == len(values)
    end = result["end"]["task"]["common_surprise"]
    assert {name: str(value) for name, value in end.items()}.items() <= rows[-1].items()
    thin = read_csv(f"{out}_seeds.csv")
    assert len(thin) == 2 * (6 + 5) * 12
    assert float(thin[0]["value"]) == pytest.approx(first[0, 0, 0])


def test_the_figure_shows_the_numbers_of_the_table(tmp_path):
    make_run(tmp_path / "a", "rnd", 5)
    make_run(tmp_path / "b", "a-method-of-yours", 5, seed=1)
    records = [curves.read_record(tmp_path / name) for name in "ab"]
    panels = curves.panels_of(records, ["end/rooms_episode"], window=2, log=print)
    (axis,) = plot.figure(panels, "caption", curves.table_of(records)).axes
    assert axis.get_ylabel() == "rooms visited per episode"
    bold = [line for line in axis.lines if line.get_linewidth() == 2]
    thin = [line for line in axis.lines if line.get_linewidth() < 1]
    assert (len(bold), len(thin), len(axis.collections)) == (2, 10, 2)
    for line, shade, drawn in zip(bold, axis.collections, panels["end/rooms_episode"], strict=True):
        np.testing.assert_array_equal(line.get_xydata(), np.stack([drawn.steps, drawn.iqm], axis=1))
        vertices = {tuple(point) for point in shade.get_paths()[0].vertices}
        assert {*zip(drawn.steps, drawn.low, strict=True), *zip(drawn.steps, drawn.high, strict=True)} <= vertices
        assert line.get_color() == plot.colour(drawn.method)


def test_colours_belong_to_methods_and_styles_tell_apart_what_shares_one(tmp_path):
    assert len(set(plot.COLOURS.values())) == len(plot.COLOURS)
    for name in ("one", "two"):
        make_run(tmp_path / name, "smirl", 1)
    records = [curves.read_record(tmp_path / name) for name in ("one", "two")]
    (drawn,) = curves.panels_of(records, ["end/rooms_episode"], window=1, log=print).values()
    assert plot.looks(drawn) == {"one": (plot.COLOURS["smirl"], "-"), "two": (plot.COLOURS["smirl"], "--")}


@pytest.mark.parametrize(("others", "colours"), [((), 3), (("rnd",), 1)])
def test_three_runs_of_the_only_method_have_colours_of_their_own(tmp_path, others, colours):
    names = dict.fromkeys("abc", "smirl") | dict(zip("d", others, strict=False))
    for name, method in names.items():
        make_run(tmp_path / name, method, 1)
    records = [curves.read_record(tmp_path / name) for name in names]
    (drawn,) = curves.panels_of(records, ["end/rooms_episode"], window=1, log=print).values()
    looks = plot.looks(drawn)
    assert len({looks[name][0] for name in "abc"}) == colours
    assert len(set(looks.values())) == len(names)


def test_the_same_curves_give_the_same_files(tmp_path):
    make_run(tmp_path / "a", "task", 2)
    drawn = [plot.draw([tmp_path / "a"], out=tmp_path / name)["files"] for name in ("one.png", "two")]
    for one, two in zip(*drawn, strict=True):
        assert pathlib.Path(one).read_bytes() == pathlib.Path(two).read_bytes()
    assert pathlib.Path(drawn[0][0]).name == "one.png"


def test_labels_are_methods_and_folders_where_those_clash(tmp_path):
    for place, method in (("x/run", "task"), ("y/run", "task"), ("z", "rnd")):
        make_run(tmp_path / place, method, 1, 2)
    records = {place: curves.read_record(tmp_path / place) for place in ("x/run", "y/run", "z")}
    assert curves.run_names([records["x/run"], records["z"]]) == ["task", "rnd"]
    assert curves.run_names(list(records.values())) == ["x/run", "y/run", "rnd"]


def test_few_seeds_and_missing_metrics_are_warned_of(tmp_path, capsys):
    make_run(tmp_path / "new", "task", 2, names=("end/rooms_episode", "common_surprise"))
    make_run(tmp_path / "old", "rnd", 1)
    folders = [str(tmp_path / "new"), str(tmp_path / "old")]
    cli.main(["plot", *folders, "--out", str(tmp_path / "f")])
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [
        "no common_surprise in the metrics, not plotted: rnd",
        "1 seed: intervals are unreliable (rnd)",
        "2 seeds: intervals are unreliable (task)",
    ]
    assert "the last update" in captured.out
    assert "end/rooms_episode: rooms visited per episode" in captured.out
    assert captured.out.splitlines()[5].split()[-1] == "–"
    assert {(row["metric"], row["method"]) for row in read_csv(tmp_path / "f.csv")} == {
        ("end/rooms_episode", "task"),
        ("end/rooms_episode", "rnd"),
        ("common_surprise", "task"),
    }
    only = [row for row in read_csv(tmp_path / "f.csv") if row["method"] == "rnd"]
    assert all(row["iqm"] == row["low"] == row["high"] for row in only)


def test_gaps_in_the_rows_count_as_gaps(tmp_path):
    folder = tmp_path / "a"
    make_run(folder, "task", 3, 4)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows[0]["end/rooms_episode"] = "nan"
    rows[4]["episodes"] = 0.0
    del rows[6]["end/rooms_episode"], rows[7]["end/rooms_episode"], rows[8]["end/rooms_episode"]
    # The last row is torn off: its update counts for no seed.
    write_rows(folder, rows[:-1])
    record = curves.read_record(folder)
    assert record.steps == (STEP, 2 * STEP, 3 * STEP)
    found = curves.curve(record, "end/rooms_episode", label="task", window=1)
    assert found.steps.tolist() == [STEP, 2 * STEP]
    assert found.n_seeds.tolist() == [2, 2]
    assert found.iqm[0] == pytest.approx(hand_iqm([row["end/rooms_episode"] for row in rows[1:3]]))
    assert found.iqm[1] == pytest.approx(hand_iqm([rows[3]["end/rooms_episode"], rows[5]["end/rooms_episode"]]))
    assert curves.curve(record, "common_surprise", label="task", window=1) is None


# --------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "name a run or a comparison"),
        (("nowhere",), "there is no run in nowhere"),
        (("good", "--metric", "romms"), "unknown metric 'romms'; did you mean 'rooms'?"),
        (("good", "--metric", "end/rooms_epsiode"), "did you mean 'end/rooms_episode'?"),
        (("good", "--metric", "rooms,surprise"), "no run has common_surprise in its metrics"),
        (
            ("other",),
            "no run has end/rooms_episode, end/stilled, common_surprise; name a column of metrics.jsonl",
        ),
        (("good", "--metric", "step"), "unknown metric 'step'"),
        (("good", "--smooth", "0"), "--smooth must be at least 1 update, not 0"),
        (("good", "good"), "a run is given twice"),
        (("good", "empty"), "empty has no metrics yet; continue it with: advsurprise resume empty"),
        (("torn",), "line 1 of torn/metrics.jsonl is not a JSON object"),
        (("rowless",), "rowless/metrics.jsonl is damaged: it has a row without a step or a seed"),
        (("wordy",), "end/rooms_episode is not a number in wordy/metrics.jsonl: 'many'"),
        (("comparison",), "comparison/comparison.json is damaged"),
    ],
)
def test_mistakes_get_one_sentence_and_nothing_is_written(tmp_path, monkeypatch, capsys, words, sentence):
    monkeypatch.chdir(tmp_path)
    for name in ("good", "empty", "torn", "rowless", "wordy"):
        make_run(pathlib.Path(name), "task", 1, 2)
    make_run(pathlib.Path("other"), "task", 1, 2, names=("agent/loss",))
    pathlib.Path("empty/metrics.jsonl").unlink()
    pathlib.Path("torn/metrics.jsonl").write_text('{"step": 64, "se\n{}\n')
    write_rows(pathlib.Path("rowless"), [{"step": 64, "end/rooms_episode": 1.0}])
    write_rows(pathlib.Path("wordy"), [{"step": 64, "seed": 0, "end/rooms_episode": "many"}])
    pathlib.Path("comparison").mkdir()
    pathlib.Path("comparison/comparison.json").write_text('{"methods": {}}')
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SystemExit) as stopped:
        cli.main(["plot", *words])
    assert stopped.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("advsurprise: ")
    assert captured.err.count("\n") == 1
    assert sentence in captured.err
    assert sorted(tmp_path.rglob("*")) == before
