"""Asymmetric self-play (Sukhbaatar et al. 2017): Alice sets tasks by doing them, Bob must do them too.

With t_A Alice's steps and t_B Bob's, a game gives Bob −k t_B and Alice k max(0, t_B − t_A): she looks for what she can
do quickly and Bob cannot yet.
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from advsurprise import tree
from advsurprise.errors import check, choice_rules
from advsurprise.learning.fit import FitResult
from advsurprise.methods.base import (
    NEVER,
    AbstractMethod,
    Empty,
    ended,
    final_score,
    first_frames,
    mean_where,
    no_features,
    push,
    small_image,
)
from advsurprise.types import (
    CONTINUE,
    RESTART,
    REWIND,
    EnvSpec,
    Frames,
    Measure,
    Measured,
    Rollout,
    Score,
    TimeStep,
    View,
)

ALICE, BOB = 0, 1
DEFAULT_CLOCK = 128
"""Steps in a game in worlds whose episodes have no fixed length."""
IMAGE_THRESHOLD = 0.25
"""Distance up to which two 20x20 images count as the same: most images one step apart are closer, nearly all unrelated
ones farther (docs/methods/asp.md)."""


class Memory(eqx.Module):
    """A body's memory within a game."""

    frames: Frames
    """The last observations of the role whose turn it is."""
    goal: Shaped[Array, "..."]
    """The observation Bob must reach; in Alice's turn, the game's first observation."""
    goal_place: Int[Array, " n"] | None
    """The place of `goal`, if places are compared; else None."""
    time: Int[Array, ""]
    """Steps taken in this game, Alice's and Bob's together."""
    set_at: Int[Array, ""]
    """t_A: Alice's steps in this game when she stopped; 0 while she plays."""
    request: Int[Array, ""]
    """The request to the world before the next step."""


class Signal(eqx.Module):
    """What is recorded at each step."""

    time: Int[Array, "..."]
    """Steps taken in the game, this one included."""
    set_at: Int[Array, "..."]
    """t_A after the step; 0 while Alice plays."""
    stopped: Bool[Array, "..."]
    """Whether Alice handed over on this step."""
    solved: Bool[Array, "..."]
    """Whether Bob reached the goal on this step."""


MEASURES = (
    Measure("task_set", "games in which Alice set a task", shown=True),
    Measure("solved", "Alice's tasks that Bob solved", shown=True),
    Measure("time_alice", "steps of Alice's tasks", shown=True),
    Measure("time_bob", "steps Bob took", shown=True),
)
"""Outcomes of games, recorded on their last steps."""


