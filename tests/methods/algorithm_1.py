"""Algorithm 1 in plain numpy: a buffer, a clock and two rewards, step by step; and what the library makes of the same.

The rendering shares nothing with the library: it keeps every observation in a list, counts classes anew at each score,
counts down turns, and pays Explore as Control earns. Float64 throughout.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

from advsurprise.learning import interaction
from advsurprise.learning.interaction import Agent
from advsurprise.types import Decision, EnvSpec, Rollout, TimeStep, Views

SHAPE, CLASSES, BODIES, STEPS = (2, 3), 5, 3, 60
CELLS = math.prod(SHAPE)
SPEC = EnvSpec("cells", SHAPE, "int32", "classes", CLASSES, 4, 0, ())
REAL = EnvSpec("reals", (3,), "float32", "vector", 0, 4, 0, ())


@dataclasses.dataclass
class Played:
    """What happened to all bodies, axes [T, B, …]."""

    first: np.ndarray
    """The first observation of each body."""
    led_to: np.ndarray
    """What each action led to."""
    shown: np.ndarray
    """What there was to act on next."""
    ended: np.ndarray
    truncated: np.ndarray


def play(lengths, *, spec=SPEC, seed=0):
    """A recorded trajectory: few classes change per step, so that models find things both familiar and new."""
    rng = np.random.default_rng(seed)

    def draw(*axes):
        if spec.observation_kind == "vector":
            return rng.normal(size=(*axes, BODIES, *spec.observation_shape)).astype(np.float32)
        return np.minimum(rng.geometric(0.5, (*axes, BODIES, *spec.observation_shape)) - 1, CLASSES - 1)

    ended = np.zeros((STEPS, BODIES), bool)
    for body in range(BODIES):
        ends = np.cumsum(np.resize(np.roll(lengths, body), STEPS)) - 1
        ended[ends[ends < STEPS], body] = True
    led_to, fresh = draw(STEPS), draw(STEPS)
    over = ended.reshape(*ended.shape, *[1] * len(spec.observation_shape))
    truncated = ended & (rng.random(ended.shape) < 0.5)
    return Played(draw(), led_to, np.where(over, fresh, led_to), ended, truncated)


# Algorithm 1 as the design reads it.


def log_prob_of(buffer, o, kind):
    """log p_θ(o), θ fitted on the buffer by maximum likelihood."""
    if kind == "vector":
        # One pseudo-observation of mean 0 and variance 1 besides the buffer.
        n = 1 + len(buffer)
        mean = sum(buffer, np.zeros(o.shape)) / n
        var = (1 + sum((x**2 for x in buffer), np.zeros(o.shape))) / n - mean**2
        return float(np.sum(-0.5 * ((o - mean) ** 2 / var + np.log(2 * np.pi * var))))
    if not buffer:
        return o.size * math.log(1 / CLASSES)
    return sum(math.log(max(np.mean([x[cell] == o[cell] for x in buffer]), 1e-3)) for cell in np.ndindex(o.shape))


class Algorithm1:
    """One body. `step` takes what the action led to and returns (role, scored, log-probability)."""

    def __init__(self, method, kind="classes"):
        self.method, self.kind, self.buffer = method, kind, []
        self.begin()

    def begin(self):
        if self.method.scope != "lifetime":
            self.buffer = []
        self.explore_turn = self.method.first == "explore"
        self.step_in_turn = 0
        self.turns_done = 0

    def step(self, o):
        role, length = ("explore", self.method.k_explore) if self.explore_turn else ("control", self.method.k_control)
        self.step_in_turn += 1
        # Steps of a turn count from 1; quiet = ½ of 32 scores steps 17 to 32.
        scored = role == "control" and self.step_in_turn > math.floor(self.method.quiet * length)
        paid = scored and (self.method.pay_prior or bool(self.buffer))
        r = log_prob_of(self.buffer, o, self.kind) if paid else 0.0
        if paid and self.method.offset == "max" and self.kind == "vector":
            r -= o.size * math.log(1 / (0.001 * math.sqrt(2 * math.pi)))
        if self.method.fit_on == "all" or scored or (self.method.fit_on == "control" and role == "control"):
            self.buffer = [*self.buffer, o]
        if self.step_in_turn == length:
            self._switch()
        return role, scored, r

    def _switch(self):
        self.explore_turn = not self.explore_turn
        self.step_in_turn = 0
        self.turns_done += 1
        if self.method.scope == "round" and self.turns_done % 2 == 0:
            self.buffer = []
        if self.turns_done == 2 * self.method.rounds:
            self.begin()


def reference(method, played, body, kind="classes"):
    """Roles, scored steps and log-probabilities of one body, and its models as they stood before each step."""
    algorithm = Algorithm1(method, kind)
    rows, buffers = [], []
    for o, over in zip(played.led_to[:, body].astype(np.float64), played.ended[:, body], strict=True):
        buffers.append(algorithm.buffer)
        rows.append(algorithm.step(o))
        if over and not method.rounds:
            algorithm.begin()
    role, scored, log_prob = zip(*rows, strict=True)
    return np.array(role), np.array(scored), np.array(log_prob), buffers


def explore_pay(roles, log_prob, ended):
    """Minus what Control earns, paid as it is earned to the last Explore step of the episode before it, if any."""
    pay = np.zeros(len(roles))
    last = None
    for t, role in enumerate(roles):
        if role == "explore":
            last = t
        elif last is not None:
            pay[last] -= log_prob[t]
        if ended[t]:
            last = None
    return pay


def discounted_returns(log_prob, ended, gamma):
    """R ← γ R + r after every step, Explore's included; R = 0 when an episode begins."""
    found, total = [], 0.0
    for r, over in zip(log_prob, ended, strict=True):
        total = gamma * total + r
        found.append(total)
        total = 0.0 if over else total
    return np.array(found)


