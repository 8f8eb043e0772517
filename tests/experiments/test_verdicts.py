"""Statistics behind claims, against numpy, scipy and curves whose answer is known."""

import numpy as np
import pytest
from scipy import stats

from advsurprise.experiments import verdicts


def test_the_difference_is_that_of_the_middle_halves():
    first, second = np.array([0.0, 1, 2, 3, 100, 4, 5, 6]), np.ones(5)
    ours, low, high = verdicts.difference(first, second)
    assert ours == pytest.approx(np.mean([2, 3, 4, 5]) - 1)
    assert low < ours < high


def test_its_interval_is_the_bootstraps_of_scipy():
    rng = np.random.default_rng(0)
    first, second = rng.normal(1, 1, 12), rng.normal(0, 1, 12)
    _, low, high = verdicts.difference(first, second)
    theirs = stats.bootstrap(
        (first, second),
        lambda a, b, axis: stats.trim_mean(a, 0.25, axis) - stats.trim_mean(b, 0.25, axis),
        n_resamples=5000,
        method="percentile",
        rng=np.random.default_rng(1),
    ).confidence_interval
    assert (low, high) == pytest.approx((theirs.low, theirs.high), abs=0.06)


@pytest.mark.parametrize("numbers", [(3, 3), (5, 3), (2, 4)])
def test_of_few_seeds_the_interval_is_welchs(numbers):
    rng = np.random.default_rng(sum(numbers))
    first, second = (rng.normal(index, 1 + index, number) for index, number in enumerate(numbers))
    theirs = stats.ttest_ind(first, second, equal_var=False).confidence_interval()
    assert verdicts.difference(first, second) == pytest.approx((first.mean() - second.mean(), theirs.low, theirs.high))
    alone = stats.ttest_1samp(second, 0).confidence_interval()
    assert verdicts.mean(second) == pytest.approx((second.mean(), alone.low, alone.high))


@pytest.mark.parametrize(
    ("numbers", "least"),
    [
        ((3, 3), 0.94),
        ((5, 3), 0.94),
        pytest.param((5, 5), 0.9, marks=pytest.mark.slow),
        pytest.param((10, 10), 0.93, marks=pytest.mark.slow),
    ],
)
def test_intervals_cover_as_often_as_they_say(numbers, least):
    """Of 500 differences between equal arms; a bootstrap of 3 seeds would cover 0.79."""
    rng = np.random.default_rng(0)
    estimates = [verdicts.difference(*(rng.normal(size=number) for number in numbers)) for _ in range(500)]
    assert np.mean([low <= 0 <= high for _, low, high in estimates]) >= least


def test_one_seed_decides_nothing_and_equal_seeds_have_no_width():
    ours, low, high = verdicts.difference(np.array([5.0]), np.zeros(3))
    assert (ours, verdicts.verdict(low, high)) == (5.0, "undecided")
    assert verdicts.difference(np.ones(3), np.zeros(3)) == (1.0, 1.0, 1.0)


def test_the_probability_of_improvement_counts_ties_half():
    first, second = np.array([1.0, 2, 3]), np.array([2.0, 2, 0])
    ours, low, high = verdicts.improvement(first, second)
    statistic = stats.mannwhitneyu(first, second).statistic
    assert ours == pytest.approx(statistic / 9)
    assert 0 <= low <= ours <= high <= 1


def test_seeds_without_a_value_are_left_out_and_none_gives_nan():
    assert verdicts.mean(np.array([1.0, np.nan, 3.0]))[0] == 2.0
    assert np.isnan(verdicts.difference(np.array([np.nan]), np.ones(3))).all()


def test_the_area_is_larger_for_what_rises_sooner():
    steps = np.array([0.0, 10, 20, 30])
    soon, late = np.array([[0.0, 4, 4, 4]]), np.array([[0.0, 0, 0, 4]])
    assert verdicts.area(steps, soon)[0] == pytest.approx((20 + 40 + 40) / 30)
    assert verdicts.area(steps, soon) > verdicts.area(steps, late)


@pytest.mark.parametrize("at", [5, 20, 35])
def test_a_jump_is_dated_where_it_is(at):
    rng = np.random.default_rng(at)
    steps = np.arange(40.0) * 1000
    values = np.where(np.arange(40) >= at, 0.8, 0.1) + rng.normal(0, 0.05, 40)
    values[3] = np.nan
    assert verdicts.change_point(steps, values, rise=0.1) == steps[at]


def test_what_does_not_rise_has_no_date():
    steps, falls = np.arange(40.0), np.linspace(1, 0, 40)
    assert np.isnan(verdicts.change_point(steps, falls, rise=0.1))
    assert np.isnan(verdicts.change_point(steps, np.full(40, 0.5), rise=0.1))


@pytest.mark.parametrize(
    ("low", "high", "above", "same"),
    [
        (0.2, 0.4, "holds", "does not hold"),
        (-0.4, -0.2, "does not hold", "does not hold"),
        (-0.05, 0.05, "undecided", "holds"),
        (-0.05, 0.3, "undecided", "undecided"),
        (float("nan"), float("nan"), "undecided", "undecided"),
    ],
)
def test_verdicts(low, high, above, same):
    assert verdicts.verdict(low, high) == above
    assert verdicts.alike(low, high, 0.1) == same
