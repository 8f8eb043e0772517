"""The environment contract (docs/contract.md) and the autoreset that all pure worlds share.

A world defines how an episode starts and how a step changes its state; `reset` and `step` are built from that here.
"""

import abc
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, Shaped, UInt8

from advsurprise import tree
from advsurprise.envs.reader import Reader, WholeState
from advsurprise.errors import UserError
from advsurprise.types import RESTART, REWIND, EnvSpec, TimeStep

State = TypeVar("State")
Operand = TypeVar("Operand")
Result = TypeVar("Result")


class Outcome(eqx.Module):
    """How a step ended."""

    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]


class Scene(eqx.Module):
    """What a picture of a tile world's state shows. Tiles are indices into `AbstractEnv.tile_shapes`."""

    tiles: UInt8[Array, "columns rows"]
    """The tile in every cell."""
    seen: Bool[Array, "columns rows"]
    """Cells that the body sees."""
    column: Int[Array, ""]
    """The body's column."""
    row: Int[Array, ""]
    """The body's row, downwards."""
    direction: Int[Array, ""]
    """Where the body faces: 0 right, 1 down, 2 left, 3 up."""
    held: UInt8[Array, ""]
    """The tile of the carried object; that of an empty cell if none."""


class AbstractEnv(eqx.Module, Generic[State]):
    """A pure world for one body. Worlds implement the abstract methods; `reset` and `step` are the same for all."""

    @property
    @abc.abstractmethod
    def spec(self) -> EnvSpec:
        """What a learner needs to know about the world."""

    @abc.abstractmethod
    def initial(self, *, key: PRNGKeyArray) -> State:
        """First state of a body's first episode."""

    def inherit(self, fresh: State, state: State) -> State:
        """`fresh`, made by `initial`, as the first state of the next episode of a body whose episode ended in `state`:
        with what `state` has counted in the body's life; by default nothing."""
        return fresh

    def renew(self, state: State, *, key: PRNGKeyArray) -> State:
        """First state of the next episode, for a body whose episode ended in `state`."""
        return self.inherit(self.initial(key=key), state)

    @abc.abstractmethod
    def transition(self, state: State, action: Int[Array, ""], *, key: PRNGKeyArray) -> tuple[State, Outcome]:
        """Advances the world by one step."""

    @abc.abstractmethod
    def observe(self, state: State) -> Shaped[Array, "..."]:
        """What the body sees in `state`."""

    @abc.abstractmethod
    def measure(self, state: State) -> dict[str, Array]:
        """`TimeStep.info` in `state`."""

    @abc.abstractmethod
    def place(self, state: State) -> Int[Array, " n"]:
        """`TimeStep.place` in `state`; of size 0 in a world that does not reveal it."""

    @abc.abstractmethod
    def rewind(self, first: State, state: State) -> State:
        """The episode's first state again, keeping what `state` has counted in the episode and in the body's life."""

    @property
    def action_names(self) -> tuple[str, ...]:
        """Readable names of the actions; their numbers by default."""
        return tuple(str(action) for action in range(self.spec.num_actions))

    @property
    def class_names(self) -> tuple[str, ...]:
        """Readable names of the classes of an observation; empty by default."""
        return ()

    @property
    def settings(self) -> dict[str, Any]:
        """Values of the fields that can be set, in a world whose `World.fields` are known only once it is made."""
        return {}

    def draw(self, state: State) -> UInt8[np.ndarray, "rows columns 3"]:
        """A picture of `state`; not every world has one."""
        raise UserError(f"{self.spec.id} has no picture")

    def scene(self, state: State) -> Scene | None:
        """The tiles of `state`; None if the world is not made of tiles."""
        return None

    @property
    def tile_shapes(self) -> tuple[tuple[Any, ...], ...]:
        """Name and shapes (see `grid.render.shapes`) of each tile."""
        return ()

    @property
    def own_cell(self) -> tuple[int, int] | None:
        """Column and row of the body in its own view, where it faces up; None if it is not in view."""
        return None

    def tiles_of(self, obs: Shaped[np.ndarray, "*n"]) -> UInt8[np.ndarray, "..."] | None:
        """Tiles that show observations of one body, axes [*n, column, row]; None if the world is not made of tiles."""
        return None

    @property
    def reader(self) -> Reader:
        """How the theory reads states: as a whole by default; worlds with noise in their state override it."""
        return WholeState(self)

    def reset(self, *, key: PRNGKeyArray) -> tuple[State, TimeStep]:
        """Starts the first episode."""
        state = self.initial(key=key)
        return state, self.shown(state)

    def shown(self, state: State) -> TimeStep:
        """Timestep of a body in `state` before it acts."""
        obs, place = self.observe(state), self.place(state)
        never = jnp.bool_(False)
        return TimeStep(obs, jnp.float32(0), never, never, obs, self.measure(state), place, place)

    def step(self, state: State, action: Int[Array, ""], *, key: PRNGKeyArray) -> tuple[State, TimeStep]:
        """Applies the action; if that ends the episode, the next one starts within the same step."""
        move_key, renew_key = jax.random.split(key)
        return self.step_with(state, action, move_key=move_key, renew_key=renew_key)

    def step_with(
        self,
        state: State,
        action: Int[Array, ""],
        *,
        move_key: PRNGKeyArray,
        renew_key: PRNGKeyArray,
        fresh: State | None = None,
    ) -> tuple[State, TimeStep]:
        """Like `step`, with its keys already split: splitting the keys of many steps at once is much faster. `fresh` is
        `initial` of `renew_key`, if it was computed beforehand."""
        moved, outcome = self.transition(state, action, key=move_key)
        final_obs, final_place = self.observe(moved), self.place(moved)
        info = self.measure(moved)

        def begin_next(operand):
            moved, _, key = operand
            fresh = self.renew(moved, key=key)
            return fresh, self.observe(fresh)

        def keep(operand):
            moved, final_obs, _ = operand
            return moved, final_obs

        done = outcome.terminated | outcome.truncated
        if fresh is None:
            state, obs = if_any(done, begin_next, keep, (moved, final_obs, renew_key))
        else:
            state = tree.select(done, self.inherit(fresh, moved), moved)
            obs = self.observe(state)
        ends = outcome.terminated, outcome.truncated
        return state, TimeStep(obs, outcome.reward, *ends, final_obs, info, self.place(state), final_place)


