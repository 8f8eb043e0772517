"""Networks: convolutions against XLA's own, sizes, initial weights, and what reaches the outputs."""

import dataclasses
import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import advsurprise
from advsurprise.config import PPOConfig, RunConfig
from advsurprise.errors import UserError
from advsurprise.learning.networks import (
    WIDTH,
    ActorCritic,
    Conv,
    Dense,
    GridTorso,
    VectorTorso,
    blank_view,
    make_torso,
)
from advsurprise.training.fused import Fused
from advsurprise.types import EnvSpec

pytestmark = pytest.mark.slow

COMPACT = EnvSpec("compact", (7, 7), "uint8", "classes", 16, 7, 0, ())
SYMBOLIC = EnvSpec("symbolic", (5, 5, 3), "uint8", "classes", 12, 7, 0, ())
VECTOR = EnvSpec("vector", (4,), "float32", "vector", 0, 3, 0, ())
ROW = EnvSpec("row", (2,), "int32", "classes", 4, 3, 0, ())
SPECS = pytest.mark.parametrize("spec", [COMPACT, SYMBOLIC, VECTOR, ROW], ids=lambda spec: spec.id)


def _view(spec, frames, features, *, key):
    """A random view."""
    frames_key, features_key, time_key = jax.random.split(key, 3)
    blank = blank_view(spec, frames, features)
    if spec.observation_kind == "classes":
        seen = jax.random.randint(frames_key, blank.frames.shape, 0, spec.num_classes).astype(spec.observation_dtype)
    else:
        seen = jax.random.normal(frames_key, blank.frames.shape)
    return dataclasses.replace(
        blank,
        frames=seen,
        features=jax.random.uniform(features_key, blank.features.shape),
        time=jax.random.uniform(time_key),
    )


@functools.partial(jax.jit, static_argnames=("spec", "frames", "features", "streams"))
def _network(spec, *, frames=4, features=3, streams=2, key):
    return ActorCritic(
        spec, frames=frames, features=features, action_bias=(0.0,) * spec.num_actions, streams=streams, key=key
    )


def _conv(x, weight, stride, padding):
    """XLA's convolution of one image."""
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x[None], weight, (stride, stride), padding, dimension_numbers=layout)[0]


def test_a_layer_is_its_convolution_and_a_bias(getkey):
    conv = Conv(3, 5, kernel=3, stride=2, same=True, key=getkey())
    conv = eqx.tree_at(lambda c: c.dense.bias, conv, jnp.arange(5, dtype=jnp.float32))
    x = jax.random.normal(getkey(), (7, 7, 3))
    weight = conv.dense.weight.reshape(5, 3, 3, 3)
    expected = _conv(x, jnp.moveaxis(weight, 0, -1), 2, "SAME") + conv.dense.bias
    np.testing.assert_allclose(conv(x[None])[0], expected, rtol=1e-4, atol=1e-5)


def test_many_views_at_once_are_one_by_one(getkey):
    for spec in (COMPACT, SYMBOLIC, VECTOR, ROW):
        network = _network(spec, key=getkey())
        views = _views(spec, getkey())
        alone, found = _in_three_ways(network, views)
        for many in found:
            for some, each in zip(many, alone, strict=True):
                np.testing.assert_allclose(some.reshape(each.shape), each, rtol=1e-4, atol=1e-5)


@functools.partial(jax.jit, static_argnums=0)
def _views(spec, key):
    # As many as make the convolutions go by rows.
    return jax.vmap(lambda key: _view(spec, 4, 3, key=key))(jax.random.split(key, 66))


@jax.jit
def _in_three_ways(network, views):
    """One by one, all at once, and all at once with two leading axes."""
    pairs = jax.tree.map(lambda leaf: leaf.reshape(2, 33, *leaf.shape[1:]), views)
    return jax.lax.map(network, views), (network(views), network(pairs))


@pytest.mark.parametrize("factor", [1, 2])
def test_three_strides_take_a_7x7_view_to_a_point(getkey, factor):
    # ⌈7/2⌉ = 4, ⌈4/2⌉ = 2, ⌈2/2⌉ = 1; widths 16, 32, 64 as in the paper.
    def outputs(key):
        x, layers = jnp.zeros((1, 7, 7, 4 * 16 + 16)), []
        torso = GridTorso(COMPACT, 4, 16, factor=factor, key=key)
        for conv in torso.convs:
            x = conv(x)
            layers.append(x[0])
        return [*layers, torso(blank_view(COMPACT, 4, 16))]

    shapes = [out.shape for out in jax.eval_shape(outputs, getkey())]
    assert shapes == [(4, 4, 16 * factor), (2, 2, 32 * factor), (1, 1, 64 * factor), (64 * factor,)]


@SPECS
@pytest.mark.parametrize("features", [0, 3])
def test_logits_and_values_have_their_shapes(getkey, spec, features):
    view = blank_view(spec, 4, features)
    logits, value = jax.eval_shape(lambda key: _network(spec, features=features, key=key)(view), getkey())
    assert logits.shape == (spec.num_actions,)
    assert value.shape == (2,)
    assert logits.dtype == value.dtype == jnp.float32


