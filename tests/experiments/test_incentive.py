"""Scripted players: what they do, what they are paid, and the claims made of it."""

import collections
import itertools
import json
import math
import pathlib

import numpy as np
import pytest

from advsurprise.cli import main as cli
from advsurprise.envs import rooms
from advsurprise.experiments import incentive, listing, reproduce
from advsurprise.experiments.figure import Claim, Figure, Results, Untrained
from advsurprise.experiments.incentive import Setting
from advsurprise.experiments.scripted import BEHAVIOURS, body_keys, play
from advsurprise.methods.adversarial_surprise import AdversarialSurprise

RESULTS = pathlib.Path(__file__).parents[2] / "results" / "incentive"
SMALL = {"grid": 14, "min_side": 5, "max_side": 6}
NOISY = SMALL | {"rooms": 2, "kinds": ("noisy", "noisy"), "fixed_boxes": True, "max_steps": 64}
TURN, SEEDS, LAYOUTS = 16, 2, 2


def _methods(world):
    scopes = ("episode", "round")
    return tuple(AdversarialSurprise(world.spec, scope=scope, k_explore=TURN, k_control=TURN) for scope in scopes)


@pytest.fixture(scope="module")
def played():
    """What every Control does and is paid behind a walking Explore in two noisy rooms."""
    world = rooms.make("rooms/four", **NOISY)
    keys = body_keys(range(SEEDS), LAYOUTS)
    return {name: play(world, _methods(world), "walks", each, keys) for name, each in BEHAVIOURS.items()}


def _pay(seen, scope, classes):
    """Control's pay in one episode, step by step, from what was seen: Algorithm 1 with a list as its buffer."""
    buffer, paid = [], []
    for time, o in enumerate(seen):
        step = time % (2 * TURN) - TURN
        if step < 0 and scope == "round":
            buffer = []
        if step < TURN // 2:
            paid.append(0.0)
            continue
        shares = [np.mean([x == o for x in buffer], axis=0) if buffer else np.full(o.shape, 1 / classes)]
        paid.append(float(np.log(np.maximum(shares[0], 1e-3)).sum()))
        buffer.append(o)
    return paid


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["episode", "round"])
def test_pay_is_algorithm_1(played, scope):
    classes = len(rooms.make("rooms/four", **NOISY).classes)
    for name in ("nothing", "still", "repeat"):
        steps = played[name]
        for body in range(SEEDS * LAYOUTS):
            expected = _pay(steps.obs[:, body], scope, classes)
            np.testing.assert_allclose(steps.log_prob[scope][:, body], expected, rtol=1e-4, atol=1e-4)
    # Without what an empty model pays, nothing of an episode of one still view is left.
    rounds = 2 if scope == "round" else 1
    assert (played["nothing"].empty[scope].sum(axis=0) == rounds).all()
    prior = played["nothing"].log_prob[scope][played["nothing"].empty[scope]]
    np.testing.assert_allclose(prior, -49 * math.log(classes), rtol=1e-5)


