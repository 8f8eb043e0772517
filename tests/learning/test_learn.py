"""Which steps a role learns from, against plain loops."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from advsurprise.config import PPOConfig, RunConfig
from advsurprise.learning.learn import role_rates, usable_steps
from advsurprise.training.fused import Fused
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


EVERY = 32
"""Environment steps of an update in the runs below."""


def _policies(explore_end: int, common_end: int) -> list[dict]:
    """Policies before and after each of three updates."""
    cfg = RunConfig(
        env="ladder/game",
        method_fields={"k_explore": 1, "k_control": 3, "explore_lr_end_steps": explore_end},
        bodies=2,
        rollout=EVERY // 2,
        steps=3 * EVERY,
        ppo=PPOConfig(minibatch=4, lr_end_steps=common_end),
    )
    loop = Fused(cfg)
    state = loop.init()
    policies = [state.learner.agent.policies]
    for _ in range(3):
        state, _ = loop.update(state)
        policies.append(state.learner.agent.policies)
    return policies


def _learns(policies: list[dict], role: str) -> list[bool]:
    """Whether each update changes the role's policy."""
    leaves = [jax.tree.leaves(each[role]) for each in policies]
    return [any(bool((a != b).any()) for a, b in zip(*both, strict=True)) for both in itertools.pairwise(leaves)]


def test_explore_can_stop_learning_before_control():
    policies = _policies(explore_end=EVERY, common_end=0)
    assert _learns(policies, "explore") == [True, False, False]
    assert _learns(policies, "control") == [True, True, True]


def test_without_an_end_of_its_own_explore_stops_with_control():
    policies = _policies(explore_end=0, common_end=2 * EVERY)
    assert _learns(policies, "explore") == _learns(policies, "control") == [True, True, False]


def test_each_role_has_its_own_rate():
    fields = {"k_explore": 1, "k_control": 3, "explore_lr_end_steps": 100}
    method = Fused(RunConfig(env="ladder/game", method_fields=fields)).method
    rates = role_rates(method, PPOConfig(lr_end_steps=400), jnp.float32(80))
    assert {role: float(rate) for role, rate in rates.items()} == pytest.approx({"explore": 0.2, "control": 0.8})
    assert role_rates(method, PPOConfig(), jnp.float32(80))["control"] is None
