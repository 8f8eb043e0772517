"""PPO on the world's own reward: one role, no surprise. It calibrates the learner where the answer is known."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, Shaped

from advsurprise.errors import UserError
from advsurprise.methods.base import AbstractMethod, Times, ended
from advsurprise.types import EnvSpec, Rollout, Score, TimeStep, View


class Nothing(eqx.Module):
    """Learnt besides the policy, and noted at each step."""


class Memory(eqx.Module):
    """What a body carries through an episode."""

    frames: Shaped[Array, "..."]
    """The last observations, oldest first."""
    time: Int[Array, ""]
    """Steps taken in this episode."""


class Task(AbstractMethod[Nothing, Memory]):
    """PPO on the environment's own reward, for calibration."""

    spec: EnvSpec = eqx.field(static=True)
    stack: int = eqx.field(static=True, default=4)
    """Observations the policy sees at once."""
    gamma: float = eqx.field(static=True, default=0.99)
    """Discount."""

    def __check_init__(self):
        if self.stack < 1:
            raise UserError(f"task: stack must be at least 1, not {self.stack}")
        if not 0 <= self.gamma < 1:
            raise UserError(f"task: gamma must be at least 0 and below 1, not {self.gamma}")

    @property
    def roles(self) -> tuple[str, ...]:
        return ("agent",)

    @property
    def streams(self) -> dict[str, float]:
        return {"task": 1.0}

    @property
    def frames(self) -> int:
        return self.stack

    @property
    def num_features(self) -> int:
        return 0

    def schedule(self, time: Times) -> Times:
        return time * 0

    def init(self, *, key: PRNGKeyArray) -> Nothing:
        return Nothing()

    def start(self, obs: Shaped[Array, "..."], before: Memory | None = None) -> Memory:
        return Memory(jnp.broadcast_to(obs, (self.stack, *obs.shape)), jnp.int32(0))

    def turn(self, memory: Memory) -> Int[Array, ""]:
        return self.schedule(memory.time)

    def see(self, memory: Memory) -> View:
        # The time tells something only where the episode's length is known.
        time = memory.time.astype(jnp.float32) / self.spec.max_steps if self.spec.max_steps else jnp.float32(0)
        return View(memory.frames, jnp.zeros((*self.spec.observation_shape, 0)), time)

    def advance(
        self, learnt: Nothing, memory: Memory, action: Int[Array, ""], timestep: TimeStep
    ) -> tuple[Memory, Nothing]:
        frames = jnp.concatenate([memory.frames[1:], timestep.final_obs[None]])
        return Memory(frames, memory.time + 1), Nothing()

    def score(self, learnt: Nothing, rollout: Rollout) -> tuple[Nothing, dict[str, Score]]:
        reward = rollout.reward
        score = Score(
            reward=reward[..., None],
            discount=jnp.where(rollout.terminated, 0.0, self.gamma)[..., None],
            cut=ended(rollout)[..., None],
            bonus=jnp.zeros_like(reward),
            target_shift=jnp.zeros_like(reward)[..., None],
        )
        return learnt, {"agent": score}

    def learn(self, learnt: Nothing, rollout: Rollout, *, key: PRNGKeyArray) -> tuple[Nothing, dict[str, Array]]:
        return learnt, {}


METHOD = Task