@pytest.mark.slow
def test_controls_that_still_do_still(played):
    stilled = {name: steps.info["stilled"] for name, steps in played.items()}
    for name in ("still", "still-away", "still-repeat", "still-random"):
        # One of the two noisy rooms in the first half of Control's first turn, before steps are scored.
        assert (stilled[name][TURN - 1] == 0).all()
        assert (stilled[name][TURN + TURN // 2] == 0.5).all(), name
        assert (stilled[name][-1] >= 0.5).all(), name
    for name in ("nothing", "turn", "away", "repeat"):
        assert not stilled[name].any(), name


@pytest.mark.slow
def test_controls_stand_where_they_say(played):
    for name, steps in played.items():
        # The first of two Control turns, from its scored half on.
        pose = np.stack([steps.info[part][TURN + TURN // 2 : 2 * TURN] for part in ("x", "y", "direction")])
        assert BEHAVIOURS[name].random or (pose == pose[:, :1]).all(), name
    turned, waited = played["turn"].info, played["nothing"].info
    for part in ("x", "y"):
        np.testing.assert_array_equal(turned[part][: 2 * TURN], waited[part][: 2 * TURN])
    assert (turned["direction"][2 * TURN - 1] != waited["direction"][2 * TURN - 1]).any()


@pytest.mark.slow
def test_who_looks_away_sees_less_and_who_stilled_sees_no_change(played):
    scored = played["nothing"].scored
    mean = {name: (steps.log_prob["round"].sum(axis=0) / scored.sum(axis=0)).mean() for name, steps in played.items()}
    assert mean["nothing"] < mean["turn"] <= mean["away"] < mean["still-away"]
    assert not np.where(scored & ~played["still-away"].empty["round"], played["still-away"].log_prob["round"], 0).any()
    # The model of an episode remembers the first turn; who repeats its view is paid no less than who does not.
    kept = {name: played[name].log_prob["episode"].sum() for name in ("still-away", "still-repeat")}
    assert kept["still-repeat"] >= kept["still-away"]


@pytest.mark.slow
def test_explore_walks_from_room_to_room(played):
    # In one of the layouts the box stands in its way.
    assert played["nothing"].info["rooms_episode"][-1].mean() > 1.5


@pytest.mark.slow
def test_rows_are_means_of_what_was_played(played, monkeypatch):
    setting = Setting("rooms/four", TURN, "walks")
    monkeypatch.setattr(incentive, "SETTINGS", (setting,))
    monkeypatch.setattr(incentive, "WORLDS", {"rooms/four": NOISY})
    monkeypatch.setattr(incentive, "LAYOUTS", {"small": LAYOUTS})
    logged = []
    results = incentive.make("small", SEEDS, logged.append)
    assert len(logged) == 1
    # Nine behaviours with two scopes, but repeating a view is for the episode's.
    assert len(results.rows) == SEEDS * (2 * len(BEHAVIOURS) - 2)
    for scope in ("episode", "round"):
        steps = played["still"]
        expected = steps.log_prob[scope].sum(axis=0) / steps.scored.sum(axis=0)
        found = incentive.of(results, setting, scope, "still", "pay")
        np.testing.assert_allclose(found, expected.reshape(SEEDS, LAYOUTS).mean(axis=1), rtol=1e-4)
        less = incentive.of(results, setting, scope, "still")
        constant = 49 * math.log(12) / (8 if scope == "round" else 16)
        np.testing.assert_allclose(less - found, constant, rtol=1e-3)
        assert (incentive.of(results, setting, scope, "still", "stilled") >= 0.5).all()


@pytest.mark.long
def test_control_shuts_and_locks_itself_in():
    world = rooms.make("rooms/lock", **SMALL)
    method = AdversarialSurprise(world.spec, k_explore=32, k_control=32)
    steps = play(world, (method,), "walks", BEHAVIOURS["still"], body_keys((3,), 4))
    locked, first = steps.info["locked_in"], method.control_steps - 1
    assert locked[first].all()
    # The walking Explore has the key in hand and gets out; Control locks itself in again.
    assert not locked[first : first + 32].all()
    assert locked[-1].all()


def test_published_rows_are_whole():
    rows, about = Results.read(RESULTS).rows, json.loads((RESULTS / "about.json").read_text())
    names = ("world", "turn", "explore", "scope", "arm")
    found = collections.Counter(tuple(row[name] for name in names) for row in rows)
    repeats = {name for name, behaviour in BEHAVIOURS.items() if behaviour.pose == "repeat"}
    expected = itertools.product(incentive.SETTINGS, incentive.SCOPES, BEHAVIOURS)
    whole = {(*setting, scope, arm) for setting, scope, arm in expected if scope == "episode" or arm not in repeats}
    assert found == dict.fromkeys(whole, about["layout_seeds"])
    # The pay of an episode's 32 scored steps is 49 ln C below that without the step of an empty model.
    classes = {"rooms/door": 11, "rooms/lock": 13, "rooms/switch": 13}
    for row in (row for row in rows if row["scope"] == "episode"):
        constant = 49 * math.log(classes.get(row["world"], 12))
        assert row["pay_episode"] == pytest.approx(32 * row["pay_seen"] - constant, rel=1e-4)


def _rows(pay):
    """Rows in which each behaviour is paid the same in all settings, seed by seed."""
    rng, rows = np.random.default_rng(0), []
    for world, turn, explore in incentive.SETTINGS:
        for scope in incentive.SCOPES:
            about = {"world": world, "turn": turn, "explore": explore, "scope": scope}
            for seed in range(5):
                noise = rng.normal(0, 0.01, len(BEHAVIOURS))
                rows += [
                    about
                    | {"arm": name, "seed": seed, "pay_seen": pay(scope, name, explore) + more, "stilled": 8 / turn}
                    for name, more in zip(BEHAVIOURS, noise, strict=True)
                ]
    return Results(tuple(rows), ())


def test_verdicts_follow_the_pay():
    pays = {"nothing": -40.0, "still": -10.0, "away": -5.0, "repeat": -5.0, "still-away": -4.0, "still-repeat": -4.0}

    def pay(scope, name, explore):
        walked = -1.0 if explore == "walks" and scope == "episode" else 0.0
        return pays.get(name, -60.0) + walked

    verdicts = {claim.claim: claim.verdict for claim in incentive.judge(_rows(pay))}
    assert (
        verdicts["rooms/four, the round's buffer: looking away pays more than stilling and standing there"] == "holds"
    )
    walking = "against Control that stills and chooses the best pose, walking wins Explore"
    assert verdicts[f"rooms/four, the episode's buffer: {walking} something"] == "holds"
    assert verdicts[f"rooms/four, the round's buffer: {walking} nothing, within 0.1"] == "holds"
    stilling = "Control that stills and then stands stills more rooms of an episode in turns of 8 than of 32"
    assert verdicts[f"rooms/four: {stilling}"] == "holds"
    shut = "shutting the door pays no more than the best pose without, within 0.1"
    assert verdicts[f"rooms/door, the round's buffer, Explore walks: {shut}"] == "does not hold"


def test_a_figure_that_trains_nothing_is_made_in_one_go(tmp_path, monkeypatch, capsys):
    def make(scale, seeds, log):
        log("playing")
        return Results(tuple({"world": "rooms/four", "arm": "still", "seed": seed} for seed in range(seeds)), ())

    def judge(results):
        return [Claim("it plays", "", "rows", float(len(results.rows)), 1.0, 9.0, len(results.rows), "holds")]

    made_by = {"untrained": Untrained(make, {"small": 1, "full": 2}), "draw": lambda results: {".png": b"drawn"}}
    arms, steps, seeds = incentive.FIGURE.arms, {"small": 8192, "full": 9000}, {"small": 3, "full": 5}
    worlds = {"rooms/four": {}}
    figure = Figure("tiny", "whether it plays", "nowhere", worlds, arms, steps, (), (), judge, seeds=seeds, **made_by)
    monkeypatch.setitem(reproduce.FIGURES, "tiny", figure)
    cli.main(["reproduce", "tiny", "--out", str(tmp_path / "results" / "tiny"), "--json"])
    made = json.loads(capsys.readouterr().out)
    assert made["claims"][0]["ours"] == 3
    names = {path.name for path in (tmp_path / "results" / "tiny").iterdir()}
    assert names == {"rows.csv", "about.json", "claims.json", "tiny.png"}
    [listed] = [each for each in listing.list_figures(tmp_path / "results")["figures"] if each["name"] == "tiny"]
    assert listed["status"] == "made with 3 seeds of 8,192 steps"
    assert listed["scales"]["full"] == {"seeds": 5, "steps": 9000, "two_cores_s": 2, "gpu_s": 2}


def test_lengths_are_the_worlds():
    for world, fields in incentive.WORLDS.items():
        assert rooms.make(world.split(",")[0], **fields).max_steps == incentive.LENGTHS.get(world, 128)
