"""The two lemmas, on thousands of random block MDPs, and where the second one ends."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from theory_worlds import random_block_mdp, shapes_unchecked

from advsurprise.theory import lemmas
from advsurprise.theory.entropy import (
    Sides,
    emission_entropies,
    entropy,
    entropy_decomposition,
    observation_marginal,
    surprise_bound,
)
from advsurprise.theory.lemmas import lemma_errors
from advsurprise.theory.occupancy import discounted_marginal

SEEDS = st.integers(0, 2**32 - 1)


def _occupancy(world, seed):
    rng = np.random.default_rng(seed + 1)
    policy = rng.dirichlet(np.ones(world.num_actions), world.num_states)
    return discounted_marginal(world, policy, gamma=float(rng.uniform(0, 0.99)))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(seed=SEEDS, states=st.integers(1, 6))
@shapes_unchecked()
def test_the_excess_of_lemma_1_is_a_divergence(seed, states):
    world = random_block_mdp(seed, states=states)
    d = _occupancy(world, seed)
    fit = observation_marginal(d, world.emission)
    model = np.random.default_rng(seed).dirichlet(np.ones(len(fit)))
    bound = surprise_bound(d, world.emission, model, world.copies)
    assert bound.left >= bound.right - 1e-10
    # The excess is the divergence of the model from what is seen.
    seen = fit > 0
    excess = float((fit[seen] * np.log(fit[seen] / model[seen])).sum())
    assert bound.left - bound.right == pytest.approx(excess, abs=1e-10)
    tight = surprise_bound(d, world.emission, fit, world.copies)
    assert tight.left == pytest.approx(tight.right, abs=1e-10)


@shapes_unchecked()
def test_both_lemmas_hold_on_thousands_of_random_worlds():
    errors = lemma_errors(seed=1, worlds=2000)
    assert errors.pop("worlds") == 2000
    assert max(errors.values()) < 1e-10


def test_an_error_is_the_largest_over_the_worlds(monkeypatch):
    monkeypatch.setattr(lemmas, "entropy_decomposition", lambda *_: Sides(2.0, 0.5))
    monkeypatch.setattr(lemmas, "surprise_bound", lambda *_: Sides(0.0, 0.25))
    assert lemma_errors(seed=0, worlds=2) == {
        "worlds": 2,
        "lemma_1": 0.25,
        "lemma_1_at_the_fit": 0.25,
        "lemma_2": 1.5,
    }


@settings(max_examples=300, deadline=None, derandomize=True)
@given(seed=SEEDS)
@shapes_unchecked()
def test_lemma_2_fails_when_two_states_share_an_observation(seed):
    world = random_block_mdp(seed)
    shared = world.emission.copy()
    # State 1 shows an observation of state 0 half of the time: what is lost is H(S | O) > 0.
    shared[1] = 0.5 * shared[1] + 0.5 * np.eye(shared.shape[1])[shared[0].argmax()]
    d = np.full(4, 0.25)
    sides = entropy_decomposition(d, shared, world.copies)
    joint = d[:, None] * shared
    posterior = np.divide(joint, joint.sum(axis=0), where=joint.sum(axis=0) > 0, out=np.zeros_like(joint))
    lost = -(joint[joint > 0] * np.log(posterior[joint > 0])).sum()
    assert lost > 1e-6
    assert sides.right - sides.left == pytest.approx(lost, abs=1e-10)


def test_entropies_by_hand():
    # A fair coin, and a column that represents 36 equally likely pictures.
    assert entropy(np.array([0.5, 0.5])) == pytest.approx(math.log(2))
    assert entropy(np.array([1.0, 0.0]), np.array([36.0, 1.0])) == pytest.approx(2 * math.log(6))
    table = np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    assert emission_entropies(table, np.array([1.0, 1.0, 6.0])) == pytest.approx([math.log(2), math.log(6)])


def test_copies_are_the_same_as_writing_the_observations_out():
    short = np.array([[0.25, 0.75, 0.0], [0.0, 0.0, 1.0]])
    copies = np.array([2.0, 1.0, 3.0])
    long = np.array([[0.125, 0.125, 0.75, 0, 0, 0], [0, 0, 0, 1 / 3, 1 / 3, 1 / 3]])
    d = np.array([0.3, 0.7])
    assert entropy_decomposition(d, short, copies) == pytest.approx(entropy_decomposition(d, long))


def test_a_model_that_excludes_what_is_seen_is_infinitely_surprised():
    emission = np.eye(2)
    assert surprise_bound(np.array([0.5, 0.5]), emission, np.array([1.0, 0.0])).left == math.inf
    # ... but not by what is never seen.
    assert surprise_bound(np.array([1.0, 0.0]), emission, np.array([1.0, 0.0])).left == 0.0
