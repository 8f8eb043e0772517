"""Statistics behind claims. Intervals are 95% and over training seeds: seeds are drawn anew with replacement, of each
arm independently."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from advsurprise.evaluation.curves import draws, iqm
from advsurprise.experiments.figure import Claim, Verdict

RESAMPLES = 5000
QUANTILES = (0.025, 0.975)

Values = Float[np.ndarray, " _"]
"""One number per training seed."""
Estimate = tuple[float, float, float]
"""A number and its interval."""


def difference(first: Values, second: Values) -> Estimate:
    """Difference of the interquartile means."""
    return _between(first, second, lambda a, b: iqm(a) - iqm(b))


def improvement(first: Values, second: Values) -> Estimate:
    """P(X > Y) + P(X = Y)/2 for a seed X of the first and Y of the second: the probability of improvement."""

    def share(a, b):
        above = a[..., :, None] > b[..., None, :]
        equal = a[..., :, None] == b[..., None, :]
        return (above + 0.5 * equal).mean(axis=(-2, -1))

    return _between(first, second, share)


def mean(values: Values) -> Estimate:
    """Interquartile mean."""
    return _between(values, values, lambda a, _: iqm(a))


def _between(first: Values, second: Values, statistic: Callable) -> Estimate:
    first, second = _known(first), _known(second)
    if not len(first) or not len(second):
        return float("nan"), float("nan"), float("nan")
    a, b = (each[draws(np.zeros(len(each), int), RESAMPLES, seed)] for seed, each in enumerate((first, second)))
    low, high = np.quantile(statistic(a, b), QUANTILES)
    return float(statistic(first, second)), float(low), float(high)


def _known(values: Values) -> Values:
    return np.asarray(values, np.float64)[np.isfinite(values)]


def top_half(values: Values) -> float:
    """Mean of the better half of the seeds."""
    known = np.sort(_known(values))
    return float(np.mean(known[len(known) // 2 :])) if len(known) else float("nan")


def area(steps: Float[np.ndarray, " T"], values: Float[np.ndarray, "S T"]) -> Values:
    """Each seed's mean over training, by the trapezoid rule: larger for what rises sooner or higher."""
    return np.trapezoid(values, steps, axis=1) / (steps[-1] - steps[0])


def change_point(steps: Float[np.ndarray, " T"], values: Float[np.ndarray, " T"], *, rise: float) -> float:
    """The step at which one seed's curve jumps: the split into two constant parts with the least squared error. nan if
    the second part is not higher than the first by `rise`."""
    known = np.isfinite(values)
    steps, values = steps[known], values[known]
    if len(values) < 4:
        return float("nan")
    errors = [_squared_error(values[:split]) + _squared_error(values[split:]) for split in range(1, len(values))]
    split = int(np.argmin(errors)) + 1
    rises = np.mean(values[split:]) - np.mean(values[:split]) >= rise
    return float(steps[split]) if rises else float("nan")


def _squared_error(values: Values) -> float:
    return float(np.sum((values - np.mean(values)) ** 2))


def verdict(low: float, high: float) -> Verdict:
    """Of a statement that a number is above 0."""
    if low > 0:
        return "holds"
    return "does not hold" if high < 0 else "undecided"


def alike(low: float, high: float, margin: float) -> Verdict:
    """Of a statement that a number is 0, give or take a margin."""
    if -margin < low and high < margin:
        return "holds"
    return "does not hold" if low > margin or high < -margin else "undecided"


def more(claim: str, paper: str, measure: str, first: Values, second: Values) -> Claim:
    """The claim that the first has more than the second."""
    ours, low, high = difference(first, second)
    chance, *_ = improvement(first, second)
    number = min(len(first), len(second))
    text = f"{measure}: difference of interquartile means (probability of improvement {chance:.2f})"
    return Claim(claim, paper, text, ours, low, high, number, verdict(low, high), top_half(first) - top_half(second))
