"""Random worlds for the tests of the theory."""

import contextlib

import jaxtyping
import numpy as np

from advsurprise.theory import zoo
from advsurprise.theory.block_mdp import BlockMDP, from_arrays


@contextlib.contextmanager
def shapes_unchecked():
    """Turns the runtime checks of shapes off, which take most of the time of tests that try hundreds of worlds.

    For functions that other tests call with the checks on.
    """
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


def random_block_mdp(seed: int, *, states: int = 4, actions: int = 2, sparse: bool = False) -> BlockMDP:
    """The zoo's random block MDP; with `sparse`, moves of small probability are left out."""
    world = zoo.random_block_mdp(np.random.default_rng(seed), states=states, actions=actions)
    if not sparse:
        return world
    transition = np.random.default_rng(seed).dirichlet(np.full(states, 0.3), (states, actions))
    transition = np.where(transition > 0.2, transition, 0.0)
    likeliest = transition.argmax(axis=2)
    np.put_along_axis(transition, likeliest[:, :, None], 1.0, axis=2)
    transition /= transition.sum(axis=2, keepdims=True)
    return from_arrays(transition, world.emission, world.start, copies=world.copies)


def random_deterministic(seed: int, *, states: int = 4, actions: int = 2) -> BlockMDP:
    """Random moves, half of the states dark."""
    rng = np.random.default_rng(seed)
    transition = np.eye(states)[rng.integers(0, states, (states, actions))]
    noise = np.where(rng.random(states) < 0.5, 0.0, rng.exponential(size=states))
    return from_arrays(transition, np.eye(states), copies=np.exp(noise))
