"""Measures of a rollout against plain loops over its steps."""

import jax.numpy as jnp
import numpy as np
import pytest

from advsurprise import methods
from advsurprise.evaluation import play
from advsurprise.learning import measures
from advsurprise.learning.measures import Steps
from advsurprise.types import SHARE, EnvSpec, Measure, Measured

ROLES = ("explore", "control")
MEASURES = (
    Measure("lit", "lights on", at_handover=True),
    Measure("noisy", "noisy rooms"),
    Measure("stilled", "noisy rooms stilled", only_where="noisy", at_handover=True),
)
SPEC = EnvSpec("test/world", (1,), "int32", "classes", 2, 2, 0, MEASURES)


def method(name: str = "adversarial-surprise"):
    return methods.make(name, SPEC)


def random_steps(seed: int, length: int = 60, bodies: int = 5, roles: int = 2) -> Steps:
    """Steps with turns and episodes of random lengths."""
    rng = np.random.default_rng(seed)
    role, noisy = np.zeros((2, length, bodies), np.int32)
    over = rng.random((length, bodies)) < 0.12
    for body in range(bodies):
        for step in range(1, length):
            new = over[step - 1, body]
            role[step, body] = rng.integers(roles) if new or rng.random() < 0.3 else role[step - 1, body]
            noisy[step, body] = rng.integers(2) if new else noisy[step - 1, body]
    values = {name: jnp.asarray(rng.normal(size=(length, bodies)), jnp.float32) for name in ("lit", "stilled")}
    own = {"own": Measured(values["lit"], jnp.asarray(rng.random((length, bodies)) < 0.5))}
    return Steps(jnp.asarray(role), jnp.asarray(over), {**values, "noisy": jnp.asarray(noisy)}, own)


def expected_turn_ends(role: np.ndarray, over: np.ndarray, begins: bool) -> list[tuple[int, int, bool]]:
    """One body's turns as (step, role, first of its role in the episode), by walking through them."""
    turns, known, had = [], begins, set()
    for step in range(len(role)):
        last = step == len(role) - 1
        if over[step] or (not last and role[step + 1] != role[step]):
            turns.append((step, int(role[step]), known and int(role[step]) not in had))
            had.add(int(role[step]))
        if over[step]:
            known, had = True, set()
    return turns


@pytest.mark.parametrize("seed", range(5))
def test_every_column_is_that_of_a_plain_loop(seed):
    steps = random_steps(seed)
    begins = np.asarray([True, False, True, False, False])
    measured = measures.columns(steps, method(), begins=jnp.asarray(begins))
    role, over, noisy = np.asarray(steps.role), np.asarray(steps.over), np.asarray(steps.info["noisy"])
    expected: dict[str, list[float]] = {}
    for name in ("lit", "stilled", "noisy"):
        value = np.asarray(steps.info[name], np.float64)
        exists = noisy > 0 if name == "stilled" else np.ones_like(over)
        for body in range(over.shape[1]):
            for step in np.flatnonzero(exists[:, body]):
                expected.setdefault(f"mean/{name}", []).append(value[step, body])
                if over[step, body]:
                    expected.setdefault(f"end/{name}", []).append(value[step, body])
            if name == "noisy":
                continue
            for step, who, first in expected_turn_ends(role[:, body], over[:, body], begins[body]):
                for which in ("first", "all") if first else ("all",):
                    if exists[step, body]:
                        column = f"handover/{ROLES[who]}/{which}/{name}"
                        expected.setdefault(column, []).append(value[step, body])
    assert set(measured) == {*expected, "own"}
    assert all(f"handover/{role}/first/stilled" in expected for role in ROLES)
    for name, values in expected.items():
        assert measures.means(measured)[name] == pytest.approx(np.mean(values), abs=1e-5), name
        assert int(measured[name].counts.sum()) == len(values), name


EDGES = (16.0, 48.0, 64.0, 200.5)


