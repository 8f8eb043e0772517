"""Where the theorem's conclusion holds and where it does not, world by world and on random ones."""

import numpy as np
import pytest

from advsurprise.theory.conic import best_hand_over
from advsurprise.theory.coverage import assumptions, certain_after, covered, satisfies, semiquasimetric, symmetric
from advsurprise.theory.game import commitment
from advsurprise.theory.readings import examine, fails, random_worlds
from advsurprise.theory.response import best_answer, cost
from advsurprise.theory.solutions import best_answers
from advsurprise.theory.zoo import (
    chain_of_rooms,
    dark_room,
    dim_hall,
    no_waiting,
    noisy_tv,
    one_way_ring,
    random_world,
    row_of_dark_rooms,
    three_halls,
)


def _case(world):
    quasi = semiquasimetric(world)
    return examine(world, world.horizon, assumptions(world, world.horizon, quasi), quasi)


@pytest.mark.parametrize("make", [noisy_tv, dark_room, chain_of_rooms])
def test_the_conclusion_holds_in_every_solution(make):
    case = _case(make())
    assert satisfies(case.verdicts)
    assert case.every == "yes"
    assert not any(fails(case).values())


@pytest.mark.parametrize(
    ("make", "uncovered"),
    [
        (row_of_dark_rooms, {"left", "right"}),
        (dim_hall, {"vault"}),
        (three_halls, {"room 1", "room 2", "room 3", "closet"}),
    ],
)
def test_the_assumptions_hold_and_a_solution_does_not_cover(make, uncovered):
    case = _case(make())
    assert satisfies(case.verdicts)
    missed = [each for each in case.always if each.verdict == "not always"]
    assert {case.world.states[each.state] for each in missed} == uncovered
    options = certain_after(case.world, case.horizon)
    for each in missed:
        # A witness is a solution: Explore gets the value of the game, Control cannot do better, the state is missed.
        free = best_answer(each.witness.hand_over, options, case.world.entropies)
        assert free.value == pytest.approx(case.solution.value, abs=1e-5)
        assert cost(case.world.entropies, each.witness.final) == pytest.approx(free.value, abs=1e-5)
        assert not covered(case.distance, each.witness.final, case.horizon)[each.state]


def test_in_three_halls_no_solution_covers_not_even_the_whole_turn():
    case = _case(three_halls())
    world, mass = case.world, case.solution.hand_over
    # The hand-over is uniform over the three rooms, and nothing else is worth handing over: their scores are lower.
    assert mass == pytest.approx([1 / 3] * 3 + [0] * 5, abs=1e-4)
    assert case.solution.scores[3:].max() < case.solution.value - 0.05
    # Control has three best answers, one for each pair it merges, and each of them leaves a room and the closet out.
    finals = best_answers(np.round(mass * 3) / 3, certain_after(world, 1), world.entropies)
    assert len(finals) == 3
    for final in finals:
        assert not covered(case.distance, final, 1).all()
        assert "closet" in world.names(np.flatnonzero(~covered(case.distance, final + mass, 1)))
    assert not case.turn_covers


@pytest.mark.parametrize("make", [no_waiting, one_way_ring])
def test_without_an_assumption_the_game_need_not_cover(make):
    case = _case(make())
    assert not satisfies(case.verdicts)
    assert not case.covers(case.solution.final)


def test_random_worlds_fail_as_stated_and_never_as_repaired():
    counts = random_worlds(seed=1, satisfying=500)
    by_name = {row["name"]: row for row in counts["readings"]}
    assert counts["satisfying"] == 500
    assert counts["tried"] > 500
    assert counts["violations"] == by_name["every_solution"]["violations"] > 0
    for name in ("proof", "control_commits_c_star", "some_answer_c_star"):
        assert by_name[name]["violations"] == 0
        assert by_name[name]["worlds"] > 450
    assert counts["largest_gap"] <= 1e-6
    assert counts["smallest_violation"]["world"]["states"] == ["s0", "s1", "s2"]


def test_the_same_seed_gives_the_same_counts():
    assert random_worlds(seed=7, satisfying=20) == random_worlds(seed=7, satisfying=20)
    assert random_worlds(seed=7, satisfying=20)["tried"] != random_worlds(seed=8, satisfying=20)["tried"]


def test_whatever_control_commits_to_explore_reaches_all_of_it():
    # The heart of the repair: against any fixed map g, Explore's best answer, as solved, is e^h / Z on all that
    # g reaches. So every state s is within T of a visited state, namely g(s), if g(s) can come back.
    rng = np.random.default_rng(0)
    checked = 0
    while checked < 100:
        world = random_world(rng)
        quasi = semiquasimetric(world)
        if not assumptions(world, world.horizon, quasi)["c_star"].holds:
            continue
        checked += 1
        options = certain_after(world, world.horizon)
        ends = [rng.choice(np.flatnonzero(row)) for row in options]
        kernel = np.eye(world.num_states)[ends]
        mass = best_hand_over([kernel], world.entropies, np.ones(world.num_states, dtype=bool)).mass
        law = np.where(kernel.any(axis=0), np.exp(world.entropies), 0.0)
        assert mass @ kernel == pytest.approx(law / law.sum(), abs=1e-5)
        assert covered(symmetric(quasi), law, world.horizon).all()


def test_the_commitment_may_be_restricted_to_dark_rooms():
    world = dim_hall()
    dark = certain_after(world, 1) & (world.entropies == 0)
    assert set(world.names(np.flatnonzero(commitment(world, 1, dark).final))) == {"den", "vault"}
    assert set(world.names(np.flatnonzero(commitment(world, 1).final))) == {"hall"}
