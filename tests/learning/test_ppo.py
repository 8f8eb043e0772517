"""PPO against numbers derived by hand, against numpy, and on a bandit."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from advsurprise.config import PPOConfig
from advsurprise.learning import fit as fit_module
from advsurprise.learning import ppo
from advsurprise.learning.fit import MaskedRows, StaticRows, fit
from advsurprise.learning.learn import role_metrics
from advsurprise.learning.networks import ActorCritic
from advsurprise.types import EnvSpec, Score, View

SPEC = EnvSpec("bandit", (2,), "float32", "vector", 0, 3, 0, ())
CFG = PPOConfig(minibatch=8, epochs=3)


def _f(*x):
    return jnp.array(x, jnp.float32)


@functools.partial(jax.jit, static_argnames="spec")
def _network(key, spec=SPEC):
    return ActorCritic(spec, frames=1, features=0, action_bias=(0.0, 0.0, 0.0), streams=2, key=key)


@functools.partial(jax.jit, static_argnames="size")
def _batch(key, size=32):
    """A random batch of the size given."""
    keys = jax.random.split(key, 6)
    frames = jax.random.normal(keys[0], (size, 1, 2))
    view = View(frames, jnp.zeros((size, 2, 0)), jnp.zeros(size))
    return ppo.Batch(
        view=view,
        action=jax.random.randint(keys[1], (size,), 0, 3),
        log_prob=jnp.log(jax.random.uniform(keys[2], (size,), minval=0.2, maxval=0.5)),
        value=jax.random.normal(keys[3], (size, 2)),
        advantage=jax.random.normal(keys[4], (size,)),
        target=jax.random.normal(keys[5], (size, 2)),
    )


def test_policy_loss_by_hand():
    # ε = 0.2. ratio 1.5, A = 2: min(3, 1.2·2) = 2.4. ratio 0.5, A = 2: min(1, 0.8·2) = 1.
    # ratio 1.5, A = −1: min(−1.5, −1.2) = −1.5. ratio 0.5, A = −1: min(−0.5, −0.8) = −0.8.
    # Loss: −(2.4 + 1 − 1.5 − 0.8) / 4 = −0.275.
    ratio, advantage = _f(1.5, 0.5, 1.5, 0.5), _f(2, 2, -1, -1)
    old = jnp.log(_f(0.3, 0.4, 0.1, 0.6))
    loss = ppo.policy_loss(old + jnp.log(ratio), old, advantage, jnp.ones(4), clip=0.2)
    assert float(loss) == pytest.approx(-0.275, abs=1e-6)


def test_the_policys_gradient_is_zero_exactly_where_clipped():
    # Clipped: ratio above 1 + ε with A > 0, below 1 − ε with A < 0. Elsewhere d loss / d log π = −ρ A / N.
    ratio = _f(1.5, 0.5, 1.5, 0.5, 1.1, 0.9)
    advantage = _f(2, 2, -1, -1, 3, -3)
    gradient = jax.grad(ppo.policy_loss)(jnp.log(ratio), jnp.zeros(6), advantage, jnp.ones(6), clip=0.2)
    expected = -np.array([0, 0.5 * 2, 1.5 * -1, 0, 1.1 * 3, 0.9 * -3]) / 6
    np.testing.assert_allclose(gradient, expected, rtol=1e-5)
    assert gradient[0] == gradient[3] == 0


def test_value_loss_by_hand():
    # ε = 0.2, V_old = 0. V = 1, R = 2: max((1 − 2)², (0.2 − 2)²) = 3.24. V = 1, R = 0: max(1, 0.04) = 1.
    # V = 0.1, R = 1: both 0.81. One stream: mean (3.24 + 1 + 0.81) / 3 = 1.68333. No limit: (1 + 1 + 0.81) / 3.
    value, old, target = _f(1, 1, 0.1)[:, None], jnp.zeros((3, 1)), _f(2, 0, 1)[:, None]
    clipped, free = (ppo.value_loss(value, old, target, jnp.ones(3), clip=clip) for clip in (0.2, 0.0))
    assert float(clipped) == pytest.approx(5.05 / 3, rel=1e-6)
    assert float(free) == pytest.approx(2.81 / 3, rel=1e-6)


def test_value_losses_of_streams_add_up():
    value, target = jnp.array([[1.0, 2.0], [0.0, 1.0]]), jnp.zeros((2, 2))
    assert float(ppo.value_loss(value, value, target, jnp.ones(2), clip=0.0)) == pytest.approx((5 + 1) / 2)


@pytest.mark.slow
def test_the_whole_loss_is_numpys(getkey):
    network, batch = _network(getkey()), _batch(getkey())
    weight = (jnp.arange(32) % 3 > 0).astype(jnp.float32)
    cfg = PPOConfig(value_coef=0.7, entropy_coef=0.03, normalise_advantage=True, clip=0.1, value_clip=0.3)
    total, metrics = ppo.loss(network, batch, weight, cfg)
    expected = _numpy_loss(network, batch, weight, cfg)
    assert float(total) == pytest.approx(expected["loss"], rel=1e-4)
    for name in ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction"):
        assert float(metrics[name]) == pytest.approx(expected[name], rel=1e-4, abs=1e-6)


def _numpy_loss(network, batch, weight, cfg):
    """The loss over samples of weight 1, as if the others were not there."""
    kept = np.flatnonzero(weight)
    logits, value = jax.tree.map(lambda x: np.asarray(x, np.float64)[kept], jax.vmap(network)(batch.view))
    pick = {f: np.asarray(getattr(batch, f))[kept] for f in ("action", "log_prob", "value", "advantage", "target")}
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    log_ratio = np.log(p[np.arange(len(kept)), pick["action"]]) - pick["log_prob"]
    ratio = np.exp(log_ratio)
    a = (pick["advantage"] - pick["advantage"].mean()) / (pick["advantage"].std() + 1e-8)
    pi = -np.minimum(ratio * a, np.clip(ratio, 1 - cfg.clip, 1 + cfg.clip) * a).mean()
    near = pick["value"] + np.clip(value - pick["value"], -cfg.value_clip, cfg.value_clip)
    v = np.maximum((value - pick["target"]) ** 2, (near - pick["target"]) ** 2).sum(1).mean()
    entropy = -(p * np.log(p)).sum(1).mean()
    return {
        "loss": pi + cfg.value_coef * v - cfg.entropy_coef * entropy,
        "policy_loss": pi,
        "value_loss": v,
        "entropy": entropy,
        "approx_kl": (ratio - 1 - log_ratio).mean(),
        "clip_fraction": (np.abs(ratio - 1) > cfg.clip).mean(),
    }


def test_the_entropy_of_an_even_policy_is_log_of_its_actions(getkey):
    network = _network(getkey())
    even = eqx.tree_at(lambda n: (n.actor.weight, n.actor.bias), network, (jnp.zeros((3, 64)), jnp.ones(3)))
    _, metrics = ppo.loss(even, _batch(getkey()), jnp.ones(32), CFG)
    assert float(metrics["entropy"]) == pytest.approx(np.log(3), rel=1e-6)


def test_advantages_are_left_alone_unless_asked(getkey):
    network, batch = _network(getkey()), _batch(getkey())
    cfg = PPOConfig(value_coef=0.0, entropy_coef=0.0, normalise_advantage=False)
    doubled = dataclasses.replace(batch, advantage=2 * batch.advantage)
    once, twice = (float(ppo.loss(network, b, jnp.ones(32), cfg)[0]) for b in (batch, doubled))
    assert twice == pytest.approx(2 * once, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("normalise", [False, True])
def test_rows_of_others_have_no_influence_at_all(getkey, normalise):
    cfg = dataclasses.replace(CFG, normalise_advantage=normalise)
    network, batch, other = _network(getkey()), _batch(getkey()), _batch(getkey())
    mine = jnp.arange(32) % 3 == 0
    junk = jax.tree.map(lambda a, b: jnp.where(mine.reshape(-1, *[1] * (a.ndim - 1)), a, b), batch, other)
    key = getkey()
    results = [_update(network, b, cfg, key, mine) for b in (batch, junk)]
    assert any(not np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (batch, junk)), strict=True))
    for a, b in zip(*map(jax.tree.leaves, results), strict=True):
        assert np.array_equal(a, b)


def test_a_role_that_did_not_act_takes_no_step(getkey):
    network, nobody = _network(getkey()), jnp.zeros(32, bool)
    policy, opt_state, metrics = _update(network, _batch(getkey()), CFG, getkey(), nobody)
    assert all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (network, policy)), strict=True))
    assert int(optax.tree.get(opt_state, "count")) == 0
    assert all(jnp.isnan(value) for value in metrics.values())


@pytest.mark.parametrize("samples", [0, 1])
def test_a_role_without_samples_has_no_metrics(getkey, samples):
    nothing = jnp.zeros((8, 4, 2))
    score = Score(nothing, nothing, nothing > 0, nothing[..., 0], nothing)
    metrics = role_metrics(_batch(getkey()), score, MaskedRows(jnp.arange(32) < samples))
    assert float(metrics.pop("steps")) == samples
    assert all(bool(jnp.isnan(value)) == (samples == 0) for value in metrics.values())


@functools.partial(jax.jit, static_argnames="cfg")
def _update(network, batch, cfg, key, rows=None):
    mask = None if rows is None else MaskedRows(rows)
    task = ppo.fit_task(network, ppo.optimiser(cfg).init(network), batch, cfg, rows=mask, key=key)
    return fit({"agent": task})["agent"]


def test_roles_that_share_a_view_are_fitted_alike_stacked_or_not(getkey, monkeypatch):
    networks, batch, other, key = (_network(getkey()), _network(getkey())), _batch(getkey()), _batch(getkey()), getkey()
    batches = (batch, dataclasses.replace(other, view=batch.view))

    def update(networks, batches, keys):
        tasks = {
            str(role): ppo.fit_task(network, ppo.optimiser(CFG).init(network), batch, CFG, key=keys[role])
            for role, (network, batch) in enumerate(zip(networks, batches, strict=True))
        }
        return list(fit(tasks).values())

    results = []
    for stacked in (False, True):
        monkeypatch.setattr(fit_module, "stacks", lambda stacked=stacked: stacked)
        results.append(jax.jit(lambda *args: update(*args))(networks, batches, jax.random.split(key)))
    for ours, theirs in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=1e-6)


@pytest.mark.slow
def test_an_update_raises_the_better_arm(getkey):
    # Arm 2 pays 1, the others −½; rewards less their mean are the advantages.
    network = _network(getkey())
    batch = _batch(getkey(), size=96)
    batch = dataclasses.replace(batch, view=jax.tree.map(jnp.ones_like, batch.view))
    logits, value = jax.vmap(network)(batch.view)
    action = jnp.arange(96, dtype=jnp.int32) % 3
    log_prob = jax.nn.log_softmax(logits)[jnp.arange(96), action]
    advantage = jnp.where(action == 2, 1.0, -0.5)
    batch = dataclasses.replace(batch, action=action, log_prob=log_prob, value=value, target=value, advantage=advantage)
    policy, _, _ = _update(network, batch, PPOConfig(lr=3e-3, minibatch=32), getkey())
    before, after = (jax.nn.softmax(jax.vmap(n)(batch.view)[0])[:, 2] for n in (network, policy))
    assert float(jnp.min(after - before)) > 0.02


def _count_rows():
    """An optimiser that moves nothing and counts, for each input of the first layer, the gradients that reach it."""

    def count(gradient, counts, policy):
        reached = jnp.any(gradient.torso.layers[0].weight != 0, axis=0)
        return jax.tree.map(jnp.zeros_like, policy), counts + reached.astype(jnp.float32)

    return optax.GradientTransformation(lambda policy: jnp.zeros(policy.torso.layers[0].weight.shape[1]), count)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("size", "minibatch"), [(16, 4), (15, 4), (3, 4)])
@pytest.mark.slow
def test_minibatches_cover_each_of_a_roles_samples_once_an_epoch(getkey, size, minibatch, known):
    # Sample i shows a 1 in entry i alone, so row i of the first layer has a gradient exactly when i is in a minibatch.
    # Every second sample is another role's.
    total = 2 * size
    spec = SPEC._replace(observation_shape=(total,))
    network = _network(getkey(), spec)
    view = View(jnp.eye(total)[:, None], jnp.zeros((total, total, 0)), jnp.zeros(total))
    batch = dataclasses.replace(_batch(getkey(), size=total), view=view)
    rows = StaticRows(total, np.arange(1, total, 2)) if known else MaskedRows(jnp.arange(total) % 2 == 1)
    optimiser = _count_rows()
    cfg = PPOConfig(epochs=5, minibatch=minibatch)
    task = ppo.fit_task(network, optimiser.init(network), batch, cfg, rows=rows, key=getkey())
    _, counts, _ = fit({"agent": dataclasses.replace(task, optimiser=optimiser)})["agent"]
    # 15 samples make three minibatches of 4: each epoch leaves out 3, anew each time.
    left_out = size % min(minibatch, size)
    counts, others = counts[1::2], counts[::2]
    assert not others.any()
    assert float(counts.sum()) == 5 * (size - left_out)
    assert float(counts.max()) == 5
    assert (float(counts.min()) == 5) == (left_out == 0)


def test_another_key_shuffles_otherwise(getkey):
    # Adam's path depends on the order of minibatches.
    network, batch = _network(getkey()), _batch(getkey())
    once, again = (_update(network, batch, CFG, getkey())[0] for _ in range(2))
    assert not np.array_equal(once.critic.weight, again.critic.weight)


@pytest.mark.slow
def test_gradient_steps_are_no_longer_than_allowed():
    gradient = {"a": jnp.ones((3, 4)), "b": jnp.full(5, -2.0)}
    optimiser = ppo.optimiser(PPOConfig(max_grad_norm=0.5))
    with jax.numpy_dtype_promotion("standard"):
        _, state = optimiser.update(gradient, optimiser.init(gradient), gradient)
    # Adam's first moment after one step is 0.1 of the gradient it was given.
    first_moment = jax.tree.leaves(optax.tree_utils.tree_get(state, "mu"))
    assert np.sqrt(sum(np.sum(leaf**2) for leaf in first_moment)) == pytest.approx(0.1 * 0.5, rel=1e-4)


def _rates(optimiser, steps):
    """Learning rates of successive steps: with a constant gradient Adam moves by the rate itself."""
    parameter = jnp.zeros(3)
    state = optimiser.init(parameter)
    rates = []
    with jax.numpy_dtype_promotion("standard"):
        for _ in range(steps):
            change, state = optimiser.update(jnp.ones(3), state, parameter)
            rates.append(-float(change[0]))
    return np.array(rates)


def test_the_learning_rate_is_constant_unless_asked():
    np.testing.assert_allclose(_rates(ppo.optimiser(PPOConfig(lr=1e-3)), 30), 1e-3, rtol=1e-3)


@pytest.mark.parametrize(("steps", "factor"), [(0, 1.0), (250, 0.75), (1000, 0.0), (5000, 0.0)])
def test_the_rate_falls_linearly_in_environment_steps_and_stays_at_zero(steps, factor):
    assert float(ppo.rate_factor(1000, jnp.float32(steps))) == pytest.approx(factor)


def test_without_an_end_the_rate_has_no_factor():
    assert ppo.rate_factor(0, jnp.float32(5)) is None


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"lr": 0.0}, "ppo.lr must be positive"),
        ({"lr_end_steps": -1}, "ppo.lr_end_steps must be at least 0"),
        ({"epochs": 0}, "ppo.epochs must be at least 1"),
        ({"minibatch": 0}, "ppo.minibatch must be at least 1"),
        ({"minibatches": -1}, "ppo.minibatches must be at least 0"),
        ({"clip": 0.0}, "ppo.clip must be positive"),
        ({"value_clip": -0.1}, "ppo.value_clip must be at least 0"),
        ({"max_grad_norm": 0.0}, "ppo.max_grad_norm must be positive"),
        ({"gae_lambda": 1.5}, "ppo.gae_lambda must be 0 to 1"),
    ],
)
def test_impossible_settings_are_refused(fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        PPOConfig(**fields)
