"""Tiny worlds with known solutions, each a little harder, that a correct learner solves in seconds.

Every world is a short table of places. The body sees the name of its place and a light that takes one of several
equally likely colours. The solutions are derived in the tests.
"""

import dataclasses
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from advsurprise.envs.base import AbstractEnv, Outcome
from advsurprise.envs.world import pure_worlds
from advsurprise.errors import check
from advsurprise.types import EnvSpec, Measure


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the body can be. Tuples have one entry per action."""

    name: int
    """What the body sees of the place."""
    next: tuple[int, ...]
    """The place each action leads to."""
    reward: tuple[float, ...]
    """Reward of each action."""
    lights: int = 1
    """Number of colours of the light, all equally likely."""


class LadderState(eqx.Module):
    """State of one body's world."""

    place: Int[Array, ""]
    light: Int[Array, ""]
    time: Int[Array, ""]
    total: Float[Array, ""]
    """Reward of this episode so far."""


class LadderWorld(AbstractEnv[LadderState]):
    """A table of places; every episode starts in one of the first `starts`, all equally likely."""

    id: str = eqx.field(static=True)
    places: tuple[Place, ...] = eqx.field(static=True)
    starts: int = eqx.field(static=True, default=1)
    """Number of places an episode can start in."""
    max_steps: int = eqx.field(static=True, default=1)
    """Length of an episode."""
    timeout: Literal["terminated", "truncated"] = eqx.field(static=True, default="terminated")
    """How a timeout ends an episode."""

    def __check_init__(self):
        rules = [
            (1 <= self.starts <= len(self.places), f"starts must be 1 to {len(self.places)}, not {self.starts}"),
            (self.max_steps >= 1, f"max_steps must be at least 1, not {self.max_steps}"),
        ]
        check(rules, subject=self.id)

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(
            id=self.id,
            observation_shape=(2,),
            observation_dtype="int32",
            observation_kind="classes",
            num_classes=4,
            num_actions=len(self.places[0].next),
            max_steps=self.max_steps,
            measures=(Measure("place", "place of the body"), Measure("total", "reward per episode", shown=True)),
            truncates=self.timeout == "truncated",
            places=(len(self.places), 1),
            cell_entries=2,
        )

    def initial(self, *, key: PRNGKeyArray) -> LadderState:
        place_key, light_key = jax.random.split(key)
        place = jax.random.randint(place_key, (), 0, self.starts)
        return LadderState(place, self._shine(place, key=light_key), jnp.int32(0), jnp.float32(0))

    def transition(
        self, state: LadderState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[LadderState, Outcome]:
        reward = self._column("reward", jnp.float32)[state.place, action]
        place = self._column("next", jnp.int32)[state.place, action]
        time = state.time + 1
        over = time >= self.max_steps
        truncates = self.timeout == "truncated"
        moved = LadderState(place, self._shine(place, key=key), time, state.total + reward)
        return moved, Outcome(reward, over & (not truncates), over & truncates)

    def observe(self, state: LadderState) -> Int[Array, "2"]:
        return jnp.stack([self._column("name", jnp.int32)[state.place], state.light])

    def measure(self, state: LadderState) -> dict[str, Array]:
        return {"place": state.place, "total": state.total}

    def place(self, state: LadderState) -> Int[Array, "2"]:
        return jnp.stack([state.place, jnp.int32(0)])

    def rewind(self, first: LadderState, state: LadderState) -> LadderState:
        return first

    def _shine(self, place: Int[Array, ""], *, key: PRNGKeyArray) -> Int[Array, ""]:
        return jax.random.randint(key, (), 0, self._column("lights", jnp.int32)[place])

    def _column(self, field: str, dtype) -> Array:
        """One field of all places."""
        return jnp.asarray(np.array([getattr(place, field) for place in self.places]), dtype)


HUB, DARK, LAMP_ON, LAMP_OFF, FLICKER_ON, FLICKER_OFF = range(6)
"""Places of ladder/game. Names as seen: hub 0, dark 1, lamp 2, flicker 3."""

_STAY = (0, 0)
_FREE = (0.0, 0.0, 0.0)
_GAME = (
    Place(0, (DARK, LAMP_ON, FLICKER_ON), _FREE),
    Place(1, (DARK, DARK, DARK), _FREE),
    Place(2, (LAMP_ON, LAMP_OFF, LAMP_ON), _FREE, lights=4),
    Place(2, (LAMP_ON, LAMP_OFF, LAMP_ON), _FREE),
    Place(3, (FLICKER_ON, FLICKER_OFF, FLICKER_ON), _FREE, lights=4),
    Place(3, (FLICKER_ON, FLICKER_OFF, FLICKER_ON), _FREE, lights=2),
)

_TABLE: dict[str, tuple[str, dict]] = {
    "ladder/value": ("one step, which pays 1", {"places": (Place(0, _STAY, (1.0, 1.0)),)}),
    "ladder/discount": (
        "two steps, of which the second pays 1",
        {"places": (Place(0, (1, 1), (0.0, 0.0)), Place(1, (1, 1), (1.0, 1.0))), "max_steps": 2},
    ),
    "ladder/endless": (
        "every step pays 1, and a time limit truncates the episode",
        {"places": (Place(0, _STAY, (1.0, 1.0)),), "max_steps": 3, "timeout": "truncated"},
    ),
    "ladder/observation": (
        "one step, which pays 1 in one place and -1 in the other",
        {"places": (Place(0, _STAY, (1.0, 1.0)), Place(1, _STAY, (-1.0, -1.0))), "starts": 2},
    ),
    "ladder/policy": (
        "one step, which pays 1 if the action is the place's number",
        {"places": (Place(0, _STAY, (1.0, 0.0)), Place(1, _STAY, (0.0, 1.0))), "starts": 2},
    ),
    "ladder/game": (
        "Explore picks a dark room, a lamp that Control can hold still, or a flicker that it can only calm",
        {"places": _GAME, "max_steps": 5},
    ),
}
"""Description and fields of every world."""

WORLDS = pure_worlds(LadderWorld, _TABLE, fixed=("id", "places"), calibration=True)
