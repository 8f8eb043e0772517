"""Adversarially Guided Actor-Critic against plain numpy in float64: its advantage, its value target, its adversary."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from advsurprise.errors import UserError
from advsurprise.learning import interaction, learn
from advsurprise.learning.fit import fit, named
from advsurprise.learning.interaction import Agent
from advsurprise.methods.agac import AGAC, Signal
from advsurprise.types import Decision, EnvSpec, Rollout, TimeStep, Views

pytestmark = pytest.mark.slow

STEPS, BODIES, ACTIONS = 9, 3, 4
SPEC = EnvSpec("words", (5,), "int32", "classes", 3, ACTIONS, 0, (), places=(4, 3, 7))
LAM = 0.95


def make_rollout(*, steps=STEPS, seed=0, logits=None):
    """A rollout with everything at random; `logits` may depend on the newest observation."""
    rng = np.random.default_rng(seed)
    shape = (steps, BODIES)
    frames, age = rng.integers(0, 3, (3 + shape[0], *shape[1:], 5)), rng.integers(0, 4, shape)
    logits = rng.normal(size=(*shape, ACTIONS)) * 2 if logits is None else logits(frames[3:])
    action = (logits + rng.gumbel(size=logits.shape)).argmax(-1)
    ends = rng.random(shape) < 0.25
    truncated = ends & (rng.random(shape) < 0.5)

    def real(x):
        return jnp.asarray(x, jnp.float32)

    ints = (jnp.asarray(each, jnp.int32) for each in (frames, age))
    views = Views(*ints, jnp.zeros((*shape, 5, 0)), real(rng.random(shape)), None)
    log_prob = np.take_along_axis(log_softmax(logits), action[..., None], -1)[..., 0]
    action = jnp.asarray(action, jnp.int32)
    value = real(rng.normal(size=(*shape, 1)))
    final = np.where(truncated[..., None], rng.normal(size=(*shape, 1)), 0)
    return Rollout(
        decision=jax.vmap(Decision)(action * 0, action, real(logits), real(log_prob), value),
        reward=real(rng.normal(size=shape)),
        terminated=jnp.asarray(ends & ~truncated),
        truncated=jnp.asarray(truncated),
        final_value={"agent": real(final)},
        last_value={"agent": real(rng.normal(size=(BODIES, 1)))},
        signal=Signal(jnp.asarray(rng.random(shape) < 0.4)),
        info={},
        next_role=jnp.zeros(BODIES, jnp.int32),
        views=views,
    )


@functools.partial(jax.jit, static_argnums=0)
def init(method, key):
    """A beginning with an adversary that has preferences of its own."""
    learnt = method.init(bodies=BODIES, key=key)
    return eqx.tree_at(lambda x: x.adversary.head.weight, learnt, replace_fn=lambda weight: 200 * weight)


@functools.partial(jax.jit, static_argnums=0)
def update(method, learnt, rollout, key):
    """Both halves of an update, in the learner's order."""
    learnt, scores = method.score(learnt, rollout)
    batch, _, _ = learn.role_batch(rollout, scores["agent"], 0, method, lam=LAM)
    fitted = fit(method.fit_tasks(learnt, rollout, key=key))
    learnt, metrics = method.learn(learnt, rollout, fitted)
    return learnt, batch, metrics | named(fitted)


# The oracle, in float64.


def log_softmax(logits):
    logits = np.asarray(logits, np.float64)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def adversary_logits(adversary, rollout):
    """One-hot frames through the torso's two tanh layers; the time joins; tanh layers; a linear head."""
    view = rollout.views.all()
    frames = np.asarray(view.frames)
    x = np.eye(3)[frames].reshape(*frames.shape[:2], -1)
    for layer in adversary.torso.layers:
        x = np.tanh(dense(layer, x))
    x = np.concatenate([x, np.asarray(view.time, np.float64)[..., None]], axis=-1)
    for layer in adversary.layers:
        x = np.tanh(dense(layer, x))
    return dense(adversary.head, x)


def dense(layer, x):
    return x @ np.asarray(layer.weight, np.float64).T + np.asarray(layer.bias, np.float64)


def ratio_and_kl(adversary, rollout):
    """log π_old(a|s) − log π_adv(a|s) and KL(π_old ‖ π_adv), a step at a time."""
    ours, theirs = log_softmax(rollout.decision.logits), log_softmax(adversary_logits(adversary, rollout))
    ratio, kl = np.zeros(ours.shape[:2]), np.zeros(ours.shape[:2])
    for t, b in np.ndindex(*ratio.shape):
        action = int(rollout.decision.action[t, b])
        ratio[t, b] = ours[t, b, action] - theirs[t, b, action]
        kl[t, b] = sum(np.exp(p) * (p - q) for p, q in zip(ours[t, b], theirs[t, b], strict=True))
    return ratio, kl


