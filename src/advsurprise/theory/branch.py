"""Control's best answer where the world flips coins: the smallest of a concave function over a flow polytope, bracketed.

The final marginals ν that T-step policies can reach from μ form a polytope. On a box l ≤ ν ≤ u each term φ_y of
F(ν) = Σ_y φ_y(ν_y) lies above its chord, so a linear program bounds F from below; the box is cut where chord and term
differ most. Upper bounds are real policies, found by following F's slope.
"""

import heapq
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import sparse
from scipy.optimize import linprog

from advsurprise.theory.block_mdp import BlockMDP
from advsurprise.theory.response import cost

CLOSE = 1e-8
"""Bounds this near to each other end the search."""
NODES = 400
"""Boxes to look at before giving up with the gap reached."""
TINY = 1e-12
"""Stands for no mass where a slope would be infinite."""


class Flow(NamedTuple):
    """The polytope of T-step policies: flows x(t, s, a) ≥ 0 with equations x = right, and ν = final x."""

    equations: sparse.csr_array
    """Mass is conserved at every step."""
    right: Float[np.ndarray, " E"]
    """μ at step 0, nothing added later."""
    final: sparse.csr_array
    """From flows to the final marginal."""


def branch_and_bound(
    world: BlockMDP, horizon: int, mass: Float[np.ndarray, " S"], *, nodes: int = NODES
) -> tuple[Float[np.ndarray, "S S"], float]:
    """A T-step kernel of Control and a number below which no policy gets."""
    flow = turn_flow(world, horizon, mass)
    best_kernel, best = descend(world, horizon, mass, mass @ greedy_kernel(world, horizon, world.entropies))
    lower, upper = np.zeros(world.num_states), np.ones(world.num_states)
    bound, point = _chord_bound(flow, world.entropies, lower, upper)
    # Heap entries carry a counter so that equal bounds never compare arrays.
    heap, count = [(bound, 0, lower, upper, point)], 1
    for _ in range(nodes):
        if not heap or heap[0][0] >= best - CLOSE:
            break
        _, _, lower, upper, point = heapq.heappop(heap)
        kernel, value = descend(world, horizon, mass, point)
        if value < best:
            best_kernel, best = kernel, value
        for low, high in _halves(world.entropies, lower, upper, point):
            bound, inside = _chord_bound(flow, world.entropies, low, high)
            if bound < best - CLOSE:
                heapq.heappush(heap, (bound, count, low, high, inside))
                count += 1
    return best_kernel, min(best, heap[0][0]) if heap else best - CLOSE


def turn_flow(world: BlockMDP, horizon: int, mass: Float[np.ndarray, " S"]) -> Flow:
    """The flow polytope of a T-step turn that begins in `mass`."""
    states, actions = world.num_states, world.num_actions
    leave = sparse.kron(sparse.eye_array(states), np.ones((1, actions)))
    arrive = sparse.csr_array(world.transition.reshape(states * actions, states).T)
    conserve = sparse.kron(sparse.eye_array(horizon), leave)
    if horizon > 1:
        conserve = conserve - sparse.kron(sparse.eye_array(horizon, k=-1), arrive)
    final = sparse.hstack([sparse.csr_array((states, (horizon - 1) * states * actions)), arrive])
    right = np.concatenate([mass, np.zeros((horizon - 1) * states)])
    return Flow(sparse.csr_array(conserve), right, sparse.csr_array(final))


def greedy_kernel(world: BlockMDP, horizon: int, price: Float[np.ndarray, " S"]) -> Float[np.ndarray, "S S"]:
    """Kernel of the policy that makes the expected price of the final state least: backward induction."""
    value, kernel = price, np.eye(world.num_states)
    for _ in range(horizon):
        ahead = world.transition @ value
        action = ahead.argmin(axis=1)
        chosen = world.transition[np.arange(world.num_states), action]
        value, kernel = chosen @ value, chosen @ kernel
    return kernel


def descend(
    world: BlockMDP, horizon: int, mass: Float[np.ndarray, " S"], final: Float[np.ndarray, " S"]
) -> tuple[Float[np.ndarray, "S S"], float]:
    """Follows F's slope from policy to policy until it stops falling: each step goes down, F being concave."""
    kernel, value = None, np.inf
    while True:
        slope = world.entropies - np.log(np.maximum(final, TINY))
        candidate = greedy_kernel(world, horizon, slope)
        reached = float(cost(world.entropies, mass @ candidate))
        if kernel is not None and reached >= value - CLOSE:
            return kernel, value
        kernel, value, final = candidate, reached, mass @ candidate


def _terms(entropies: Float[np.ndarray, " S"], x: Float[np.ndarray, " S"]) -> Float[np.ndarray, " S"]:
    return entropies * x - x * np.log(np.maximum(x, 1e-300))


def _chord_bound(
    flow: Flow, entropies: Float[np.ndarray, " S"], lower: Float[np.ndarray, " S"], upper: Float[np.ndarray, " S"]
) -> tuple[float, Float[np.ndarray, " S"]]:
    """Smallest sum of chords over the flows in the box: below F everywhere in it. Infinite if no flow is inside."""
    width = np.maximum(upper - lower, TINY)
    slope = (_terms(entropies, upper) - _terms(entropies, lower)) / width
    height = _terms(entropies, lower) - slope * lower
    cut = (lower > 0) | (upper < 1)
    limits = sparse.vstack([flow.final[cut], -flow.final[cut]]) if cut.any() else None
    ceiling = np.concatenate([upper[cut], -lower[cut]]) if cut.any() else None
    found = linprog(slope @ flow.final, A_ub=limits, b_ub=ceiling, A_eq=flow.equations, b_eq=flow.right)
    if not found.success:
        return np.inf, lower
    return float(found.fun + height.sum()), np.maximum(flow.final @ found.x, 0.0)


def _halves(
    entropies: Float[np.ndarray, " S"],
    lower: Float[np.ndarray, " S"],
    upper: Float[np.ndarray, " S"],
    point: Float[np.ndarray, " S"],
):
    """The box cut in two at `point`, across the state where the chord is furthest below its term."""
    width = np.maximum(upper - lower, TINY)
    share = np.clip((point - lower) / width, 0.0, 1.0)
    chord = (1 - share) * _terms(entropies, lower) + share * _terms(entropies, upper)
    state = int((_terms(entropies, point) - chord).argmax())
    # A cut right at an edge would make no progress.
    middle = lower[state] + width[state] * min(max(share[state], 0.1), 0.9)
    below, above = upper.copy(), lower.copy()
    below[state], above[state] = middle, middle
    return [(lower, below), (above, upper)]
