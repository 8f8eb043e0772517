"""Marginals against their definitions, summed step by step."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from theory_worlds import random_block_mdp, shapes_unchecked

from advsurprise.errors import UserError
from advsurprise.theory.block_mdp import from_moves
from advsurprise.theory.occupancy import (
    chain,
    discounted_marginal,
    long_run,
    stationary_marginal,
    step_marginals,
    uniform_policy,
)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), gamma=st.floats(0, 0.95))
@shapes_unchecked()
def test_discounted_marginal_is_the_discounted_sum(seed, gamma):
    world = random_block_mdp(seed)
    policy = np.random.default_rng(seed).dirichlet(np.ones(2), 4)
    steps = step_marginals(world, np.repeat(policy[None], 600, axis=0))
    expected = (1 - gamma) * (gamma ** np.arange(601)) @ steps
    # The steps after 600 weigh γ^601 < 1e-13.
    assert discounted_marginal(world, policy, gamma=gamma) == pytest.approx(expected, abs=1e-10)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_the_long_run_is_the_average_over_time(seed):
    world = random_block_mdp(seed, states=5, sparse=True)
    matrix = chain(world, uniform_policy(world))
    # Averaging over 2^k steps by squaring: A_{2n} = (A_n + P^n A_n) / 2.
    average, power = np.eye(5), matrix
    for _ in range(40):
        average, power = (average + power @ average) / 2, power @ power
        power /= power.sum(axis=1, keepdims=True)
    assert long_run(matrix) == pytest.approx(average, abs=1e-6)
    assert stationary_marginal(world, uniform_policy(world)) == pytest.approx(world.start @ average, abs=1e-6)


def test_a_periodic_chain_has_an_average_but_no_limit():
    world = from_moves({"a": ["b"], "b": ["a"]}, {"a": 0, "b": 0})
    assert stationary_marginal(world, uniform_policy(world)) == pytest.approx([0.5, 0.5])
    assert step_marginals(world, np.ones((3, 2, 1)))[-1] == pytest.approx([0, 1])


def test_a_start_is_split_between_the_rooms_it_ends_in():
    # From the door a coin decides between two rooms that cannot be left: 3/4 and 1/4.
    world = from_moves(
        {"door": ["left", "left", "left", "right"], "left": ["left"], "right": ["right"]}, _dark("door left right")
    )
    assert stationary_marginal(world, uniform_policy(world)) == pytest.approx([0, 0.75, 0.25])


def _dark(names):
    return dict.fromkeys(names.split(), 0.0)


def test_gamma_must_be_below_one():
    world = random_block_mdp(0)
    with pytest.raises(UserError, match="gamma must be at least 0 and less than 1"):
        discounted_marginal(world, uniform_policy(world), gamma=1.0)