def scale_of(samples):
    """1 / √(variance + 10⁻⁸) of all samples so far and 10⁻⁴ of a sample with mean 0 and variance 1."""
    weight = 1e-4 + samples.size
    mean = samples.sum() / weight
    return 1 / math.sqrt((1e-4 + (samples**2).sum()) / weight - mean**2 + 1e-8)


# The library, driven by its own two halves of a step.


def library(method, played):
    """The rollout the library records, and the memories before each step."""
    learnt = method.init(bodies=BODIES, key=jax.random.key(0))
    agent = Agent(method, {}, learnt)

    def step(memory, now):
        led_to, shown, terminated, truncated = now
        role = jax.vmap(method.turn)(memory)
        idle = jnp.zeros(BODIES, jnp.int32)
        decision = Decision(role, idle, jnp.zeros((BODIES, 4)), jnp.zeros(BODIES), jnp.zeros((BODIES, 1)))
        timestep = TimeStep(shown, jnp.zeros(BODIES), terminated, truncated, led_to, {})
        after, signal, _ = interaction.absorb(agent, memory, decision, timestep)
        return after, (memory, jax.vmap(method.see)(memory), decision, signal)

    dtype = method.spec.observation_dtype
    terminated = played.ended & ~played.truncated
    steps = (jnp.asarray(played.led_to, dtype), jnp.asarray(played.shown, dtype), terminated, played.truncated)
    first = jnp.asarray(played.first, dtype)
    no = jnp.zeros(BODIES, bool)
    begin = interaction.start(agent, TimeStep(first, jnp.zeros(BODIES), no, no, first, {}))
    last, (memory, view, decision, signal) = jax.jit(lambda *x: jax.lax.scan(step, *x))(begin, steps)
    nothing = jnp.zeros((STEPS, BODIES, 1))
    rollout = Rollout(
        decision=decision,
        reward=jnp.zeros((STEPS, BODIES)),
        terminated=jnp.asarray(terminated),
        truncated=jnp.asarray(played.truncated),
        final_value=dict.fromkeys(method.roles, nothing),
        last_value=dict.fromkeys(method.roles, nothing[0]),
        signal=signal,
        info={},
        next_role=jax.vmap(method.turn)(last),
        views=Views(nothing, decision.action, nothing, nothing[..., 0], None),
    )
    return rollout, memory, view
