"""What maximisers and minimisers of surprise can reach, against every policy and against closed forms."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from theory_worlds import random_block_mdp, random_deterministic, shapes_unchecked

from advsurprise.errors import UserError
from advsurprise.theory.block_mdp import from_arrays
from advsurprise.theory.entropy import entropy
from advsurprise.theory.examples import corridor
from advsurprise.theory.occupancy import discounted_marginal, stationary_marginal
from advsurprise.theory.optima import closed_form, maximiser, minimiser, occupancy_flow
from advsurprise.theory.zoo import chain_of_rooms, noisy_tv


def _observation_entropy(world, d):
    return float(d @ world.entropies) + entropy(d)


def _deterministic_policies(world):
    for choice in itertools.product(range(world.num_actions), repeat=world.num_states):
        yield np.eye(world.num_actions)[list(choice)]


def test_the_closed_form_is_reached_where_every_distribution_is():
    # From everywhere to everywhere: any distribution is some policy's long run.
    noise = np.array([0.0, 0.5, 2.0])
    world = from_arrays(np.tile(np.eye(3), (3, 1, 1)), np.eye(3), copies=np.exp(noise))
    best = maximiser(world)
    assert closed_form(world) == pytest.approx(np.exp(noise) / np.exp(noise).sum())
    assert best.marginal == pytest.approx(closed_form(world), abs=1e-5)
    # <d, h> + H(d) = log Σ e^h at the closed form.
    assert best.value == pytest.approx(math.log(np.exp(noise).sum()), abs=1e-8)


def test_the_closed_form_is_out_of_reach_in_a_corridor():
    # Without waiting, dark and noisy rooms take turns: half of the time is spent in the dark whatever the policy,
    # where the closed form has 4 / (4 + 3·36).
    shares = corridor()
    assert shares["closed_form_dark_share"] == pytest.approx(4 / 112)
    assert shares["dark_share"] == pytest.approx(0.5, abs=1e-6)
    assert shares["closed_form_value"] == pytest.approx(math.log(112))
    assert shares["value"] < math.log(112) - 0.5


def test_a_maximiser_is_stuck_before_a_noisy_tv_and_a_minimiser_in_a_dark_room():
    world = noisy_tv()
    assert maximiser(world).marginal[3] > 0.999999
    assert minimiser(world).value == pytest.approx(0.0, abs=1e-8)
    assert sorted(minimiser(chain_of_rooms()).marginal)[-1] == pytest.approx(1.0)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), gamma=st.sampled_from([0.5, 0.9]))
@shapes_unchecked()
def test_no_policy_is_better_than_the_optima(seed, gamma):
    world = random_block_mdp(seed, states=3)
    most, least = maximiser(world, gamma=gamma), minimiser(world, gamma=gamma)
    assert 0 <= most.gap < 1e-4
    assert 0 <= least.gap < 1e-6
    rng = np.random.default_rng(seed)
    tried = [rng.dirichlet(np.ones(2), 3) for _ in range(20)]
    for policy in [*tried, *_deterministic_policies(world)]:
        value = _observation_entropy(world, discounted_marginal(world, policy, gamma=gamma))
        assert least.value - least.gap - 1e-7 <= value <= most.value + most.gap + 1e-7


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), gamma=st.sampled_from([0.8, 1.0]))
@shapes_unchecked()
def test_the_minimum_is_at_a_deterministic_policy(seed, gamma):
    world = random_deterministic(seed, states=4, actions=2)
    best = math.inf
    for policy in _deterministic_policies(world):
        d = stationary_marginal(world, policy) if gamma == 1 else discounted_marginal(world, policy, gamma=gamma)
        best = min(best, _observation_entropy(world, d))
    assert minimiser(world, gamma=gamma).value == pytest.approx(best, abs=1e-7)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_the_flow_s_policy_has_the_flow_s_occupancy(seed):
    world = random_block_mdp(seed, states=4, sparse=True)
    best = maximiser(world, gamma=0.9)
    total = best.flow.sum(axis=1, keepdims=True)
    policy = np.where(total > 0, best.flow / np.maximum(total, 1e-300), 0.5)
    again = discounted_marginal(world, policy, gamma=0.9)
    assert again == pytest.approx(best.marginal, abs=1e-6)


def test_the_long_run_keeps_what_a_coin_decided_at_the_start():
    # A coin sends the body left or right for good: no policy can spend more than half of its time on either side.
    transition = np.zeros((3, 1, 3))
    transition[0, 0, 1:] = 0.5
    transition[[1, 2], 0, [1, 2]] = 1.0
    world = from_arrays(transition, np.eye(3), copies=np.exp([0.0, 5.0, 0.0]))
    assert maximiser(world).marginal == pytest.approx([0, 0.5, 0.5], abs=1e-7)
    assert minimiser(world).marginal == pytest.approx([0, 0.5, 0.5], abs=1e-7)


def test_gamma_is_checked():
    with pytest.raises(UserError, match="gamma must be between 0 and 1"):
        occupancy_flow(noisy_tv(), gamma=1.5)
