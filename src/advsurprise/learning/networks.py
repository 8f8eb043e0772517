"""Networks. They take one view or many: leading axes are those of `View.time`, and one call for many is fastest.

Every field that is not an array is static, so plain `jit` works on them.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from advsurprise.errors import UserError
from advsurprise.learning.convolution import SAME_KERNEL, SAME_STRIDE, convolve, padding
from advsurprise.learning.images import numbers
from advsurprise.types import EnvSpec, View

WIDTH, IMAGE_WIDTH = 64, 256
"""Width of a policy's dense layer, and of the one for images: the paper gives neither. Convolutions end in 64 numbers
for rooms and Doom, in 3,136 for Atari."""


class Dense(eqx.Module):
    """W x + b, with orthogonal W."""

    # Outputs first: the gradient of the other order is a product that CPUs are three times slower at.
    weight: Float[Array, "outputs inputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, inputs: int, outputs: int, *, scale: float, key: PRNGKeyArray):
        self.weight = scale * orthogonal(outputs, inputs, key=key)
        self.bias = jnp.zeros(outputs)

    def __call__(self, x: Float[Array, "*n inputs"]) -> Float[Array, "*n outputs"]:
        return jax.lax.dot_general(x, self.weight, (((x.ndim - 1,), (1,)), ((), ()))) + self.bias


@functools.partial(jax.jit, static_argnums=(0, 1))
def orthogonal(rows: int, columns: int, *, key: PRNGKeyArray) -> Float[Array, "{rows} {columns}"]:
    """A random matrix with orthonormal columns (rows, if it is wide), uniform over all such matrices.

    Gram-Schmidt on Gaussian columns, each projected twice, which is enough for rounding. Not LAPACK's QR: mapped over
    seeds and compiled for the CPU, that can hang forever on two cores.
    """
    long, short = max(rows, columns), min(rows, columns)
    gaussian = jax.random.normal(key, (long, short))

    def add_column(index, done):
        column = gaussian[:, index]
        for _ in range(2):
            column = column - done @ (done.T @ column)
        return done.at[:, index].set(column / jnp.linalg.norm(column))

    matrix = jax.lax.fori_loop(0, short, add_column, jnp.zeros((long, short)))
    return matrix if rows >= columns else matrix.T


class Conv(eqx.Module):
    """A convolution and its bias."""

    dense: Dense
    """Weights, inputs flattened as [row, column, channel] of the kernel."""
    kernel: int = eqx.field(static=True)
    stride: int = eqx.field(static=True)
    same: bool = eqx.field(static=True)

    def __init__(self, channels: int, outputs: int, *, kernel: int, stride: int, same: bool = False, key: PRNGKeyArray):
        self.dense = Dense(kernel * kernel * channels, outputs, scale=math.sqrt(2), key=key)
        self.kernel, self.stride, self.same = kernel, stride, same

    def __call__(self, x: Any, **how: Any) -> Float[Array, "n new_rows new_columns outputs"]:
        """The convolution of x; `how` are the options `is_data` and `encode` of `convolve`."""
        weight = self.dense.weight.reshape(len(self.dense.bias), self.kernel, self.kernel, -1)
        return convolve(x, weight, stride=self.stride, same=self.same, **how) + self.dense.bias


class GridTorso(eqx.Module):
    """Room worlds: one-hot frames and density features on channels, three convolutions of stride 2."""

    convs: tuple[Conv, ...]
    num_classes: int = eqx.field(static=True)

    def __init__(self, spec: EnvSpec, frames: int, features: int, *, factor: int = 1, key: PRNGKeyArray):
        self.num_classes = spec.num_classes
        per_cell = math.prod(spec.observation_shape[2:])
        widths = (per_cell * (frames * spec.num_classes + features), 16 * factor, 32 * factor, 64 * factor)
        keys = jax.random.split(key, 3)
        self.convs = tuple(
            Conv(before, after, kernel=SAME_KERNEL, stride=SAME_STRIDE, same=True, key=k)
            for before, after, k in zip(widths[:-1], widths[1:], keys, strict=True)
        )

    def __call__(self, view: View) -> Float[Array, "*n outputs"]:
        lead, samples = view.time.ndim, math.prod(view.time.shape)
        rows, columns = view.images.shape[lead + 1 : lead + 3]
        frames = view.images.reshape(samples, view.images.shape[lead], rows, columns, -1)
        features = view.features.reshape(samples, rows, columns, math.prod(view.features.shape[lead + 2 :]))
        cells = (jnp.moveaxis(frames, 1, -1), features)
        return convolved(self.convs, cells, encode=self._encode).reshape(*view.time.shape, -1)

    def _encode(self, cells: tuple[Array, Array]) -> Float[Array, "n rows columns channels"]:
        """Channels of each cell: classes of all frames one-hot, then features."""
        classes, features = cells
        one_hot = jax.nn.one_hot(classes, self.num_classes).reshape(*features.shape[:-1], -1)
        return jnp.concatenate([one_hot, features], axis=-1)


def convolved(convs: Sequence[Conv], x: Any, **how: Any) -> Float[Array, "n new_rows new_columns outputs"]:
    """Convolutions of data, each followed by a ReLU; `how` are options of the first."""
    first, *others = convs
    x = jax.nn.relu(first(x, is_data=True, **how))
    for conv in others:
        x = jax.nn.relu(conv(x))
    return x


Layers = Sequence[tuple[int, int, int]]
"""Convolutions, each (channels, kernel, stride)."""


class ImageTorso(eqx.Module):
    """Images: frames on channels, three convolutions chosen by the image's shorter side. Density features join the
    frames if they have the image's size, or the first convolution's output if they have that size."""

    convs: tuple[Conv, ...]
    joined_at: int = eqx.field(static=True)
    """Index of the convolution whose input includes the features."""

    def __init__(
        self,
        spec: EnvSpec,
        frames: int,
        features: int,
        *,
        layers: Layers | None = None,
        factor: int = 1,
        key: PRNGKeyArray,
    ):
        size = spec.observation_shape[:2]
        layers, same = layers or image_layers(min(size)), min(size) < LEAST_UNPADDED
        layers = [(outputs * factor, kernel, stride) for outputs, kernel, stride in layers]
        planes = math.prod(spec.modelled_shape[2:]) * features
        self.joined_at = joined_at(spec, layers[0], same=same) if planes else 0
        widths = [math.prod(spec.observation_shape[2:]) * frames, *(outputs for outputs, _, _ in layers)]
        inputs = [width + planes * (index == self.joined_at) for index, width in enumerate(widths[:-1])]
        keys = jax.random.split(key, len(layers))
        self.convs = tuple(
            Conv(before, after, kernel=kernel, stride=stride, same=same, key=k)
            for before, (after, kernel, stride), k in zip(inputs, layers, keys, strict=True)
        )

    def __call__(self, view: View) -> Float[Array, "*n outputs"]:
        lead, samples = view.time.ndim, math.prod(view.time.shape)
        rows, columns = view.images.shape[lead + 1 :][:2]
        frames = view.images.reshape(samples, view.images.shape[lead], rows, columns, -1)
        frames = jnp.moveaxis(frames, 1, -1).reshape(samples, rows, columns, -1)
        number = math.prod(view.features.shape[lead + 2 :])
        features = view.features.reshape(samples, *view.features.shape[lead : lead + 2], number)
        if self.joined_at == 0:
            parts = (frames, features) if number else (frames,)
            return convolved(self.convs, parts, encode=pixels_and_features).reshape(*view.time.shape, -1)
        first = jax.nn.relu(self.convs[0](frames, is_data=True, encode=numbers))
        x = pixels_and_features((first, features))
        for conv in self.convs[1:]:
            x = jax.nn.relu(conv(x))
        return x.reshape(*view.time.shape, -1)


def pixels_and_features(parts: tuple[Array, ...]) -> Float[Array, "... channels"]:
    """Pixels as floats and density features, on channels."""
    return jnp.concatenate([numbers(part) for part in parts], axis=-1)


def joined_at(spec: EnvSpec, first: tuple[int, int, int], *, same: bool) -> int:
    """The convolution whose input has the size of a world's density features: the first or the second."""
    size, planes = tuple(spec.observation_shape[:2]), tuple(spec.modelled_shape[:2])
    _, kernel, stride = first
    after = tuple(padding(side, kernel=kernel, stride=stride, same=same)[2] for side in size)
    if planes not in (size, after):
        known = " or ".join(f"{rows}x{columns}" for rows, columns in (size, after))
        raise UserError(f"{spec.id}: a density model of images must be {known}, not {planes[0]}x{planes[1]}")
    return 0 if planes == size else 1


