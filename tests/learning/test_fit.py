"""The loop of gradient steps: what fit_tasks share, and which samples count."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from advsurprise.learning.fit import FitTask, fit, named

ROWS = 24


def _counting(*, mine: int | np.ndarray | jax.Array = ROWS, **fields) -> FitTask:
    """A fit_task whose parameters count how often each row came up with weight 1."""

    def loss(counts, rows, weight):
        return -jnp.sum(counts[rows] * weight), {"weight": jnp.sum(weight)}

    optimiser = optax.sgd(1.0)
    counts = jnp.zeros(ROWS)
    settings = {"epochs": 3, "minibatch": 4, "key": jax.random.key(0)} | fields
    return FitTask(
        params=counts, opt_state=optimiser.init(counts), loss=loss, optimiser=optimiser, mine=mine, **settings
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
        mine=ROWS,
        epochs=epochs,
        minibatch=4,
        key=jax.random.key(seed),
    )


def _loops(fit_tasks: dict[str, FitTask]) -> int:
    """Loops of gradient steps in the program that fits the fit_tasks: those that carry parameters."""
    jaxpr = jax.make_jaxpr(lambda: fit(fit_tasks))()
    return sum(each.primitive.name in ("while", "scan") for each in jaxpr.eqns)


def test_lessons_side_by_side_end_where_they_end_alone():
    fit_tasks = {"a": _regression(0), "b": _regression(1), "c": _regression(2)}
    together = fit(fit_tasks)
    assert list(together) == list(fit_tasks)
    ends = set()
    for name, fit_task in fit_tasks.items():
        alone = fit({name: fit_task})[name]
        for ours, theirs in zip(*map(jax.tree.leaves, (together[name], alone)), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)
        ends.add(float(alone[0]))
    assert len(ends) == 3


@pytest.mark.parametrize(("epochs", "loops"), [((3, 3), 1), ((3, 2), 2)])
def test_lessons_of_equal_length_share_a_loop(epochs, loops):
    fit_tasks = {name: _regression(0, epochs=number) for name, number in zip("ab", epochs, strict=True)}
    assert _loops(fit_tasks) == loops
    taken = [int(optax.tree.get(state, "count")) for _, state, _ in fit(fit_tasks).values()]
    assert taken == [number * ROWS // 4 for number in epochs]


def test_lessons_of_unknown_length_have_loops_of_their_own():
    masks = {name: jnp.arange(ROWS) < size for name, size in (("few", 3), ("half", 12), ("none", 0))}
    fit_tasks = {name: _counting(mine=mask) for name, mask in masks.items()}
    assert _loops(fit_tasks) == 3
    for name, (counts, _, found) in fit(fit_tasks).items():
        np.testing.assert_array_equal(counts, jnp.where(masks[name], 3, 0))
        assert float(found["weight"]) == min(4, int(masks[name].sum()))


def test_every_sample_counts_unless_only_a_share_is_kept():
    counts, _, found = fit({"all": _counting()})["all"]
    np.testing.assert_array_equal(counts, 3)
    assert float(found["weight"]) == 4


def test_samples_with_given_numbers_are_the_only_ones():
    rows = np.array([1, 5, 7, 20])
    counts, _, _ = fit({"some": _counting(mine=rows, minibatch=2)})["some"]
    np.testing.assert_array_equal(np.flatnonzero(counts), rows)
    np.testing.assert_array_equal(counts[rows], 3)


def test_a_share_of_the_samples_is_chosen_anew_in_every_pass():
    passes = 400
    counts, _, found = fit({"some": _counting(kept=0.25, epochs=passes)})["some"]
    # Binomial(400, ¼): mean 100, standard deviation 8.7.
    assert np.abs(np.asarray(counts) - 100).max() < 5 * 8.7
    assert len(set(counts.tolist())) > 5
    assert float(found["weight"]) == pytest.approx(1, abs=0.15)


def test_the_key_that_shuffles_a_pass_does_not_choose_the_samples_that_count():
    fit_task = _counting(kept=0.5, epochs=1, minibatch=ROWS)
    counts, _, _ = fit({"some": fit_task})["some"]
    shuffling = jax.random.split(fit_task.key, 1)[0]
    assert not np.array_equal(counts[fit_task.orders()] == 1, jax.random.bernoulli(shuffling, 0.5, (ROWS,)))


def test_metrics_bear_their_lessons_names():
    found = named(fit({"a": _regression(0), "b": _counting()}))
    assert set(found) == {"a/slope", "a/loss", "a/grad_norm", "b/weight", "b/loss", "b/grad_norm"}
