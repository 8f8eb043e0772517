"""Which steps a role learns from, against plain loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from advsurprise.learning.learn import usable_steps
from advsurprise.types import Decision, Rollout, Score

STEPS, BODIES, ROLES = 23, 40, 3


def _rollout(rng):
    """Random turns of three roles, random ends, random values."""
    role = np.repeat(rng.integers(0, ROLES, (STEPS // 3 + 1, BODIES)), 3, axis=0)[:STEPS]
    value = jnp.asarray(rng.normal(size=(STEPS, BODIES, 1)), jnp.float32)
    zeros, ends = jnp.zeros((STEPS, BODIES)), jnp.asarray(rng.random((STEPS, BODIES)) < 0.08)
    idle = jnp.zeros((STEPS, BODIES), jnp.int32)
    decision = jax.vmap(Decision)(jnp.asarray(role, jnp.int32), idle, zeros[..., None], zeros, value)
    last_value = {str(index): jnp.full((BODIES, 1), 100.0 + index) for index in range(ROLES)}
    next_role = jnp.asarray(rng.integers(0, ROLES, BODIES), jnp.int32)
    return Rollout(decision, zeros, ends, jnp.zeros_like(ends), {}, last_value, None, {}, next_role)


def _usable(role, next_role, ends, settled, index):
    """Of one body: whether each step is the role's own, settled, and followed by its end or by its next own step."""
    usable = []
    for step in range(STEPS):
        later = range(step + 1, STEPS)
        over = next((t for t in range(step, STEPS) if ends[t]), None)
        again = next((t for t in later if role[t] == index), STEPS if next_role == index else None)
        known = over is not None or again is not None
        usable.append(bool(role[step] == index and settled[step] and known))
    return usable


@pytest.mark.parametrize("index", range(ROLES))
def test_a_step_is_learned_from_when_what_follows_it_is_known(index):
    rng = np.random.default_rng(index)
    rollout = _rollout(rng)
    # Steps that are not settled come last, as they do where a later turn pays.
    settled = np.arange(STEPS)[:, None] < rng.integers(STEPS // 2, STEPS + 1, BODIES)
    cut = rollout.terminated[..., None]
    nothing = jnp.zeros((STEPS, BODIES, 1))
    score = Score(nothing, nothing, cut, nothing[..., 0], nothing, jnp.asarray(settled))
    usable, last_value = usable_steps(rollout, score, index, rollout.last_value[str(index)])
    role, ends = np.asarray(rollout.decision.role), np.asarray(rollout.terminated)
    seen = set()
    for body in range(BODIES):
        expected = _usable(role[:, body], int(rollout.next_role[body]), ends[:, body], settled[:, body], index)
        assert np.asarray(usable)[:, body].tolist() == expected
        waiting = [t for t in range(STEPS) if role[t, body] == index and not expected[t]]
        # The stream ends before the first step that waits, with the value that the role had there.
        value = float(rollout.decision.value[waiting[0], body, 0]) if waiting else 100.0 + index
        assert float(last_value[body, 0]) == pytest.approx(value)
        seen.add(bool(waiting))
    assert seen == {True, False}
