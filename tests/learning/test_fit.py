"""The loop of gradient steps: what tasks share, and which samples count."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from advsurprise.learning import fit as fit_module
from advsurprise.learning.fit import FitTask, MaskedRows, Rows, StaticRows, fit, named

ROWS = 24
ALL = StaticRows(ROWS)


def _counting(*, rows: Rows = ALL, **fields) -> FitTask:
    """A task whose parameters count how often each row came up with weight 1."""

    def loss(counts, data, rows, weight):
        return -jnp.sum(counts[rows] * weight), {"weight": jnp.sum(weight)}

    optimiser = optax.sgd(1.0)
    counts = jnp.zeros(ROWS)
    settings = {"epochs": 3, "minibatch": 4, "key": jax.random.key(0)} | fields
    return FitTask(
        params=counts,
        opt_state=optimiser.init(counts),
        data=None,
        loss=loss,
        optimiser=optimiser,
        rows=rows,
        **settings,
    )


def _squares(slope, data, rows, weight):
    x, y = data
    return jnp.mean((slope * x[rows] - y[rows]) ** 2 * weight), {"slope": slope}


ADAM = optax.adam(0.1)
SHARED = jnp.asarray(np.random.default_rng(9).normal(size=ROWS), jnp.float32)


def _regression(seed: int, *, epochs: int = 3) -> FitTask:
    """Least squares, where the path depends on the order of minibatches."""
    y = jnp.asarray(np.random.default_rng(seed).normal(size=ROWS), jnp.float32)
    return FitTask(
        params=jnp.float32(0),
        opt_state=ADAM.init(jnp.float32(0)),
        data=(SHARED, y),
        loss=_squares,
        optimiser=ADAM,
        rows=StaticRows(ROWS),
        epochs=epochs,
        minibatch=4,
        key=jax.random.key(seed),
    )


@pytest.fixture(params=[False, True], ids=["side by side", "stacked"])
def stacked(request, monkeypatch) -> bool:
    """Whether tasks of one kind are computed as one, as on a GPU."""
    monkeypatch.setattr(fit_module, "stacks", lambda: request.param)
    return request.param


def _loops(tasks: dict[str, FitTask]) -> int:
    """Loops of gradient steps in the program that fits the tasks: those that carry parameters."""
    jaxpr = jax.make_jaxpr(lambda: fit(tasks))()
    return sum(each.primitive.name in ("while", "scan") for each in jaxpr.eqns)


def test_tasks_together_end_where_they_end_alone(stacked):
    # One of another kind stands between two that can be stacked.
    tasks = {"a": _regression(0), "other": _counting(minibatch=4, epochs=3), "b": _regression(1), "c": _regression(2)}
    together = fit(tasks)
    assert list(together) == list(tasks)
    ends = set()
    for name, task in tasks.items():
        alone = fit({name: task})[name]
        for ours, theirs in zip(*map(jax.tree.leaves, (together[name], alone)), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)
        ends.add(float(jnp.sum(alone[0])))
    assert len(ends) == 4


def _operations(tasks: dict[str, FitTask]) -> int:
    """Operations of a step."""
    (loop,) = [each for each in jax.make_jaxpr(lambda: fit(tasks))().eqns if each.primitive.name in ("while", "scan")]
    return len(loop.params["jaxpr" if loop.primitive.name == "scan" else "body_jaxpr"].eqns)


def test_stacked_tasks_cost_the_operations_of_one(stacked):
    one, two = (_operations({str(seed): _regression(seed) for seed in range(number)}) for number in (1, 2))
    assert (two < 1.3 * one) == stacked


def test_what_stacked_tasks_share_is_not_copied(stacked):
    jaxpr = jax.make_jaxpr(lambda: fit({str(seed): _regression(seed) for seed in range(2)}))()
    shapes = [var.aval.shape for each in jaxpr.eqns for var in each.outvars]
    assert shapes.count((2, ROWS)) == (1 if stacked else 0)


def test_samples_that_are_drawn_with_a_key_are_not_stacked(monkeypatch):
    monkeypatch.setattr(fit_module, "stacks", lambda: True)
    keys = {str(seed): jax.random.key(seed) for seed in range(2)}
    tasks = {name: dataclasses.replace(_regression(0), kept=0.5, key=key) for name, key in keys.items()}
    for name, task in tasks.items():
        np.testing.assert_allclose(fit(tasks)[name][0], fit({name: task})[name][0], rtol=1e-6)


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
        size = int(masks[name].sum())
        np.testing.assert_equal(float(metrics["weight"]), min(4, size) if size else np.nan)


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
