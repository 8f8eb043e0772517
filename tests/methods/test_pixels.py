"""Methods on images: what density models see, networks, turns, distances; oracles in float64."""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from advsurprise.errors import UserError
from advsurprise.learning.density import PIXEL_STD, GaussianStats
from advsurprise.learning.measures import common_surprise, no_models
from advsurprise.learning.networks import IMAGE_WIDTH, ActorCritic, ImageTorso, blank_view, make_torso
from advsurprise.learning.stats import RunningMoments
from advsurprise.methods.adversarial_surprise import AdversarialSurprise
from advsurprise.methods.asp import ASP
from advsurprise.methods.rnd import RND
from advsurprise.methods.smirl import Smirl
from advsurprise.types import EnvSpec, TimeStep

TURNS = (("explore", 64), ("control", 128))
ATARI = EnvSpec(
    "atari", (84, 84), "uint8", "image", 0, 6, 0, (), turn_steps=TURNS, density_shape=(20, 20, 4), truncates=True
)
DOOM = ATARI._replace(id="doom", observation_shape=(20, 20), num_actions=3)
RANDOM = np.random.default_rng(0)


def _film(steps, shape=(84, 84), seed=0):
    """Grey images that drift, so that pixels have a spread."""
    random = np.random.default_rng(seed)
    return np.clip(120 + np.cumsum(random.normal(0, 12, (steps, *shape)), axis=0), 0, 255).astype(np.uint8)


def _step(obs, *, terminated=False, seen=None):
    never = jnp.bool_(False)
    seen = obs if seen is None else seen
    return TimeStep(jnp.asarray(obs), jnp.float32(0), jnp.bool_(terminated), never, jnp.asarray(seen), {})


def _shrunk(image):
    """Area means of 84x84 at 20x20: each old pixel is 5x5 parts of a 420x420 image, each new one 21x21 of them."""
    fine = np.repeat(np.repeat(image.astype(np.float64) / 255, 5, axis=0), 5, axis=1)
    return fine.reshape(20, 21, 20, 21).mean(axis=(1, 3))


def _log_prob(history, x):
    """Log-density of x under everything seen before it, with the prior of no observation."""
    if not history:
        mean, std = np.full_like(x, 0.5), np.full_like(x, math.sqrt(1 / 12))
    else:
        mean, std = np.mean(history, axis=0), np.maximum(np.std(history, axis=0), PIXEL_STD)
    return -0.5 * np.sum(((x - mean) / std) ** 2 + np.log(2 * math.pi * std**2))


@pytest.mark.parametrize(
    "method", [Smirl(ATARI), AdversarialSurprise(ATARI, k_explore=1, k_control=20, quiet=0.0)], ids=["smirl", "as"]
)
def test_models_see_the_last_four_observations_averaged_down(method):
    film = _film(9)
    memory = method.start(_step(film[0]))
    advance = jax.jit(method.advance)
    learnt, last, history = method.init(bodies=1, key=jax.random.key(0)), [_shrunk(film[0])] * 4, []
    for time, frame in enumerate(film[1:]):
        memory, signal = advance(learnt, memory, jnp.int32(0), _step(frame))
        last = [*last[1:], _shrunk(frame)]
        x = np.stack(last, axis=-1)
        np.testing.assert_allclose(np.asarray(memory.small), x, atol=1e-6)
        if len(method.roles) == 1 or time >= 1:
            np.testing.assert_allclose(signal.log_prob, _log_prob(history, x), rtol=1e-4)
            history.append(x)
    view = method.see(memory)
    assert (view.features.shape, view.features.dtype) == ((20, 20, 4, 2), jnp.float16)
    np.testing.assert_allclose(view.features[..., 0], np.mean(history, axis=0), atol=1e-3)
    np.testing.assert_allclose(view.features[..., 1], np.maximum(np.std(history, axis=0), PIXEL_STD), atol=1e-3)
    assert view.frames.dtype == jnp.uint8