def if_any(
    choose: Bool[Array, ""],
    on_true: Callable[[Operand], Result],
    on_false: Callable[[Operand], Result],
    operand: Operand,
) -> Result:
    """`lax.cond` that stays a branch under `vmap`: `on_true` runs only on steps where some body chooses it.

    A plain `cond` becomes a `select` under `vmap`, and every body would pay for a new layout on every step.
    """

    @custom_vmap
    def branch(choose, operand):
        return jax.lax.cond(choose, on_true, on_false, operand)

    @branch.def_vmap
    def batched_branch(axis_size, is_batched, choose, operand):
        def spread(leaf, batched):
            return leaf if batched else jnp.broadcast_to(leaf, (axis_size, *leaf.shape))

        choose, operand = jax.tree.map(spread, (choose, operand), tuple(is_batched))

        def some(both):
            choose, operand = both
            return jax.vmap(lambda c, o: tree.select(c, on_true(o), on_false(o)))(choose, operand)

        def none(both):
            return jax.vmap(on_false)(both[1])

        result = if_any(jnp.any(choose), some, none, (choose, operand))
        return result, jax.tree.map(lambda _: True, result)

    return branch(choose, operand)


def reset_all(env: AbstractEnv, bodies: int, key: PRNGKeyArray):
    """Starts the first episode of every body; returns the key for later steps, states and timesteps."""
    reset_key, key = jax.random.split(key)
    state, timestep = jax.vmap(lambda k: env.reset(key=k))(jax.random.split(reset_key, bodies))
    return key, state, timestep


MOVE, BEGIN, RELOCATE = range(3)
"""What the three keys of a body's step are used for."""


def step_keys(key: PRNGKeyArray, count: Int[Array, ""], bodies: int) -> Key[Array, "{bodies} 3"]:
    """Keys of every body for the world's step number `count`: to move, to start the next episode, to relocate."""
    return jax.random.split(jax.random.fold_in(key, count), (bodies, 3))


class Prepared(eqx.Module):
    """First states that bodies may need after a step, computed beforehand."""

    begin: Any
    """Of the next episodes."""
    relocate: Any
    """Of the episodes that a method requests."""


def prepare(env: AbstractEnv, keys: Key[Array, "T B 3"]) -> Prepared:
    """Prepares the first states for some steps of all bodies, from the steps' keys."""
    initial = jax.vmap(jax.vmap(lambda key: env.initial(key=key)))
    return Prepared(initial(keys[:, :, BEGIN]), initial(keys[:, :, RELOCATE]))


def step_all(
    env: AbstractEnv, keys: Key[Array, "B 3"], state, action: Int[Array, " B"], prepared: Prepared | None = None
):
    """Steps every body; returns states and timesteps."""

    def one(state, action, keys, fresh):
        return env.step_with(state, action, move_key=keys[MOVE], renew_key=keys[BEGIN], fresh=fresh)

    return jax.vmap(one)(state, action, keys, None if prepared is None else prepared.begin)


def first_states(first, state, timestep: TimeStep):
    """First states of the episodes that bodies are in after a step."""
    return jax.vmap(tree.select)(timestep.terminated | timestep.truncated, state, first)


def relocate_all(
    env: AbstractEnv,
    keys: Key[Array, "B 3"],
    first,
    state,
    request: Int[Array, " B"],
    prepared: Prepared | None = None,
):
    """Relocates bodies as requested; returns first states, states and timesteps."""

    def one(first, state, request, key, fresh):
        state = tree.select(request == REWIND, env.rewind(first, state), state)
        restart = request == RESTART
        if fresh is None:
            state = if_any(restart, lambda both: env.renew(both[0], key=both[1]), lambda both: both[0], (state, key))
        else:
            state = tree.select(restart, env.inherit(fresh, state), state)
        return tree.select(restart, state, first), state, env.shown(state)

    return jax.vmap(one)(first, state, request, keys[:, RELOCATE], None if prepared is None else prepared.relocate)
