"""Exact state marginals of a policy: discounted, after each step, and in the long run."""

import numpy as np
from jaxtyping import Float
from scipy.sparse.csgraph import connected_components

from advsurprise.errors import UserError
from advsurprise.theory.block_mdp import BlockMDP


def uniform_policy(world: BlockMDP) -> Float[np.ndarray, "S A"]:
    """Every action equally likely in every state."""
    return np.full((world.num_states, world.num_actions), 1 / world.num_actions)


def chain(world: BlockMDP, policy: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S S"]:
    """P_π(s' | s) = Σ_a π(a | s) P(s' | s, a)."""
    return np.einsum("sa,sat->st", policy, world.transition)


def discounted_marginal(world: BlockMDP, policy: Float[np.ndarray, "S A"], *, gamma: float) -> Float[np.ndarray, " S"]:
    """d(s) = (1 - γ) Σ_t γ^t p(s_t = s), the solution of d (I - γ P_π) = (1 - γ) start."""
    if not 0 <= gamma < 1:
        raise UserError(f"gamma must be at least 0 and less than 1, but is {gamma:g}")
    matrix = np.eye(world.num_states) - gamma * chain(world, policy)
    return (1 - gamma) * np.linalg.solve(matrix.T, world.start)


def step_marginals(
    world: BlockMDP, policies: Float[np.ndarray, "T S A"], start: Float[np.ndarray, " S"] | None = None
) -> Float[np.ndarray, "T_plus_1 S"]:
    """p(s_t = s) for t = 0, ..., T, under a policy that may change with time."""
    marginals = [world.start if start is None else start]
    for policy in policies:
        marginals.append(marginals[-1] @ chain(world, policy))
    return np.array(marginals)


def stationary_marginal(world: BlockMDP, policy: Float[np.ndarray, "S A"]) -> Float[np.ndarray, " S"]:
    """d(s) = lim_N 1/N Σ_{t<N} p(s_t = s), which exists for every finite chain, even periodic or reducible."""
    return world.start @ long_run(chain(world, policy))


def long_run(matrix: Float[np.ndarray, "S S"]) -> Float[np.ndarray, "S S"]:
    """P* = lim 1/N Σ_{t<N} P^t.

    From each state, the probability to end in each closed class times its stationary law.
    """
    size = len(matrix)
    count, label = connected_components(matrix > 0, directed=True, connection="strong")
    limit, classes = np.zeros_like(matrix), []
    for index in range(count):
        inside = label == index
        if not matrix[np.ix_(inside, ~inside)].any():
            limit[np.ix_(inside, inside)] = _class_law(matrix[np.ix_(inside, inside)])
            classes.append(np.flatnonzero(inside))
    transient = np.setdiff1d(np.arange(size), np.concatenate(classes))
    if len(transient):
        # (I - Q) X = R L: first-step equations of where a transient state is absorbed.
        into = matrix[transient] @ limit
        stay = np.eye(len(transient)) - matrix[np.ix_(transient, transient)]
        limit[transient] = np.linalg.solve(stay, into)
    return limit


def _class_law(block: Float[np.ndarray, "C C"]) -> Float[np.ndarray, " C"]:
    """The stationary law of an irreducible chain, law P = law; unique, so least squares is exact."""
    size = len(block)
    equations = np.vstack([block.T - np.eye(size), np.ones(size)])
    right = np.append(np.zeros(size), 1.0)
    law = np.maximum(np.linalg.lstsq(equations, right, rcond=None)[0], 0.0)
    return law / law.sum()
