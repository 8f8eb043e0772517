"""Adversarial Surprise against Algorithm 1 in plain numpy (`algorithm_1.py`): every step, every option."""

import dataclasses
import itertools
import math
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from algorithm_1 import (
    BODIES,
    CELLS,
    CLASSES,
    REAL,
    SHAPE,
    SPEC,
    STEPS,
    explore_pay,
    library,
    play,
    reference,
)
from comparing import FIELDS, bodies, compare, game_ends, part

from advsurprise.errors import UserError
from advsurprise.learning.learn import blank_tail, joined, next_tail, role_batch
from advsurprise.learning.stats import scale
from advsurprise.methods.adversarial_surprise import AdversarialSurprise
from advsurprise.types import TimeStep, Views

SCOPES, FITS = ("episode", "round", "lifetime"), ("scored", "control", "all")


def _numbered(rollout):
    """Views in which everything is the number of its step, plus 1000 times that of its body; stacks of three."""
    ended = np.asarray(rollout.terminated | rollout.truncated)
    ages = np.zeros((STEPS, BODIES), np.int32)
    for step in range(1, STEPS):
        ages[step] = np.where(ended[step - 1], 0, ages[step - 1] + 1)
    numbers = np.arange(-2, STEPS)[:, None] + 1000.0 * np.arange(BODIES)
    frames, time = jnp.asarray(numbers[..., None], jnp.float32), jnp.asarray(numbers[2:], jnp.float32)
    return Views(frames, jnp.asarray(ages), time[..., None], time, None)


@pytest.mark.parametrize("first", ["explore", "control"])
@pytest.mark.parametrize("fit_on", FITS)
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.slow
def test_every_step_of_both_roles_is_algorithm_1(scope, fit_on, first):
    # Every value of each option meets every entry of FIELDS.
    which = (SCOPES.index(scope) + FITS.index(fit_on) + 2 * (first == "control")) % 4
    compare(SPEC, scope=scope, fit_on=fit_on, first=first, **FIELDS[which])


@pytest.mark.parametrize("scope", ["episode", "round"])
def test_an_empty_models_score_can_be_left_out_of_the_pay(scope):
    compare(SPEC, scope=scope, fit_on="scored", first="explore", pay_prior=False, **FIELDS[1])


def test_real_observations_are_scored_by_a_gaussian():
    compare(REAL, scope="episode", fit_on="scored", first="explore", **FIELDS[0])


@pytest.mark.parametrize(("spec", "pay_prior"), [(SPEC, True), (REAL, True), (REAL, False)])
def test_rewards_can_be_counted_from_the_largest_log_density(spec, pay_prior):
    compare(spec, scope="episode", fit_on="scored", first="explore", offset="max", pay_prior=pay_prior, **FIELDS[1])


@pytest.mark.parametrize(
    ("scope", "first", "rounds"), [("episode", "explore", 2), ("round", "control", 1), ("lifetime", "explore", 3)]
)
def test_a_game_can_outlast_the_worlds_episodes(scope, first, rounds):
    compare(SPEC, scope=scope, fit_on="scored", first=first, rounds=rounds, **FIELDS[1])


def _scores(spec=SPEC, played=None, **fields):
    method = AdversarialSurprise(spec, **fields)
    played = played or play((28,))
    rollout, _, _ = library(method, played)
    _, scores = method.score(method.init(bodies=BODIES, key=jax.random.key(0)), rollout)
    return rollout, {role: np.asarray(score.reward[..., 0], np.float64) for role, score in scores.items()}


def test_each_round_is_zero_sum():
    # Episodes of two rounds E3 C4 … E3 C4, twice: every stretch of seven steps is a round.
    _, reward = _scores(first="explore", k_explore=3, k_control=4)
    rounds = {role: x[:56].reshape(8, 7, BODIES) for role, x in reward.items()}
    np.testing.assert_allclose(rounds["explore"].sum(1), -rounds["control"].sum(1), rtol=1e-5)
    # Explore is paid on the last step of its turn alone, Control on the last two of its four.
    assert (rounds["explore"][:, 2] > 0).all()
    assert not np.delete(rounds["explore"], 2, axis=1).any()
    assert (rounds["control"][:, 5:] <= 0).all()
    assert not rounds["control"][:, :5].any()


