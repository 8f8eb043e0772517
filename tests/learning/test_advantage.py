"""turn_gae against three oracles in float64 numpy, none of which shares its recursion over played_by's steps."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from advsurprise.learning.advantage import turn_gae

T, B = 37, 3
GAMMA = 0.9
SEEDS = st.integers(0, 2**32 - 1)
RATES = st.sampled_from([0.0, 0.05, 0.3, 1.0])

_turn_gae = jax.jit(turn_gae, static_argnames="lam")


def _experience(seed, *, turns, terminates, truncates):
    """Random rewards, values, ends and turns, axes [T, B]: a turn passes on with probability `turns` at each step."""
    rng = np.random.default_rng(seed)
    passes = rng.random((T, B)) < turns
    terminated = rng.random((T, B)) < terminates
    truncated = (rng.random((T, B)) < truncates) & ~terminated
    return {
        "reward": rng.normal(size=(T, B)),
        "value": rng.normal(size=(T, B)),
        "final_value": np.where(truncated, rng.normal(size=(T, B)), 0.0),
        "discount": np.where(terminated, 0.0, GAMMA),
        "cut": terminated | truncated,
        "active": np.cumsum(passes, axis=0) % 2 == 0,
        "last_value": rng.normal(size=B),
    }


def _library(experience, lam):
    def cast(x):
        return jnp.asarray(x) if x.dtype == bool else jnp.asarray(x, jnp.float32)

    return np.asarray(_turn_gae(**{name: cast(x) for name, x in experience.items()}, lam=lam))


def _body(experience, body):
    return {name: x[..., body] for name, x in experience.items()}


def _gae(reward, value, next_value, discount, cut, lam):
    """Schulman et al. 2016, equation 16, one body, as a double sum: A_t = Σ_l (Π γλ) δ_{t+l} within the episode."""
    delta = reward + discount * next_value - value
    advantages = np.zeros(len(reward))
    for t in range(len(reward)):
        weight = 1.0
        for s in range(t, len(reward)):
            advantages[t] += weight * delta[s]
            weight *= discount[s] * lam
            if cut[s]:
                break
    return advantages


def _plain_gae(data, lam):
    """One role: the next value is that of the next step, of what a cut step led to, or of what follows the rollout."""
    following = np.append(data["value"][1:], data["last_value"])
    next_value = np.where(data["cut"], data["final_value"], following)
    return _gae(data["reward"], data["value"], next_value, data["discount"], data["cut"], lam)


@settings(deadline=None, max_examples=40)
@given(SEEDS, RATES, RATES, st.sampled_from([0.0, 0.5, 0.95, 1.0]))
@example(0, 0.0, 0.0, 0.95)
def test_with_one_role_it_is_gae(seed, terminates, truncates, lam):
    experience = _experience(seed, turns=0.0, terminates=terminates, truncates=truncates)
    assert experience["active"].all()
    expected = np.stack([_plain_gae(_body(experience, body), lam) for body in range(B)], axis=1)
    np.testing.assert_allclose(_library(experience, lam), expected, rtol=1e-4, atol=1e-4)


def _return(data, t):
    """What the role really gets from its step t on: its own rewards, discounted once per own step, and the value
    found where the episode is cut or the rollout ends. A true end, on anyone's step, leaves nothing."""
    total, weight = 0.0, 1.0
    for s in range(t, T):
        if data["active"][s]:
            total += weight * data["reward"][s]
            weight *= GAMMA
        if data["cut"][s]:
            truncated = data["discount"][s] > 0
            return total + (weight * data["final_value"][s] if truncated else 0.0)
    return total + weight * data["last_value"]


def _return_less_value(data):
    steps = range(T)
    return np.array([_return(data, t) - data["value"][t] if data["active"][t] else 0.0 for t in steps])


@settings(deadline=None, max_examples=60)
@given(SEEDS, RATES, RATES, RATES)
@example(0, 0.3, 0.0, 0.0)
@example(0, 1.0, 0.3, 0.3)
def test_at_lambda_1_it_is_the_return_less_the_value(seed, turns, terminates, truncates):
    experience = _experience(seed, turns=turns, terminates=terminates, truncates=truncates)
    expected = np.stack([_return_less_value(_body(experience, body)) for body in range(B)], axis=1)
    np.testing.assert_allclose(_library(experience, 1.0), expected, rtol=1e-4, atol=1e-4)


def _credit_as_published(data, lam):
    """The authors' rule: an agent's own samples are next to each other as if contiguous, the discount counts once
    across the other's turn, and the mask is 0 where an episode ended anywhere before the agent's next sample."""
    own = np.flatnonzero(data["active"])
    bounds = np.append(own, T)
    over = np.array([data["cut"][a:b].any() for a, b in itertools.pairwise(bounds)], bool)
    value = data["value"][own]
    next_value = np.append(value[1:], data["last_value"]) if len(own) else value
    discount = np.where(over, 0.0, GAMMA)
    packed = _gae(data["reward"][own], value, next_value, discount, over, lam)
    advantages = np.zeros(T)
    advantages[own] = packed
    return advantages


@settings(deadline=None, max_examples=60)
@given(SEEDS, st.sampled_from([0.05, 0.3, 1.0]), RATES, st.sampled_from([0.0, 0.95]))
def test_with_true_ends_it_is_the_authors_credit_rule(seed, turns, terminates, lam):
    experience = _experience(seed, turns=turns, terminates=terminates, truncates=0.0)
    expected = np.stack([_credit_as_published(_body(experience, body), lam) for body in range(B)], axis=1)
    np.testing.assert_allclose(_library(experience, lam), expected, rtol=1e-4, atol=1e-4)


def test_credit_crosses_the_turn_of_the_other_by_hand():
    # Own steps 0 and 3, the other's 1 and 2; γ = λ = ½. Rewards on the other's steps (9) must not count.
    #   δ_3 = 2 + ½·4 − 1 = 3            (last_value 4)      A_3 = 3
    #   δ_0 = 1 + ½·V_3 − V_0 = 1 + ½ − 3 = −1.5             A_0 = −1.5 + ½·½·3 = −0.75
    def column(*x):
        return jnp.array(x, jnp.float32)[:, None]

    advantage = turn_gae(
        reward=column(1, 9, 9, 2),
        value=column(3, 7, 7, 1),
        final_value=column(0, 0, 0, 0),
        discount=column(0.5, 0.5, 0.5, 0.5),
        cut=jnp.zeros((4, 1), bool),
        active=jnp.array([True, False, False, True])[:, None],
        last_value=jnp.array([4.0]),
        lam=0.5,
    )
    np.testing.assert_allclose(advantage[:, 0], [-0.75, 0, 0, 3], rtol=1e-6)
