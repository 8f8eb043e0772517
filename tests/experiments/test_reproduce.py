"""Figures of the paper: what each runs, claims from numbers whose verdict is known, and one made from end to end."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest

from advsurprise.cli import main as cli
from advsurprise.errors import UserError
from advsurprise.experiments import control, coverage, emergence, horizon, reproduce
from advsurprise.experiments.figure import Arm, Claim, Figure, Results, Untrained

SEEDS = 6


def _results(figure, worth):
    """Rows in which each arm's columns are what `worth(world, arm, column, share of training)` says, seed by seed."""
    rng = np.random.default_rng(0)
    rows, frozen = [], []
    for world, arm in figure.runs:
        for seed in range(SEEDS):
            noise = rng.normal(0, 0.01)
            whose = {"world": world, "arm": arm, "seed": seed}
            for step in range(1, 33):
                values = {column: worth(world, arm, column, step / 32) + noise for column in figure.columns}
                rows.append(whose | {"step": step * 1000} | values)
            frozen.append(whose | {column: worth(world, arm, column, 1.0) + noise for column in figure.columns})
    return Results(tuple(rows), tuple(frozen))


def _verdicts(claims):
    return {claim.claim: claim.verdict for claim in claims}


def test_claims_of_coverage():
    rooms = {"as": 4.0, "as-round": 2.0, "rnd": 2.0, "asp": 3.0, "asp-cell": 4.5, "smirl": 1.0}
    found = coverage.judge(_results(coverage.FIGURE, lambda world, arm, column, share: rooms[arm]))
    verdicts = _verdicts(found)
    assert verdicts["Adversarial Surprise visits all rooms over its lifetime"] == "holds"
    assert verdicts["Adversarial Surprise visits more rooms in an episode than RND"] == "holds"
    assert (
        verdicts["Adversarial Surprise visits more rooms in an episode than ASP, goal is the cell"] == "does not hold"
    )
    assert {claim.seeds for claim in found} == {SEEDS}
    [first] = [claim for claim in found if claim.claim.endswith("sooner than RND")]
    assert first.ours == pytest.approx(2.0, abs=0.05)
    assert first.low <= first.ours <= first.high
    # Rooms that are visited later are fewer over training, though as many in the end.
    late = _results(coverage.FIGURE, lambda world, arm, column, share: 4.0 if arm == "as" else 4.0 * share)
    assert _verdicts(coverage.judge(late))["Adversarial Surprise visits new rooms sooner than RND"] == "holds"


def test_further_seeds_have_a_folder_of_their_own():
    more = reproduce.make_request("coverage", scale="full", seeds=2, first_seed=10)
    assert reproduce.config_of(more, "rooms/four", "as").seeds == (10, 11)
    assert more.out == pathlib.Path("runs/reproduce/coverage-full-from-10")
    # A figure with the runs of another finds them there.
    assert reproduce.make_request("doom-coverage", scale="full", first_seed=5).runs.name == "doom-zero-shot-full-from-5"
    assert reproduce.make_request("coverage", scale="full").out.name == "coverage-full"
    with pytest.raises(UserError, match="--first-seed must be at least 0, not -1"):
        reproduce.make_request("coverage", scale="full", first_seed=-1)
    with pytest.raises(UserError, match="trains nothing: leave out --first-seed"):
        reproduce.make_request("incentive", scale="full", first_seed=1)


def test_claims_of_control():
    flips = {"as-round": 1.0, "as": 0.3, "smirl": 0.32, "asp": 0.8, "rnd": 0.1}
    verdicts = _verdicts(control.judge(_results(control.FIGURE, lambda world, arm, column, share: flips[arm])))
    assert verdicts["SMiRL flips the switch as often as Adversarial Surprise, within 0.1"] == "holds"
    assert verdicts["Adversarial Surprise flips the switch more often than ASP"] == "does not hold"
    assert verdicts["Adversarial Surprise flips the switch more often than RND"] == "holds"


def test_claims_of_emergence():
    def worth(world, arm, column, share):
        if world == "rooms/lock" and column == emergence.LOCKED:
            return 0.0
        return 0.8 * (share > (0.3 if column == emergence.DARK else 0.6))

    found = emergence.judge(_results(emergence.FIGURE, worth))
    door, lock = found[:6], found[6:]
    # The body is as often in the dark room after Explore's turn as after Control's: nobody takes it back.
    assert [claim.verdict for claim in door] == ["holds", "holds", "holds", "undecided", "holds", "holds"]
    assert [claim.verdict for claim in lock] == ["holds", "undecided", "undecided", "undecided", "holds", "holds"]
    assert door[2].ours == pytest.approx(10_000, abs=1001)
    assert np.isnan(lock[2].ours)


