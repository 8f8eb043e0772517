"""All solutions of the game, not only the one a solver returns: is a state covered in every one of them?

The game often has many: Explore may be indifferent between hand-over distributions, and Control between
answers. The theorem speaks of "the" chain induced by the game, so it needs every solution to cover.
"""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from advsurprise.theory.block_mdp import BlockMDP
from advsurprise.theory.branch import greedy_kernel
from advsurprise.theory.conic import Budget
from advsurprise.theory.coverage import certain_after, covered
from advsurprise.theory.game import Solution, solve
from advsurprise.theory.response import as_price, best_answer

EQUAL = 1e-5
"""Values closer than this count as equal; the solver's own gap is at most a tenth of it."""


class StateVerdict(NamedTuple):
    """Whether a state is covered in every solution of the game."""

    state: int
    """Index of the state."""
    verdict: Literal["always", "not always", "open"]
    """`always` and `not always` are certain (up to EQUAL); `open` means that neither was shown."""
    witness: Solution | None
    """A solution that leaves the state uncovered."""


def every_solution(
    world: BlockMDP, horizon: int, solution: Solution, distance: Float[np.ndarray, "S S"]
) -> list[StateVerdict]:
    """For each state: do all optimal pairs (μ, answer) end within T of it? Deterministic worlds only."""
    options = certain_after(world, horizon)
    return [_one_state(world, horizon, solution, options, distance[s] <= horizon, s) for s in range(world.num_states)]


def _one_state(
    world: BlockMDP,
    horizon: int,
    solution: Solution,
    options: Bool[np.ndarray, "S S"],
    near: Bool[np.ndarray, " S"],
    state: int,
) -> StateVerdict:
    """A solution that misses `near` hands over only states (`escapes`) whose turn can end elsewhere."""
    elsewhere = options & ~near
    escapes = np.any(elsewhere, axis=1)
    # No distribution on `escapes` is worth more than its best score.
    if not escapes.any() or solution.scores[escapes].max() < solution.value - EQUAL:
        return StateVerdict(state, "always", None)
    for mass in _candidates(world, solution, options, escapes):
        witness = _missing(world, horizon, solution, mass, options, elsewhere)
        if witness is not None:
            return StateVerdict(state, "not always", witness)
    # Ending elsewhere costs Control at least the quietest state it can reach there, which limits such hand-overs.
    quietest = np.where(elsewhere, world.entropies, np.inf).min(axis=1)
    budget = Budget(np.where(escapes, quietest, 0.0), solution.value + EQUAL)
    if budget.price[escapes].min() > budget.limit:
        return StateVerdict(state, "always", None)
    enough = solution.value - EQUAL
    confined = solve(world, horizon, allowed=escapes, budget=budget, known=solution.kernels, enough=enough)
    if confined.value + confined.gap < enough:
        return StateVerdict(state, "always", None)
    witness = _missing(world, horizon, solution, confined.hand_over, options, elsewhere)
    return StateVerdict(state, "open" if witness is None else "not always", witness)


def _candidates(world: BlockMDP, solution: Solution, options: Bool[np.ndarray, "S S"], escapes: Bool[np.ndarray, " S"]):
    """Hand-over distributions that are easily seen to be optimal: the solver's, and single states."""
    if not solution.hand_over[~escapes].any():
        yield solution.hand_over
    for start in np.flatnonzero(escapes):
        if world.entropies[options[start]].min() >= solution.value - EQUAL:
            yield np.eye(world.num_states)[start]


def _missing(
    world: BlockMDP,
    horizon: int,
    solution: Solution,
    mass: Float[np.ndarray, " S"],
    options: Bool[np.ndarray, "S S"],
    elsewhere: Bool[np.ndarray, "S S"],
) -> Solution | None:
    """The pair (mass, best answer that ends elsewhere) if both players are as well off as they can be."""
    free, bound = best_answer(mass, options, world.entropies), best_answer(mass, elsewhere, world.entropies)
    if free is None or bound is None:
        return None
    if free.value < solution.value - EQUAL or bound.value > free.value + EQUAL:
        return None
    # Near states cost more than all others; Control may still end there from states that were not handed over.
    near = np.any(options & ~elsewhere, axis=0)
    price = as_price(bound.order) + len(near) * near
    kernel = greedy_kernel(world, horizon, price)
    slack = solution.value + solution.gap - bound.value
    return Solution(mass, price, kernel, bound.value, slack, solution.scores, True)


def covered_by_some_answer(
    world: BlockMDP, horizon: int, solution: Solution, distance: Float[np.ndarray, "S S"]
) -> Bool[np.ndarray, " S"]:
    """Which states are within T of where Control ends under at least one of its best answers."""
    options, mass = certain_after(world, horizon), solution.hand_over
    good = covered(distance, solution.final, horizon)
    for state in np.flatnonzero(~good):
        near = distance[state] <= horizon
        for start in np.flatnonzero((mass > 0) & np.any(options & near, axis=1)):
            forced = options.copy()
            forced[start] &= near
            answer = best_answer(mass, forced, world.entropies)
            good[state] |= answer is not None and answer.value <= solution.value + EQUAL
    return good