def numpy_gae(reward, rollout, gamma):
    """Backwards, a body at a time."""
    value, final = (np.asarray(x[..., 0], np.float64) for x in (rollout.decision.value, rollout.final_value["agent"]))
    advantage = np.zeros(reward.shape)
    for b in range(BODIES):
        following, carried = float(rollout.last_value["agent"][b, 0]), 0.0
        for t in reversed(range(len(reward))):
            if rollout.terminated[t, b] or rollout.truncated[t, b]:
                following, carried = (0.0 if rollout.terminated[t, b] else final[t, b]), 0.0
            advantage[t, b] = reward[t, b] + gamma * following - value[t, b] + gamma * LAM * carried
            following, carried = value[t, b], advantage[t, b]
    return advantage


@pytest.fixture(scope="module")
def full():
    """The whole method on one rollout: a reward, cells counted, c falling; one gradient step per update."""
    method = AGAC(SPEC, extrinsic=0.7, counts=0.3, c=0.5, anneal_steps=60, beta=0.01, epochs=1, minibatches=1)
    learnt = init(method, jax.random.key(0))
    rollouts = [make_rollout(seed=seed) for seed in range(4)]
    rows = []
    for number, rollout in enumerate(rollouts):
        after, batch, metrics = update(method, learnt, rollout, jax.random.key(number))
        rows.append((learnt, rollout, batch, metrics))
        learnt = after
    return method, rows