@pytest.mark.parametrize(("offset", "paid"), [("none", True), ("max", False)])
def test_control_is_paid_for_a_view_that_never_changes_unless_counted_from_the_largest_log_density(offset, paid):
    played = play((28,), spec=REAL)
    still = dataclasses.replace(played, led_to=np.zeros_like(played.led_to))
    _, reward = _scores(REAL, still, first="explore", k_explore=3, k_control=4, offset=offset)
    assert (reward["control"].max() > 0) == (reward["explore"].min() < 0) == paid


def test_where_control_begins_its_first_turn_is_nobodys_debt():
    _, reward = _scores(first="control", k_explore=3, k_control=4)
    episode = {role: x[:28] for role, x in reward.items()}
    following = sum(episode["control"][begin : begin + 4].sum(0) for begin in (7, 14, 21))
    np.testing.assert_allclose(episode["explore"].sum(0), -following, rtol=1e-5)
    # The last Explore turn, steps 25 to 28, is followed by no Control turn.
    assert not episode["explore"][25:].any()


def test_the_first_scored_step_of_an_episode_costs_the_uniform_prior():
    # Nothing is in the model yet: each of the entries has probability 1 / C.
    method = AdversarialSurprise(SPEC, k_explore=3, k_control=4)
    rollout, _, _ = library(method, play((14,)))
    first_scored = np.asarray(rollout.signal.log_prob).reshape(-1, BODIES)[3 + 2 :: 14]
    np.testing.assert_allclose(first_scored, CELLS * math.log(1 / CLASSES), rtol=1e-6)


@pytest.mark.parametrize("scope", ["episode", "round", "lifetime"])
def test_what_policies_see(scope):
    method = AdversarialSurprise(SPEC, k_explore=3, k_control=4, scope=scope, first="explore", stack=3)
    played = play((9, 17))
    _, _, view = library(method, played)
    for body in range(BODIES):
        _, _, _, buffers = reference(method, played, body)
        history, time = [played.first[body]] * 3, 0
        for t in range(STEPS):
            assert np.array_equal(view.frames[t, body], history[-3:])
            np.testing.assert_allclose(view.features[t, body], _shares(buffers[t]), rtol=1e-6)
            # Episodes have no fixed length here: the position in the round of seven.
            assert float(view.time[t, body]) == pytest.approx(time % 7 / 7)
            history, time = [*history, played.led_to[t, body]], time + 1
            if played.ended[t, body]:
                history, time = [played.shown[t, body]] * 3, 0


def _shares(buffer):
    """Share of each class at each cell; 1 / C where nothing was seen."""
    if not buffer:
        return np.full((*SHAPE, CLASSES), 1 / CLASSES)
    return np.mean(np.stack(buffer)[..., None] == np.arange(CLASSES), axis=0)


def test_time_is_a_share_of_the_episode_where_its_length_is_fixed():
    method = AdversarialSurprise(SPEC._replace(max_steps=20), k_explore=3, k_control=4)
    _, memory, view = library(method, play((20,)))
    np.testing.assert_allclose(view.time[:40, 0], np.tile(np.arange(20) / 20, 2), rtol=1e-6)
    assert np.array_equal(memory.time[:40, 0], np.tile(np.arange(20), 2))


def test_time_is_a_share_of_a_game_that_outlasts_episodes():
    method = AdversarialSurprise(SPEC._replace(max_steps=9), k_explore=3, k_control=4, rounds=2)
    played = play((9,))
    _, _, view = library(method, played)
    np.testing.assert_allclose(view.time[:, 0], np.arange(STEPS) % 14 / 14, rtol=1e-6)
    # What is shown is the new episode's: its first observation, three times, and nothing of the last one.
    assert np.array_equal(view.frames[9, 0], [played.shown[8, 0]] * 4)
    assert method.schedule(jnp.int32(0)) is None
    assert method.lookback(9) == 7


@pytest.mark.parametrize(
    ("world", "first", "turns"),
    [
        ("", "auto", "EEECCEEECCE"),
        ("explore", "auto", "EEECCEEECCE"),
        ("control", "auto", "CCEEECCEEEC"),
        ("explore", "control", "CCEEECCEEEC"),
        ("control", "explore", "EEECCEEECCE"),
    ],
)
def test_turns(world, first, turns):
    method = AdversarialSurprise(SPEC._replace(first_role=world), first=first, k_explore=3, k_control=2)
    assert "".join("EC"[int(method.schedule(jnp.int32(time)))] for time in range(11)) == turns