def test_kinds_meet_their_torsos(getkey):
    specs = (COMPACT, SYMBOLIC, VECTOR, ROW)
    torsos = [type(jax.eval_shape(functools.partial(make_torso, spec, 4, 3), key=getkey())) for spec in specs]
    assert torsos == [GridTorso, GridTorso, VectorTorso, VectorTorso]


def test_a_factor_widens_both_layers_of_a_vectors_torso(getkey):
    torso = jax.eval_shape(functools.partial(make_torso, VECTOR, 4, 3, factor=3), key=getkey())
    inputs = math.prod(VECTOR.observation_shape) * (4 + 3)
    assert [layer.weight.shape for layer in torso.layers] == [(3 * WIDTH, inputs), (3 * WIDTH, 3 * WIDTH)]


@pytest.mark.parametrize(("inputs", "outputs", "scale"), [(20, 6, 0.01), (6, 20, 1.0), (12, 12, math.sqrt(2))])
def test_weights_begin_orthogonal_and_biases_at_zero(getkey, inputs, outputs, scale):
    dense = Dense(inputs, outputs, scale=scale, key=getkey())
    weight = np.asarray(dense.weight, np.float64)
    assert weight.shape == (outputs, inputs)
    gram = weight @ weight.T if outputs < inputs else weight.T @ weight
    np.testing.assert_allclose(gram, scale**2 * np.eye(min(inputs, outputs)), atol=1e-5 * scale**2)
    assert not np.any(dense.bias)


def test_a_new_policy_is_almost_even(getkey):
    logits, _ = _network(COMPACT, key=getkey())(_view(COMPACT, 4, 3, key=getkey()))
    assert float(jnp.max(jax.nn.softmax(logits)) - 1 / 7) < 0.02


@SPECS
def test_every_frame_every_feature_and_the_time_reach_the_outputs(getkey, spec):
    network = _network(spec, key=getkey())
    view = _view(spec, 4, 3, key=getkey())
    outputs = eqx.filter_jit(lambda view: jnp.concatenate(network(view)))
    before = outputs(view)
    changed = [dataclasses.replace(view, time=view.time + 0.1)]
    for frame in range(4):
        other = _view(spec, 4, 3, key=getkey())
        changed.append(dataclasses.replace(view, frames=view.frames.at[frame].set(other.frames[frame])))
    for feature in range(3):
        changed.append(dataclasses.replace(view, features=view.features.at[..., feature].add(0.5)))
    for each in changed:
        assert float(jnp.max(jnp.abs(outputs(each) - before)[:-2])) > 1e-6
        assert float(jnp.max(jnp.abs(outputs(each) - before)[-2:])) > 1e-4


def test_classes_are_names_not_numbers(getkey):
    # One-hot: swapping the weights of two classes is the same as swapping the classes, which raw integers would not be.
    torso = GridTorso(COMPACT, 1, 0, key=getkey())
    view = _view(COMPACT, 1, 0, key=getkey())
    a, b = 2, 11
    order = jnp.arange(16).at[jnp.array([a, b])].set(jnp.array([b, a]))
    swapped = dataclasses.replace(view, frames=order[view.frames].astype(jnp.uint8))
    first = torso.convs[0].dense
    weight = first.weight.reshape(16, 3, 3, 16)[..., order].reshape(first.weight.shape)
    renamed = eqx.tree_at(lambda t: t.convs[0].dense.weight, torso, weight)
    np.testing.assert_allclose(renamed(swapped), torso(view), rtol=1e-5, atol=1e-6)
    assert not np.allclose(torso(swapped), torso(view), atol=1e-3)


@pytest.mark.parametrize("spec", [COMPACT, VECTOR], ids=lambda spec: spec.id)
def test_all_leaves_of_a_network_are_arrays(getkey, spec):
    # Built outside of `jit`, which would make arrays of numbers.
    network = ActorCritic(spec, frames=1, features=1, action_bias=(0.0, 0.0), streams=1, key=getkey())
    assert all(eqx.is_inexact_array(leaf) for leaf in jax.tree.leaves(network))


def test_all_leaves_of_a_train_state_are_arrays():
    cfg = RunConfig(
        env="ladder/game",
        method_fields={"k_explore": 1, "k_control": 4},
        bodies=2,
        rollout=5,
        steps=10,
        ppo=PPOConfig(minibatch=2, lr_end_steps=100),
    )
    # Built outside of `jit`, which would make arrays of numbers.
    leaves = jax.tree.leaves(Fused(cfg)._init_seed(jax.random.key(0)))
    assert len(leaves) > 40
    assert all(isinstance(leaf, jax.Array) for leaf in leaves)


def test_observations_without_a_network_are_refused(getkey):
    spec = EnvSpec("film", (84, 84, 4), "uint8", "film", 0, 3, 0, ())  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match="film: no network for observations of kind 'film'"):
        _network(spec, key=getkey())


def test_room_worlds_get_the_network_of_the_paper(getkey):
    for encoding, classes in (("compact", 12), ("shared", 16), ("symbolic", 12)):
        spec = advsurprise.make("rooms/four", encoding=encoding).spec
        network = jax.eval_shape(functools.partial(_network, spec, features=spec.num_classes), key=getkey())
        cells = 3 if encoding == "symbolic" else 1
        assert isinstance(network.torso, GridTorso)
        assert network.torso.convs[0].dense.weight.shape == (16, 9 * cells * 5 * classes)
        assert network.hidden.weight.shape == (64, 64 + 1)
