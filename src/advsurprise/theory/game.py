"""The game: max over Explore's hand-over distribution μ, min over Control's T-step policy, of H(d_T(o)).

With M_g the T-step kernel of Control's policy g and ν = μ M_g, Lemma 2 makes the payoff F(ν) = <ν, h> + H(ν).
For each policy F is concave in μ, so V(μ) = min_g F(μ M_g) is concave and Explore's problem is convex, with
one constraint for each policy. They are added one at a time: solve against the policies so far (an upper
bound), let Control answer (a lower bound), add its answer. Both bounds are recomputed here in plain
arithmetic, so the gap is a certificate.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import Bounds, LinearConstraint, milp

from advsurprise.theory.block_mdp import BlockMDP
from advsurprise.theory.branch import turn_answer
from advsurprise.theory.conic import Budget, Master, best_hand_over, hand_over_scores
from advsurprise.theory.coverage import VISITED, certain_after
from advsurprise.theory.response import MOST_TARGETS, best_answer, cost, follow, undominated

GAP = 1e-6
"""Bounds this near to each other end the search."""
ROUNDS = 200
"""Policies of Control to add at most."""


@dataclass(frozen=True, eq=False)
class Solution:
    """A hand-over distribution, Control's answer to it, and how far from optimal they can be."""

    hand_over: Float[np.ndarray, " S"]
    """μ, what Explore leaves behind."""
    kernel: Float[np.ndarray, "S S"]
    """M, where Control is T steps after each hand-over state."""
    value: float
    """A lower bound of V(μ); F(μ M) itself when Control's answer is exact."""
    gap: float
    """No hand-over distribution is worth more than `value + gap`."""
    scores: Float[np.ndarray, " S"]
    """The certificate: no distribution μ' is worth more than Σ μ'(s) scores(s)."""
    exact: bool
    """Whether Control's answer was found by an exhaustive search rather than between bounds."""

    @property
    def final(self) -> Float[np.ndarray, " S"]:
        """ν = μ M, the state marginal at the end of Control's turn."""
        return self.hand_over @ self.kernel


@dataclass(frozen=True, eq=False)
class Reply:
    """Control's answer to one hand-over distribution."""

    kernel: Float[np.ndarray, "S S"]
    """Its T-step kernel."""
    lower: float
    """No policy of Control gets below this."""
    exact: bool
    """Whether the kernel is known to be a best one, so that `lower` is its value."""


def solve(
    world: BlockMDP,
    horizon: int,
    *,
    allowed: Bool[np.ndarray, " S"] | None = None,
    budget: Budget | None = None,
    gap: float = GAP,
) -> Solution:
    """Explore's best hand-over distribution, on the allowed states if given, and Control's best answer."""
    allowed = np.ones(world.num_states, dtype=bool) if allowed is None else allowed
    options = certain_after(world, horizon) if world.deterministic else None
    mass = allowed / allowed.sum()
    if budget is not None and not budget.allows(mass):
        mass = np.eye(world.num_states)[np.where(allowed, budget.price, np.inf).argmin()]
    best_mass, best = mass, answer(world, horizon, mass, options)
    kernels, upper, scores = [best.kernel], np.inf, np.zeros(world.num_states)
    for _ in range(ROUNDS):
        master = best_hand_over(kernels, world.entropies, allowed, budget)
        found = hand_over_scores(master, kernels, world.entropies, budget)
        if found[allowed].max() < upper:
            upper, scores = float(found[allowed].max()), found
        if upper - best.lower <= gap:
            break
        mass = _sweep(master)
        reply = answer(world, horizon, mass, options)
        kernels.append(reply.kernel)
        if reply.lower > best.lower:
            best_mass, best = mass, reply
    return Solution(best_mass, best.kernel, best.lower, upper - best.lower, scores, best.exact)


def answer(
    world: BlockMDP, horizon: int, mass: Float[np.ndarray, " S"], options: Bool[np.ndarray, "S S"] | None
) -> Reply:
    """Control's best answer to `mass`: exact in deterministic worlds, between bounds otherwise."""
    if options is None or len(undominated(options[mass > 0], world.entropies)) > MOST_TARGETS:
        point, lower = turn_answer(world, horizon, mass)
        return Reply(point.policy, lower, exact=False)
    found = best_answer(mass, options, world.entropies)
    assert found is not None, "every state is somewhere after T steps"
    return Reply(follow(found.order, options), found.value, exact=True)


def commitment(world: BlockMDP, horizon: int) -> Solution:
    """The main text's order, min over Control's kernel, then max over μ, in a deterministic world.

    Against a map g Explore's best final marginal is ν(y) = e^{h_y} / Z on the image of g, worth log Z with Z
    = Σ_{y in g(S)} e^{h_y}. A random kernel is no better for Control: at Explore's best μ against it, every s
    has an outcome y with e^{h_y} ≤ e^{value} ν(y), and mapping s there gives a Z of at most e^{value}. So
    Control looks for the lightest set of final states that every state can reach, with weights e^{h_y}: a
    hitting set, solved as an integer program.
    """
    options = certain_after(world, horizon)
    weight = np.exp(world.entropies - world.entropies.min())
    # No final state outweighs a whole hitting set: those that do are dropped, so that the weights stay
    # comparable.
    order = np.argsort(world.entropies, kind="stable")
    bound = weight[np.unique(follow(order, options).argmax(axis=1))].sum()
    useful = np.flatnonzero(weight <= bound)
    result = milp(
        weight[useful] / bound,
        constraints=LinearConstraint(options[:, useful].astype(np.float64), lb=1.0),
        bounds=Bounds(0, 1),
        integrality=np.ones(len(useful)),
        options={"mip_rel_gap": 0.0},
    )
    chosen = useful[result.x > 0.5]
    chosen = chosen[np.argsort(world.entropies[chosen], kind="stable")]
    kernel = follow(chosen, options)
    image = kernel.any(axis=0)
    law = np.where(image, np.exp(world.entropies - world.entropies.max()), 0.0)
    value = float(np.log(np.exp(world.entropies[image]).sum()))
    floor = float(np.log(result.mip_dual_bound * bound)) + world.entropies.min()
    # One hand-over state for each final state is enough: the first that leads there.
    mass = np.zeros(world.num_states)
    mass[kernel.argmax(axis=0)[image]] = (law / law.sum())[image]
    scores = np.full(world.num_states, value)
    return Solution(mass, kernel, value, max(value - floor, 0.0), scores, True)


def _sweep(master: Master) -> Float[np.ndarray, " S"]:
    """Drops the solver's dust, so that supports are what they look like."""
    mass = np.where(master.mass > VISITED, master.mass, 0.0)
    return mass / mass.sum()


def payoff(world: BlockMDP, solution: Solution) -> float:
    """F(μ M), the observation entropy at the end of Control's turn."""
    return float(cost(world.entropies, solution.final))
