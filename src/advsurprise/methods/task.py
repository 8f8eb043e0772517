"""PPO on the world's own reward: one role, no surprise. It calibrates the learner where the answer is known."""

import equinox as eqx
from jaxtyping import Array, Int, PRNGKeyArray

from advsurprise.errors import check
from advsurprise.learning.fit import FitResult
from advsurprise.methods.base import (
    AbstractClocked,
    AbstractPoliciesOnly,
    AbstractUnprimed,
    Clock,
    Nothing,
    plain_score,
    tick,
)
from advsurprise.types import EnvSpec, Rollout, Score, TimeStep


class Task(AbstractPoliciesOnly[Nothing, Clock], AbstractUnprimed[Nothing, Clock], AbstractClocked[Nothing]):
    """PPO on the environment's own reward, for calibration."""

    spec: EnvSpec = eqx.field(static=True)
    stack: int = eqx.field(static=True, default=4)
    """Observations the policy sees at once."""
    gamma: float = eqx.field(static=True, default=0.99)
    """Discount."""

    def __check_init__(self):
        rules = [
            (self.stack >= 1, f"stack must be at least 1, not {self.stack}"),
            (0 <= self.gamma < 1, f"gamma must be at least 0 and below 1, not {self.gamma}"),
        ]
        check(rules, subject="task")

    @property
    def streams(self) -> dict[str, float]:
        return {"task": 1.0}

    def init(self, *, bodies: int, key: PRNGKeyArray) -> Nothing:
        return Nothing()

    def advance(
        self, learnt: Nothing, memory: Clock, action: Int[Array, ""], timestep: TimeStep
    ) -> tuple[Clock, Nothing]:
        return tick(memory, timestep), Nothing()

    def score(self, learnt: Nothing, rollout: Rollout) -> tuple[Nothing, dict[str, Score]]:
        return learnt, {"agent": plain_score(rollout, rollout.reward, self.gamma)}

    def learn(
        self, learnt: Nothing, rollout: Rollout, fitted: dict[str, FitResult]
    ) -> tuple[Nothing, dict[str, Array]]:
        return learnt, {}


METHOD = Task
