"""A plain PPO in one compiled loop, in the style of single-file JAX implementations, as a baseline.

Two networks of two layers on flat observations, `vmap` over seeds and bodies, `scan` over steps, auto-reset within
every step. It learns from the world's own reward, without roles, densities, frame stacks or time limits.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from advsurprise.envs.foreign.load import Made
from advsurprise.envs.foreign.spaces import describe_actions
from advsurprise.learning.networks import orthogonal

WIDTH = 64


class PlainConfig(NamedTuple):
    """Sizes and hyperparameters, with the usual defaults of such implementations."""

    bodies: int
    rollout: int
    epochs: int = 4
    minibatches: int = 8
    lr: float = 2.5e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    entropy_coef: float = 0.01
    value_coef: float = 0.5
    max_grad_norm: float = 0.5


class Carry(NamedTuple):
    """State carried from one update to the next."""

    params: Any
    optimiser: Any
    state: Any
    obs: Float[Array, "B n"]
    key: Array


class Step(NamedTuple):
    """Recorded steps, axes [T, B]."""

    obs: Array
    action: Array
    log_prob: Array
    value: Array
    reward: Array
    done: Array


class PlainPPO:
    """PPO for one world: `init` and `update` of one seed, to be vmapped over seeds and jitted."""

    def __init__(self, made: Made, cfg: PlainConfig):
        self.made, self.cfg = made, cfg
        self.num_actions = describe_actions(made)[0]
        self.optimiser = optax.chain(optax.clip_by_global_norm(cfg.max_grad_norm), optax.adam(cfg.lr, eps=1e-5))

    def init(self, key: Array) -> Carry:
        """Initial networks and bodies."""
        key, net_key, env_key = jax.random.split(key, 3)
        obs, state = jax.vmap(self._reset)(jax.random.split(env_key, self.cfg.bodies))
        actor_key, critic_key = jax.random.split(net_key)
        sizes = (obs.shape[-1], WIDTH, WIDTH)
        params = {
            "actor": _layers((*sizes, self.num_actions), 0.01, actor_key),
            "critic": _layers((*sizes, 1), 1.0, critic_key),
        }
        return Carry(params, self.optimiser.init(params), state, obs, key)

    def update(self, carry: Carry) -> tuple[Carry, dict[str, Float[Array, ""]]]:
        """Collects a rollout and trains on it; returns the new state and the rollout's measures."""
        key, collect_key, learn_key = jax.random.split(carry.key, 3)
        keys = jax.random.split(collect_key, self.cfg.rollout)
        collect = lambda world, key: self._step(carry.params, world, key)  # noqa: E731
        (state, obs), steps = jax.lax.scan(collect, (carry.state, carry.obs), keys)
        advantage = self._advantage(steps, _value(carry.params, obs))
        samples = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), (steps, advantage))
        epoch = lambda learner, key: self._epoch(learner, samples, key)  # noqa: E731
        learner = (carry.params, carry.optimiser)
        learner, _ = jax.lax.scan(epoch, learner, jax.random.split(learn_key, self.cfg.epochs))
        return Carry(*learner, state, obs, key), _measures(steps)

    def _reset(self, key: Array) -> tuple[Array, Any]:
        env = self.made.env
        obs, state = (getattr(env, "reset_env", None) or env.reset)(key, self.made.params)
        # The same types as after a step: Python numbers would make the second update recompile.
        return _flat(obs), jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.asarray(leaf).dtype), state)

    def _move(self, key: Array, state: Any, action: Int[Array, ""]) -> tuple[Any, ...]:
        """One step of one body; a reset is computed on every step and used if the episode ends."""
        step_key, reset_key = jax.random.split(key)
        obs, moved, reward, *ends = self.made.env.step_env(step_key, state, action, self.made.params)
        done = jnp.asarray(ends[0]) | (ends[1] if len(ends) == 3 else False)
        if hasattr(self.made.env, "is_truncated"):
            done = done | self.made.env.is_truncated(moved, self.made.params)
        first_obs, first = self._reset(reset_key)
        moved = jax.tree.map(lambda a, b: jnp.where(done, a, jnp.asarray(b).astype(a.dtype)), first, moved)
        return jnp.where(done, first_obs, _flat(obs)), moved, jnp.asarray(reward, jnp.float32), done

    def _step(self, params: Any, world: tuple[Any, Array], key: Array) -> tuple[tuple[Any, Array], Step]:
        state, obs = world
        act_key, env_key = jax.random.split(key)
        logits = _forward(params["actor"], obs)
        action = jax.random.categorical(act_key, logits)
        log_prob = _log_prob(logits, action)
        after, state, reward, done = jax.vmap(self._move)(jax.random.split(env_key, self.cfg.bodies), state, action)
        return (state, after), Step(obs, action, log_prob, _value(params, obs), reward, done)

    def _advantage(self, steps: Step, last_value: Float[Array, " B"]) -> Float[Array, "T B"]:
        def back(later: tuple[Array, Array], step: Step) -> tuple[tuple[Array, Array], Array]:
            gae, value = later
            goes_on = 1.0 - step.done
            delta = step.reward + self.cfg.gamma * value * goes_on - step.value
            gae = delta + self.cfg.gamma * self.cfg.gae_lambda * goes_on * gae
            return (gae, step.value), gae

        return jax.lax.scan(back, (jnp.zeros_like(last_value), last_value), steps, reverse=True)[1]

    def _epoch(self, learner: tuple[Any, Any], samples: Any, key: Array) -> tuple[tuple[Any, Any], None]:
        size = self.cfg.bodies * self.cfg.rollout
        batch = size // self.cfg.minibatches
        order = jax.random.permutation(key, size)[: batch * self.cfg.minibatches].reshape(-1, batch)

        def minibatch(learner: tuple[Any, Any], rows: Array) -> tuple[tuple[Any, Any], None]:
            params, state = learner
            gradient = jax.grad(self._loss)(params, *jax.tree.map(lambda leaf: leaf[rows], samples))
            changes, state = self.optimiser.update(gradient, state)
            return (optax.apply_updates(params, changes), state), None

        return jax.lax.scan(minibatch, learner, order)

    def _loss(self, params: Any, steps: Step, advantage: Float[Array, " n"]) -> Float[Array, ""]:
        cfg, target = self.cfg, advantage + steps.value
        logits, value = _forward(params["actor"], steps.obs), _value(params, steps.obs)
        clipped = steps.value + jnp.clip(value - steps.value, -cfg.clip, cfg.clip)
        value_loss = 0.5 * jnp.maximum((value - target) ** 2, (clipped - target) ** 2).mean()
        ratio = jnp.exp(_log_prob(logits, steps.action) - steps.log_prob)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - cfg.clip, 1 + cfg.clip) * advantage)
        entropy = -(jax.nn.softmax(logits) * jax.nn.log_softmax(logits)).sum(-1).mean()
        return -gain.mean() + cfg.value_coef * value_loss - cfg.entropy_coef * entropy


