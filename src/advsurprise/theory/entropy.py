"""Entropies of state and observation marginals, and the paper's two lemmas as pairs of numbers.

All entropies are in nats. A column of an emission table may represent n equally likely observations
(`copies`): six flashing lights are one column with n = 6^6 instead of 46,656 columns. With p(o) the mass of a
column,

    H = -Σ_o p(o) log(p(o) / n_o).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import xlogy


class Sides(NamedTuple):
    """The two sides of an equation or an inequality."""

    left: float
    """The left side."""
    right: float
    """The right side."""


def entropy(p: Float[np.ndarray, " O"], copies: Float[np.ndarray, " O"] | None = None) -> float:
    """H(p) = -Σ p log(p / n), with 0 log 0 = 0."""
    # + 0.0 turns the -0.0 of a certain outcome into 0.0.
    value = -xlogy(p, p).sum() + 0.0
    return float(value if copies is None else value + p @ np.log(copies))


def emission_entropies(
    emission: Float[np.ndarray, "S O"], copies: Float[np.ndarray, " O"] | None = None
) -> Float[np.ndarray, " S"]:
    """h(s) = H(p(O | S = s)) for every state."""
    value = -xlogy(emission, emission).sum(axis=1)
    return value if copies is None else value + emission @ np.log(copies)


def observation_marginal(d: Float[np.ndarray, " S"], emission: Float[np.ndarray, "S O"]) -> Float[np.ndarray, " O"]:
    """d(o) = Σ_s d(s) p(o | s)."""
    return d @ emission


def surprise_bound(
    d: Float[np.ndarray, " S"],
    emission: Float[np.ndarray, "S O"],
    model: Float[np.ndarray, " O"],
    copies: Float[np.ndarray, " O"] | None = None,
) -> Sides:
    """Lemma 1: -E_d log p_θ(o) ≥ H(d(o)), with equality when p_θ = d(o).

    Infinite if the model excludes an observation that occurs.

    The expectation is over the normalised marginal (discounted weights sum to 1). The sum over an endless
    episode in the paper's main text is that expectation times 1 / (1 - γ), so it bounds the entropy too, but
    is not tight at the fit.
    """
    seen = d > 0
    with np.errstate(divide="ignore"):
        log_model = np.log(model) - (0.0 if copies is None else np.log(copies))
    # -Σ_s d(s) Σ_o p(o | s) log p_θ(o) over positive masses: 0 log 0 is 0, and excluded mass is infinite.
    pairs = d[seen, None] * emission[seen]
    left = -np.multiply(pairs, log_model, where=pairs > 0, out=np.zeros_like(pairs)).sum()
    return Sides(float(left), entropy(observation_marginal(d, emission), copies))


def entropy_decomposition(
    d: Float[np.ndarray, " S"],
    emission: Float[np.ndarray, "S O"],
    copies: Float[np.ndarray, " O"] | None = None,
) -> Sides:
    """Lemma 2: H(d(o)) = E_d H(O | S = s) + H(d(s)), if no two states can emit the same observation.

    In general H(d(o)) = E H(O | S) + H(S) - H(S | O), so with overlapping supports the left side is the
    smaller one.
    """
    left = entropy(observation_marginal(d, emission), copies)
    return Sides(left, float(d @ emission_entropies(emission, copies)) + entropy(d))
