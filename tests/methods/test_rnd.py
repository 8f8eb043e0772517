"""Random Network Distillation against plain numpy loops in float64, and what its error does where there is noise."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from advsurprise.errors import UserError
from advsurprise.learning import learn
from advsurprise.learning.fit import fit, named
from advsurprise.methods.rnd import RND, Signal
from advsurprise.types import Decision, EnvSpec, Rollout, TimeStep

pytestmark = pytest.mark.slow

STEPS, BODIES = 7, 3
REAL = EnvSpec("reals", (3,), "float32", "vector", 0, 4, 0, ())
CELLS = EnvSpec("cells", (2, 2, 3), "uint8", "classes", 4, 4, 0, ())
WORDS = EnvSpec("words", (12,), "uint8", "classes", 6, 4, 0, ())


def make_rollout(obs, *, method, reward=None, over=None, seed=0):
    """A rollout in which the actions led to `obs`; values are random, the rest is of no importance."""
    rng = np.random.default_rng(seed)
    shape, streams = obs.shape[:2], len(method.streams)

    def value(*axes):
        return jnp.asarray(rng.normal(size=(*axes, streams)), jnp.float32)

    nothing = jnp.zeros(shape)
    idle = jnp.zeros(shape, jnp.int32)
    return Rollout(
        decision=jax.vmap(Decision)(idle, idle, jnp.zeros((*shape, 4)), nothing, value(*shape)),
        reward=nothing if reward is None else jnp.asarray(reward, jnp.float32),
        terminated=jnp.zeros(shape, bool) if over is None else jnp.asarray(over),
        truncated=jnp.zeros(shape, bool),
        final_value={"agent": jnp.zeros((*shape, streams))},
        last_value={"agent": value(shape[1])},
        signal=Signal(jnp.asarray(obs, method.spec.observation_dtype)),
        info={},
        next_role=jnp.zeros(shape[1], jnp.int32),
    )


@functools.partial(jax.jit, static_argnums=(0, 1))
def init(method, bodies, key):
    return method.init(bodies=bodies, key=key)


@functools.partial(jax.jit, static_argnums=0)
def update(method, learnt, rollout, key):
    """Both halves of an update, in the learner's order."""
    scored, scores = method.score(learnt, rollout)
    fitted = fit(method.fit_tasks(scored, rollout, key=key))
    after, metrics = method.learn(scored, rollout, fitted)
    return scored, scores["agent"], after, metrics | named(fitted)


def draw(*axes, seed=0, spec=REAL):
    rng = np.random.default_rng(seed)
    # Entries of very different spread, and one that never changes.
    return (rng.normal(size=(*axes, *spec.observation_shape)) * [1.0, 40.0, 0.0] + [0.5, -9.0, 3.0]).astype(np.float32)


# The oracle: networks, moments and the filter in float64.


def dense(layer, x):
    return x @ np.asarray(layer.weight, np.float64).T + np.asarray(layer.bias, np.float64)


def embed(network, x):
    """Two tanh layers of the torso, ReLU layers, a linear last one."""
    for layer in network.torso.layers:
        x = np.tanh(dense(layer, x))
    for layer in network.layers[:-1]:
        x = np.maximum(dense(layer, x), 0)
    return dense(network.layers[-1], x)


def standardise(history, x):
    """By all samples so far and 10⁻⁴ of a sample with mean 0 and variance 1, an entry at a time."""
    x, history = np.asarray(x, np.float64), np.asarray(history, np.float64)
    weight = 1e-4 + len(history)
    mean = history.sum(0) / weight
    var = (1e-4 + (history**2).sum(0)) / weight - mean**2
    return np.clip((x - mean) / np.sqrt(var + 1e-6), -5, 5)


def squared_misses(learnt, history, obs):
    """(f_k − g_k)² of every observation and output."""
    x = standardise(history, obs)
    return (embed(learnt.target, x) - embed(learnt.predictor, x)) ** 2


def std_of(returns):
    samples = np.asarray(returns)
    weight = 1e-4 + samples.size
    return math.sqrt((1e-4 + (samples**2).sum()) / weight - (samples.sum() / weight) ** 2 + 1e-8)


@pytest.fixture(scope="module")
def three_updates():
    """Priming and three rollouts in a row, with all that the library makes of them. One gradient step per update."""
    method = RND(REAL, width=5, epochs=1, minibatches=1, gamma=0.9, lr=1e-2)
    primer, *rollouts = (draw(STEPS, BODIES, seed=seed) for seed in range(4))
    begin = init(method, BODIES, jax.random.key(1))
    learnt = method.prime(begin, make_rollout(primer, method=method))
    rows = []
    for number, obs in enumerate(rollouts):
        over = np.zeros((STEPS, BODIES), bool)
        over[2, 1] = over[6, 0] = True
        found = update(method, learnt, make_rollout(obs, method=method, over=over), jax.random.key(number))
        rows.append((learnt, obs, *found))
        learnt = found[2]
    return method, primer, begin, rows


