"""The game: max over Explore's hand-over distribution μ, min over Control's T-step policy, of H(d_T(o)).

With M_g the T-step kernel of Control's policy g and ν = μ M_g, Lemma 2 makes the payoff F(ν) = <ν, h> + H(ν).
For each policy F is concave in μ, so V(μ) = min_g F(μ M_g) is concave and Explore's problem is convex, with
one constraint for each policy. They are added one at a time: solve against the policies so far (an upper
bound), compute Control's answer (a lower bound), add it. Both bounds are recomputed here in plain
arithmetic, so the gap is a certificate.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.special import logsumexp

from advsurprise.theory.block_mdp import BlockMDP
from advsurprise.theory.branch import greedy_kernel, greedy_turn, turn_answer
from advsurprise.theory.conic import Budget, Master, best_hand_over, hand_over_scores
from advsurprise.theory.coverage import VISITED, certain_after
from advsurprise.theory.occupancy import step_marginals
from advsurprise.theory.response import MOST_TARGETS, as_price, best_answer, subsets, undominated

GAP = 1e-6
"""The search ends when its bounds are this close."""
ROUNDS = 200
"""Maximum number of Control's policies to add; a tenth of it if its answers are not exact."""
FEW = 10
"""Up to this many candidates, hitting sets are enumerated instead of solved for."""


@dataclass(frozen=True, eq=False)
class Solution:
    """A hand-over distribution, Control's answer to it, and how far from optimal they can be."""

    hand_over: Float[np.ndarray, " S"]
    """μ, Explore's hand-over distribution."""
    price: Float[np.ndarray, " S"]
    """Control's answer: it minimises the expected price of its final state."""
    kernel: Float[np.ndarray, "S S"]
    """M, the T-step kernel of that answer."""
    value: float
    """A lower bound of V(μ); F(μ M) itself when Control's answer is exact."""
    gap: float
    """No hand-over distribution is worth more than `value + gap`."""
    scores: Float[np.ndarray, " S"]
    """The certificate: no distribution μ' is worth more than Σ μ'(s) scores(s)."""
    exact: bool
    """Whether Control's answer is a proven best one rather than bracketed."""
    kernels: tuple[Float[np.ndarray, "S S"], ...] = ()
    """All answers of Control considered in the search."""

    @property
    def final(self) -> Float[np.ndarray, " S"]:
        """ν = μ M, the state marginal at the end of Control's turn."""
        return self.hand_over @ self.kernel


@dataclass(frozen=True, eq=False)
class Reply:
    """Control's answer to one hand-over distribution."""

    price: Float[np.ndarray, " S"]
    """Its price of each final state."""
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
    known: tuple[Float[np.ndarray, "S S"], ...] = (),
    enough: float = -np.inf,
) -> Solution:
    """Explore's best hand-over distribution, on the allowed states if given, and Control's best answer.

    `known` kernels of Control are included from the start, and the search ends early once no
    hand-over can be worth `enough`.
    """
    allowed = np.ones(world.num_states, dtype=bool) if allowed is None else allowed
    options = certain_after(world, horizon) if world.deterministic else None
    mass = allowed / allowed.sum()
    if budget is not None and not budget.allows(mass):
        mass = np.eye(world.num_states)[np.where(allowed, budget.price, np.inf).argmin()]
    best_mass, best = mass, answer(world, horizon, mass, options)
    kernels, upper, scores = [*known, best.kernel], np.inf, np.zeros(world.num_states)
    for _ in range(ROUNDS):
        master = best_hand_over(kernels, world.entropies, allowed, budget)
        bounds = hand_over_scores(master, kernels, world.entropies, budget)
        if bounds[allowed].max() < upper:
            upper, scores = float(bounds[allowed].max()), bounds
        if upper - best.lower <= GAP or upper < enough:
            break
        if not best.exact and len(kernels) >= ROUNDS // 10:
            break
        mass = _sweep(master)
        reply = answer(world, horizon, mass, options)
        kernels.append(reply.kernel)
        if reply.lower > best.lower:
            best_mass, best = mass, reply
    return Solution(
        best_mass, best.price, best.kernel, best.lower, upper - best.lower, scores, best.exact, tuple(kernels)
    )


