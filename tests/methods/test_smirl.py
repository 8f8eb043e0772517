"""SMiRL against a buffer in plain numpy, and what a death is to it."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from advsurprise.errors import UserError
from advsurprise.learning import interaction
from advsurprise.learning.interaction import Agent
from advsurprise.methods.smirl import Smirl
from advsurprise.types import Decision, EnvSpec, Rollout, TimeStep

SHAPE, CLASSES, BODIES, STEPS = (2, 3), 4, 3, 30
FIXED = EnvSpec("cells", SHAPE, "int32", "classes", CLASSES, 4, 10, ())
OPEN = FIXED._replace(max_steps=0)
GAMMA = 0.9


def _played(ends, seed=0):
    """What each action led to, and where episodes ended, axes [T, B]."""
    rng = np.random.default_rng(seed)
    led_to = np.minimum(rng.geometric(0.6, (STEPS, BODIES, *SHAPE)) - 1, CLASSES - 1)
    ended = np.zeros((STEPS, BODIES), bool)
    for body, steps in enumerate(ends):
        ended[list(steps), body] = True
    return led_to, ended


def _log_prob(buffer, o):
    if not buffer:
        return o.size * math.log(1 / CLASSES)
    return sum(math.log(max(np.mean([x[cell] == o[cell] for x in buffer]), 1e-3)) for cell in np.ndindex(o.shape))


def _noise(buffer):
    """The mean score of all observations there are, entry by entry."""
    if not buffer:
        return np.prod(SHAPE) * math.log(1 / CLASSES)
    share = [
        [max(np.mean([x[cell] == c for x in buffer]), 1e-3) for c in range(CLASSES)] for cell in np.ndindex(*SHAPE)
    ]
    return float(np.log(share).mean(axis=1).sum())


def _reference(led_to, ended, *, horizon=None):
    """Raw rewards and ends of the model's episodes of one body. With a horizon deaths do not end anything."""
    rewards, overs, buffer, age = [], [], [], 0
    for o, dies in zip(led_to, ended, strict=True):
        age += 1
        rewards.append(_noise(buffer) if dies and horizon else _log_prob(buffer, o))
        over = age == horizon if horizon else dies
        buffer = [] if over else [*buffer, o]
        age = 0 if over else age
        overs.append(over)
    return np.array(rewards), np.array(overs)


def _library(method, led_to, ended):
    """The rollout that the library records: every death is followed by a first observation of zeros."""
    agent = Agent(method, {}, method.init(bodies=BODIES, key=jax.random.key(0)))
    idle = jnp.zeros(BODIES, jnp.int32)
    decision = Decision(idle, idle, jnp.zeros((BODIES, 4)), jnp.zeros(BODIES), jnp.zeros((BODIES, 1)))
    no = jnp.zeros(BODIES, bool)

    def step(memory, now):
        seen, dies = now
        shown = jnp.where(dies.reshape(-1, 1, 1), 0, seen)
        timestep = TimeStep(shown, jnp.zeros(BODIES), dies, no, seen, {})
        after, signal, _ = interaction.absorb(agent, memory, decision, timestep)
        return after, (signal, jax.vmap(method.see)(memory))

    first = jnp.zeros((BODIES, *SHAPE), jnp.int32)
    begin = interaction.start(agent, TimeStep(first, jnp.zeros(BODIES), no, no, first, {}))
    steps = jnp.asarray(led_to, jnp.int32), jnp.asarray(ended)
    _, (signal, view) = jax.jit(lambda *x: jax.lax.scan(step, *x))(begin, steps)
    many = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (STEPS, *leaf.shape)), decision)
    nothing = jnp.zeros((STEPS, BODIES, 1))
    rollout = Rollout(
        decision=many,
        reward=jnp.zeros((STEPS, BODIES)),
        terminated=jnp.asarray(ended),
        truncated=jnp.zeros((STEPS, BODIES), bool),
        final_value={"agent": nothing},
        last_value={"agent": nothing[0]},
        signal=signal,
        info={},
        next_role=jnp.zeros(BODIES, jnp.int32),
    )
    return agent, rollout, view


