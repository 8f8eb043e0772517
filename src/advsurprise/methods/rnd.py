"""Random Network Distillation (Burda et al. 2018): novelty is the error of predicting a fixed random network.

With f a fixed network, g its trained predictor and x the newest observation, standardised and clipped, the reward is
½ Σ_k (f_k(x_{t+1}) − g_k(x_{t+1}))², divided by the running standard deviation of its discounted return.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from advsurprise.errors import check
from advsurprise.learning.chunks import by_chunks, chunk_length, is_large, split
from advsurprise.learning.fit import FitResult, FitTask, StaticRows
from advsurprise.learning.images import numbers
from advsurprise.learning.networks import Dense, Layers, blank_view, image_layers, make_torso
from advsurprise.learning.stats import RunningMoments, discounted_return, scale, update_moments
from advsurprise.methods.base import AbstractMethod, Clock, endless_score, first_clock, plain_score, plain_view, tick
from advsurprise.types import EnvSpec, Measured, Rollout, Score, TimeStep, View

INPUT_EPS = 1e-6
"""Added to the variance of each input entry: in room worlds many never change."""
ADAM_EPS = 1e-5
"""Epsilon of the predictor's Adam."""


class Embedding(eqx.Module):
    """The fixed target (one dense layer after its torso) or the predictor (three), on standardised observations."""

    torso: eqx.Module
    layers: tuple[Dense, ...]
    rank: int = eqx.field(static=True)
    """Number of axes of one observation; leading axes are samples."""

    def __init__(self, spec: EnvSpec, *, depth: int, width: int, key: PRNGKeyArray):
        torso_key, *layer_keys = jax.random.split(key, 1 + depth)
        torso = make_torso(spec, 1, 0, layers=reward_layers(spec), key=torso_key)
        outputs = jax.eval_shape(torso, blank_view(spec, 1, 0)).shape[0]
        sizes = (outputs, *(width,) * (depth - 1))
        self.torso, self.rank = torso, len(spec.observation_shape)
        self.layers = tuple(
            Dense(size, width, scale=math.sqrt(2), key=k) for size, k in zip(sizes, layer_keys, strict=True)
        )

    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "*n width"]:
        lead = x.shape[: x.ndim - self.rank]
        view = View(jnp.expand_dims(x, len(lead)), jnp.zeros((*x.shape, 0)), jnp.zeros(lead))
        x = self.torso(view)  # pyright: ignore[reportCallIssue]
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer(x))
        return self.layers[-1](x)


def reward_layers(spec: EnvSpec) -> Layers | None:
    """The published convolutions for 84x84 images; None, for a policy's, otherwise."""
    layers = image_layers(min(spec.observation_shape[:2]))
    return [(32, *layers[0][1:]), (64, *layers[1][1:]), layers[2]] if layers[0][0] == 4 else None


class Learnt(eqx.Module):
    """Networks and running scales, shared by all bodies, and each body's discounted return."""

    target: Embedding
    """f, never trained."""
    predictor: Embedding
    """g."""
    opt_state: optax.OptState
    """State of the predictor's optimiser."""
    inputs: RunningMoments
    """Moments of every entry of the observations."""
    returns: RunningMoments
    """Moments of all discounted returns R."""
    discounted: Float[Array, " B"]
    """R after each body's last step; not reset at the end of an episode or a rollout."""


class Signal(eqx.Module):
    """What is recorded at each step."""

    obs: Shaped[Array, "..."]
    """The observation that the action led to, unprocessed."""