def test_claims_of_the_horizon():
    def worth(world, arm, column, share):
        return {"as-8": 2.5, "as-16": 2.5, "as-32": 2.2}.get(arm, 1.0)

    found = horizon.judge(_results(horizon.FIGURE, worth))
    assert found[0].ours == 1.0
    assert {claim.verdict for claim in found} == {"holds"}


def test_results_are_judged_and_drawn_as_they_were_written(tmp_path):
    figure = emergence.FIGURE
    results = _results(figure, lambda world, arm, column, share: share)
    for path, text in results.files(tmp_path).items():
        path.write_text(text)
    again = Results.read(tmp_path)
    assert figure.judge(again) == figure.judge(results)
    drawn = reproduce.drawn(figure, again)
    assert drawn[".png"].startswith(b"\x89PNG")
    assert drawn[".pdf"].startswith(b"%PDF")


def test_what_has_no_values_yet_is_not_drawn():
    rows = tuple({"world": world, "arm": arm, "seed": 0, "step": 1000} for world, arm in emergence.FIGURE.runs)
    with pytest.raises(UserError, match="nothing to draw of emergence yet"):
        reproduce.drawn(emergence.FIGURE, Results(rows, ()))


def test_a_figure_that_cannot_be_made_leaves_the_others_alone(tmp_path, monkeypatch):
    def make(name, rows):
        untrained = Untrained(lambda scale, seeds, log: Results(rows, ()), {"small": 1, "full": 1})
        return dataclasses.replace(TINY, name=name, judge=lambda results: [], untrained=untrained)

    row = {"world": "ladder/game", "arm": "task", "seed": 0, "step": 1000}
    for name, rows in {"empty": (row,), "whole": (row | {"end/total": 1.0},)}.items():
        monkeypatch.setitem(reproduce.FIGURES, name, make(name, rows))
    requests = [reproduce.make_request(name, scale="small", out=tmp_path / name) for name in ("empty", "whole")]
    empty, whole = reproduce.reproduce(requests, workers=1, log=lambda line: None)
    assert "nothing to draw of empty yet" in empty["failed"]["empty"]
    assert (whole["failed"], (tmp_path / "whole" / "whole.png").exists()) == ({}, True)


def test_the_list_says_what_each_costs_and_what_came_of_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cli.main(["reproduce", "--list", "--json"])
    figures = {each["name"]: each for each in json.loads(capsys.readouterr().out)["figures"]}
    games = {"atari-zero-shot", "doom-zero-shot", "doom-coverage"}
    ours = {"incentive", "two-models", "whole-turn"}
    assert set(figures) == {"coverage", "control", "emergence", "horizon"} | ours | games
    assert figures["coverage"]["status"] == "not made"
    assert figures["coverage"]["scales"]["full"] == {
        "seeds": 10,
        "steps": 50_000_000,
        "two_cores_s": 150_240,
        "gpu_s": 1180,
    }
    made = tmp_path / "results" / "control"
    made.mkdir(parents=True)
    (made / "about.json").write_text(json.dumps({"training_seeds": 3, "steps": 1000}))
    (made / "claims.json").write_text(
        json.dumps([{"claim": "it flips", "verdict": verdict} for verdict in ("holds", "does not hold", "holds")])
    )
    cli.main(["reproduce", "--list"])
    printed = capsys.readouterr().out
    assert "made with 3 seeds of 1,000 steps: 2 hold, 1 does not hold" in printed
    assert "emergence" in printed
    assert "10 seeds of 50,000,000 steps (its own runs 13,000,000), the runs of coverage" in printed


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "name a figure"),
        (("covrage",), "did you mean 'coverage'"),
        (("coverage", "--seeds", "0"), "--seeds must be at least 1"),
        (("coverage", "--steps", "100"), "at least one update's 8,192"),
        (("coverage", "--steps", "many"), "--steps must be a whole number"),
        (("coverage", "--workers", "0"), "--workers must be at least 1"),
        (("incentive", "--steps", "5M"), "incentive trains nothing: leave out --steps"),
        (("incentive", "--arms", "stands"), "incentive trains nothing: leave out --arms"),
        (("coverage", "--arms", "rnd", "ride"), "coverage has no arm 'ride'; it has as, as-round, rnd, asp"),
        (("coverage", "--worlds", "rooms/five"), "coverage has no world 'rooms/five'; it has rooms/four"),
        (("coverage", "control", "--arms", "as"), "--arms is for one figure, not for coverage and control"),
        (("coverage", "--env-workers", "2"), "rooms/four is a pure world without worker processes"),
    ],
)
def test_mistakes_get_one_sentence(words, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["reproduce", *words])
    assert stopped.value.code == 2
    assert sentence in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_runs_of_several_figures_wait_for_the_same_workers(tmp_path, monkeypatch, capsys):
    given = {}

    def stopped_at_once(jobs, *, workers, folder, log):
        given.update({job.name: (folder, workers) for job in jobs})
        return {"control-small/rooms-switch-as": "it broke"}, 2

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reproduce, "run_jobs", stopped_at_once)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["reproduce", "coverage", "two-models", "control", "incentive", "--workers", "3"])
    assert stopped.value.code == 130
    here = {pathlib.Path("runs/reproduce")}
    assert {folder for folder, _ in given.values()} == here
    assert {"coverage-small/rooms-four-as", "coverage-small/rooms-four-two-models"} <= set(given)
    assert len(given) == len(coverage.FIGURE.runs) + 2 + len(control.FIGURE.runs)
    printed = capsys.readouterr().out
    assert "control-small/rooms-switch-as failed: it broke" in printed
    assert printed.endswith("Run the same command again to continue.\n")
    assert not list(tmp_path.rglob("*.json"))