LEAST_UNPADDED = 20
"""Shorter side of an image from which on convolutions do not pad."""


def image_layers(side: int) -> Layers:
    """A policy's convolutions for images with this shorter side.

    They shrink an image to a few cells and fit within it: 84 -> 20 -> 9 -> 7, 20 -> 9 -> 3 -> 1, 7 -> 4 -> 2 -> 1. The
    first two are the paper's for Atari and Doom.
    """
    if side >= 60:
        return [(4, 8, 4), (32, 4, 2), (64, 3, 1)]
    if side >= LEAST_UNPADDED:
        return [(32, 4, 2), (32, 4, 2), (64, 3, 1)]
    return [(16, 3, 2), (32, 3, 2), (64, 3, 2)]


class VectorTorso(eqx.Module):
    """Real vectors, and classes that are not on a grid: two dense layers."""

    layers: tuple[Dense, ...]
    num_classes: int = eqx.field(static=True)

    def __init__(self, spec: EnvSpec, frames: int, features: int, *, factor: int = 1, key: PRNGKeyArray):
        width = WIDTH * factor
        self.num_classes = spec.num_classes if spec.observation_kind == "classes" else 0
        entries = math.prod(spec.observation_shape)
        inputs = entries * (frames * max(self.num_classes, 1) + features)
        keys = jax.random.split(key, 2)
        self.layers = tuple(
            Dense(size, width, scale=math.sqrt(2), key=k) for size, k in zip((inputs, width), keys, strict=True)
        )

    def __call__(self, view: View) -> Float[Array, "*n outputs"]:
        frames, lead = view.images, view.time.shape
        seen = jax.nn.one_hot(frames, self.num_classes) if self.num_classes else frames.astype(jnp.float32)
        # Explicit sizes: -1 cannot be inferred where there are no features.
        parts = [part.reshape(*lead, math.prod(part.shape[len(lead) :])) for part in (seen, view.features)]
        x = jnp.concatenate(parts, axis=-1)
        for layer in self.layers:
            x = jax.nn.tanh(layer(x))
        return x


