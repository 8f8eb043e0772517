"""From a pure world to a block MDP: breadth-first search over its true states, with exact emission entropies.

The only module of the theory that imports jax and the worlds. A world gives a `Reader` of its states: which part of a
state decides the future, what the body sees, and which entries of that are redrawn uniformly at every step.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from advsurprise import envs
from advsurprise.envs.base import AbstractEnv
from advsurprise.envs.reader import RANDOM, Reader
from advsurprise.errors import UserError
from advsurprise.theory.block_mdp import BlockMDP, from_arrays

QUICK = {"xla_backend_optimization_level": 0}
"""The search takes milliseconds and compiling it seconds: compile without optimisation."""
MOST_STATES = 1500
"""Larger worlds are refused: the tables of the theory are dense."""


def enumerate_world(
    env: AbstractEnv,
    *,
    seed: int = 0,
    reader: Reader | None = None,
    labelled: bool = True,
    most: int = MOST_STATES,
    name: str | None = None,
    horizon: int | None = None,
) -> BlockMDP:
    """The block MDP of the episode that `seed` starts. The clock is ignored: episodes do not end here.

    Two true states may share a view, and then the world is not a block MDP. With `labelled` the observation is
    the view together with the true state, which makes it one and leaves every emission entropy as it is; without,
    such a world is refused with an error that names two such states.
    """
    reader = reader or env.reader
    graph = _search(env, reader, seed, most)
    states = _unique_names(
        [reader.name(jax.tree.map(lambda leaf, i=i: leaf[i], graph.states)) for i in range(graph.count)]
    )
    pairs = aliases(graph.seen)
    if len(pairs) and not labelled:
        first, second = (states[i] for i in pairs[0])
        raise UserError(
            f"{len(pairs)} pairs of states can look the same, for example {first!r} and {second!r}: "
            "the view alone is not a block MDP; label it with the true state"
        )
    lights = (graph.seen == RANDOM).sum(axis=1)
    actions = graph.following.shape[1]
    transition = np.zeros((graph.count, actions, graph.count))
    np.put_along_axis(transition, graph.following[:, :, None], 1.0, axis=2)
    copies: Float[np.ndarray, " S"] = float(reader.choices) ** lights
    return from_arrays(
        transition,
        np.eye(graph.count),
        copies=copies,
        states=states,
        name=name or env.spec.id,
        horizon=horizon,
    )


def aliases(seen: Int[np.ndarray, "S m"]) -> Int[np.ndarray, "pairs 2"]:
    """Pairs of states that share an observation: every entry is equal, or random in one of the two."""
    random = seen == RANDOM
    pairs = []
    for state in range(len(seen) - 1):
        later = slice(state + 1, None)
        same: Bool[np.ndarray, "rest m"] = (seen[later] == seen[state]) | random[later] | random[state]
        pairs += [(state, state + 1 + int(other)) for other in np.flatnonzero(same.all(axis=1))]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def small_rooms() -> list[BlockMDP]:
    """Room worlds that enumerate in a second, with a short turn and with one that meets the assumptions."""
    small = {"min_side": 4, "max_side": 4, "grid": 8, "view": 3}
    door = enumerate_world(envs.make("rooms/door", **small), name="rooms/door, short", horizon=6)
    switch = envs.make("rooms/switch", **small)
    switch = enumerate_world(switch, seed=2, name="rooms/switch, long", horizon=24)
    return [door, dataclasses.replace(door, name="rooms/door, long", horizon=17), switch]


class _Graph(NamedTuple):
    count: int
    states: Any
    following: Int[np.ndarray, "S A"]
    seen: Int[np.ndarray, "S m"]


def _search(env: AbstractEnv, reader: Reader, seed: int, most: int) -> _Graph:
    """Breadth-first search from the first state; keeps the first full state found for each true state."""
    start_key, first_key, second_key = jax.random.split(jax.random.key(seed), 3)
    move = jax.jit(_all_moves(env, reader), compiler_options=QUICK)
    start, first = jax.jit(_begin(env, reader), compiler_options=QUICK)(start_key)
    index = {np.asarray(first.identity).tobytes(): 0}
    start = jax.tree.map(lambda leaf: np.asarray(leaf)[None], start)
    states, seen, following = [start], [np.asarray(first.seen)[None]], []
    frontier, width = start, 64
    while _size(frontier):
        chunk, frontier = _head(frontier, width), _tail(frontier, width)
        moved, read = move(_pad(chunk, width), first_key)
        other = move(_pad(chunk, width), second_key)[1]
        if not np.array_equal(read.identity, other.identity):
            raise UserError("the true state moves at random, so one draw does not show its transitions")
        identity = np.asarray(read.identity)[: _size(chunk)]
        rows, fresh = _place(identity, index)
        following.append(rows)
        if len(index) > most:
            raise UserError(f"the world has more than {most} states, too many for dense tables")
        if fresh:
            new = _pick(moved, fresh)
            states.append(new)
            seen.append(_pick(read, fresh).seen)
            frontier = jax.tree.map(lambda a, b: np.concatenate([a, b]), frontier, new)
    whole = jax.tree.map(lambda *leaves: np.concatenate(leaves), *states)
    return _Graph(len(index), whole, np.concatenate(following), np.concatenate(seen))


def _begin(env: AbstractEnv, reader: Reader):
    """A function of a key: the first state of an episode, and its reading."""

    def begin(key):
        state = env.initial(key=key)
        return state, reader.read(state)

    return begin


def _all_moves(env: AbstractEnv, reader: Reader):
    """A function of a batch of states: the states that all actions lead to, and their readings."""

    def move(states, key):
        actions = jnp.arange(env.spec.num_actions, dtype=jnp.int32)

        def one(state, action):
            moved, _ = env.transition(state, action, key=key)
            return moved, reader.read(moved)

        return jax.vmap(lambda state: jax.vmap(lambda action: one(state, action))(actions))(states)

    return move


def _place(identity: Int[np.ndarray, "n A k"], index: dict[bytes, int]):
    """Indices of the states moved to, and where in `identity` the new ones are, which get the next indices."""
    rows, fresh = np.zeros(identity.shape[:2], dtype=np.int64), []
    for place in np.ndindex(*rows.shape):
        mark = identity[place].tobytes()
        if mark not in index:
            index[mark] = len(index)
            fresh.append(place)
        rows[place] = index[mark]
    return rows, fresh


def _unique_names(names: list[str]) -> tuple[str, ...]:
    """The names, repeated ones numbered."""
    seen: dict[str, int] = {}
    unique = []
    for each in names:
        seen[each] = seen.get(each, 0) + 1
        unique.append(each if seen[each] == 1 else f"{each} #{seen[each]}")
    return tuple(unique)


def _pick(batch: Any, places: list[tuple[int, ...]]) -> Any:
    """The entries at these [state, action] places."""
    rows, columns = np.array(places).T
    return jax.tree.map(lambda leaf: np.asarray(leaf)[rows, columns], batch)


def _size(states: Any) -> int:
    return jax.tree.leaves(states)[0].shape[0]


def _head(states: Any, width: int) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:width], states)


def _tail(states: Any, width: int) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[width:], states)


def _pad(states: Any, width: int) -> Any:
    """The batch padded with copies of its last state, so that one compiled function serves every batch."""
    return jax.tree.map(lambda leaf: np.concatenate([leaf, np.repeat(leaf[-1:], width - len(leaf), axis=0)]), states)
