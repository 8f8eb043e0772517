"""Records shared by all layers. Axis letters: S seeds, T time, B bodies, V value streams, A actions."""

import math
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

CONTINUE, REWIND, RESTART = range(3)
"""Requests of a method between two steps: none, the episode's first state again, or a new episode."""


class Measure(NamedTuple):
    """One entry of `TimeStep.info`, with its labels."""

    name: str
    """Key in `TimeStep.info`."""
    label: str
    """Label in tables and figures, for its value at the end of an episode."""
    short: str = ""
    """Name on the command line; empty for a measure that has none."""
    only_where: str = ""
    """Name of another measure: episodes in which that is 0 have no value (no noisy room, nothing to still)."""
    shown: bool = False
    """Whether tables show it by default."""
    at_handover: bool = False
    """Whether its value at the end of each role's turns is recorded too."""
    of_game: bool = False
    """Whether it belongs to a whole game, which may be several episodes (lives): its value counts on the game's last
    step, where the measure `GAME_OVER` is 1, and nowhere else."""
    edges: tuple[float, ...] = ()
    """Ascending edges of bins: the share of all steps in each bin is recorded too. Values outside count in the first or
    last bin."""

    @property
    def shares(self) -> tuple[str, ...]:
        """Columns that hold the shares of its bins, each named by the bin's lower edge."""
        return tuple(f"{SHARE}{self.name}/{lower:g}" for lower in self.edges[:-1])


SHARE = "share/"
"""Prefix of the columns that hold shares of bins: together they are one distribution."""

GAME_OVER = "game/over"
"""Name of the measure that is 1 on the last step of a game, in worlds whose games are several episodes."""


class EnvSpec(NamedTuple):
    """Static description of a world, for the learner."""

    id: str
    """Name under which `advsurprise.make` finds the world."""
    observation_shape: tuple[int, ...]
    """Shape of one observation."""
    observation_dtype: str
    """numpy name of the observation's type."""
    observation_kind: Literal["classes", "image", "vector"]
    """`classes`: every entry is a category; `image`: channels last; `vector`: real numbers."""
    num_classes: int
    """Number of categories an entry can take; 0 unless the kind is `classes`."""
    num_actions: int
    """Actions are the integers from 0 to this, exclusive."""
    max_steps: int
    """Length of an episode where it is fixed; 0 where it is not."""
    measures: tuple[Measure, ...]
    """The entries of `TimeStep.info`; all are always present."""
    action_names: tuple[str, ...] = ()
    """Names of the actions; empty if they have none."""
    truncates: bool = False
    """Whether an episode can be cut by a time limit, so that final observations need a value."""
    places: tuple[int, ...] = ()
    """Number of values of each entry of `TimeStep.place`; empty if the world does not reveal where the body is."""
    cell_entries: int = 0
    """Number of leading entries of `TimeStep.place` that are the body's cell; the rest is what it has changed there."""
    noop: int | None = None
    """The action that does nothing; None if there is none."""
    first_role: str = ""
    """The role that starts an episode, if a method has it and leaves the choice to the world; empty for any."""
    turn_steps: tuple[tuple[str, int], ...] = ()
    """Length of a role's turn, if a method has the role and leaves the choice to the world: (role, steps)."""
    density_shape: tuple[int, ...] = ()
    """For images: rows, columns and number of last observations that a density model sees, averaged down to that size;
    empty: the newest observation as it is."""

    @property
    def info(self) -> tuple[str, ...]:
        """Keys of `TimeStep.info`."""
        return tuple(measure.name for measure in self.measures)

    @property
    def modelled_shape(self) -> tuple[int, ...]:
        """Shape of what a density model sees: an observation, or the last ones averaged down, on the last axis."""
        if not self.density_shape:
            return self.observation_shape
        rows, columns, last = self.density_shape
        return rows, columns, last * math.prod(self.observation_shape[2:])


class TimeStep(eqx.Module):
    """What a world returns after a reset or a step. The contract is docs/contract.md."""

    obs: Shaped[Array, "..."]
    """The observation to act on next; after an episode's end it already belongs to the new episode."""
    reward: Float[Array, "..."]
    """The world's own reward (zero in the room worlds)."""
    terminated: Bool[Array, "..."]
    """The episode ended and has no future."""
    truncated: Bool[Array, "..."]
    """The time limit was reached: bootstrap from `final_obs`. If both hold, `terminated` wins."""
    final_obs: Shaped[Array, "..."]
    """The observation that the action led to; equals `obs` unless the episode ended."""
    info: dict[str, Array]
    """Measures of the state the action led to, keys as in `EnvSpec.info`."""
    place: Int[Array, "..."] | None = None
    """Where the body is, and what it has changed, when it sees `obs`: noise aside, equal places are equal situations.
    The first `EnvSpec.cell_entries` are its cell. None if the world does not reveal it."""
    final_place: Int[Array, "..."] | None = None
    """The same for `final_obs`."""