def test_rewards_are_errors_over_the_spread_of_returns_filtered_along_time(three_updates):
    method, primer, _, rows = three_updates
    history = list(primer.reshape(-1, 3))
    running, returns = [0.0] * BODIES, []
    for before, obs, scored, score, _, metrics in rows:
        # Scored before the moments take in this rollout, by the predictor as it was.
        raw = 0.5 * squared_misses(before, history, obs).sum(-1)
        for t in range(STEPS):
            for b in range(BODIES):
                # Episodes ended on the way: the filter knows nothing of that.
                running[b] = method.gamma * running[b] + raw[t, b]
                returns.append(running[b])
        np.testing.assert_allclose(score.reward[..., 0], raw / std_of(returns), rtol=2e-4)
        np.testing.assert_allclose(scored.discounted, running, rtol=2e-4)
        assert float(metrics["intrinsic/raw"]) == pytest.approx(raw.mean(), rel=2e-4)
        assert float(metrics["intrinsic/reward"]) == pytest.approx(raw.mean() / std_of(returns), rel=2e-4)
        assert float(metrics["intrinsic/return_std"]) == pytest.approx(std_of(returns), rel=2e-4)
        limited = np.abs(standardise(history, obs)) >= 5
        assert float(metrics["intrinsic/clipped"]) == pytest.approx(limited.mean(), abs=1e-6)
        history += list(obs.reshape(-1, 3))


def test_the_predictor_learns_on_moments_that_have_taken_in_the_rollout(three_updates):
    _, primer, _, rows = three_updates
    history = list(primer.reshape(-1, 3))
    for before, obs, scored, _, after, metrics in rows:
        history += list(obs.reshape(-1, 3))
        assert np.array_equal(scored.inputs.mean, before.inputs.mean)
        np.testing.assert_allclose(after.inputs.mean, np.mean(history, axis=0), rtol=1e-4)
        # One step over all samples: its loss is that of the predictor before, on the new moments.
        expected = squared_misses(before, history, obs).mean()
        assert float(metrics["predictor/loss"]) == pytest.approx(expected, rel=1e-4)


def test_the_target_stays_and_the_predictor_improves(three_updates):
    _, _, begin, rows = three_updates
    last = rows[-1][4]
    for first, now in zip(jax.tree.leaves(begin.target), jax.tree.leaves(last.target), strict=True):
        assert np.array_equal(first, now)
    losses = [float(row[-1]["predictor/loss"]) for row in rows]
    assert losses[2] < losses[0]


def numpy_gae(reward, value, last_value, discount, cut, lam):
    """Backwards, a body at a time; V after a cut is 0."""
    advantage = np.zeros(reward.shape)
    for b in range(reward.shape[1]):
        following, carried = last_value[b], 0.0
        for t in reversed(range(len(reward))):
            if cut[t, b]:
                following, carried = 0.0, 0.0
            advantage[t, b] = reward[t, b] + discount * following - value[t, b] + discount * lam * carried
            following, carried = value[t, b], advantage[t, b]
    return advantage


def test_the_intrinsic_future_goes_on_past_episodes_and_the_extrinsic_does_not():
    method = RND(REAL, width=4, extrinsic=2.0, gamma=0.9, gamma_extrinsic=0.8)
    assert method.streams == {"intrinsic": 1.0, "extrinsic": 2.0}
    over = np.zeros((STEPS, BODIES), bool)
    over[1, 0] = over[4, 2] = over[6, 1] = True
    reward = np.random.default_rng(5).normal(size=(STEPS, BODIES)) * 2
    rollout = make_rollout(draw(STEPS, BODIES), method=method, reward=reward, over=over)
    learnt = init(method, BODIES, jax.random.key(0))
    _, scores = jax.jit(method.score)(learnt, rollout)
    batch, _, _ = learn.role_batch(rollout, scores["agent"], 0, method, lam=0.95)
    value = np.asarray(rollout.decision.value, np.float64)
    last = np.asarray(rollout.last_value["agent"], np.float64)
    intrinsic = np.asarray(scores["agent"].reward[..., 0], np.float64)
    assert np.abs(reward).max() > 1
    ours = numpy_gae(intrinsic, value[..., 0], last[:, 0], 0.9, np.zeros_like(over), 0.95)
    task = numpy_gae(np.clip(reward, -1, 1), value[..., 1], last[:, 1], 0.8, over, 0.95)
    np.testing.assert_allclose(batch.advantage, (ours + 2 * task).reshape(-1), rtol=1e-4, atol=1e-5)
    target = value + np.stack([ours, task], axis=-1)
    np.testing.assert_allclose(batch.target, target.reshape(-1, 2), rtol=1e-4, atol=1e-5)


def test_without_extrinsic_weight_there_is_one_stream():
    assert RND(REAL).streams == {"intrinsic": 1.0}