def test_a_new_life_begins_with_its_first_image_four_times():
    method = Smirl(ATARI)
    film = _film(3)
    memory = method.start(_step(film[0]))
    learnt = method.init(bodies=1, key=jax.random.key(0))
    memory, _ = method.advance(learnt, memory, jnp.int32(0), _step(film[2], terminated=True, seen=film[1]))
    memory = method.start(_step(film[2]), memory)
    np.testing.assert_allclose(np.asarray(memory.small), np.stack([_shrunk(film[2])] * 4, axis=-1), atol=1e-6)
    assert isinstance(memory.stats, GaussianStats)
    assert memory.stats.count == 1  # SMiRL's model outlives a death


def test_the_floor_of_the_model_is_a_field():
    film = np.full((84, 84), 7, np.uint8)
    for floor in (0.001, 0.05):
        method = Smirl(ATARI, min_std=floor)
        memory = method.start(_step(film))
        for _ in range(2):
            memory, signal = method.advance(RunningMoments.start(), memory, jnp.int32(0), _step(film))
        # A pixel that never changes is worth log(1 / (floor √2π)).
        np.testing.assert_allclose(signal.log_prob, 1600 * math.log(1 / (floor * math.sqrt(2 * math.pi))), rtol=1e-4)


def test_common_surprise_sees_the_newest_image_averaged_down():
    film = _film(5)
    over = jnp.zeros((5, 1), bool)
    _, measured = common_surprise(jnp.asarray(film[:, None]), over, ATARI, no_models(ATARI, 1))
    small = [_shrunk(frame)[..., None] for frame in film]
    expected = [-_log_prob(small[:time], small[time]) for time in range(1, 5)]
    np.testing.assert_allclose(measured.value[1:, 0], expected, rtol=1e-4)
    assert measured.counts[:, 0].tolist() == [False, True, True, True, True]


def _layers(torso):
    return [(conv.dense.weight.shape, conv.kernel, conv.stride) for conv in torso.convs]


def test_atari_and_doom_have_the_paper_s_networks(getkey):
    make = functools.partial(ActorCritic, frames=4, features=2, action_bias=(0.0,) * 6, streams=1)
    atari, doom = (jax.eval_shape(functools.partial(make, spec), key=getkey()) for spec in (ATARI, DOOM))
    # 8 planes join the output of the first layer in Atari and the frames in Doom.
    assert _layers(atari.torso) == [((4, 64 * 4), 8, 4), ((32, 16 * 12), 4, 2), ((64, 9 * 32), 3, 1)]
    assert _layers(doom.torso) == [((32, 16 * 12), 4, 2), ((32, 16 * 32), 4, 2), ((64, 9 * 32), 3, 1)]
    assert atari.hidden.weight.shape == (IMAGE_WIDTH, 7 * 7 * 64 + 1)
    assert doom.hidden.weight.shape == (IMAGE_WIDTH, 64 + 1)


def test_a_factor_widens_every_layer(getkey):
    make = functools.partial(ActorCritic, ATARI, frames=4, features=2, action_bias=(0.0,) * 6, streams=1, factor=3)
    wide = jax.eval_shape(make, key=getkey())
    assert [shape[0] for shape, _, _ in _layers(wide.torso)] == [3 * 4, 3 * 32, 3 * 64]
    assert wide.hidden.weight.shape == (3 * IMAGE_WIDTH, 7 * 7 * 3 * 64 + 1)


