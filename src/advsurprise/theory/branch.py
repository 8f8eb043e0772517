"""The smallest value of a concave entropy over a polytope of flows, bracketed: a policy above, a bound below.

On a box l ≤ ν ≤ u each term of F(ν) = Σ_y φ_y(ν_y), φ_y(x) = h_y x - x log x, is above its chord, so a
linear program bounds F from below; the box is cut where chord and term differ most. Upper bounds are real
policies, reached by following F's slope. Used for Control's answer in stochastic worlds, and for the
surprise minimiser everywhere.
"""

import heapq
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse
from scipy.optimize import linprog

from advsurprise.theory.block_mdp import BlockMDP
from advsurprise.theory.response import cost

CLOSE = 1e-8
"""The search ends when its bounds are this close."""
NODES = 400
"""Maximum number of boxes to examine; then the gap reached is returned."""
TINY = 1e-12
"""Replaces zero mass where a slope would be infinite."""


class Flow(NamedTuple):
    """A polytope of flows x ≥ 0 with equations x = right, and the marginal ν = final x of each."""

    equations: sparse.csr_array
    """Conservation of mass."""
    right: Float[np.ndarray, " E"]
    """Mass that enters at each equation."""
    final: sparse.csr_array
    """From flows to the marginal."""


class Point(NamedTuple):
    """A policy and its value."""

    policy: Float[np.ndarray, "..."]
    """A flow, or a price for each final state (`greedy_turn` turns it into a policy)."""
    value: float
    """F at its marginal."""


def bracket(
    flow: Flow,
    entropies: Float[np.ndarray, " S"],
    improve: Callable[[np.ndarray], Point],
    *,
    most: Float[np.ndarray, " S"] | None = None,
    nodes: int = NODES,
) -> tuple[Point, float]:
    """The best policy of the search and a lower bound on F over all flows.

    `improve` makes a policy from a marginal; `most` bounds the mass of each state from above.
    """
    lower = np.zeros(len(entropies))
    upper = np.ones(len(entropies)) if most is None else most
    bound, inside = _chord_bound(flow, entropies, lower, upper)
    best = improve(inside)
    # Heap entries carry a counter so that equal bounds never compare arrays.
    heap, count = [(bound, 0, lower, upper, inside)], 1
    for _ in range(nodes):
        if not heap or heap[0][0] >= best.value - CLOSE:
            break
        _, _, lower, upper, inside = heapq.heappop(heap)
        # Policies are improved only from marginals better than the best one: most boxes have none.
        if cost(entropies, inside) < best.value - CLOSE:
            best = min(best, improve(inside), key=lambda point: point.value)
        for low, high in _halves(entropies, lower, upper, inside):
            bound, point = _chord_bound(flow, entropies, low, high)
            if bound < best.value - CLOSE:
                heapq.heappush(heap, (bound, count, low, high, point))
                count += 1
    return best, min(best.value, heap[0][0]) if heap else best.value - CLOSE