def test_every_step_is_scored_and_added_until_the_episode_ends():
    led_to, ended = _played([(9, 19, 29)] * BODIES)
    agent, rollout, view = _library(Smirl(FIXED, gamma=GAMMA), led_to, ended)
    expected = np.stack([_reference(led_to[:, b], ended[:, b])[0] for b in range(BODIES)], axis=1)
    np.testing.assert_allclose(rollout.signal.log_prob, expected, rtol=1e-4)
    np.testing.assert_allclose(view.time, np.repeat(np.arange(STEPS)[:, None] % 10 / 10, BODIES, axis=1), rtol=1e-6)
    # Divided by the spread of the discounted return, which starts anew with each episode.
    returns = np.zeros((STEPS, BODIES))
    for t in range(STEPS):
        returns[t] = expected[t] + (GAMMA * returns[t - 1] if t % 10 else 0)
    _, scores = agent.method.score(agent.learnt, rollout)
    found = scores["agent"]
    np.testing.assert_allclose(found.reward[..., 0], expected / returns.std(), rtol=1e-3)
    assert np.array_equal(found.cut[..., 0], ended)
    assert np.array_equal(found.discount[..., 0], np.where(ended, 0, np.float32(GAMMA)))


def test_a_death_is_noise_and_life_goes_on_to_the_horizon():
    led_to, ended = _played([(3, 4, 17), (11,), ()])
    agent, rollout, view = _library(Smirl(OPEN, horizon=12, gamma=GAMMA), led_to, ended)
    pairs = [_reference(led_to[:, b], ended[:, b], horizon=12) for b in range(BODIES)]
    rewards, overs = (np.stack(each, axis=1) for each in zip(*pairs, strict=True))
    np.testing.assert_allclose(rollout.signal.log_prob, rewards, rtol=1e-4)
    assert overs.sum() == 2 * BODIES
    _, scores = agent.method.score(agent.learnt, rollout)
    assert np.array_equal(scores["agent"].cut[..., 0], overs)
    assert np.array_equal(scores["agent"].discount[..., 0] == 0, overs)
    # After a death the policy sees the new life's first observation in all frames, and the model of the old one.
    assert not np.any(view.frames[5, 0])
    assert np.any(view.features[5, 0] != 1 / CLASSES)


def test_a_death_can_be_an_end():
    led_to, ended = _played([(3, 4, 17), (11,), ()])
    agent, rollout, _ = _library(Smirl(OPEN, death="end", gamma=GAMMA), led_to, ended)
    expected = np.stack([_reference(led_to[:, b], ended[:, b])[0] for b in range(BODIES)], axis=1)
    np.testing.assert_allclose(rollout.signal.log_prob, expected, rtol=1e-4)
    _, scores = agent.method.score(agent.learnt, rollout)
    assert np.array_equal(scores["agent"].cut[..., 0], ended)


def test_clip_and_scale_as_published():
    led_to, ended = _played([(9, 19, 29)] * BODIES)
    agent, rollout, _ = _library(Smirl(FIXED, clip=6.0, scale=0.01), led_to, ended)
    expected = np.stack([_reference(led_to[:, b], ended[:, b])[0] for b in range(BODIES)], axis=1)
    clipped = np.clip(expected, -6, 6)
    assert (clipped != expected).any()
    assert (clipped == expected).any()
    _, scores = agent.method.score(agent.learnt, rollout)
    np.testing.assert_allclose(scores["agent"].reward[..., 0], 0.01 * clipped, rtol=1e-4)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"horizon": 0}, "horizon must be at least 1"),
        ({"clip": -1.0}, "clip must be at least 0"),
        ({"scale": -1.0}, "scale must be at least 0"),
        ({"gamma": 1.0}, "gamma must be"),
        ({"stack": 0}, "stack must be"),
    ],
)
def test_impossible_settings_are_refused(fields, sentence):
    with pytest.raises(UserError, match=f"smirl: {sentence}"):
        Smirl(FIXED, **fields)