class RND(AbstractMethod[Learnt, Clock]):
    """Random Network Distillation: rewarded where its predictor of a fixed random network is still wrong."""

    spec: EnvSpec = eqx.field(static=True)
    stack: int = eqx.field(static=True, default=4)
    """Number of stacked observations the policy sees; the reward's networks see one."""
    gamma: float = eqx.field(static=True, default=0.99)
    """Discount factor of the intrinsic stream, which does not end with the episode."""
    extrinsic: float = eqx.field(static=True, default=0.0)
    """Weight of the advantage of the world's own reward, clipped to ±1 (published: 2); 0: no such stream."""
    gamma_extrinsic: float = eqx.field(static=True, default=0.999)
    """Discount factor of the world's own reward, whose stream ends with the episode."""
    priming: int = eqx.field(static=True, default=8192)
    """Random steps before training, over all bodies, to start the input normalisation (published: 819200)."""
    width: int = eqx.field(static=True, default=128)
    """Output size of both networks and width of the predictor's dense layers (published: 512)."""
    clip: float = eqx.field(static=True, default=5.0)
    """Maximum magnitude of a standardised input entry."""
    predictor_bodies: int = eqx.field(static=True, default=32)
    """With more bodies than this, the predictor trains on a random subset of the samples: about this many bodies'."""
    lr: float = eqx.field(static=True, default=1e-4)
    """Learning rate of the predictor's Adam."""
    epochs: int = eqx.field(static=True, default=4)
    """The predictor's epochs over each rollout."""
    minibatches: int = eqx.field(static=True, default=32)
    """Minibatches per epoch, so that more bodies do not mean more gradient steps; 32 give 256 samples each with 16
    bodies and 512 steps, as in PPO."""

    def __check_init__(self):
        rules = [
            (self.stack >= 1, f"stack must be at least 1, not {self.stack}"),
            (0 <= self.gamma < 1, f"gamma must be at least 0 and below 1, not {self.gamma}"),
            (self.extrinsic >= 0, f"extrinsic must be at least 0, not {self.extrinsic}"),
            (
                0 <= self.gamma_extrinsic < 1,
                f"gamma_extrinsic must be at least 0 and below 1, not {self.gamma_extrinsic}",
            ),
            (self.priming >= 0, f"priming must be at least 0, not {self.priming}"),
            (self.width >= 1, f"width must be at least 1, not {self.width}"),
            (self.clip > 0, f"clip must be positive, not {self.clip}"),
            (self.predictor_bodies >= 1, f"predictor_bodies must be at least 1, not {self.predictor_bodies}"),
            (self.lr > 0, f"lr must be positive, not {self.lr}"),
            (min(self.epochs, self.minibatches) >= 1, "epochs and minibatches must be at least 1"),
        ]
        check(rules, subject="rnd")

    @property
    def roles(self) -> tuple[str, ...]:
        return ("agent",)

    @property
    def streams(self) -> dict[str, float]:
        task = {"extrinsic": self.extrinsic} if self.extrinsic else {}
        return {"intrinsic": 1.0, **task}

    @property
    def input_spec(self) -> EnvSpec:
        """One observation as the reward's networks see it: real numbers, with classes one-hot on the channels."""
        shape, values = self.spec.observation_shape, max(self.spec.num_classes, 1)
        if self.spec.observation_kind != "vector" and len(shape) in (2, 3):
            new, kind = (*shape[:2], math.prod(shape[2:]) * values), "image"
        else:
            new, kind = (math.prod(shape) * values,), "vector"
        return self.spec._replace(
            observation_shape=new, observation_dtype="float32", observation_kind=kind, num_classes=0
        )

    def init(self, *, bodies: int, key: PRNGKeyArray) -> Learnt:
        target_key, predictor_key = jax.random.split(key)
        predictor = Embedding(self.input_spec, depth=3, width=self.width, key=predictor_key)
        return Learnt(
            target=Embedding(self.input_spec, depth=1, width=self.width, key=target_key),
            predictor=predictor,
            opt_state=self._optimiser.init(predictor),  # pyright: ignore[reportArgumentType]
            inputs=RunningMoments.start(self.input_spec.observation_shape),
            returns=RunningMoments.start(),
            discounted=jnp.zeros(bodies),
        )

    def start(self, timestep: TimeStep, before: Clock | None = None) -> Clock:
        return first_clock(timestep, self.stack)

    def turn(self, memory: Clock) -> Int[Array, ""]:
        return jnp.int32(0)

    def see(self, memory: Clock) -> View:
        return plain_view(self.spec, memory)

    def prime(self, learnt: Learnt, rollout: Rollout) -> Learnt:
        return self.absorb_inputs(learnt, rollout.signal.obs)

    def advance(
        self, learnt: Learnt, memory: Clock, action: Int[Array, ""], timestep: TimeStep
    ) -> tuple[Clock, Signal]:
        return tick(memory, timestep), Signal(timestep.final_obs)

    def score(self, learnt: Learnt, rollout: Rollout) -> tuple[Learnt, dict[str, Score]]:
        error = self.errors(learnt, rollout.signal.obs)
        returns, discounted = discounted_return(learnt.discounted, error, None, self.gamma)
        learnt = dataclasses.replace(learnt, returns=update_moments(learnt.returns, returns), discounted=discounted)
        parts = [endless_score(error * scale(learnt.returns), self.gamma)]
        if self.extrinsic:
            parts.append(plain_score(rollout, jnp.clip(rollout.reward, -1.0, 1.0), self.gamma_extrinsic))
        return learnt, {"agent": side_by_side(parts)}

    def trace(self, learnt: Learnt, rollout: Rollout) -> dict[str, Measured]:
        error = self.errors(learnt, rollout.signal.obs)
        return {"prediction error (before scaling)": Measured(error, jnp.ones(error.shape, bool))}

    @property
    def networks(self) -> tuple[str, ...]:
        return ("predictor",)

    def fit_tasks(self, learnt: Learnt, rollout: Rollout, *, key: PRNGKeyArray) -> dict[str, FitTask]:
        obs = rollout.signal.obs
        # In the published order: rewards first, then the moments, then the predictor.
        learnt = self.absorb_inputs(learnt, obs)
        number = obs.shape[0] * obs.shape[1]
        aim = self._of_rollout(learnt.target, learnt.inputs, obs)
        predictor = FitTask(
            params=learnt.predictor,
            opt_state=learnt.opt_state,
            data=aim.reshape(number, self.width),
            loss=functools.partial(predictor_loss, x=self._samples(learnt.inputs, obs)),
            optimiser=self._optimiser,
            rows=StaticRows(number),
            epochs=self.epochs,
            minibatch=max(1, number // self.minibatches),
            kept=min(1.0, self.predictor_bodies / obs.shape[1]),
            key=key,
        )
        return {"predictor": predictor}

    def learn(self, learnt: Learnt, rollout: Rollout, fitted: dict[str, FitResult]) -> tuple[Learnt, dict[str, Array]]:
        obs = rollout.signal.obs
        # The same call as in `score`: compiled together, the networks run only once.
        error = self.errors(learnt, obs)
        clipped = self._of_rollout(self._clipped, learnt.inputs, obs)
        metrics = {
            "intrinsic/raw": jnp.mean(error),
            "intrinsic/reward": jnp.mean(error) * scale(learnt.returns),
            "intrinsic/return_std": 1 / scale(learnt.returns),
            "intrinsic/clipped": jnp.mean(clipped),
        }
        predictor, opt_state, _ = fitted["predictor"]
        learnt = self.absorb_inputs(learnt, obs)
        return dataclasses.replace(learnt, predictor=predictor, opt_state=opt_state), metrics

    def entries(self, obs: Shaped[Array, "..."]) -> Float[Array, "..."]:
        """Observations as real numbers, in the shape of `input_spec` after any number of leading axes."""
        leading = obs.shape[: obs.ndim - len(self.spec.observation_shape)]
        if self.spec.observation_kind == "classes":
            obs = jax.nn.one_hot(obs, self.spec.num_classes)
        obs = numbers(obs) if self.spec.observation_kind == "image" else obs.astype(jnp.float32)
        return obs.reshape(*leading, *self.input_spec.observation_shape)

    def standardised(self, inputs: RunningMoments, obs: Shaped[Array, "..."]) -> Float[Array, "..."]:
        """x = clip((o − μ) / √(σ² + ε), ±clip), entry by entry."""
        return jnp.clip((self.entries(obs) - inputs.mean) * scale(inputs, INPUT_EPS), -self.clip, self.clip)

    def errors(self, learnt: Learnt, obs: Shaped[Array, "T B ..."]) -> Float[Array, "T B"]:
        """½ Σ_k (f_k(x) − g_k(x))² of every observation of a rollout."""

        def of(x):
            return 0.5 * jnp.sum((learnt.target(x) - learnt.predictor(x)) ** 2, axis=-1)

        return self._of_rollout(of, learnt.inputs, obs)

    def absorb_inputs(self, learnt: Learnt, obs: Shaped[Array, "T B ..."]) -> Learnt:
        """`learnt` with the moments of observations updated."""
        length = chunk_length(len(obs), bodies=obs.shape[1], numbers=self._numbers)
        if length == len(obs):
            return dataclasses.replace(learnt, inputs=update_moments(learnt.inputs, self.entries(obs)))

        def absorb(inputs, part):
            return update_moments(inputs, self.entries(part)), None

        return dataclasses.replace(learnt, inputs=jax.lax.scan(absorb, learnt.inputs, split(obs, length))[0])

    def _of_rollout(
        self, function: Callable[[Array], Array], inputs: RunningMoments, obs: Shaped[Array, "T B ..."]
    ) -> Float[Array, "T B ..."]:
        """Applies a function of standardised observations to a whole rollout."""
        shape = self.input_spec.observation_shape
        return by_chunks(lambda part: function(self.standardised(inputs, part)), obs, shape=shape)

    def _samples(
        self, inputs: RunningMoments, obs: Shaped[Array, "T B ..."]
    ) -> Callable[[Int[Array, " M"]], Float[Array, "M ..."]]:
        """A function from rows to standardised observations, computed on demand for images and beforehand otherwise."""
        flat = obs.reshape(-1, *obs.shape[2:])
        if is_large(self._numbers):
            return lambda rows: self.standardised(inputs, flat[rows])
        x = self.standardised(inputs, flat)
        return lambda rows: x[rows]

    def _clipped(self, x: Float[Array, "T B ..."]) -> Float[Array, "T B"]:
        """Fraction of an observation's entries at the clipping limit."""
        at_limit = (jnp.abs(x) >= self.clip).astype(jnp.float32)
        return jnp.mean(at_limit, axis=tuple(range(2, x.ndim)))

    @property
    def _numbers(self) -> int:
        return math.prod(self.input_spec.observation_shape)

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.lr, eps=ADAM_EPS)


def predictor_loss(
    predictor: Embedding,
    aim: Float[Array, "N width"],
    rows: Int[Array, " M"],
    weight: Float[Array, " M"],
    *,
    x: Callable[[Int[Array, " M"]], Float[Array, "M ..."]],
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Σ_i m_i mean_k (g_k(x_i) − f_k(x_i))² / max(1, Σ_i m_i) over the rows of a minibatch, with m_i = 1 if sample
    i counts and `x` a function from rows to observations."""
    missed = jnp.mean((predictor(x(rows)) - aim[rows]) ** 2, axis=-1)
    return jnp.sum(missed * weight) / jnp.maximum(jnp.sum(weight), 1.0), {}


def side_by_side(parts: list[Score]) -> Score:
    """Combines the streams of several scores into one score."""
    return Score(
        reward=jnp.concatenate([part.reward for part in parts], axis=-1),
        discount=jnp.concatenate([part.discount for part in parts], axis=-1),
        cut=jnp.concatenate([part.cut for part in parts], axis=-1),
        bonus=sum((part.bonus for part in parts[1:]), parts[0].bonus),
        target_shift=jnp.concatenate([part.target_shift for part in parts], axis=-1),
    )


METHOD = RND