@pytest.mark.parametrize(
    ("quiet", "k_control", "scored"), [(0.5, 32, 16), (0.5, 5, 3), (0.29, 100, 71), (0.57, 100, 43)]
)
def test_how_much_of_a_turn_is_scored(quiet, k_control, scored):
    # 0.29 · 100 and 0.57 · 100 lie just below 29 and 57 in floats. Half of five: Algorithm 1 scores where
    # t − t_C > k / 2 with t − t_C = 1 … k, three steps.
    method = AdversarialSurprise(SPEC, first="control", k_explore=1, k_control=k_control, quiet=quiet)
    learnt = method.init(bodies=BODIES, key=jax.random.key(0))
    obs = jnp.zeros(SHAPE, jnp.int32)
    no = jnp.bool_(False)
    timestep = TimeStep(obs, jnp.float32(0), no, no, obs, {})
    memory = method.start(timestep)
    times = jnp.arange(k_control, dtype=jnp.int32)
    advance = jax.vmap(
        lambda time: method.advance(learnt, dataclasses.replace(memory, time=time), jnp.int32(0), timestep)[1].scored
    )
    found = np.asarray(advance(times))
    assert found.sum() == scored
    assert found[k_control - scored :].all()


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"k_explore": -1}, "k_explore and k_control must be at least 1, or 0 for the world's number"),
        ({"k_control": -3}, "k_explore and k_control must be at least 1, or 0 for the world's number"),
        ({"quiet": 1.0}, "quiet must be at least 0 and below 1, not 1.0"),
        ({"quiet": -0.1}, "quiet must be at least 0 and below 1, not -0.1"),
        ({"rounds": -1}, "rounds must be at least 1, or 0 to end the game with the episode, not -1"),
        ({"explore_lr_end_steps": -1}, "explore_lr_end_steps must be at least 0, not -1"),
        ({"stack": 0}, "stack must be at least 1, not 0"),
        ({"quiet_weight": 1.5}, "quiet_weight must be 0 to 1, not 1.5"),
        ({"gamma": 1.0}, "gamma must be at least 0 and below 1, not 1.0"),
    ],
)
def test_impossible_fields_are_refused_in_a_sentence(fields, sentence):
    with pytest.raises(UserError, match=f"^adversarial-surprise: {sentence}$"):
        AdversarialSurprise(SPEC, **fields)


