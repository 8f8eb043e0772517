"""Means and 95% intervals of measures. Who is to be generalised over decides the sample: training seeds, if several
were trained; else the episodes of the one policy (or of players that learn nothing)."""

from collections.abc import Sequence
from typing import Literal, TypedDict

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

LEVEL = 0.95
"""Confidence level of all intervals."""


class Estimate(TypedDict):
    """A mean and how well it is known."""

    mean: float
    """Mean over the sample; nan if it is empty."""
    low: float
    """Lower end of the 95% interval; nan for fewer than two values."""
    high: float
    """Upper end."""
    n: int
    """Values in the sample."""
    over: Literal["training seeds", "episodes"]
    """What the sample is made of."""


def summarise(by_training_seed: Sequence[dict[str, np.ndarray]]) -> dict[str, Estimate]:
    """An estimate of every measure, from each training seed's episodes.

    A training seed counts once, by the mean over all its episodes, however many it played. Episodes in which a measure
    is not a number are left out, and so are training seeds all of whose episodes are.
    """
    if len(by_training_seed) == 1:
        return {name: estimate(values, over="episodes") for name, values in by_training_seed[0].items()}
    names = dict.fromkeys(name for sample in by_training_seed for name in sample)
    return {
        name: estimate(
            np.asarray([mean_known(sample.get(name, np.empty(0))) for sample in by_training_seed]),
            over="training seeds",
        )
        for name in names
    }


def estimate(values: Float[np.ndarray, " n"], *, over: Literal["training seeds", "episodes"]) -> Estimate:
    """The mean x̄ and x̄ ± t₀.₉₇₅(n−1) s/√n, Student's interval, of the values that are numbers."""
    known = np.asarray(values, np.float64)
    known = known[~np.isnan(known)]
    number, centre = len(known), mean_known(known)
    half = float("nan")
    if number > 1:
        half = float(stdtrit(number - 1, (1 + LEVEL) / 2) * np.std(known, ddof=1) / np.sqrt(number))
    return {"mean": centre, "low": centre - half, "high": centre + half, "n": number, "over": over}


def mean_known(values: Float[np.ndarray, " n"]) -> float:
    """Mean of the values that are numbers; nan if none is."""
    known = np.asarray(values, np.float64)
    known = known[~np.isnan(known)]
    return float(np.mean(known)) if len(known) else float("nan")


def pooled(samples: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The episodes of several evaluations of one policy, one after the other."""
    return {name: np.concatenate([sample[name] for sample in samples]) for name in samples[0]}