def _numpy_torso(torso, frames, features):
    """The network in loops: frames [4, rows, columns] of bytes, features [20, 20, planes]."""
    x = np.moveaxis(frames.astype(np.float64) / 255, 0, -1)
    for index, conv in enumerate(torso.convs):
        if index == torso.joined_at:
            x = np.concatenate([x, features], axis=-1)
        kernel, stride, dense = conv.kernel, conv.stride, conv.dense
        weight = np.asarray(dense.weight, np.float64).reshape(-1, kernel, kernel, x.shape[-1])
        side = (len(x) - kernel) // stride + 1
        new = np.zeros((side, side, len(weight)))
        for i, j in np.ndindex(side, side):
            patch = x[i * stride : i * stride + kernel, j * stride : j * stride + kernel]
            new[i, j] = np.einsum("abc,oabc->o", patch, weight)
        x = np.maximum(new + np.asarray(dense.bias, np.float64), 0)
    return x.reshape(-1)


@pytest.mark.parametrize("spec", [ATARI, DOOM], ids=lambda spec: spec.id)
def test_torsos_compute_what_the_paper_says(spec, getkey):
    torso = make_torso(spec, 4, 2, key=getkey())
    assert isinstance(torso, ImageTorso)
    bias = jnp.linspace(-0.1, 0.1, len(torso.convs[1].dense.bias))
    torso = eqx.tree_at(lambda torso: torso.convs[1].dense.bias, torso, bias)
    view = blank_view(spec, 4, 2)
    frames = RANDOM.integers(0, 256, view.frames.shape).astype(np.uint8)
    features = RANDOM.random(view.features.shape).astype(np.float16)
    result = eqx.filter_jit(torso)(type(view)(jnp.asarray(frames), jnp.asarray(features), view.time))
    np.testing.assert_allclose(result, _numpy_torso(torso, frames, features.reshape(20, 20, 8)), atol=1e-4)


def test_features_of_another_size_have_no_place(getkey):
    spec = ATARI._replace(density_shape=(21, 20, 4))
    with pytest.raises(UserError, match="atari: a density model of images must be 84x84 or 20x20, not 21x20"):
        make_torso(spec, 4, 2, key=getkey())


def test_rnd_has_the_published_layers_for_atari_and_a_policy_s_for_doom(getkey):
    learnt = jax.eval_shape(functools.partial(RND(ATARI, width=512).init, bodies=2), key=getkey())
    for network, depth in ((learnt.target, 1), (learnt.predictor, 3)):
        assert _layers(network.torso) == [((32, 64), 8, 4), ((64, 16 * 32), 4, 2), ((64, 9 * 64), 3, 1)]
        assert [layer.weight.shape[0] for layer in network.layers] == [512] * depth
    doom = jax.eval_shape(functools.partial(RND(DOOM).init, bodies=2), key=getkey())
    assert [shape[0] for shape, _, _ in _layers(doom.target.torso)] == [32, 32, 64]


def test_the_world_names_the_turns():
    method = AdversarialSurprise(ATARI)
    assert (method.explore_steps, method.control_steps, method.round_length) == (64, 128, 192)
    roles = method.schedule(np.arange(400))
    assert [int(np.argmax(roles)), int(np.argmin(roles[64:]) + 64)] == [64, 192]
    assert method._quiet_steps == 64
    assert AdversarialSurprise(ATARI, k_control=10).round_length == 74
    assert AdversarialSurprise(ATARI._replace(turn_steps=())).round_length == 64


def test_bob_compares_images_at_the_size_of_the_model():
    method = ASP(ATARI)
    # 0.25² / 400 per pixel: all of 20x20 apart by 0.0125, which is 3.2 grey levels.
    dark = jnp.zeros((84, 84), jnp.uint8)
    memory = method.start(_step(dark))
    for level, near in ((3, True), (4, False)):
        assert bool(method._reached(memory, _step(jnp.full((84, 84), level, jnp.uint8)))) is near
    # A pixel is blurred by the averaging: 4.2² of them are one of the model's.
    assert bool(method._reached(memory, _step(dark.at[40, 40].set(255))))
    assert not bool(method._reached(memory, _step(dark.at[40:48, 40:48].set(255))))
    exact = ASP(ATARI._replace(density_shape=()))
    assert not bool(exact._reached(memory, _step(dark.at[40, 40].set(1))))
    assert exact.distance == 0