class Frames(eqx.Module):
    """The last observations of a body, as a method remembers them."""

    stack: Shaped[Array, "..."]
    """The observations, oldest first, axes [frame, *observation]."""
    age: Int[Array, ""]
    """Number of past observations before the newest; the rest of the stack, at its front, repeats the oldest."""


class View(eqx.Module):
    """What a policy sees."""

    frames: Shaped[Array, "..."]
    """The last observations, oldest first, axes [frame, *observation]."""
    features: Float[Array, "..."]
    """The density model's features, axes [*what it models, feature]; no features: size 0 in the last axis."""
    time: Float[Array, "..."]
    """Position in time, scaled to [0, 1]."""
    goal: Shaped[Array, "..."] | None
    """An observation to reach, for roles that have a goal."""
    age: Int[Array, "..."] | None
    """As in `Frames`; None in a view that is not stored."""

    def __init__(self, frames: Any, features: Any, time: Any, goal: Any = None, age: Any = None):
        """A view of `Frames`, or of an array of observations."""
        known = isinstance(frames, Frames)
        self.frames, self.age = (frames.stack, frames.age) if known else (frames, age)
        self.features, self.time, self.goal = features, time, goal

    @property
    def images(self) -> Shaped[Array, "..."]:
        """The goal, if there is one, and the last observations, axes [*n, frame, *observation]."""
        if self.goal is None:
            return self.frames
        axis = self.time.ndim
        return jnp.concatenate([jnp.expand_dims(self.goal, axis), self.frames], axis=axis)


class Decision(eqx.Module):
    """The decision for every body at one step, axes [B, …]."""

    role: Int[Array, " B"]
    """Which role acted, an index into the method's roles."""
    action: Int[Array, " B"]
    """The action."""
    logits: Float[Array, "B A"]
    """Logits of the acting policy."""
    log_prob: Float[Array, " B"]
    """Log-probability of the action."""
    value: Float[Array, "B V"]
    """The acting role's value of the view, per stream."""


class Views(eqx.Module):
    """What policies saw in a rollout. Every observation is stored once; stacks are built on access."""

    frames: Shaped[Array, "..."]
    """The newest observation of every step, after the k − 1 that the first stack of k needs, axes
    [k − 1 + T, B, *observation]."""
    age: Int[Array, "T B"]
    """Number of past observations in the stack of each step, as in `Frames`."""
    features: Float[Array, "T B ..."]
    """As in `View`."""
    time: Float[Array, "T B"]
    """As in `View`."""
    goal: Shaped[Array, "T B ..."] | None
    """As in `View`."""

    @property
    def size(self) -> int:
        """Number of observations in a stack, k."""
        return self.frames.shape[0] - self.time.shape[0] + 1

    @property
    def newest(self) -> Shaped[Array, "..."]:
        """What bodies acted on, axes [T, B, *observation]."""
        return self.frames[self.size - 1 :]

    def take(self, rows: Int[Array, "*n"]) -> View:
        """Views of some steps of some bodies, numbered row · B + body."""
        bodies = self.time.shape[1]

        def flat(leaf):
            return leaf.reshape(self.time.size, *leaf.shape[2:])[rows]

        features, time, goal, age = jax.tree.map(flat, (self.features, self.time, self.goal, self.age))
        back = jnp.minimum(jnp.arange(self.size - 1, -1, -1, dtype=jnp.int32), age[..., None])
        every = self.frames.reshape(len(self.frames) * bodies, *self.frames.shape[2:])
        stack = every[rows[..., None] + (self.size - 1 - back) * bodies]
        return View(stack, features, time, goal, age)

    def all(self) -> View:
        """Views of all steps and bodies, axes [T, B, …]."""
        return self.take(jnp.arange(self.time.size, dtype=jnp.int32).reshape(self.time.shape))

    def last(self, steps: int) -> "Views":
        """Views of the last `steps` steps."""
        frames = self.frames[len(self.frames) - steps - self.size + 1 :]
        parts = (self.age, self.features, self.time, self.goal)
        return Views(frames, *jax.tree.map(lambda leaf: leaf[leaf.shape[0] - steps :], parts))