class ASP(AbstractMethod[Empty, Memory]):
    """Asymmetric self-play: Alice sets a task by doing it, Bob must do it too; Alice is rewarded if he is slower."""

    spec: EnvSpec = eqx.field(static=True)
    mode: Literal["repeat", "reverse"] = eqx.field(static=True, default="repeat")
    """`repeat`: Bob starts where Alice did and must reach where she stopped; `reverse`: the other way round."""
    clock: int = eqx.field(static=True, default=0)
    """Steps in a game, Alice's and Bob's together; 0: the world's episode length, or 128 if it is not fixed."""
    goal: Literal["auto", "place", "cell", "observation"] = eqx.field(static=True, default="auto")
    """What Bob must reach: the place (in room worlds the cell, the doors and the stilled rooms, so that stilling can be
    Alice's task), only the cell, or the observation; `auto`: the place if the world reveals it, else the
    observation."""
    threshold: float = eqx.field(static=True, default=0.0)
    """With goal=observation: maximum Euclidean distance at which two observations count as the same (images: pixels
    from 0 to 1, at the density model's size); 0: 0.25 in worlds that set such a size, equality elsewhere."""
    reward_scale: float = eqx.field(static=True, default=0.01)
    """k: Bob's cost per step, and Alice's reward for each step he needs beyond hers."""
    first_stop: float = eqx.field(static=True, default=0.1)
    """Probability that Alice stops at a step, before training (published: 1/2)."""
    stack: int = eqx.field(static=True, default=4)
    """Number of stacked observations the policies see, besides the goal."""
    gamma: float = eqx.field(static=True, default=1.0)
    """Discount factor of both roles within a game."""

    def __check_init__(self):
        rules = [
            *choice_rules(self),
            (
                self.goal not in ("place", "cell") or bool(self.spec.places),
                f"{self.spec.id} does not reveal where the body is: use goal=observation",
            ),
            (
                self.goal != "cell" or self.spec.cell_entries > 0,
                f"{self.spec.id} does not reveal the body's cell: use goal=place or goal=observation",
            ),
            (
                self.clock == 0 or self.clock >= 2,
                f"clock must be at least 2, or 0 for the world's episode length, not {self.clock}",
            ),
            (
                not 0 < self.spec.max_steps < self.clock,
                f"clock must be at most the {self.spec.max_steps} steps of an episode, not {self.clock}",
            ),
            (self.threshold >= 0, f"threshold must be at least 0, not {self.threshold}"),
            (self.reward_scale > 0, f"reward_scale must be positive, not {self.reward_scale}"),
            (0 < self.first_stop < 1, f"first_stop must be above 0 and below 1, not {self.first_stop}"),
            (self.stack >= 1, f"stack must be at least 1, not {self.stack}"),
            (0 < self.gamma <= 1, f"gamma must be above 0 and at most 1, not {self.gamma}"),
        ]
        check(rules, subject="asp")

    @property
    def roles(self) -> tuple[str, ...]:
        return ("alice", "bob")

    @property
    def limit(self) -> int:
        """Steps after which a game is over."""
        return self.clock or self.spec.max_steps or DEFAULT_CLOCK

    @property
    def distance(self) -> float:
        """Maximum distance at which two observations count as the same."""
        return self.threshold or (IMAGE_THRESHOLD if self.spec.density_shape else 0.0)

    @property
    def by_place(self) -> bool:
        """Whether places are compared rather than observations."""
        return bool(self.spec.places) and self.goal != "observation"

    def action_bias(self, role: str) -> tuple[float, ...]:
        """Actions stop · A + a are pairs: the body's action a, and whether the turn ends after it. Bob cannot stop."""
        number = self.spec.num_actions
        if role == "bob":
            return (0.0,) * number + (NEVER,) * number
        play_on, stop = float(np.log(1 - self.first_stop)), float(np.log(self.first_stop))
        return (play_on,) * number + (stop,) * number

    def env_action(self, memory: Memory, action: Int[Array, ""]) -> Int[Array, ""]:
        return action % self.spec.num_actions

    def start(self, timestep: TimeStep, before: Memory | None = None) -> Memory:
        zero, request = jnp.int32(0), jnp.int32(CONTINUE)
        place = self._goal_place(timestep.place) if self.by_place else None
        return Memory(first_frames(timestep.obs, self.stack), timestep.obs, place, zero, zero, request)

    def turn(self, memory: Memory) -> Int[Array, ""]:
        return jnp.where(memory.set_at > 0, BOB, ALICE).astype(jnp.int32)

    def see(self, memory: Memory) -> View:
        return View(memory.frames, no_features(self.spec), memory.time.astype(jnp.float32) / self.limit, memory.goal)

    def advance(
        self, learnt: Empty, memory: Memory, action: Int[Array, ""], timestep: TimeStep
    ) -> tuple[Memory, Signal]:
        time = memory.time + 1
        is_bob = memory.set_at > 0
        late = time >= self.limit
        cut_short = timestep.terminated | timestep.truncated
        solved = is_bob & self._reached(memory, timestep)
        # If Alice stops with no time left for Bob, no task is set.
        stopped = ~is_bob & (action >= self.spec.num_actions) & ~late & ~cut_short
        set_at = jnp.where(stopped, time, memory.set_at)
        seen = timestep.final_obs
        # Bob sees nothing of Alice's turn but the goal.
        frames = tree.select(stopped, first_frames(seen, self.stack), push(memory.frames, seen))
        goal, place, at_hand_over = memory.goal, memory.goal_place, CONTINUE
        if self.mode == "repeat":
            at_hand_over = REWIND
            goal = jnp.where(stopped, seen, goal)
            place = None if place is None else jnp.where(stopped, self._goal_place(timestep.final_place), place)
        request = jnp.where(solved | late, RESTART, jnp.where(stopped, at_hand_over, CONTINUE)).astype(jnp.int32)
        return Memory(frames, goal, place, time, set_at, request), Signal(time, set_at, stopped, solved)

    @property
    def makes_requests(self) -> bool:
        return True

    def request(self, memory: Memory) -> Int[Array, ""]:
        return memory.request

    def after_rewind(self, memory: Memory, timestep: TimeStep) -> Memory:
        frames = first_frames(timestep.obs, self.stack)
        return Memory(frames, memory.goal, memory.goal_place, memory.time, memory.set_at, jnp.int32(CONTINUE))

    def score(self, learnt: Empty, rollout: Rollout) -> tuple[Empty, dict[str, Score]]:
        signal: Signal = rollout.signal
        over = ended(rollout)
        bob = bob_reward(signal, over, clock=self.limit, k=self.reward_scale)
        scores = {
            # Alice's game ends with her turn: her reward for what follows comes on that step. A time-out is terminal
            # too, since time is in the input.
            "alice": final_score(self._alice_reward(rollout), over | signal.stopped, self.gamma),
            "bob": final_score(bob, over, self.gamma),
        }
        return learnt, scores

    @property
    def measures(self) -> tuple[Measure, ...]:
        return MEASURES

    def measure(self, rollout: Rollout) -> dict[str, Measured]:
        signal: Signal = rollout.signal
        over = ended(rollout)
        played = over & (signal.set_at > 0)
        time, set_at = signal.time.astype(jnp.float32), signal.set_at.astype(jnp.float32)
        return {
            "task_set": Measured(played.astype(jnp.float32), over),
            "solved": Measured(signal.solved.astype(jnp.float32), played),
            "time_alice": Measured(set_at, played),
            "time_bob": Measured(time - set_at, played),
        }

    def learn(self, learnt: Empty, rollout: Rollout, fitted: dict[str, FitResult]) -> tuple[Empty, dict[str, Array]]:
        games = 1000 * jnp.mean(ended(rollout).astype(jnp.float32))
        pay = mean_where(rollout.signal.stopped, self._alice_reward(rollout))
        return learnt, {"games_per_1000": games, "alice_pay": pay}

    def _reached(self, memory: Memory, timestep: TimeStep) -> Bool[Array, ""]:
        """Whether the action led to the goal."""
        if memory.goal_place is not None:
            return jnp.all(memory.goal_place == self._goal_place(timestep.final_place))
        return jnp.sum((self._compared(memory.goal) - self._compared(timestep.final_obs)) ** 2) <= self.distance**2

    def _compared(self, obs: Shaped[Array, "..."]) -> Float[Array, "..."]:
        """An observation as it is compared with the goal: an image averaged down to the density model's size."""
        return small_image(self.spec, obs) if self.spec.observation_kind == "image" else obs.astype(jnp.float32)

    def _goal_place(self, place: Int[Array, " n"] | None) -> Int[Array, " m"]:
        """The part of a place that Bob must reach: all of it, or its column and row."""
        if place is None:
            raise TypeError("the world does not reveal the place that its spec promises")
        return place[: self.spec.cell_entries] if self.goal == "cell" else place

    def _alice_reward(self, rollout: Rollout) -> Float[Array, "T B"]:
        signal: Signal = rollout.signal
        owed = -rollout.last_value["bob"][:, 0] / self.reward_scale
        ends = game_ends(signal, ended(rollout), owed, clock=self.limit)
        return alice_reward(signal, ends, k=self.reward_scale)


