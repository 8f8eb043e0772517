"""The loop of gradient steps: what tasks share, and which samples count."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from advsurprise.learning.fit import FitTask, MaskedRows, Rows, StaticRows, fit, named

ROWS = 24
ALL = StaticRows(ROWS)


def _counting(*, rows: Rows = ALL, **fields) -> FitTask:
    """A task whose parameters count how often each row came up with weight 1."""

    def loss(counts, rows, weight):
        return -jnp.sum(counts[rows] * weight), {"weight": jnp.sum(weight)}

    optimiser = optax.sgd(1.0)
    counts = jnp.zeros(ROWS)
    settings = {"epochs": 3, "minibatch": 4, "key": jax.random.key(0)} | fields
    return FitTask(
        params=counts, opt_state=optimiser.init(counts), loss=loss, optimiser=optimiser, rows=rows, **settings
    )


def _regression(seed: int, *, epochs: int = 3) -> FitTask:
    """Least squares, where the path depends on the order of minibatches."""
    x, y = jnp.asarray(np.random.default_rng(seed).normal(size=(2, ROWS)), jnp.float32)

    def loss(slope, rows, weight):
        return jnp.mean((slope * x[rows] - y[rows]) ** 2 * weight), {"slope": slope}

    optimiser = optax.adam(0.1)
    slope = jnp.float32(0)
    return FitTask(
        params=slope,
        opt_state=optimiser.init(slope),
        loss=loss,
        optimiser=optimiser,
        rows=StaticRows(ROWS),
        epochs=epochs,
        minibatch=4,
        key=jax.random.key(seed),
    )


def _loops(tasks: dict[str, FitTask]) -> int:
    """Loops of gradient steps in the program that fits the tasks: those that carry parameters."""
    jaxpr = jax.make_jaxpr(lambda: fit(tasks))()
    return sum(each.primitive.name in ("while", "scan") for each in jaxpr.eqns)


def test_tasks_side_by_side_end_where_they_end_alone():
    tasks = {"a": _regression(0), "b": _regression(1), "c": _regression(2)}
    together = fit(tasks)
    assert list(together) == list(tasks)
    ends = set()
    for name, task in tasks.items():
        alone = fit({name: task})[name]
        for ours, theirs in zip(*map(jax.tree.leaves, (together[name], alone)), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)
        ends.add(float(alone[0]))
    assert len(ends) == 3


@pytest.mark.parametrize(("epochs", "loops"), [((3, 3), 1), ((3, 2), 2)])
def test_tasks_of_equal_length_share_a_loop(epochs, loops):
    tasks = {name: _regression(0, epochs=number) for name, number in zip("ab", epochs, strict=True)}
    assert _loops(tasks) == loops
    taken = [int(optax.tree.get(state, "count")) for _, state, _ in fit(tasks).values()]
    assert taken == [number * ROWS // 4 for number in epochs]


def test_tasks_of_unknown_length_have_loops_of_their_own():
    masks = {name: jnp.arange(ROWS) < size for name, size in (("few", 3), ("half", 12), ("none", 0))}
    tasks = {name: _counting(rows=MaskedRows(mask)) for name, mask in masks.items()}
    assert _loops(tasks) == 3
    for name, (counts, _, metrics) in fit(tasks).items():
        np.testing.assert_array_equal(counts, jnp.where(masks[name], 3, 0))
        assert float(metrics["weight"]) == min(4, int(masks[name].sum()))


def test_every_sample_counts_unless_only_a_share_is_kept():
    counts, _, metrics = fit({"all": _counting()})["all"]
    np.testing.assert_array_equal(counts, 3)
    assert float(metrics["weight"]) == 4


def test_samples_with_given_numbers_are_the_only_ones():
    rows = np.array([1, 5, 7, 20])
    counts, _, _ = fit({"some": _counting(rows=StaticRows(ROWS, rows), minibatch=2)})["some"]
    np.testing.assert_array_equal(np.flatnonzero(counts), rows)
    np.testing.assert_array_equal(counts[rows], 3)


def test_a_share_of_the_samples_is_chosen_anew_in_every_pass():
    passes = 400
    counts, _, metrics = fit({"some": _counting(kept=0.25, epochs=passes)})["some"]
    # Binomial(400, ¼): mean 100, standard deviation 8.7.
    assert np.abs(np.asarray(counts) - 100).max() < 5 * 8.7
    assert len(set(counts.tolist())) > 5
    assert float(metrics["weight"]) == pytest.approx(1, abs=0.15)


def test_the_key_that_shuffles_a_pass_does_not_choose_the_samples_that_count():
    task = _counting(kept=0.5, epochs=1, minibatch=ROWS)
    counts, _, _ = fit({"some": task})["some"]
    shuffling = jax.random.split(task.key, 1)[0]
    assert not np.array_equal(counts[task.orders()] == 1, jax.random.bernoulli(shuffling, 0.5, (ROWS,)))


def test_a_rate_scales_every_step():
    whole, half = (fit({"a": dataclasses.replace(_counting(), rate=rate)})["a"][0] for rate in (None, jnp.float32(0.5)))
    np.testing.assert_allclose(half, whole / 2, rtol=1e-6)


def test_metrics_bear_the_names_of_their_tasks():
    metrics = named(fit({"a": _regression(0), "b": _counting()}))
    assert set(metrics) == {"a/slope", "a/loss", "a/grad_norm", "b/weight", "b/loss", "b/grad_norm"}