def _judge(results):
    ours = float(np.mean(results.of_frozen("ladder/game", "random", "end/total")))
    return [Claim("it plays", "it plays", "reward", ours, ours, ours, 1, "holds")]


TINY = Figure(
    "tiny",
    "whether it plays",
    "nowhere",
    {"ladder/game": {}},
    {"random": Arm("random", "random"), "task": Arm("task", "task", {"method.stack": 1})},
    {"small": 8192, "full": 16384},
    ("end/total", "mean/total"),
    ("end/total",),
    _judge,
)


@pytest.mark.slow
def test_figures_from_end_to_end_are_made_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(reproduce.FIGURES, "tiny", TINY)
    monkeypatch.setitem(reproduce.FIGURES, "twin", dataclasses.replace(TINY, name="twin", trained_for="tiny"))
    options = ["--seeds", "2", "--workers", "2", "--json"]
    cli.main(["reproduce", "tiny", "twin", *options])
    printed = capsys.readouterr()
    # The second figure shows the runs of the first, which are trained once.
    assert printed.err.count("ladder-game-task: done") == 1
    folder = tmp_path / "runs" / "reproduce" / "tiny-small"
    for name, result in zip(("tiny", "twin"), json.loads(printed.out)["figures"], strict=True):
        assert (result["figure"], result["failed"], result["signal"]) == (name, {}, 0)
        assert result["claims"][0]["verdict"] == "holds"
        names = {"rows.csv", "frozen.csv", "about.json", "claims.json", f"{name}.png", f"{name}.pdf"}
        assert names <= {path.name for path in folder.with_name(f"{name}-small").iterdir()}
    results = Results.read(folder)
    assert sorted((row["arm"], row["seed"]) for row in results.frozen) == [
        (arm, seed) for arm in ("random", "task") for seed in (0.0, 1.0)
    ]
    assert [dataclasses.asdict(each) | {"figure": "tiny"} for each in _judge(results)] == json.loads(
        (folder / "claims.json").read_text()
    )
    # What is finished is neither trained nor played again.
    again = reproduce.make_request("tiny", scale="small", seeds=2)
    assert reproduce.job(again, "ladder/game", "task").commands == ()
    # Another run than the one that is there is refused; a longer one goes on, stage by stage.
    with pytest.raises(UserError, match="holds another run"):
        reproduce.job(dataclasses.replace(again, seeds=3), "ladder/game", "task")
    staged = dataclasses.replace(again, figure=dataclasses.replace(TINY, players=("sampled", "greedy")), stages=4)
    longer = reproduce.job(dataclasses.replace(staged, steps=40_000), "ladder/game", "task")
    assert (longer.steps, longer.seeds) == (32_768, 2)
    assert [_told(command) for command in longer.commands] == [
        "16384",
        "sampled",
        "24576",
        "sampled",
        "32768",
        "sampled greedy --end",
    ]
    # A command for one arm makes the figure of all that are there; claims of a figure that needs all are left out.
    missing = dataclasses.replace(TINY, arms={**TINY.arms, "rnd": Arm("RND", "rnd")})
    monkeypatch.setitem(reproduce.FIGURES, "tiny", missing)
    cli.main(["reproduce", "tiny", *options, "--arms", "task"])
    assert json.loads(capsys.readouterr().out)["claims"] == []
    about = json.loads((folder / "about.json").read_text())
    assert about["arms"] == ["random", "task"]
    assert about["runs"][1] == {"world": "ladder/game", "arm": "task", "seeds": 2, "steps": 8192}
    assert about["command"].endswith("--seeds 2 --steps 8192 --arms task")


def _told(command):
    """Steps of a command that trains, players of one that plays."""
    if "--steps" in command:
        return command[command.index("--steps") + 1]
    return " ".join(command[command.index("--players") + 1 :])
