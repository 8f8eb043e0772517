"""The two convex programs of the theory, handed to an interior-point solver for exponential cones (Clarabel).

The solver is never trusted alone: every caller recomputes the value at the point it returns and bounds the
optimum from above by Gibbs' inequality, H(ν) ≤ -Σ ν log ν̂ for any ν̂, which needs no trust in the solver.
"""

import functools
from typing import NamedTuple

# Clarabel is compiled and comes without type stubs.
# pyright: reportAttributeAccessIssue=false
import clarabel
import numpy as np
from jaxtyping import Bool, Float
from scipy import sparse

FLOOR = 1e-13
"""Mass given to empty outcomes in an upper bound, where a zero would make it infinite."""


class Master(NamedTuple):
    """Explore's best hand-over distribution against finitely many answers, and the weight of each answer."""

    mass: Float[np.ndarray, " S"]
    """μ, the hand-over distribution."""
    weights: Float[np.ndarray, " G"]
    """λ, a distribution over Control's answers: the certificate."""
    toll: float
    """θ ≥ 0, the price of the budget; 0 where there is none."""


class Budget(NamedTuple):
    """A linear limit on hand-over distributions: <μ, price> ≤ limit."""

    price: Float[np.ndarray, " S"]
    """Cost of a unit of mass in each state."""
    limit: float
    """Maximum total cost."""

    def allows(self, mass: Float[np.ndarray, " S"]) -> bool:
        """Whether μ is within the budget, up to rounding."""
        return bool(mass[mass > 0] @ self.price[mass > 0] <= self.limit + 1e-12)


def maximise_entropy(
    equations: sparse.csr_array,
    right: Float[np.ndarray, " E"],
    marginal: sparse.csr_array,
    bonus: Float[np.ndarray, " S"],
) -> Float[np.ndarray, " X"]:
    """argmax over x ≥ 0, equations x = right, of <d, bonus> + H(d) with d = marginal x."""
    size, states = len(marginal.T @ bonus), len(bonus)
    # Variables (x, e), with e_s ≤ -d_s log d_s written as the cone (e_s, d_s, 1).
    gain = -np.concatenate([marginal.T @ bonus, np.ones(states)])
    rows = sparse.vstack(
        [
            sparse.hstack([equations, sparse.csr_array((len(right), states))]),
            sparse.hstack([-sparse.eye_array(size), sparse.csr_array((size, states))]),
            _cones(marginal, states, size),
        ]
    )
    constants = np.concatenate([right, np.zeros(size), np.tile([0.0, 0.0, 1.0], states)])
    cones = [clarabel.ZeroConeT(len(right)), clarabel.NonnegativeConeT(size)]
    cones += [clarabel.ExponentialConeT()] * states
    return np.maximum(np.array(_solve(gain, rows, constants, cones).x)[:size], 0.0)