def test_unknown_words_are_refused_in_a_sentence():
    # In a program of its own, where no checker of types comes first.
    wrong = [
        ("adversarial-surprise", {"first": "both"}),
        ("adversarial-surprise", {"scope": "week"}),
        ("adversarial-surprise", {"explore_scale": ""}),
        ("asp", {"mode": "repeet"}),
        ("smirl", {"death": "never"}),
    ]
    code = f"""
from advsurprise import methods
from advsurprise.types import EnvSpec
for method, fields in {wrong!r}:
    try:
        methods.method_class(method)({SPEC!r}, **fields)
    except ValueError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "adversarial-surprise: unknown first 'both'; known: auto, control, explore",
        "adversarial-surprise: unknown scope 'week'; known: episode, lifetime, round",
        "adversarial-surprise: unknown explore_scale ''; known: own, shared",
        "asp: unknown mode 'repeet'; did you mean 'repeat'?",
        "smirl: unknown death 'never'; known: end, noise",
    ]


@pytest.mark.parametrize(("first", "least"), [("explore", 6), ("control", 5)])
def test_episodes_too_short_for_the_game_are_refused(first, least):
    # E3 C4 with two quiet steps: the first scored step is the sixth. C4 E3: Explore first acts on the fifth.
    fields = {"first": first, "k_explore": 3, "k_control": 4}
    AdversarialSurprise(SPEC._replace(max_steps=least), **fields)
    with pytest.raises(UserError, match=f"episodes of {least - 1} steps end before .* which takes {least}"):
        AdversarialSurprise(SPEC._replace(max_steps=least - 1), **fields)


@pytest.mark.parametrize(
    "lengths", [(11, 5, 13), *(pytest.param(each, marks=pytest.mark.long) for each in ((7,), (40,)))]
)
@pytest.mark.parametrize(
    ("first", "rounds"),
    [("explore", 0), ("control", 0), ("explore", 2), pytest.param("control", 2, marks=pytest.mark.long)],
)
@pytest.mark.slow
def test_every_step_is_learned_from_once_and_explore_for_the_whole_control_turn(first, rounds, lengths):
    # One long stretch of play, cut into rollouts of lengths that have nothing to do with turns or episodes.
    method = AdversarialSurprise(SPEC, first=first, k_explore=3, k_control=5, quiet=0.2, rounds=rounds)
    played = play((28, 9, 17))
    _, cut = game_ends(method, played)
    rollout, _, _ = library(method, played)
    roles = np.where(np.asarray(rollout.decision.role) == 1, "control", "explore")
    log_prob = np.asarray(rollout.signal.log_prob)
    pay = {
        "explore": bodies([explore_pay(roles[:, b], log_prob[:, b], cut[:, b]) for b in range(BODIES)]),
        "control": log_prob,
    }
    rollout = dataclasses.replace(rollout, views=_numbered(rollout))
    tail = blank_tail(part(rollout, 0, method.lookback(7)), method.pending(7))
    assert len(tail.rollout.views.views.time) == method.explore_steps < method.lookback(7)
    times = {role: np.zeros((STEPS, BODIES), int) for role in method.roles}
    begin, learnt = 0, method.init(bodies=BODIES, key=jax.random.key(0))
    score = jax.jit(method.score)
    for length in itertools.cycle(lengths):
        if begin + length > STEPS:
            break
        window = joined(tail.rollout, part(rollout, begin, begin + length))
        learnt, scores = score(learnt, window)
        usable = {}
        for index, role in enumerate(method.roles):
            done = tail.learned[role]
            batch, rows, usable[role] = role_batch(window, scores[role], index, method, learned=done, lam=0.9)
            chosen = np.flatnonzero(np.asarray(rows.mask))
            seen = jax.tree.map(np.asarray, batch.view.take(jnp.asarray(chosen, jnp.int32)))
            # The views, too, are those of the step: its number, and those of the steps whose frames are stacked.
            numbers = begin - window.old + chosen // BODIES + 1000 * (chosen % BODIES)
            assert (seen.time == numbers).all()
            assert (seen.features[:, 0] == numbers).all()
            assert (seen.frames[..., 0] == numbers[:, None] - np.minimum([2, 1, 0], seen.age[:, None])).all()
            rewards = np.asarray(scores[role].reward[..., 0] / scale(learnt))
            for step, body in zip(*np.nonzero(np.asarray(rows.mask).reshape(-1, BODIES)), strict=True):
                reward = rewards[step, body]
                when = begin - window.old + step
                assert roles[when, body] == role
                assert reward == pytest.approx(pay[role][when, body], rel=1e-4, abs=1e-4)
                times[role][when, body] += 1
        tail, begin = next_tail(window, usable, method.pending(length)), begin + length
    # All but what the last rollout left open: less than a round at the end.
    settled = begin - method.round_length
    assert settled > STEPS // 2
    for role in method.roles:
        assert times[role].max() == 1
        assert (times[role][:settled] == (roles[:settled] == role)).all()


@pytest.mark.parametrize(("first", "least"), [("explore", 129), ("control", 65)])
def test_a_remark_says_that_episodes_end_before_the_first_scored_step(first, least):
    method = AdversarialSurprise(SPEC._replace(max_steps=0), first=first, k_explore=64, k_control=128)
    lasted = lambda length, steps: method.remark({"end/episode_length": length}, steps=steps)  # noqa: E731
    assert lasted(44.6, 10 * least).startswith(f"episodes last 45 steps, but the first scored step is number {least}: ")
    assert lasted(least - 1, 10 * least)
    assert not lasted(least, 10 * least)
    # Episodes that end early on are the short ones.
    assert not lasted(44.6, 10 * least - 1)
    assert not lasted(math.nan, 10 * least)
    assert not method.remark({}, steps=10 * least)
    outlasting = dataclasses.replace(method, rounds=4)
    assert not outlasting.remark({"end/episode_length": 44.6}, steps=10 * least)
