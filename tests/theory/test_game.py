"""The game against exhaustive search, its certificates, and the order of play."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from theory_worlds import random_block_mdp, random_deterministic, shapes_unchecked

import advsurprise.theory.game as game
from advsurprise.theory.block_mdp import from_arrays
from advsurprise.theory.branch import greedy_kernel, turn_answer
from advsurprise.theory.conic import best_hand_over
from advsurprise.theory.coverage import certain_after
from advsurprise.theory.entropy import entropy
from advsurprise.theory.game import commitment, solve, turn_marginals
from advsurprise.theory.response import as_price, best_answer, cost, subsets
from advsurprise.theory.zoo import chain_of_rooms, leap, one_way_ring, row_of_dark_rooms

pytestmark = pytest.mark.slow

SEEDS = st.integers(0, 10**6)


def _least(world, horizon, mass):
    """min over all maps from hand-over to final states: what `best_answer` claims to find."""
    options = certain_after(world, horizon)
    starts = np.flatnonzero(mass > 0)
    best = math.inf
    for ends in itertools.product(*(np.flatnonzero(options[s]) for s in starts)):
        final = np.bincount(ends, weights=mass[starts], minlength=world.num_states)
        best = min(best, cost(world.entropies, final))
    return best


def _random_mass(seed, states):
    rng = np.random.default_rng(seed)
    mass = rng.dirichlet(np.full(states, 0.7))
    return np.where(mass < 0.02, 0.0, mass) / np.where(mass < 0.02, 0.0, mass).sum()


@settings(max_examples=300, deadline=None, derandomize=True)
@given(seed=SEEDS, horizon=st.integers(1, 3), states=st.integers(2, 5))
@shapes_unchecked()
def test_the_exact_answer_is_the_best_of_all_maps(seed, horizon, states):
    world = random_deterministic(seed, states=states, actions=3)
    mass = _random_mass(seed, states)
    options = certain_after(world, horizon)
    answer = best_answer(mass, options, world.entropies)
    assert answer is not None
    assert answer.value == pytest.approx(_least(world, horizon, mass), abs=1e-12)
    # The policy that follows the order really ends there.
    final = mass @ greedy_kernel(world, horizon, as_price(answer.order))
    assert cost(world.entropies, final) == pytest.approx(answer.value, abs=1e-12)


def test_no_answer_where_a_handed_over_state_has_no_option():
    options = np.array([[True, False], [False, False]])
    assert best_answer(np.array([0.5, 0.5]), options, np.zeros(2)) is None
    assert best_answer(np.array([1.0, 0.0]), options, np.zeros(2)) is not None


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=SEEDS)
def test_bracketing_agrees_with_the_exact_answer(seed):
    world, mass = random_deterministic(seed, states=5, actions=3), _random_mass(seed, 5)
    point, lower = turn_answer(world, 2, mass)
    exact = _least(world, 2, mass)
    assert lower <= exact + 1e-12
    assert point.value == pytest.approx(exact, abs=1e-7)
    assert lower == pytest.approx(exact, abs=1e-7)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=SEEDS)
def test_bracketing_bounds_every_policy_of_a_world_with_coin_flips(seed):
    world, mass = random_block_mdp(seed, states=3), _random_mass(seed, 3)
    point, lower = turn_answer(world, 2, mass)
    best = math.inf
    for plan in itertools.product(itertools.product(range(2), repeat=3), repeat=2):
        final = mass
        for choice in plan:
            final = final @ world.transition[np.arange(3), list(choice)]
        best = min(best, cost(world.entropies, final))
    assert lower <= best + 1e-12
    assert point.value == pytest.approx(best, abs=1e-7)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=SEEDS, horizon=st.integers(1, 2))
def test_no_hand_over_is_worth_more_than_the_certificate_says(seed, horizon):
    world = random_deterministic(seed, states=4, actions=2)
    solution = solve(world, horizon)
    assert 0 <= solution.gap <= 1e-6
    assert cost(world.entropies, solution.final) == pytest.approx(solution.value, abs=1e-9)
    assert _least(world, horizon, solution.hand_over) == pytest.approx(solution.value, abs=1e-9)
    for number in range(10):
        mass = _random_mass(seed + number, 4)
        value = _least(world, horizon, mass)
        assert value <= solution.value + solution.gap + 1e-9
        assert value <= mass @ solution.scores + 1e-9


def test_a_corridor_of_dark_rooms_is_worth_its_logarithm():
    # Four dark rooms that Control can hold apart or not leave: log 4, at the uniform hand-over.
    solution = solve(chain_of_rooms(), 1)
    assert solution.value == pytest.approx(math.log(4), abs=1e-6)
    assert solution.final == pytest.approx([0.25, 0, 0.25, 0, 0.25, 0, 0.25], abs=1e-3)


def test_the_order_of_play_matters():
    # In the one-way ring Control merges two of three equal parts, H(2/3, 1/3), if it knows the mixture. Committing
    # first it needs two final states, which Explore then makes equally likely: log 2.
    world = one_way_ring()
    assert solve(world, 1).value == pytest.approx(entropy(np.array([2 / 3, 1 / 3])), abs=1e-6)
    assert commitment(world, 1).value == pytest.approx(math.log(2), abs=1e-9)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=SEEDS, horizon=st.integers(1, 2))
@shapes_unchecked()
def test_commitment_is_the_best_map_and_no_random_kernel_beats_it(seed, horizon):
    world = random_deterministic(seed, states=4, actions=2)
    committed, options = commitment(world, horizon), certain_after(world, horizon)
    best = math.inf
    for ends in itertools.product(*(np.flatnonzero(row) for row in options)):
        best = min(best, math.log(np.exp(world.entropies[list(set(ends))]).sum()))
    assert committed.value == pytest.approx(best, abs=1e-9)
    assert cost(world.entropies, committed.final) == pytest.approx(committed.value, abs=1e-9)
    assert solve(world, horizon).value <= committed.value + 1e-9
    # A random kernel, and Explore's best answer to it by the solver rather than by the formula.
    rng = np.random.default_rng(seed)
    kernel = np.where(options, rng.exponential(size=options.shape), 0.0)
    kernel /= kernel.sum(axis=1, keepdims=True)
    mass = best_hand_over([kernel], world.entropies, np.ones(4, dtype=bool)).mass
    assert cost(world.entropies, mass @ kernel) >= committed.value - 1e-7


def test_the_integer_program_agrees_with_looking_at_all_sets(monkeypatch):
    worlds = [random_deterministic(seed, states=6, actions=3) for seed in range(20)]
    looked = [commitment(world, 1).value for world in worlds]
    monkeypatch.setattr(game, "FEW", 0)
    assert [commitment(world, 1).value for world in worlds] == pytest.approx(looked, abs=1e-9)


def test_hand_overs_can_be_restricted():
    # With only the first room to hand over there is nothing to keep apart.
    allowed = np.arange(7) == 0
    solution = solve(chain_of_rooms(), 1, allowed=allowed)
    assert solution.value == pytest.approx(0.0, abs=1e-6)
    assert not solution.hand_over[1:].any()


def test_a_world_with_coin_flips_has_a_certified_value():
    solution = solve(leap(), 1)
    assert not solution.exact
    assert solution.value == pytest.approx(math.log(2), abs=1e-5)
    assert solution.gap < 1e-5


def test_the_turn_runs_from_the_hand_over_to_the_final_marginal():
    world = random_deterministic(5, states=5, actions=3)
    solution = solve(world, 3)
    marginals = turn_marginals(world, 3, solution)
    assert marginals.shape == (4, 5)
    assert marginals[0] == pytest.approx(solution.hand_over)
    assert marginals[-1] == pytest.approx(solution.final)
    assert marginals.sum(axis=1) == pytest.approx(1.0)


def test_many_final_states_fall_back_on_bounds(monkeypatch):
    monkeypatch.setattr(game, "MOST_TARGETS", 1)
    solution = solve(row_of_dark_rooms(), 1)
    assert solution.value == pytest.approx(0.0, abs=1e-6)
    monkeypatch.undo()
    world = from_arrays(np.eye(6)[:, None, :], np.eye(6))
    monkeypatch.setattr(game, "MOST_TARGETS", 3)
    bounded = solve(world, 1)
    assert not bounded.exact
    assert bounded.value == pytest.approx(math.log(6), abs=1e-6)


def test_subsets_are_binary():
    assert subsets(2).tolist() == [[0, 0], [1, 0], [0, 1], [1, 1]]
