"""Control's best answer to a hand-over distribution: min over T-step policies of H(d_T(o)).

By Lemma 2 the objective is F(ν) = Σ_y φ_y(ν_y) with φ_y(x) = h_y x - x log x, concave in the final marginal
ν. A concave function is smallest at a corner, so a deterministic (time-dependent) policy is enough, and
finding it is a search.
"""

import functools
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import xlogy

MOST_TARGETS = 15
"""The subset search holds 2^n rows for n final states."""


class Answer(NamedTuple):
    """A policy of Control in a deterministic world, as a preference over final states."""

    value: float
    """F(ν) it reaches."""
    order: Int[np.ndarray, " Y"]
    """Final states, best first: from each hand-over state Control ends in the first one it can reach."""


def cost(entropies: Float[np.ndarray, " S"], final: Float[np.ndarray, " S"]) -> float:
    """F(ν) = <ν, h> + H(ν)."""
    return float(final @ entropies - xlogy(final, final).sum())


def best_answer(
    mass: Float[np.ndarray, " S"],
    options: Bool[np.ndarray, "S S"],
    entropies: Float[np.ndarray, " S"],
) -> Answer | None:
    """The exact best answer in a deterministic world; None where some handed-over state has no option.

    Moving mass m from y to y' changes F by at most m (c' - c) with c_y = h_y - log ν_y - 1, because F is
    concave. So at the best answer every hand-over state ends in its option of smallest c: the answer is an
    order of preference. The search is over the sets P of final states already preferred, with V(P) = min_y
    φ_y(mass y newly takes) + V(P + y).
    """
    starts = np.flatnonzero(mass > 0)
    targets = undominated(options[starts], entropies)
    reach = options[np.ix_(starts, targets)]
    if not reach.any(axis=1).all():
        return None
    value, order = _search(mass[starts], reach, entropies[targets])
    rest = np.setdiff1d(np.argsort(entropies, kind="stable"), targets[order], assume_unique=True)
    return Answer(value, np.concatenate([targets[order], rest]))


def as_price(order: Int[np.ndarray, " Y"]) -> Float[np.ndarray, " Y"]:
    """The order as a price for each final state: its rank."""
    price = np.empty(len(order))
    price[order] = np.arange(len(order))
    return price


def undominated(reach: Bool[np.ndarray, "M S"], entropies: Float[np.ndarray, " S"]) -> Int[np.ndarray, " Y"]:
    """Final states to consider: y is dropped if some y' takes all that y takes and is no noisier.

    Merging the mass of y into y' then lowers both terms of F. Of two equal ones the first is kept.
    """
    used = np.flatnonzero(reach.any(axis=0))
    columns = reach[:, used].astype(np.float64)
    inside = (columns.sum(axis=0)[:, None] - columns.T @ columns) == 0
    quieter = entropies[used][None, :] <= entropies[used][:, None]
    beaten = inside & quieter
    mutual = beaten & beaten.T
    earlier = np.arange(len(used))[None, :] < np.arange(len(used))[:, None]
    return used[~(beaten & (~mutual | earlier)).any(axis=1)]


@functools.cache
def subsets(count: int) -> Float[np.ndarray, "sets Y"]:
    """All subsets of `count` items, each a row of zeros and ones; row i is i in binary."""
    return ((np.arange(1 << count)[:, None] >> np.arange(count)) & 1).astype(np.float64)


def _search(
    mass: Float[np.ndarray, " M"], reach: Bool[np.ndarray, "M Y"], entropies: Float[np.ndarray, " Y"]
) -> tuple[float, Int[np.ndarray, " K"]]:
    count = reach.shape[1]
    sets, member = np.arange(1 << count), subsets(count) > 0
    free = subsets(count) @ reach.T.astype(np.float64) == 0
    takes = (free * mass) @ reach.astype(np.float64)
    # The masses are sums of the same few numbers, so zeros are exact up to rounding: no clipping needed.
    step = entropies * takes - xlogy(takes, np.maximum(takes, 1e-300))
    value = np.where(free.any(axis=1), np.inf, 0.0)
    choice = np.zeros(len(sets), dtype=np.int64)
    sizes = member.sum(axis=1)
    for size in range(count - 1, -1, -1):
        level = np.flatnonzero((sizes == size) & free.any(axis=1))
        after = value[level[:, None] | (1 << np.arange(count))]
        totals = np.where(member[level] | (takes[level] <= 0), np.inf, step[level] + after)
        choice[level] = totals.argmin(axis=1)
        value[level] = totals.min(axis=1)
    order, chosen = [], 0
    while free[chosen].any():
        order.append(int(choice[chosen]))
        chosen |= 1 << order[-1]
    return float(value[0]), np.array(order, dtype=np.int64)
