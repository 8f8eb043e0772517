"""PPO on the world's own reward: one role, no surprise. It checks the learner where the answer is known."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int

from advsurprise.errors import check
from advsurprise.methods.base import AbstractMethod, Clock, Empty, first_clock, plain_score, plain_view, tick
from advsurprise.types import EnvSpec, Rollout, Score, TimeStep, View


class Task(AbstractMethod[Empty, Clock]):
    """PPO on the environment's own reward, for calibration."""

    spec: EnvSpec = eqx.field(static=True)
    stack: int = eqx.field(static=True, default=4)
    """Number of stacked observations the policy sees."""
    gamma: float = eqx.field(static=True, default=0.99)
    """Discount factor."""

    def __check_init__(self):
        rules = [
            (self.stack >= 1, f"stack must be at least 1, not {self.stack}"),
            (0 <= self.gamma < 1, f"gamma must be at least 0 and below 1, not {self.gamma}"),
        ]
        check(rules, subject="task")

    @property
    def roles(self) -> tuple[str, ...]:
        return ("agent",)

    def start(self, timestep: TimeStep, before: Clock | None = None) -> Clock:
        return first_clock(timestep, self.stack)

    def turn(self, memory: Clock) -> Int[Array, ""]:
        return jnp.int32(0)

    def see(self, memory: Clock) -> View:
        return plain_view(self.spec, memory)

    def advance(self, learnt: Empty, memory: Clock, action: Int[Array, ""], timestep: TimeStep) -> tuple[Clock, Empty]:
        return tick(memory, timestep), Empty()

    def score(self, learnt: Empty, rollout: Rollout) -> tuple[Empty, dict[str, Score]]:
        return learnt, {"agent": plain_score(rollout, rollout.reward, self.gamma)}


METHOD = Task
