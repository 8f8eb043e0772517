"""The largest violations of the two lemmas on random block MDPs."""

from typing import Any

import numpy as np

from advsurprise.theory.entropy import entropy_decomposition, observation_marginal, surprise_bound
from advsurprise.theory.occupancy import discounted_marginal
from advsurprise.theory.zoo import random_block_mdp


def lemma_errors(*, seed: int, worlds: int) -> dict[str, Any]:
    """Draws block MDPs of 1 to 6 states, each with a policy, a discount and a model; the largest errors in nats.

    `lemma_1` is max(0, H(d(o)) + E log p_θ(o)), `lemma_1_at_the_fit` is |-E log d(o) - H(d(o))| and `lemma_2`
    is |H(d(o)) - E h - H(d(s))|.
    """
    rng = np.random.default_rng(seed)
    errors = np.zeros((worlds + 1, 3))
    for index in range(worlds):
        errors[index] = _errors(rng)
    return {"worlds": worlds} | dict(
        zip(("lemma_1", "lemma_1_at_the_fit", "lemma_2"), errors.max(axis=0).tolist(), strict=True)
    )


def _errors(rng: np.random.Generator) -> tuple[float, float, float]:
    world = random_block_mdp(rng, states=int(rng.integers(1, 7)))
    policy = rng.dirichlet(np.ones(world.num_actions), world.num_states)
    d = discounted_marginal(world, policy, gamma=float(rng.uniform(0, 0.99)))
    fit = observation_marginal(d, world.emission)
    bound = surprise_bound(d, world.emission, rng.dirichlet(np.ones(len(fit))), world.copies)
    tight = surprise_bound(d, world.emission, fit, world.copies)
    split = entropy_decomposition(d, world.emission, world.copies)
    return max(bound.right - bound.left, 0.0), abs(tight.left - tight.right), abs(split.left - split.right)