def game_ends(signal: Signal, over: Bool[Array, "T B"], owed: Float[Array, " B"], *, clock: int) -> Float[Array, "T B"]:
    """t_A + t_B of the game that each step belongs to: when Bob reached the goal, or the clock if he did not.

    A game still running at the rollout's last step is assumed to end when Bob's own value predicts it: `owed` steps
    later, at least one, at most those left on the clock.
    """
    time = signal.time.astype(jnp.float32)

    def back(end, step):
        now, is_over, is_solved = step
        end = jnp.where(is_over, jnp.where(is_solved, now, jnp.float32(clock)), end)
        return end, end

    begin = jnp.minimum(time[-1] + jnp.maximum(owed, 1.0), clock)
    return jax.lax.scan(back, begin, (time, over, signal.solved), reverse=True)[1]


def alice_reward(signal: Signal, ends: Float[Array, "T B"], *, k: float) -> Float[Array, "T B"]:
    """k max(0, t_B − t_A) on the step on which Alice stops, 0 elsewhere, with t_B = ends − t_A."""
    t_a = signal.set_at.astype(jnp.float32)
    return jnp.where(signal.stopped, k * jnp.maximum(ends - 2 * t_a, 0.0), 0.0)


def bob_reward(signal: Signal, over: Bool[Array, "T B"], *, clock: int, k: float) -> Float[Array, "T B"]:
    """−k on each of Bob's steps, the successful one included.

    If the world ends the episode before Bob reaches the goal, he pays for all remaining steps at once, so that t_B is
    the clock's remainder for both roles, and ending the episode early is no way out.
    """
    left = clock - signal.time.astype(jnp.float32)
    return -k * (1.0 + jnp.where(over & ~signal.solved, left, 0.0))


METHOD = ASP