def answer(
    world: BlockMDP, horizon: int, mass: Float[np.ndarray, " S"], options: Bool[np.ndarray, "S S"] | None
) -> Reply:
    """Control's best answer to `mass`: exact in deterministic worlds, between bounds otherwise."""
    if options is None or len(undominated(options[mass > 0], world.entropies)) > MOST_TARGETS:
        point, lower = turn_answer(world, horizon, mass)
        price, exact = point.policy, False
    else:
        reply = best_answer(mass, options, world.entropies)
        assert reply is not None, "every state is somewhere after T steps"
        price, lower, exact = as_price(reply.order), reply.value, True
    return Reply(price, greedy_kernel(world, horizon, price), lower, exact)


def turn_marginals(world: BlockMDP, horizon: int, solution: Solution) -> Float[np.ndarray, "T_plus_1 S"]:
    """The chain the game induces: its state marginal at each step of a turn, from the hand-over to the end."""
    actions = greedy_turn(world, horizon, solution.price)
    return step_marginals(world, np.eye(world.num_actions)[actions], solution.hand_over)


def commitment(world: BlockMDP, horizon: int, options: Bool[np.ndarray, "S S"] | None = None) -> Solution:
    """The main text's order, min over Control's kernel, then max over μ, in a deterministic world.

    Against a map g Explore's best final marginal is ν(y) = e^{h_y} / Z on the image of g, worth log Z with Z
    = Σ_{y in g(S)} e^{h_y}. A random kernel is no better for Control: at Explore's best μ against it, every s
    has an outcome y with e^{h_y} ≤ e^{value} ν(y), and mapping s there gives a Z of at most e^{value}. So
    Control looks for the lightest set of final states that every state can reach, with weights e^{h_y}: a
    hitting set, solved as an integer program. `options` restricts where it may go.
    """
    options = certain_after(world, horizon) if options is None else options
    chosen, bound = _lightest_hitting_set(world.entropies, options)
    # Every state outside the set costs more than any inside.
    price = world.num_states + as_price(np.argsort(world.entropies, kind="stable"))
    price[chosen] -= world.num_states
    kernel = greedy_kernel(world, horizon, price)
    image = np.any(kernel > 0, axis=0)
    law = np.where(image, np.exp(world.entropies - world.entropies.max()), 0.0)
    value = float(logsumexp(world.entropies[image]))
    scores = np.full(world.num_states, value)
    # One hand-over state for each final state is enough: the first that leads there.
    mass = np.zeros(world.num_states)
    mass[kernel.argmax(axis=0)[image]] = (law / law.sum())[image]
    return Solution(mass, price, kernel, value, max(value - bound, 0.0), scores, True)


def _lightest_hitting_set(
    entropies: Float[np.ndarray, " S"], options: Bool[np.ndarray, "S S"]
) -> tuple[Int[np.ndarray, " Y"], float]:
    """Final states of least Z = Σ e^h such that every state can reach one, and a lower bound on log Z."""
    weight = np.exp(entropies - entropies.min())
    # No single state of the lightest set outweighs a whole set: dropping those that do keeps the weights
    # comparable.
    quietest = np.where(options, entropies, np.inf).argmin(axis=1)
    enough = weight[np.unique(quietest)].sum()
    useful = np.flatnonzero(weight <= enough)
    if len(useful) <= FEW:
        hits = subsets(len(useful)) @ options[:, useful].T.astype(np.float64)
        totals = np.where((hits > 0).all(axis=1), subsets(len(useful)) @ weight[useful], np.inf)
        best = subsets(len(useful))[totals.argmin()] > 0
        return useful[best], float(np.log(totals.min()) + entropies.min())
    result = milp(
        weight[useful] / enough,
        constraints=LinearConstraint(options[:, useful].astype(np.float64), lb=1.0),
        bounds=Bounds(0, 1),
        integrality=np.ones(len(useful)),
        options={"mip_rel_gap": 0.0},
    )
    return useful[result.x > 0.5], float(np.log(result.mip_dual_bound * enough) + entropies.min())


def _sweep(master: Master) -> Float[np.ndarray, " S"]:
    """Drops the solver's rounding errors, so that supports are exact."""
    mass = np.where(master.mass > VISITED, master.mass, 0.0)
    return mass / mass.sum()
