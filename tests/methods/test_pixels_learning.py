"""Methods learn from images, and large ones are taken some steps at a time."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from advsurprise import methods
from advsurprise.config import PPOConfig
from advsurprise.learning import chunks, interaction
from advsurprise.learning.interaction import make_agent
from advsurprise.learning.learn import learn, make_learner
from advsurprise.methods.agac import AGAC
from advsurprise.methods.rnd import RND
from advsurprise.types import EnvSpec, Rollout, TimeStep, Views

pytestmark = [pytest.mark.slow, pytest.mark.long]

DOOM = EnvSpec("doom", (20, 20), "uint8", "image", 0, 3, 0, (), density_shape=(20, 20, 4), truncates=True)
ATARI = DOOM._replace(id="atari", observation_shape=(84, 84))
FIELDS = {"adversarial-surprise": {"k_explore": 2, "k_control": 4}, "rnd": {"width": 16, "minibatches": 2}}
METHODS = [
    "adversarial-surprise",
    "rnd",
    *(pytest.param(name, marks=pytest.mark.long) for name in ("agac", "asp", "smirl")),
]
STEPS, BODIES = 512, 16
"""The size of a rollout, by default."""
MEGABYTE = 2**20


def _film(steps, shape):
    """Grey images that drift, so that pixels have a spread."""
    drift = np.cumsum(np.random.default_rng(0).normal(0, 12, (steps, *shape)), axis=0)
    return np.clip(120 + drift, 0, 255).astype(np.uint8)


def _rollout(agent, film):
    """A rollout of a film, body after body the same images in another order, by the two halves of a step."""
    length, bodies = len(film) - 1, 2
    both = np.stack([film, film[::-1]], axis=1)

    def timestep(time):
        off = jnp.zeros(bodies, bool)
        seen = jnp.asarray(both[time])
        return TimeStep(seen, jnp.ones(bodies), off.at[0].set(time == 5), off, seen, {})

    memory = interaction.start(agent, timestep(0))
    older = jnp.moveaxis(jax.vmap(agent.method.see)(memory).frames[:, :-1], 1, 0)
    decide, absorb = jax.jit(interaction.decide), jax.jit(interaction.absorb)
    views, records = [], []
    for time in range(length):
        noise = interaction.chance(agent.method, bodies, key=jax.random.key(time))
        view, decision = decide(agent, memory, noise=noise)
        memory, signal, final = absorb(agent, memory, decision, timestep(time + 1))
        views.append(view)
        records.append((decision, signal, final, timestep(time + 1)))
    view, (decision, signal, final, step) = (
        jax.tree.map(lambda *x: jnp.stack(x), *parts) for parts in (views, records)
    )
    frames = jnp.concatenate([older, view.frames[:, :, -1]])
    return Rollout(
        decision=decision,
        reward=step.reward,
        terminated=step.terminated,
        truncated=step.truncated,
        final_value=final,
        last_value=interaction.values(agent, memory),
        signal=signal,
        info={},
        next_role=interaction.turns(agent, memory),
        views=Views(frames, view.age, view.features, view.time, view.goal),
    )


@pytest.mark.parametrize("name", METHODS)
def test_every_method_learns_from_images(name, getkey):
    method = methods.make(name, DOOM, **FIELDS.get(name, {}))
    agent = make_agent(method, 2, key=getkey())
    rollout = _rollout(agent, _film(9, (20, 20)))
    cfg = PPOConfig(epochs=1, minibatch=4)
    learner = make_learner(agent, cfg)
    learner, metrics = jax.jit(lambda *both: learn(both[0], both[1], cfg, key=jax.random.key(1)))(learner, rollout)
    numbers = {key: value for key, value in metrics.items() if not key.startswith(("end/", "mean/", "handover/"))}
    assert np.isfinite(metrics["common_surprise"])
    for role in method.roles:
        assert np.isfinite(numbers[f"{role}/loss"])
    changed = [
        float(jnp.max(jnp.abs(after - before)))
        for after, before in zip(*(jax.tree.leaves(a.policies) for a in (learner.agent, agent)), strict=True)
    ]
    assert max(changed) > 0
    assert rollout.views.frames.dtype == jnp.uint8


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of two steps of two bodies of 84x84 numbers."""
    monkeypatch.setattr(chunks, "MOST_NUMBERS", 4 * 84 * 84)


def test_rnd_of_large_images_goes_by_chunks(small_chunks, getkey):
    method = RND(ATARI, width=16)
    learnt = method.init(bodies=2, key=getkey())
    obs = jnp.asarray(_film(12, (84, 84)).reshape(6, 2, 84, 84))
    absorb = jax.jit(method.absorb_inputs)
    assert "while" in absorb.lower(learnt, obs).as_text()
    learnt = absorb(absorb(learnt, obs), obs // 2)
    numbers = np.concatenate([obs, obs // 2]).reshape(-1, 84, 84, 1) / 255.0
    np.testing.assert_allclose(learnt.inputs.mean, numbers.mean(0), atol=1e-4)
    np.testing.assert_allclose(learnt.inputs.var, numbers.var(0), atol=1e-4)
    x = np.clip((numbers[:12] - numbers.mean(0)) / np.sqrt(numbers.var(0) + 1e-6), -5, 5).astype(np.float32)
    x = jnp.asarray(x.reshape(6, 2, 84, 84, 1))
    apart = jax.jit(lambda learnt, x: learnt.target(x) - learnt.predictor(x))(learnt, x)
    expected = 0.5 * np.sum(np.asarray(apart, np.float64) ** 2, axis=-1)
    np.testing.assert_allclose(jax.jit(method.errors)(learnt, obs), expected, rtol=2e-3)


def test_agac_s_adversary_of_large_images_goes_by_chunks(small_chunks, getkey):
    method = AGAC(ATARI)
    agent = make_agent(method, 2, key=getkey())
    rollout = _rollout(agent, _film(7, (84, 84)))
    expected = jax.jit(lambda learnt, views: learnt.adversary(views.all()))(agent.learnt, rollout.views)
    found = jax.jit(method.expected)
    assert "while" in found.lower(agent.learnt, rollout).as_text()
    np.testing.assert_allclose(found(agent.learnt, rollout), expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("part", ["errors", "absorb_inputs"])
def test_rnd_makes_no_floats_of_a_whole_rollout_of_images(part, getkey):
    # 8,192 images of 84x84 are 220 MB as floats.
    method = RND(ATARI)
    learnt = jax.eval_shape(functools.partial(method.init, bodies=BODIES), key=getkey())
    obs = jax.ShapeDtypeStruct((STEPS, BODIES, 84, 84), jnp.uint8)
    needed = jax.jit(getattr(method, part)).lower(learnt, obs).compile().memory_analysis()
    assert needed is not None
    assert needed.temp_size_in_bytes < 80 * MEGABYTE


def test_small_observations_are_not_cut_in_chunks():
    assert chunks.chunk_length(512, bodies=512, numbers=7 * 7 * 12) == 512
    assert chunks.chunk_length(512, bodies=16, numbers=84 * 84) == 8
    assert chunks.chunk_length(7, bodies=10_000, numbers=84 * 84) == 1
