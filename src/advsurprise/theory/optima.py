"""Optima of the plain objectives: the occupancies of largest and smallest observation entropy.

The occupancies of all policies form a polytope. With discount γ < 1 its flows x(s, a) obey

    Σ_a x(s', a) - γ Σ_{s, a} P(s' | s, a) x(s, a) = (1 - γ) start(s'),

and in the long run (γ = 1) x is stationary and a second flow y carries the start into it,

    Σ_a x(s', a) = Σ P x,    Σ_a x(s', a) + Σ_a y(s', a) - Σ P y = start(s').
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import sparse
from scipy.optimize import linprog

from advsurprise.errors import UserError
from advsurprise.theory.block_mdp import BlockMDP
from advsurprise.theory.branch import CLOSE, Flow, Point, bracket, slope
from advsurprise.theory.conic import FLOOR, maximise_entropy
from advsurprise.theory.response import cost


class Optimum(NamedTuple):
    """An occupancy, its observation entropy, and how far from optimal it can be."""

    marginal: Float[np.ndarray, " S"]
    """d(s)."""
    value: float
    """H(d(o))."""
    gap: float
    """No policy is better by more than this."""
    flow: Float[np.ndarray, "S A"]
    """x(s, a); d(s) = Σ_a x(s, a)."""


def closed_form(world: BlockMDP) -> Float[np.ndarray, " S"]:
    """The paper's maximiser if every distribution over states is feasible: d(i) = e^{h_i} / Σ_j e^{h_j}."""
    weight = np.exp(world.entropies - world.entropies.max())
    return weight / weight.sum()


def occupancy_flow(world: BlockMDP, *, gamma: float = 1.0) -> Flow:
    """The polytope of occupancies; `gamma` = 1 is the long run."""
    if not 0 <= gamma <= 1:
        raise UserError(f"gamma must be between 0 and 1, but is {gamma:g}")
    states, actions = world.num_states, world.num_actions
    leave = sparse.csr_array(sparse.kron(sparse.eye_array(states), np.ones((1, actions))))
    arrive = sparse.csr_array(world.transition.reshape(states * actions, states).T)
    if gamma < 1:
        return Flow(sparse.csr_array(leave - gamma * arrive), (1 - gamma) * world.start, leave)
    net, nothing = leave - arrive, sparse.csr_array(leave.shape)
    equations = sparse.vstack([sparse.hstack([net, nothing]), sparse.hstack([leave, net])])
    final = sparse.hstack([leave, nothing])
    right = np.concatenate([np.zeros(states), world.start])
    return Flow(sparse.csr_array(equations), right, sparse.csr_array(final))


def maximiser(world: BlockMDP, *, gamma: float = 1.0) -> Optimum:
    """max over policies of H(d(o)) = <d, h> + H(d): concave, so solved, and bounded by one linear program.

    For any guess d̂, <d, h> + H(d) ≤ <d, h - log d̂>, linear in d.
    """
    flow = occupancy_flow(world, gamma=gamma)
    raw = maximise_entropy(flow.equations, flow.right, flow.final, world.entropies)
    marginal = flow.final @ raw
    value = cost(world.entropies, marginal / marginal.sum())
    price = world.entropies - np.log(np.maximum(marginal, FLOOR))
    bound = linprog(-(price @ flow.final), A_eq=flow.equations, b_eq=flow.right)
    return _optimum(world, raw, marginal / marginal.sum(), value, max(-bound.fun - value, 0.0))


def minimiser(world: BlockMDP, *, gamma: float = 1.0) -> Optimum:
    """min over policies of H(d(o)): concave, so smallest at a corner, a deterministic policy; bracketed by `branch`."""
    flow = occupancy_flow(world, gamma=gamma)

    def improve(marginal: Float[np.ndarray, " S"]) -> Point:
        return _descend(flow, world.entropies, marginal)

    best, lower = bracket(flow, world.entropies, improve)
    marginal = np.maximum(flow.final @ best.policy, 0.0)
    return _optimum(world, best.policy, marginal / marginal.sum(), best.value, best.value - lower)


def _descend(flow: Flow, entropies: Float[np.ndarray, " S"], marginal: Float[np.ndarray, " S"]) -> Point:
    """Follows F's slope from corner to corner until F stops falling."""
    best = None
    while True:
        program = linprog(slope(entropies, marginal) @ flow.final, A_eq=flow.equations, b_eq=flow.right)
        marginal = np.maximum(flow.final @ program.x, 0.0)
        point = Point(program.x, cost(entropies, marginal))
        if best is not None and point.value >= best.value - CLOSE:
            return best
        best = point


def _optimum(
    world: BlockMDP, raw: Float[np.ndarray, " X"], marginal: Float[np.ndarray, " S"], value: float, gap: float
) -> Optimum:
    flow = raw[: world.num_states * world.num_actions].reshape(world.num_states, world.num_actions)
    return Optimum(marginal, value, gap, np.maximum(flow, 0.0))
