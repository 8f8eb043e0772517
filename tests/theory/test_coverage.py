"""Distances "for certain, at exactly step k", dark rooms, assumptions and their witnesses."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from theory_worlds import random_block_mdp, random_deterministic, shapes_unchecked

from advsurprise.theory.block_mdp import from_arrays, from_moves
from advsurprise.theory.coverage import (
    assumptions,
    certain_after,
    covered,
    dark_rooms,
    holds_from,
    satisfies,
    semiquasimetric,
    symmetric,
)
from advsurprise.theory.zoo import dark_room, far_noise, leap, no_waiting, one_way_ring, slippery, zoo


def _by_trying_all_policies(world, steps):
    """Entry [s, y]: some time-dependent policy has P(s_steps = y | s) = 1."""
    states, actions = world.num_states, world.num_actions
    certain = np.zeros((states, states), dtype=bool)
    for plan in itertools.product(itertools.product(range(actions), repeat=states), repeat=steps):
        kernel = np.eye(states)
        for choice in plan:
            kernel = kernel @ world.transition[np.arange(states), list(choice)]
        certain |= kernel > 1 - 1e-12
    return certain


@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), steps=st.integers(0, 3))
def test_certain_arrival_is_what_the_best_policy_does(seed, steps):
    world = random_block_mdp(seed, states=3, sparse=True)
    assert np.array_equal(certain_after(world, steps), _by_trying_all_policies(world, steps))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
@shapes_unchecked()
def test_distance_is_the_first_step_of_certain_arrival(seed):
    world = random_block_mdp(seed, states=4, sparse=True)
    quasi = semiquasimetric(world)
    for step in range(12):
        arrived = certain_after(world, step)
        assert (quasi[arrived] <= step).all()
        assert arrived[quasi == step].all()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_distance_is_a_semiquasimetric(seed):
    quasi = semiquasimetric(random_deterministic(seed, states=5))
    assert (np.diag(quasi) == 0).all()
    # d~(x, z) ≤ d~(x, y) + d~(y, z)
    assert (quasi[:, None, :] <= quasi[:, :, None] + quasi[None, :, :]).all()
    assert np.array_equal(symmetric(quasi), symmetric(quasi).T)


def test_arriving_together_can_take_longer_than_there_are_states():
    # A coin sends the body into a ring of 2 or a ring of 3, in which it cannot wait; the exit must be taken from both
    # rings at the same step, and their exits line up only when both have come round.
    moves = {
        "coin": [("two 1", "three 1")],
        "two 1": [("two 2",)],
        "two 2": [("two 1",), ("exit",)],
        "three 1": [("three 2",)],
        "three 2": [("three 3",)],
        "three 3": [("three 1",), ("exit",)],
        "exit": [("coin",)],
    }
    names = list(moves)
    transition = np.zeros((7, 2, 7))
    for state, choices in moves.items():
        for action in range(2):
            targets = choices[min(action, len(choices) - 1)]
            for target in targets:
                transition[names.index(state), action, names.index(target)] = 1 / len(targets)
    world = from_arrays(transition, np.eye(7), states=tuple(names))
    # Ring of 2: at its second room after 2, 4, 6, ... steps. Ring of 3: after 3, 6, ... Both at 6, then the exit.
    assert semiquasimetric(world)[0, 6] == 7
    assert not certain_after(world, 8)[0, 6]


def test_exactly_is_not_at_most():
    world = no_waiting()
    assert semiquasimetric(world)[1, 1] == 0
    assert not certain_after(world, 1)[1, 1]
    assert certain_after(world, 2)[1, 1]


def test_a_stationary_policy_cannot_wait_first():
    # From `porch` the dark room is certain at exactly step 2 only by waiting once and then going, which no policy that
    # ignores time can do; the main text allows Control stationary policies only.
    world = from_moves({"porch": ["porch", "dark"], "dark": ["porch"]}, {"porch": 1.0, "dark": 0.0})
    assert certain_after(world, 2)[0, 1]
    stationary = np.zeros((2, 2), dtype=bool)
    for choice in itertools.product(range(2), repeat=2):
        step = world.transition[[0, 1], list(choice)]
        stationary |= (step @ step) == 1
    assert not stationary[0, 1]


def test_a_coin_flip_is_not_certain():
    world = slippery()
    assert world.support[0, :, 1].any()
    assert not certain_after(world, 1)[0, 1]
    assert np.isinf(semiquasimetric(world)[0, 1])


def test_dark_rooms_are_the_quietest():
    assert dark_room().names(np.flatnonzero(dark_rooms(dark_room()))) == ["closet"]


@pytest.mark.parametrize(
    ("make", "broken", "name", "witness"),
    [
        (far_noise, "ab", "a", ("hall",)),
        (no_waiting, "b", "b", ("dark",)),
        (one_way_ring, "c", "c", ("north", "east")),
        (slippery, "ac", "c", ("noisy 1", "dark 1")),
        (leap, "", "a", ()),
    ],
)
def test_each_assumption_can_fail_and_says_where(make, broken, name, witness):
    verdicts = assumptions(make(), 1)
    assert "".join(key for key in "abc" if not verdicts[key].holds) == broken
    assert verdicts[name].witness == witness
    assert all(each in verdicts[name].reason for each in witness)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_an_assumption_holds_from_the_turn_after_the_last_that_breaks_it(seed):
    world = random_deterministic(seed, states=5, actions=3)
    quasi = semiquasimetric(world)
    longest = max(int(quasi[np.isfinite(quasi)].max()), 1)
    broken = dict.fromkeys("abc", 0)
    for horizon in range(1, longest + 1):
        verdicts = assumptions(world, horizon, quasi)
        broken |= {name: horizon for name in "abc" if not verdicts[name].holds}
    expected = {name: None if last == longest else last + 1 for name, last in broken.items()}
    assert holds_from(world, quasi) == expected


@settings(max_examples=500, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), horizon=st.integers(1, 4))
@shapes_unchecked()
def test_b_and_c_imply_a(seed, horizon):
    verdicts = assumptions(random_deterministic(seed, states=4, actions=3), horizon)
    if verdicts["b"].holds and verdicts["c"].holds:
        assert verdicts["a"].holds
        assert satisfies(verdicts)
    else:
        assert not satisfies(verdicts)


def test_the_main_text_asks_for_another_dark_room_at_distance_exactly_t():
    # With a single dark room the room itself has no dark room at distance 1: d(s, s) = 0.
    verdicts = assumptions(dark_room(), 1)
    assert satisfies(verdicts)
    assert verdicts["main_text"].witness == ("closet",)


def test_covered_uses_both_directions():
    world = one_way_ring()
    distance = symmetric(semiquasimetric(world))
    # North is one step from west, but west is two from north.
    assert covered(distance, np.array([1.0, 0.0, 0.0]), 1).tolist() == [True, False, False]
    assert covered(distance, np.array([1.0, 0.0, 0.0]), 2).all()
    assert covered(distance, np.array([1 - 1e-9, 1e-9, 0.0]), 1).tolist() == [True, True, False]
    assert covered(distance, np.array([1 - 1e-9, 1e-9, 0.0]), 1, dust=1e-6).tolist() == [True, False, False]


def test_every_world_of_the_zoo_has_a_horizon_and_its_own_name():
    worlds = zoo()
    assert len({world.name for world in worlds}) == len(worlds)
    assert all(world.horizon for world in worlds)