class ActorCritic(eqx.Module):
    """A policy and its values on one torso: torso, one dense layer with the time appended, two heads."""

    torso: GridTorso | ImageTorso | VectorTorso
    hidden: Dense
    actor: Dense
    critic: Dense

    def __init__(
        self,
        spec: EnvSpec,
        *,
        frames: int,
        features: int,
        action_bias: tuple[float, ...],
        streams: int,
        critic_scale: float = 1.0,
        factor: int = 1,
        key: PRNGKeyArray,
    ):
        torso_key, hidden_key, actor_key, critic_key = jax.random.split(key, 4)
        self.torso = make_torso(spec, frames, features, factor=factor, key=torso_key)
        outputs = jax.eval_shape(self.torso, blank_view(spec, frames, features)).shape[0]
        width = factor * (IMAGE_WIDTH if spec.observation_kind == "image" else WIDTH)
        self.hidden = Dense(outputs + 1, width, scale=math.sqrt(2), key=hidden_key)
        # An action of negligible probability gets no gradient, so it stays excluded.
        actor = Dense(width, len(action_bias), scale=0.01, key=actor_key)
        self.actor = eqx.tree_at(lambda dense: dense.bias, actor, jnp.asarray(action_bias, jnp.float32))
        self.critic = Dense(width, streams, scale=critic_scale, key=critic_key)

    def __call__(self, view: View) -> tuple[Float[Array, "*n actions"], Float[Array, "*n streams"]]:
        x = jnp.concatenate([self.torso(view), view.time[..., None]], axis=-1)
        x = jax.nn.tanh(self.hidden(x))
        return self.actor(x), self.critic(x)


class FixedPolicy(eqx.Module):
    """A policy that does not depend on what it sees."""

    logits: Float[Array, " actions"]
    streams: int = eqx.field(static=True)

    def __call__(self, view: View) -> tuple[Float[Array, "*n actions"], Float[Array, "*n streams"]]:
        lead = view.time.shape
        return jnp.broadcast_to(self.logits, (*lead, *self.logits.shape)), jnp.zeros((*lead, self.streams))


def make_torso(
    spec: EnvSpec, frames: int, features: int, *, layers: Layers | None = None, factor: int = 1, key: PRNGKeyArray
) -> GridTorso | ImageTorso | VectorTorso:
    """The torso for a world's observations; `layers` replace a policy's convolutions of images, and `factor` multiplies
    the width of every layer."""
    if spec.observation_kind == "image" and len(spec.observation_shape) in (2, 3):
        return ImageTorso(spec, frames, features, layers=layers, factor=factor, key=key)
    if spec.observation_kind == "classes" and len(spec.observation_shape) in (2, 3):
        return GridTorso(spec, frames, features, factor=factor, key=key)
    if spec.observation_kind in ("vector", "classes"):
        return VectorTorso(spec, frames, features, factor=factor, key=key)
    raise UserError(f"{spec.id}: no network for observations of kind {spec.observation_kind!r}")


def blank_view(spec: EnvSpec, frames: int, features: int) -> View:
    """A view of the right shapes."""
    dtype = jnp.dtype(spec.observation_dtype)
    empty: Shaped[Array, ...] = jnp.zeros((frames, *spec.observation_shape), dtype)
    return View(empty, jnp.zeros((*spec.modelled_shape, features)), jnp.float32(0))