def of_seeds(
    ppo: PlainPPO, seeds: int
) -> tuple[Callable[[], Carry], Callable[[Carry], tuple[Carry, dict[str, Array]]]]:
    """`init` and `update` of several seeds, jitted."""
    init, update = jax.jit(jax.vmap(ppo.init)), jax.jit(jax.vmap(ppo.update))
    return lambda: init(jax.random.split(jax.random.PRNGKey(0), seeds)), update


def _measures(steps: Step) -> dict[str, Float[Array, ""]]:
    """Mean reward per step; return and length per episode, as totals over the rollout divided by its episode ends."""
    ends = jnp.maximum(steps.done.sum(), 1)
    return {
        "reward": steps.reward.mean(),
        "end/episode_return": steps.reward.sum() / ends,
        "end/episode_length": steps.done.size / ends,
    }


def _layers(sizes: tuple[int, ...], last_scale: float, key: Array) -> list[tuple[Array, Array]]:
    scales = [math.sqrt(2)] * (len(sizes) - 2) + [last_scale]
    keys = jax.random.split(key, len(scales))
    pairs = zip(sizes[:-1], sizes[1:], scales, keys, strict=True)
    return [(scale * orthogonal(rows, columns, key=key), jnp.zeros(columns)) for rows, columns, scale, key in pairs]


def _forward(layers: list[tuple[Array, Array]], x: Float[Array, "*n inputs"]) -> Float[Array, "*n outputs"]:
    for weight, bias in layers[:-1]:
        x = jnp.tanh(x @ weight + bias)
    return x @ layers[-1][0] + layers[-1][1]


def _value(params: Any, obs: Float[Array, "*n inputs"]) -> Float[Array, "*n"]:
    return _forward(params["critic"], obs)[..., 0]


def _log_prob(logits: Float[Array, "*n A"], action: Int[Array, "*n"]) -> Float[Array, "*n"]:
    return jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], axis=-1)[..., 0]


def _flat(obs: Any) -> Float[Array, " n"]:
    return jnp.asarray(obs).astype(jnp.float32).reshape(-1)