def turn_answer(world: BlockMDP, horizon: int, mass: Float[np.ndarray, " S"]) -> tuple[Point, float]:
    """An answer of Control to the hand-over distribution `mass`, as a price, and a bound on every other."""
    flow = turn_flow(world, horizon, mass)
    most = mass @ reach_probability(world, horizon)
    # Large programs get fewer boxes: the gap is wider, but the search finishes.
    variables = horizon * world.num_states * world.num_actions
    nodes = min(max(40_000 // variables, 20), NODES)

    def improve(final: Float[np.ndarray, " S"]) -> Point:
        return _descend(world, horizon, mass, final)

    return bracket(flow, world.entropies, improve, most=most, nodes=nodes)


def reach_probability(world: BlockMDP, horizon: int) -> Float[np.ndarray, "S S"]:
    """Entry [s, s']: the largest probability of any policy to be in s' at step T from s."""
    chance = np.eye(world.num_states)
    for _ in range(horizon):
        chance = (world.transition @ chance).max(axis=1)
    return chance


def turn_flow(world: BlockMDP, horizon: int, mass: Float[np.ndarray, " S"]) -> Flow:
    """The flow polytope of a T-step turn that starts from `mass`."""
    states, actions = world.num_states, world.num_actions
    leave = sparse.kron(sparse.eye_array(states), np.ones((1, actions)))
    arrive = sparse.csr_array(world.transition.reshape(states * actions, states).T)
    conserve = sparse.kron(sparse.eye_array(horizon), leave)
    if horizon > 1:
        conserve = conserve - sparse.kron(sparse.eye_array(horizon, k=-1), arrive)
    final = sparse.hstack([sparse.csr_array((states, (horizon - 1) * states * actions)), arrive])
    right = np.concatenate([mass, np.zeros((horizon - 1) * states)])
    return Flow(sparse.csr_array(conserve), right, sparse.csr_array(final))


def greedy_turn(world: BlockMDP, horizon: int, price: Float[np.ndarray, " S"]) -> Int[np.ndarray, "T S"]:
    """Actions at each step of the turn that minimise the expected price of the final state, by backward induction."""
    value, actions = price, []
    for _ in range(horizon):
        ahead = world.transition @ value
        actions.append(ahead.argmin(axis=1))
        value = ahead.min(axis=1)
    return np.array(actions[::-1])


def greedy_kernel(world: BlockMDP, horizon: int, price: Float[np.ndarray, " S"]) -> Float[np.ndarray, "S S"]:
    """T-step transition matrix of the policy of `greedy_turn`."""
    kernel, states = np.eye(world.num_states), np.arange(world.num_states)
    for action in greedy_turn(world, horizon, price):
        kernel = kernel @ world.transition[states, action]
    return kernel


def slope(entropies: Float[np.ndarray, " S"], marginal: Float[np.ndarray, " S"]) -> Float[np.ndarray, " S"]:
    """Gradient of F, up to a constant: h - log ν, kept finite where ν is 0."""
    return entropies - np.log(np.maximum(marginal, TINY))


def _descend(world: BlockMDP, horizon: int, mass: Float[np.ndarray, " S"], final: Float[np.ndarray, " S"]) -> Point:
    """Follows F's slope from policy to policy until F stops falling; each step lowers F, which is concave."""
    best = None
    while True:
        price = slope(world.entropies, final)
        final = mass @ greedy_kernel(world, horizon, price)
        point = Point(price, cost(world.entropies, final))
        if best is not None and point.value >= best.value - CLOSE:
            return best
        best = point


def _terms(entropies: Float[np.ndarray, " S"], x: Float[np.ndarray, " S"]) -> Float[np.ndarray, " S"]:
    return entropies * x - x * np.log(np.maximum(x, 1e-300))


def _chord_bound(
    flow: Flow,
    entropies: Float[np.ndarray, " S"],
    lower: Float[np.ndarray, " S"],
    upper: Float[np.ndarray, " S"],
) -> tuple[float, Float[np.ndarray, " S"]]:
    """Smallest sum of chords over the flows in the box: a lower bound on F in it, infinite if no flow is inside."""
    # Rounding must not cut off a flow that fills the box exactly.
    upper = np.minimum(upper * (1 + 1e-9), 1.0)
    width = np.maximum(upper - lower, TINY)
    steep = (_terms(entropies, upper) - _terms(entropies, lower)) / width
    height = _terms(entropies, lower) - steep * lower
    cut = (lower > 0) | (upper < 1)
    limits = sparse.vstack([flow.final[cut], -flow.final[cut]]) if cut.any() else None
    ceiling = np.concatenate([upper[cut], -lower[cut]]) if cut.any() else None
    program = linprog(steep @ flow.final, A_ub=limits, b_ub=ceiling, A_eq=flow.equations, b_eq=flow.right)
    if not program.success:
        return np.inf, lower
    return float(program.fun + height.sum()), np.maximum(flow.final @ program.x, 0.0)


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