def test_advantage_and_value_target(full):
    method, rows = full
    for number, (learnt, rollout, batch, _) in enumerate(rows):
        # 27 steps per rollout of 60: c falls to 0 within the third, which still has what is left after two.
        c = 0.5 * max(0, 1 - 27 * number / 60)
        ratio, kl = ratio_and_kl(learnt.adversary, rollout)
        reward = 0.7 * np.asarray(rollout.reward, np.float64)
        counted = reward + 0.3 * np.asarray(rollout.signal.first)
        advantage = numpy_gae(counted, rollout, method.gamma) + c * ratio
        # Cells count for the policy alone: the value's target is that of the reward, and the divergence.
        target = np.asarray(rollout.decision.value[..., 0]) + numpy_gae(reward, rollout, method.gamma) + c * kl
        np.testing.assert_allclose(batch.advantage, advantage.reshape(-1), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(batch.target[:, 0], target.reshape(-1), rtol=1e-4, atol=1e-4)


def test_what_is_logged(full):
    _, rows = full
    for number, (learnt, rollout, _, metrics) in enumerate(rows):
        ratio, kl = ratio_and_kl(learnt.adversary, rollout)
        theirs = log_softmax(adversary_logits(learnt.adversary, rollout))
        action = np.asarray(rollout.decision.action)
        ours = log_softmax(rollout.decision.logits)
        expected = {
            "adversary/kl": kl.mean(),
            "adversary/kl_uniform": np.log(ACTIONS) + (np.exp(ours) * ours).sum(-1).mean(),
            "adversary/log_ratio": ratio.mean(),
            "adversary/likelihood": np.exp(np.take_along_axis(theirs, action[..., None], -1)).mean(),
            "adversary/accuracy": (theirs.argmax(-1) == action).mean(),
            "adversary/c": 0.5 * max(0, 1 - 27 * number / 60),
            # One step over all samples: the loss is that of the adversary before it.
            "adversary/loss": 0.01 * kl.mean(),
        }
        for name, value in expected.items():
            assert float(metrics[name]) == pytest.approx(value, rel=1e-3, abs=1e-6), name


def test_annealing_counts_environment_steps_and_ends_at_nothing(full):
    _, rows = full
    assert [int(learnt.steps) for learnt, *_ in rows] == [0, 27, 54, 60]
    assert float(rows[-1][3]["adversary/c"]) == 0


def test_c_stays_without_annealing(full):
    method, learnt = AGAC(SPEC, c=0.25), full[1][0][0]
    for steps in (0, 10**9):
        assert float(method.coefficient(dataclasses.replace(learnt, steps=jnp.int32(steps)))) == 0.25


def test_without_reward_and_cells_only_the_adversary_is_left(full):
    method = AGAC(SPEC, c=0.5)
    learnt, rollout = full[1][0][0], make_rollout()
    rollout = dataclasses.replace(rollout, signal=Signal(jnp.zeros((STEPS, BODIES), bool)))
    _, scores = jax.jit(method.score)(learnt, rollout)
    ratio, kl = ratio_and_kl(learnt.adversary, rollout)
    assert not np.any(scores["agent"].reward)
    np.testing.assert_allclose(scores["agent"].bonus, 0.5 * ratio, rtol=1e-4, atol=1e-5)
    (traced,) = method.trace(learnt, rollout).values()
    np.testing.assert_allclose(traced.value, ratio, rtol=1e-4, atol=1e-5)
    assert traced.counts.all()
    np.testing.assert_allclose(scores["agent"].target_shift[..., 0], 0.5 * kl, rtol=1e-4, atol=1e-5)


# Cells.


def walk(*, steps=80, seed=3):
    """Places that bodies find after each step, where their episodes end, and where new ones begin."""
    rng = np.random.default_rng(seed)

    def places(*axes):
        return np.stack([rng.integers(0, most, (*axes, BODIES)) for most in (4, 3, 7)], axis=-1)

    return places(), places(steps), places(steps), rng.random((steps, BODIES)) < 0.1


def test_first_actions_in_cells_are_counted_anew_in_every_episode(full):
    first, led_to, fresh, over = walk()
    found = np.asarray(_library_counts(full[0], full[1][0][0], first, led_to, fresh, over))
    for b in range(BODIES):
        cell, visited = tuple(first[b, :2]), set()
        for t in range(len(led_to)):
            assert found[t, b] == (cell not in visited), (t, b)
            # What counts is where the body acts from, not where it gets to.
            visited.add(cell)
            cell = tuple(led_to[t, b, :2])
            if over[t, b]:
                cell, visited = tuple(fresh[t, b, :2]), set()
    assert 0.1 < found.mean() < 0.9


def _library_counts(method, learnt, first, led_to, fresh, over):
    agent = Agent(method, {}, learnt)
    obs = jnp.zeros((BODIES, 5), jnp.int32)
    nothing, no = jnp.zeros(BODIES), jnp.zeros(BODIES, bool)

    def timestep(place, final_place, ends):
        return TimeStep(obs, nothing, ends, no, obs, {}, place, final_place)

    def step(memory, now):
        final, new, ends = now
        idle = jnp.zeros(BODIES, jnp.int32)
        decision = Decision(idle, idle, jnp.zeros((BODIES, ACTIONS)), nothing, jnp.zeros((BODIES, 1)))
        place = jnp.where(ends[:, None], new, final)
        memory, signal, _ = interaction.absorb(agent, memory, decision, timestep(place, final, ends))
        return memory, signal.first

    places = (jnp.asarray(x, jnp.int32) for x in (led_to, fresh))
    begin = interaction.start(agent, timestep(jnp.asarray(first, jnp.int32), jnp.asarray(first, jnp.int32), no))
    return jax.jit(lambda *x: jax.lax.scan(step, *x))(begin, (*places, jnp.asarray(over)))[1]


def test_worlds_that_do_not_tell_the_place_need_no_cells(full):
    hidden = SPEC._replace(places=())
    with pytest.raises(UserError, match=r"^agac: words does not reveal where the body is, which counts > 0 needs$"):
        AGAC(hidden, counts=0.1)
    method = AGAC(hidden)
    obs = jnp.zeros(5, jnp.int32)
    step = TimeStep(obs, jnp.float32(0), jnp.bool_(False), jnp.bool_(False), obs, {})
    memory = method.start(step)
    assert memory.visited.size == 0
    memory, signal = method.advance(full[1][0][0], memory, jnp.int32(0), step)
    assert not signal.first
    assert memory.clock.time == 1


# The adversary.


def habits(newest):
    """A policy with a favourite action that depends on what it sees first, and one it never takes."""
    favourite = newest[..., 0]
    return np.where(np.arange(ACTIONS) == favourite[..., None], 3.0, np.array([0.0, 0.5, 0.0, -4.0]))


def test_the_adversary_learns_a_fixed_policy():
    method = AGAC(SPEC, minibatches=8, lr=1e-3)
    learnt = init(method, jax.random.key(0))
    found = []
    for number in range(12):
        rollout = make_rollout(steps=256, seed=number, logits=habits)
        learnt, _, metrics = update(method, learnt, rollout, jax.random.key(number))
        found.append(metrics)
    first, last = found[0], found[-1]
    # Unseen rollouts of the same policy, measured before they are learnt from. Chance is 1 / 4, and the policy itself
    # takes its favourite in about 9 of 10 steps.
    assert float(first["adversary/kl"]) > 0.5
    assert float(last["adversary/kl"]) < 0.1 * float(last["adversary/kl_uniform"])
    assert float(last["adversary/accuracy"]) > 0.7
    assert float(last["adversary/likelihood"]) > 2 / ACTIONS


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"stack": 0}, "stack must be at least 1, not 0"),
        ({"gamma": 1.0}, "gamma must be at least 0 and below 1, not 1.0"),
        ({"c": -1.0}, "c must be at least 0, not -1.0"),
        ({"anneal_steps": -1}, "anneal_steps must be from 0 to 2e9, not -1"),
        ({"counts": -0.1}, "counts must be at least 0, not -0.1"),
        ({"lam": 1.5}, "lam must be from 0 to 1, not 1.5"),
        ({"widths": (0,)}, r"widths must be at least 1, not \[0\]"),
        ({"beta": 0.0}, "beta, lr and max_grad_norm must be positive"),
        ({"epochs": 0}, "epochs and minibatches must be at least 1"),
    ],
)
def test_impossible_fields_are_refused_in_a_sentence(fields, sentence):
    with pytest.raises(UserError, match=f"^agac: {sentence}$"):
        AGAC(SPEC, **fields)