class ShiftedViews(eqx.Module):
    """Views of equally many consecutive steps of every body, which may start at a different step for each."""

    views: Views
    """The views; row i of body b is from step `first[b]` + i."""
    first: Int[Array, " B"]
    """Each body's first step."""

    def take(self, rows: Int[Array, "*n"]) -> View:
        """Views of some steps of some bodies, numbered step · B + body; those of steps that are not kept mean
        nothing."""
        bodies = self.first.size
        body = rows % bodies
        row = jnp.clip(rows // bodies - self.first[body], 0, len(self.views.time) - 1)
        return self.views.take(row * bodies + body)


class JoinedViews(eqx.Module):
    """Views of two consecutive rollouts, not concatenated, since they may be large."""

    before: ShiftedViews
    """Views kept of the first rollout."""
    now: Views
    """Views of the second rollout."""
    old: int = eqx.field(static=True)
    """Number of steps of the first rollout."""

    def take(self, rows: Int[Array, "*n"]) -> View:
        """Views of some steps of some bodies, numbered as if the rollouts were one."""
        old = self.old * self.before.first.size
        both = self.before.take(jnp.minimum(rows, old - 1)), self.now.take(jnp.maximum(rows - old, 0))

        def choose(before: Array, now: Array) -> Array:
            return jnp.where((rows < old).reshape(rows.shape + (1,) * (now.ndim - rows.ndim)), before, now)

        return jax.tree.map(choose, *both)

    def keep(self, first: Int[Array, " B"], steps: int) -> Views:
        """Views of `steps` steps of every body, from its `first` on."""
        bodies = jnp.arange(first.size)

        def gather(before: Array, now: Array, older: int = 0) -> Array:
            """Rows of two arrays, each with `older` rows before its first step."""
            step = first + jnp.arange(-older, steps, dtype=jnp.int32)[:, None]
            row_before = jnp.clip(step - self.before.first + older, 0, len(before) - 1)
            row_now = jnp.clip(step - self.old + older, 0, len(now) - 1)
            is_old = (step < self.old - older).reshape(*step.shape, *[1] * (now.ndim - 2))
            return jnp.where(is_old, before[row_before, bodies], now[row_now, bodies])

        frames = gather(self.before.views.frames, self.now.frames, self.now.size - 1)
        parts = ((each.age, each.features, each.time, each.goal) for each in (self.before.views, self.now))
        return Views(frames, *jax.tree.map(gather, *parts))


class Rollout(eqx.Module):
    """T steps of experience of B bodies, axes [T, B, …]."""

    decision: Decision
    """Decisions, with a leading axis T."""
    reward: Float[Array, "T B"]
    """The world's own reward."""
    terminated: Bool[Array, "T B"]
    """The step ended the episode for good."""
    truncated: Bool[Array, "T B"]
    """The step ended the episode by its time limit."""
    final_value: dict[str, Float[Array, "T B V"]]
    """Each role's value of the final observation of truncated steps; 0 elsewhere."""
    last_value: dict[str, Float[Array, "B V"]]
    """Each role's value of the view after the last step."""
    signal: Any
    """What the method recorded at each step."""
    info: dict[str, Array]
    """The world's measures at each step."""
    next_role: Int[Array, " B"]
    """Which role moves after the last step."""
    views: Any = None
    """What the acting policies saw, `Views` or `JoinedViews`; None in a rollout that no policy learns from."""
    old: int = eqx.field(static=True, default=0)
    """Number of first steps that come from the end of the previous rollout (`AbstractMethod.lookback`)."""


OVER_TIME = ("decision", "reward", "terminated", "truncated", "final_value", "signal")
"""Fields of a rollout with a leading axis T, except `views`, and `info`, which no method reads."""


class Measured(eqx.Module):
    """A measure for every step of a rollout; its value for an episode is the mean over the steps that count."""

    value: Float[Array, "T B"]
    """Its value on each step."""
    counts: Bool[Array, "T B"]
    """Steps that have a value."""


class Score(eqx.Module):
    """What a role learns from in a rollout."""

    reward: Float[Array, "T B V"]
    """Reward of each step and stream; ignored on steps of other roles."""
    discount: Float[Array, "T B V"]
    """Factor on the future after each step, 0 where the stream's future ends."""
    cut: Bool[Array, "T B V"]
    """Whether the next step belongs to another episode of the stream."""
    bonus: Float[Array, "T B"]
    """Added to the advantage."""
    target_shift: Float[Array, "T B V"]
    """Added to the value target."""
    settled: Bool[Array, "T B"] | None = None
    """Steps whose reward no later step can change; None if all are. The others are learned from with a later rollout,
    if the method looks back."""
