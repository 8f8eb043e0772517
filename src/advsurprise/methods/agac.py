"""Adversarially Guided Actor-Critic (Flet-Berliac et al. 2021): act in ways an imitator does not expect.

An adversary learns to predict the actor's actions. With π_old and π_adv the actor and the adversary at collection time,
c (log π_old(a|s) − log π_adv(a|s)) is added to the advantage and c KL(π_old ‖ π_adv) to the value target.
"""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from advsurprise.errors import check
from advsurprise.learning.advantage import turn_gae
from advsurprise.learning.chunks import by_chunks
from advsurprise.learning.fit import FitResult, FitTask, StaticRows
from advsurprise.learning.networks import Dense, blank_view, make_torso
from advsurprise.methods.base import AbstractMethod, Clock, first_clock, plain_score, plain_view, tick
from advsurprise.types import EnvSpec, Measured, Rollout, Score, TimeStep, View

ADAM_EPS = 1e-5
"""Epsilon of the adversary's Adam, as published; it determines the effect of `beta`."""
MOST_STEPS = 2_000_000_000
"""Maximum of `anneal_steps`: steps are counted in 32 bits."""


class Adversary(eqx.Module):
    """A policy without a critic: the actor's kind of torso, dense layers with the time appended, logits."""

    torso: eqx.Module
    layers: tuple[Dense, ...]
    head: Dense

    def __init__(self, spec: EnvSpec, *, frames: int, widths: tuple[int, ...], key: PRNGKeyArray):
        torso_key, head_key, *layer_keys = jax.random.split(key, 2 + len(widths))
        torso = make_torso(spec, frames, 0, key=torso_key)
        outputs = jax.eval_shape(torso, blank_view(spec, frames, 0)).shape[0]
        sizes = (outputs + 1, *widths)
        self.torso = torso
        self.layers = tuple(
            Dense(before, after, scale=math.sqrt(2), key=k)
            for before, after, k in zip(sizes[:-1], widths, layer_keys, strict=True)
        )
        self.head = Dense(sizes[-1], spec.num_actions, scale=0.01, key=head_key)

    def __call__(self, view: View) -> Float[Array, "*n actions"]:
        features = self.torso(view)  # pyright: ignore[reportCallIssue]
        x = jnp.concatenate([features, view.time[..., None]], axis=-1)
        for layer in self.layers:
            x = jax.nn.tanh(layer(x))
        return self.head(x)


class Learnt(eqx.Module):
    """The adversary, its optimiser and a step count."""

    adversary: Adversary
    opt_state: optax.OptState
    """State of the adversary's optimiser."""
    steps: Int[Array, ""]
    """Environment steps learnt from, over all bodies, up to `anneal_steps`."""


class Memory(eqx.Module):
    """A body's memory within an episode."""

    clock: Clock
    cell: Int[Array, "2"]
    """Column and row of the body."""
    visited: Bool[Array, "columns rows"]
    """Cells in which it has acted; of size 0 if counts=0."""


class Signal(eqx.Module):
    """What is recorded at each step."""

    first: Bool[Array, "..."]
    """Whether this is the episode's first action in its cell; always False if counts=0."""