def best_hand_over(
    kernels: list[Float[np.ndarray, "S S"]],
    entropies: Float[np.ndarray, " S"],
    allowed: Bool[np.ndarray, " S"],
    budget: Budget | None = None,
) -> Master:
    """argmax over μ of min over the listed kernels M of <μ M, h> + H(μ M).

    μ has mass on the allowed states only and stays within the budget.
    """
    starts = np.flatnonzero(allowed)
    finals = [kernel[starts][:, kernel[starts].any(axis=0)].T for kernel in kernels]
    noise = [entropies[kernel[starts].any(axis=0)] for kernel in kernels]
    size, answers = len(starts), len(kernels)
    offsets = size + 1 + np.cumsum([0, *map(len, finals)])
    outcomes = int(offsets[-1]) - size - 1
    # Variables (μ, t, e). Rows: Σ μ = 1; μ ≥ 0; t ≤ <h, ν_g> + Σ_y e_gy; the budget; the cones (e_gy, ν_gy,
    # 1) that say e_gy ≤ -ν_gy log ν_gy. Dense: for the few dozen states of most worlds sparse assembly takes
    # longer.
    rows = np.zeros((2 + size + answers + 3 * outcomes, size + 1 + outcomes))
    rows[0, :size] = 1.0
    rows[1 : 1 + size, :size] = -np.eye(size)
    below, cone = rows[1 + size : 1 + size + answers], rows[2 + size + answers :]
    below[:, size] = 1.0
    rows[1 + size + answers, :size] = 0.0 if budget is None else budget.price[starts]
    for g, (final, h) in enumerate(zip(finals, noise, strict=True)):
        below[g, :size] = -(h @ final)
        below[g, offsets[g] : offsets[g + 1]] = -1.0
    cone[0::3, size + 1 :] = -np.eye(outcomes)
    cone[1::3, :size] = -np.concatenate(finals)
    gain = np.zeros(size + 1 + outcomes)
    gain[size] = -1.0
    limit = 1.0 if budget is None else budget.limit
    constants = np.concatenate([[1.0], np.zeros(size + answers), [limit], np.tile([0.0, 0.0, 1.0], outcomes)])
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(size + answers + 1)]
    cones += [clarabel.ExponentialConeT()] * outcomes
    solution = _solve(gain, rows, constants, cones)
    mass = np.zeros(len(allowed))
    mass[starts] = np.maximum(np.array(solution.x)[:size], 0.0)
    prices = np.maximum(np.array(solution.z)[1 + size : 2 + size + answers], 0.0)
    weights, toll = prices[:-1] / prices[:-1].sum(), 0.0 if budget is None else float(prices[-1])
    return Master(mass / mass.sum(), weights, toll)


def hand_over_scores(
    master: Master,
    kernels: list[Float[np.ndarray, "S S"]],
    entropies: Float[np.ndarray, " S"],
    budget: Budget | None = None,
) -> Float[np.ndarray, " S"]:
    """u(s) = Σ_g λ_g Σ_y M_g(y | s) (h_y - log ν̂_g(y)): no μ is worth more than Σ_s μ(s) u(s).

    This holds since Control's best answer is at most the λ-mixture of answers, and H(ν) ≤ -Σ ν log ν̂ for every ν̂.
    Within a budget u(s) - θ (price(s) - limit) does the same for any θ ≥ 0.
    """
    scores = np.zeros(len(entropies))
    for weight, kernel in zip(master.weights, kernels, strict=True):
        guess = np.maximum(master.mass @ kernel, FLOOR)
        scores += weight * (kernel @ (entropies - np.log(guess / guess.sum())))
    return scores if budget is None else scores - master.toll * (budget.price - budget.limit)


def _cones(marginal: sparse.csr_array, states: int, size: int) -> sparse.csr_array:
    """Minus the rows (e_s, (marginal x)_s, 0), one triple for each state, on the variables (x, e)."""
    entries = sparse.coo_array(marginal)
    row = np.concatenate([3 * np.arange(states), 3 * entries.row + 1])
    column = np.concatenate([size + np.arange(states), entries.col])
    values = np.concatenate([-np.ones(states), -1.0 * entries.data])
    return sparse.csr_array((values, (row, column)), shape=(3 * states, size + states))


@functools.cache
def _nothing(size: int) -> sparse.csc_matrix:
    """The quadratic term: zero."""
    return sparse.csc_matrix((size, size))


def _compressed(rows) -> sparse.csc_matrix:
    """`rows` as a sparse matrix; by hand if dense: scipy's own conversion of small ones takes longer than solving."""
    if sparse.issparse(rows):
        return sparse.csc_matrix(rows)
    columns, indices = np.nonzero(rows.T)
    starts = np.searchsorted(columns, np.arange(rows.shape[1] + 1))
    return sparse.csc_matrix((rows[indices, columns], indices, starts), shape=rows.shape)


def _solve(gain: np.ndarray, rows, constants: np.ndarray, cones: list):
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    nothing = _nothing(len(gain))
    return clarabel.DefaultSolver(nothing, gain, _compressed(rows), constants, cones, settings).solve()
