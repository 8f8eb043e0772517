"""Intervals against scipy's, and what they are over."""

import math

import numpy as np
import pytest
from scipy import stats

from advsurprise.evaluation.statistics import estimate, pooled, summarise


def scipys(values):
    return stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))


def episodes(seeds: int, number: int, rng: np.random.Generator) -> list[dict[str, np.ndarray]]:
    """Episodes of several training seeds, which differ from each other."""
    return [{"a": rng.normal(rng.normal(), 0.3, number)} for _ in range(seeds)]


def test_with_several_training_seeds_each_counts_once():
    samples = episodes(5, 40, np.random.default_rng(0))
    found = summarise(samples)["a"]
    means = [sample["a"].mean() for sample in samples]
    assert (found["n"], found["over"]) == (5, "training seeds")
    assert found["mean"] == pytest.approx(np.mean(means))
    assert (found["low"], found["high"]) == pytest.approx(scipys(means))


def test_with_one_training_seed_the_interval_is_over_episodes():
    (sample,) = episodes(1, 40, np.random.default_rng(1))
    found = summarise([sample])["a"]
    assert (found["n"], found["over"]) == (40, "episodes")
    assert (found["low"], found["high"]) == pytest.approx(scipys(sample["a"]))


def test_playing_the_same_episodes_again_narrows_nothing():
    samples = episodes(5, 40, np.random.default_rng(2))
    again = [pooled([sample] * 7) for sample in samples]
    once, often = summarise(samples)["a"], summarise(again)["a"]
    assert often == pytest.approx(once)
    # Treating every episode as independent of its training seed would.
    every = scipys(np.concatenate([sample["a"] for sample in samples]))
    assert every[1] - every[0] < 0.5 * (once["high"] - once["low"])


def test_the_interval_holds_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(3)
    covered = sum(
        found["low"] < 0 < found["high"] for found in (summarise(episodes(5, 8, rng))["a"] for _ in range(800))
    )
    # Four standard deviations of a binomial share.
    assert abs(covered / 800 - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 800)


def test_episodes_without_the_measure_are_left_out_and_so_are_training_seeds_without_any():
    samples = [{"a": np.asarray([1.0, np.nan])}, {"a": np.asarray([np.nan])}, {"a": np.asarray([3.0, 5.0])}, {}]
    found = summarise(samples)["a"]
    assert (found["mean"], found["n"]) == (2.5, 2)
    assert (found["low"], found["high"]) == pytest.approx(scipys([1.0, 4.0]))
    single, none = (estimate(np.asarray(values), over="episodes") for values in ([2.0], []))
    assert (single["mean"], single["n"], none["n"]) == (2.0, 1, 0)
    assert all(math.isnan(each) for each in (single["low"], single["high"], none["mean"], none["low"]))