class AGAC(AbstractMethod[Learnt, Memory]):
    """Adversarially Guided Actor-Critic: rewarded for actions that an imitating adversary does not expect."""

    spec: EnvSpec = eqx.field(static=True)
    stack: int = eqx.field(static=True, default=4)
    """Number of stacked observations the actor and the adversary see."""
    gamma: float = eqx.field(static=True, default=0.99)
    """Discount factor."""
    c: float = eqx.field(static=True, default=4e-4)
    """Weight of the log-ratio in the advantage and of the KL in the value target (as published for MiniGrid)."""
    anneal_steps: int = eqx.field(static=True, default=0)
    """Environment steps over which c decays linearly to 0 (published: all of training); 0 keeps it constant."""
    extrinsic: float = eqx.field(static=True, default=0.0)
    """Weight of the world's own reward (published: 1); 0: reward-free."""
    counts: float = eqx.field(static=True, default=0.0)
    """Bonus for the first action in each cell of an episode, added to the advantage only (published for MiniGrid: 0.1).
    It uses the body's true place."""
    lam: float = eqx.field(static=True, default=0.95)
    """λ of the cell bonus's advantage; if equal to ppo.gae_lambda, the bonus acts like a reward in that estimate."""
    widths: tuple[int, ...] = eqx.field(static=True, default=(64, 32))
    """Widths of the adversary's dense layers (published: 256, 128)."""
    beta: float = eqx.field(static=True, default=1.0)
    """Factor on the adversary's loss. The published 4e-5 acts only through Adam's epsilon, as a much lower rate."""
    lr: float = eqx.field(static=True, default=9e-5)
    """Learning rate of the adversary's Adam, 0.3 times the actor's."""
    max_grad_norm: float = eqx.field(static=True, default=0.5)
    """Maximum norm of the adversary's gradient."""
    epochs: int = eqx.field(static=True, default=4)
    """The adversary's epochs over each rollout."""
    minibatches: int = eqx.field(static=True, default=32)
    """Minibatches per epoch, so that more bodies do not mean more gradient steps; 32 give 256 samples each with 16
    bodies and 512 steps, as in PPO."""

    def __check_init__(self):
        rules = [
            (self.stack >= 1, f"stack must be at least 1, not {self.stack}"),
            (0 <= self.gamma < 1, f"gamma must be at least 0 and below 1, not {self.gamma}"),
            (self.c >= 0, f"c must be at least 0, not {self.c}"),
            (0 <= self.anneal_steps <= MOST_STEPS, f"anneal_steps must be from 0 to 2e9, not {self.anneal_steps}"),
            (self.extrinsic >= 0, f"extrinsic must be at least 0, not {self.extrinsic}"),
            (self.counts >= 0, f"counts must be at least 0, not {self.counts}"),
            (
                not self.counts or len(self.spec.places) >= 2,
                f"{self.spec.id} does not reveal where the body is, which counts > 0 needs",
            ),
            (0 <= self.lam <= 1, f"lam must be from 0 to 1, not {self.lam}"),
            (min(self.widths, default=1) >= 1, f"widths must be at least 1, not {list(self.widths)}"),
            (min(self.beta, self.lr, self.max_grad_norm) > 0, "beta, lr and max_grad_norm must be positive"),
            (min(self.epochs, self.minibatches) >= 1, "epochs and minibatches must be at least 1"),
        ]
        check(rules, subject="agac")

    @property
    def roles(self) -> tuple[str, ...]:
        return ("agent",)

    @property
    def critic_scale(self) -> float:
        """0: the noise of an untrained critic (about 0.1) would drown the bonus (about 1e-4)."""
        return 0.0

    def init(self, *, bodies: int, key: PRNGKeyArray) -> Learnt:
        adversary = Adversary(self.spec, frames=self.stack, widths=self.widths, key=key)
        opt_state = self._optimiser.init(adversary)  # pyright: ignore[reportArgumentType]
        return Learnt(adversary, opt_state, jnp.int32(0))

    def start(self, timestep: TimeStep, before: Memory | None = None) -> Memory:
        size = self.spec.places[:2] if self.counts else (0, 0)
        return Memory(first_clock(timestep, self.stack), self._cell(timestep.place), jnp.zeros(size, bool))

    def turn(self, memory: Memory) -> Int[Array, ""]:
        return jnp.int32(0)

    def see(self, memory: Memory) -> View:
        return plain_view(self.spec, memory.clock)

    def advance(
        self, learnt: Learnt, memory: Memory, action: Int[Array, ""], timestep: TimeStep
    ) -> tuple[Memory, Signal]:
        clock, cell = tick(memory.clock, timestep), self._cell(timestep.final_place)
        if not self.counts:
            return Memory(clock, cell, memory.visited), Signal(jnp.bool_(False))
        column, row = memory.cell
        first = ~memory.visited[column, row]
        return Memory(clock, cell, memory.visited.at[column, row].set(True)), Signal(first)

    def score(self, learnt: Learnt, rollout: Rollout) -> tuple[Learnt, dict[str, Score]]:
        expected = self.expected(learnt, rollout)
        c = self.coefficient(learnt)
        score = plain_score(rollout, self.extrinsic * rollout.reward, self.gamma)
        return learnt, {
            "agent": dataclasses.replace(
                score,
                bonus=c * log_ratio(rollout, expected) + self.count_advantage(rollout, score),
                target_shift=(c * divergence(rollout.decision.logits, expected))[..., None],
            )
        }

    def trace(self, learnt: Learnt, rollout: Rollout) -> dict[str, Measured]:
        ratio = log_ratio(rollout, self.expected(learnt, rollout))
        always = jnp.ones(ratio.shape, bool)
        return {"log-probability of the action, actor's minus adversary's": Measured(ratio, always)}

    @property
    def networks(self) -> tuple[str, ...]:
        return ("adversary",)

    def fit_tasks(self, learnt: Learnt, rollout: Rollout, *, key: PRNGKeyArray) -> dict[str, FitTask]:
        number, logits = rollout.reward.size, rollout.decision.logits
        logits = logits.reshape(number, *logits.shape[2:])

        def loss(adversary: Adversary, data: tuple, rows: Int[Array, " M"], weight: Float[Array, " M"]):
            views, logits = data
            return self.beta * jnp.mean(divergence(logits[rows], adversary(views.take(rows)))), {}

        adversary = FitTask(
            params=learnt.adversary,
            opt_state=learnt.opt_state,
            data=(rollout.views, logits),
            loss=loss,
            optimiser=self._optimiser,
            rows=StaticRows(number),
            epochs=self.epochs,
            minibatch=max(1, number // self.minibatches),
            key=key,
        )
        return {"adversary": adversary}

    def learn(self, learnt: Learnt, rollout: Rollout, fitted: dict[str, FitResult]) -> tuple[Learnt, dict[str, Array]]:
        # The same call as in `score`: compiled together, the adversary runs only once.
        metrics = compared(rollout, self.expected(learnt, rollout)) | {"c": self.coefficient(learnt)}
        adversary, opt_state, _ = fitted["adversary"]
        steps = jnp.minimum(learnt.steps + rollout.reward.size, self.anneal_steps)
        return Learnt(adversary, opt_state, steps), {f"adversary/{name}": value for name, value in metrics.items()}

    def expected(self, learnt: Learnt, rollout: Rollout) -> Float[Array, "T B A"]:
        """The adversary's logits at every step. It has not changed since the rollout was collected."""
        rows = jnp.arange(rollout.reward.size, dtype=jnp.int32).reshape(rollout.reward.shape)
        shape = (self.stack, *self.spec.observation_shape)
        return by_chunks(lambda rows: learnt.adversary(rollout.views.take(rows)), rows, shape=shape)

    def coefficient(self, learnt: Learnt) -> Float[Array, ""]:
        """c (1 − steps / anneal_steps)."""
        left = 1 - learnt.steps.astype(jnp.float32) / self.anneal_steps if self.anneal_steps else jnp.float32(1)
        return self.c * left

    def count_advantage(self, rollout: Rollout, score: Score) -> Float[Array, "T B"]:
        """Σ_k (γλ)^k b_{t+k} within the episode, b the bonus for first actions in cells.

        Advantages are linear in rewards: those of r + b are those of r plus this. The value target stays that of r.
        """
        bonus = self.counts * rollout.signal.first.astype(jnp.float32)
        nothing = jnp.zeros_like(bonus)
        always = jnp.ones(bonus.shape, bool)
        discount, cut = score.discount[..., 0], score.cut[..., 0]
        return turn_gae(bonus, nothing, nothing, discount, cut, always, nothing[0], lam=self.lam)

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        return optax.chain(optax.clip_by_global_norm(self.max_grad_norm), optax.adam(self.lr, eps=ADAM_EPS))

    def _cell(self, place: Int[Array, " entries"] | None) -> Int[Array, "2"]:
        if place is None or len(self.spec.places) < 2:
            return jnp.zeros(2, jnp.int32)
        return place[:2].astype(jnp.int32)


def divergence(logits: Float[Array, "*n A"], expected: Float[Array, "*n A"]) -> Float[Array, "*n"]:
    """KL(π ‖ π_adv) = Σ_a π(a) (log π(a) − log π_adv(a)), from logits of both."""
    log_pi, log_adversary = jax.nn.log_softmax(logits), jax.nn.log_softmax(expected)
    return jnp.sum(jnp.exp(log_pi) * (log_pi - log_adversary), axis=-1)


def log_taken(rollout: Rollout, logits: Float[Array, "T B A"]) -> Float[Array, "T B"]:
    """Log-probability of the actions taken, under these logits."""
    return jnp.take_along_axis(jax.nn.log_softmax(logits), rollout.decision.action[..., None], axis=-1)[..., 0]


def log_ratio(rollout: Rollout, expected: Float[Array, "T B A"]) -> Float[Array, "T B"]:
    """log π_old(a|s) − log π_adv(a|s) of the actions taken."""
    return rollout.decision.log_prob - log_taken(rollout, expected)


def compared(rollout: Rollout, expected: Float[Array, "T B A"]) -> dict[str, Array]:
    """How well the adversary predicts the actor, before it learns from this rollout."""
    logits, action = rollout.decision.logits, rollout.decision.action
    return {
        "kl": jnp.mean(divergence(logits, expected)),
        "kl_uniform": jnp.mean(divergence(logits, jnp.zeros_like(logits))),
        "log_ratio": jnp.mean(log_ratio(rollout, expected)),
        "likelihood": jnp.mean(jnp.exp(log_taken(rollout, expected))),
        "accuracy": jnp.mean((jnp.argmax(expected, axis=-1) == action).astype(jnp.float32)),
    }


METHOD = AGAC
