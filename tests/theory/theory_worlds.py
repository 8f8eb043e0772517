"""Random worlds for the tests of the theory."""

import numpy as np

from advsurprise.theory.block_mdp import BlockMDP, from_arrays


def random_block_mdp(seed: int, *, states: int = 4, actions: int = 2, sparse: bool = False) -> BlockMDP:
    """Random transitions, and for each state one to four observations of its own, some standing for several."""
    rng = np.random.default_rng(seed)
    transition = rng.dirichlet(np.full(states, 0.3 if sparse else 1.0), (states, actions))
    if sparse:
        transition = np.where(transition > 0.2, transition, 0.0) + 1e-300
        transition = np.where(transition > 1e-200, transition, 0.0)
        transition /= transition.sum(axis=2, keepdims=True)
    sizes = rng.integers(1, 5, states)
    owner = np.repeat(np.arange(states), sizes)
    emission = np.zeros((states, len(owner)))
    emission[owner, np.arange(len(owner))] = rng.exponential(size=len(owner)) * (rng.random(len(owner)) < 0.9) + 1e-3
    emission /= emission.sum(axis=1, keepdims=True)
    copies = np.exp(rng.exponential(size=len(owner)))
    return from_arrays(transition, emission, rng.dirichlet(np.ones(states)), copies=copies)


def random_deterministic(seed: int, *, states: int = 4, actions: int = 2) -> BlockMDP:
    """Random moves, half of the states dark."""
    rng = np.random.default_rng(seed)
    transition = np.eye(states)[rng.integers(0, states, (states, actions))]
    noise = np.where(rng.random(states) < 0.5, 0.0, rng.exponential(size=states))
    return from_arrays(transition, np.eye(states), copies=np.exp(noise))