@pytest.mark.parametrize("only_where", ["", "noisy"])
def test_shares_of_bins_are_those_of_a_histogram(only_where):
    rng = np.random.default_rng(0)
    where = rng.uniform(-50, 300, (40, 3)).astype(np.float32)
    # On every edge, and beyond both ends.
    where[:4, 0], where[4:6, 0] = EDGES, (-1e6, 1e6)
    over, noisy = rng.random((40, 3)) < 0.1, rng.integers(0, 2, (40, 3))
    spec = SPEC._replace(
        measures=(Measure("where", "place", only_where=only_where, edges=EDGES), Measure("noisy", "noisy rooms"))
    )
    info = {"where": jnp.asarray(where), "noisy": jnp.asarray(noisy)}
    steps = Steps(jnp.zeros((40, 3), jnp.int32), jnp.asarray(over), info, {})
    measured = measures.columns(steps, methods.make("task", spec), begins=jnp.ones(3, bool))
    names = ["share/where/16", "share/where/48", "share/where/64"]
    assert [name for name in measured if name.startswith(SHARE)] == names == list(spec.measures[0].shares)
    counted = where[noisy > 0] if only_where else where
    expected, _ = np.histogram(np.clip(counted, 16, 200.4), EDGES)
    found = measures.means(measured)
    np.testing.assert_allclose([found[name] for name in names], expected / counted.size, rtol=1e-6)
    # Of an episode as of a rollout: the shares of its own steps.
    number = np.cumsum(over, axis=0) - over
    by_episode = sum(play.by_episode(measured[name], number, 1) for name in names)
    np.testing.assert_allclose(by_episode, 1.0)


def test_a_single_role_has_no_hand_overs():
    measured = measures.columns(random_steps(0, roles=1), method("task"), begins=jnp.ones(5, bool))
    assert not [name for name in measured if name.startswith("handover/")]


def test_a_turn_that_the_rollouts_end_cuts_is_not_counted():
    role = jnp.asarray([[0], [0], [1], [1]])
    info = {name: jnp.asarray([[1.0], [2.0], [3.0], [4.0]]) for name in ("lit", "noisy", "stilled")}
    steps = Steps(role, jnp.zeros((4, 1), bool), info, {})
    measured = measures.columns(steps, method(), begins=jnp.ones(1, bool))
    means = measures.means(measured)
    assert float(means["handover/explore/all/lit"]) == 2.0
    assert float(means["handover/explore/first/lit"]) == 2.0
    assert np.isnan(means["handover/control/all/lit"])
    assert np.isnan(means["end/lit"])


def test_common_surprise_is_that_of_counting_and_goes_over_the_ends_of_chunks():
    rng = np.random.default_rng(0)
    observed, over = rng.integers(0, 2, (12, 3, 1)), rng.random((12, 3)) < 0.2
    expected, exists = np.zeros((12, 3)), np.zeros((12, 3), bool)
    for body in range(3):
        seen: list[int] = []
        for step in range(12):
            now = int(observed[step, body, 0])
            exists[step, body] = bool(seen)
            if seen:
                # The categorical's probabilities are shares of what was seen, floored when scoring.
                expected[step, body] = -np.log(max(seen.count(now) / len(seen), 1e-3))
            seen = [] if over[step, body] else [*seen, now]
    stats = measures.no_models(SPEC, 3)
    parts = []
    for chunk in (slice(0, 5), slice(5, 12)):
        stats, part = measures.common_surprise(jnp.asarray(observed[chunk]), jnp.asarray(over[chunk]), SPEC, stats)
        parts.append(part)
    counts = np.concatenate([np.asarray(part.counts) for part in parts])
    value = np.concatenate([np.asarray(part.value) for part in parts])
    np.testing.assert_array_equal(counts, exists)
    np.testing.assert_allclose(value[exists], expected[exists], rtol=1e-4)