def test_each_pass_trains_on_a_fresh_share_of_the_samples():
    # One sample per gradient step, all samples alike and next to no learning: a step's loss is that of the sample if
    # it counts and 0 if not, so the mean loss tells the share. Of 8 samples the same ones in every pass would make it
    # a multiple of 1/8.
    bodies, passes = 8, 300
    obs = np.broadcast_to(np.float32([0.2, -0.4, 0.9]), (1, bodies, 3))
    method = RND(REAL, width=4, epochs=passes, minibatches=8, lr=1e-12, predictor_bodies=2)
    learnt = init(method, bodies, jax.random.key(3))
    metrics = update(method, learnt, make_rollout(obs, method=method), jax.random.key(4))[3]
    share = float(metrics["predictor/loss"]) / squared_misses(learnt, obs[0], obs).mean()
    # Standard deviation of a share of 1/4 over 2400 draws: 0.009.
    assert share == pytest.approx(0.25, abs=0.03)
    assert abs(share * 8 - round(share * 8)) > 1e-3


def test_what_is_noted_is_what_the_action_led_to(three_updates):
    method = RND(REAL, stack=2)
    obs, final = jnp.zeros(3), jnp.float32([1, 2, 3])
    yes, no = jnp.bool_(True), jnp.bool_(False)
    step = TimeStep(obs, jnp.float32(0), yes, no, final, {})
    memory = method.start(step)
    within, signal = method.advance(three_updates[2], memory, jnp.int32(0), step)
    assert np.array_equal(signal.obs, final)
    assert np.array_equal(method.see(within).frames, [[0, 0, 0], [1, 2, 3]])
    assert method.see(within).features.shape == (3, 0)


def test_classes_are_standardised_one_by_one(getkey):
    method = RND(CELLS)
    rng = np.random.default_rng(8)
    obs = rng.integers(0, 3, (STEPS, BODIES, 2, 2, 3)).astype(np.uint8)
    obs[..., 0, 0, 0] = 2
    learnt = method.prime(init(method, BODIES, getkey()), make_rollout(obs, method=method))
    new = obs.copy()
    new[0, 0, 0, 0, 0] = 3
    found = np.asarray(method.standardised(learnt.inputs, jnp.asarray(new)))
    one_hot = (obs[..., None] == np.arange(4)).reshape(-1, 2, 2, 12)
    expected = standardise(one_hot, (new[..., None] == np.arange(4)).reshape(STEPS, BODIES, 2, 2, 12))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    # What never changed is 0, and at the limit once it does.
    np.testing.assert_allclose(found[1:, :, 0, 0, :4], 0, atol=1e-2)
    assert found[0, 0, 0, 0, 2:4].tolist() == [-5, 5]
    errors = jax.jit(method.errors)(learnt, jnp.asarray(new))
    assert errors.shape == (STEPS, BODIES)
    assert np.isfinite(errors).all()


@pytest.mark.slow
def test_the_error_falls_on_what_returns_and_stays_on_noise():
    # The first two bodies see one of four words over and over, the others a fresh random one at every step.
    method = RND(WORDS, width=16, lr=1e-3, minibatches=4)
    rng = np.random.default_rng(0)
    known = rng.integers(0, 6, (4, 12))

    def see():
        return np.concatenate([known[rng.integers(0, 4, (64, 2))], rng.integers(0, 6, (64, 2, 12))], axis=1)

    learnt = init(method, 4, jax.random.key(0))
    learnt = method.prime(learnt, make_rollout(see(), method=method))
    errors = []
    for number in range(40):
        rollout = make_rollout(see(), method=method)
        _, score, learnt, metrics = update(method, learnt, rollout, jax.random.key(number))
        raw = np.asarray(score.reward[..., 0]) * float(metrics["intrinsic/return_std"])
        errors.append((raw[:, :2].mean(), raw[:, 2:].mean()))
    (known_first, noise_first), (known_last, noise_last) = errors[0], np.mean(errors[-5:], axis=0)
    assert known_last < 0.05 * known_first
    assert noise_last > 0.3 * noise_first
    assert noise_last > 10 * known_last


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"stack": 0}, "stack must be at least 1, not 0"),
        ({"gamma": 1.0}, "gamma must be at least 0 and below 1, not 1.0"),
        ({"extrinsic": -1.0}, "extrinsic must be at least 0, not -1.0"),
        ({"priming": -1}, "priming must be at least 0, not -1"),
        ({"clip": 0.0}, "clip must be positive, not 0.0"),
        ({"predictor_bodies": 0}, "predictor_bodies must be at least 1, not 0"),
        ({"minibatches": 0}, "epochs and minibatches must be at least 1"),
    ],
)
def test_impossible_fields_are_refused_in_a_sentence(fields, sentence):
    with pytest.raises(UserError, match=f"^rnd: {sentence}$"):
        RND(REAL, **fields)
