"""A block MDP: finitely many states, actions and observations, and no observation that two states share."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from advsurprise.errors import UserError
from advsurprise.theory.entropy import emission_entropies

TOLERANCE = 1e-9
"""Probabilities that should sum to 1 may be off by this; entropies nearer than this are equal."""

MOST_NATS = 700
"""Maximum entropy: beyond it the number of observations overflows a float."""
MOST_STEPS = 10_000
"""Maximum length of Control's turn."""
KEYS = {"name", "states", "transition", "moves", "emission", "entropies", "copies", "start", "horizon"}


@dataclass(frozen=True, eq=False)
class BlockMDP:
    """A block MDP: states move by `transition` and are observed through `emission`.

    Checked on construction; errors name the states.
    """

    # Shapes are checked below rather than by type: a wrong one is a user's mistake and gets a plain error message.
    transition: Float[np.ndarray, "..."]
    """P(s' | s, a), of shape [S, A, S]."""
    emission: Float[np.ndarray, "..."]
    """p(o | s), of shape [S, O]; no column has mass in two rows."""
    start: Float[np.ndarray, "..."]
    """Distribution of the first state, of shape [S]."""
    copies: Float[np.ndarray, "..."] | None = None
    """How many equally likely observations each column represents; default: 1."""
    states: tuple[str, ...] = ()
    """Names of the states; default: s0, s1, ..."""
    name: str = "world"
    """Name used in tables."""
    horizon: int | None = None
    """Length T of Control's turn, if the world sets one."""

    def __post_init__(self):
        if not self.states:
            object.__setattr__(self, "states", tuple(f"s{i}" for i in range(len(self.transition))))
        _check_shapes(self)
        _check_numbers(self)
        _check_supports(self)
        for array in (self.transition, self.emission, self.start):
            array.setflags(write=False)

    @property
    def num_states(self) -> int:
        """|S|."""
        return self.transition.shape[0]

    @property
    def num_actions(self) -> int:
        """|A|."""
        return self.transition.shape[1]

    @cached_property
    def entropies(self) -> Float[np.ndarray, " S"]:
        """h(s) = H(p(O | S = s))."""
        return emission_entropies(self.emission, self.copies)

    @cached_property
    def support(self) -> Bool[np.ndarray, "S A S"]:
        """Which moves have positive probability."""
        return self.transition > 0

    @cached_property
    def deterministic(self) -> bool:
        """Whether every action leads to one state."""
        return bool((self.support.sum(axis=2) == 1).all())

    def names(self, indices) -> list[str]:
        """Names of the states with these indices."""
        return [self.states[int(i)] for i in indices]

    def to_dict(self) -> dict[str, Any]:
        """The world in the format that `load` reads."""
        plain = {
            "name": self.name,
            "states": list(self.states),
            "transition": self.transition.tolist(),
            "emission": self.emission.tolist(),
            "start": self.start.tolist(),
        }
        plain |= {} if self.copies is None else {"copies": self.copies.tolist()}
        return plain | ({} if self.horizon is None else {"horizon": self.horizon})


def from_arrays(transition, emission, start: Any = 0, **named) -> BlockMDP:
    """A block MDP from anything numpy can read; `start` may be the index of one state."""
    transition, emission = _floats("transition", transition), _floats("emission", emission)
    if transition.ndim != 3:
        raise UserError(f"transition must have shape [S, A, S], but has {list(transition.shape)}")
    if isinstance(start, int | np.integer):
        if not 0 <= start < len(transition):
            raise UserError(f"start is state {start}, but there are {len(transition)} states, numbered from 0")
        start = np.eye(len(transition))[start]
    if named.get("copies") is not None:
        named["copies"] = _floats("copies", named["copies"])
    return BlockMDP(transition, emission, _floats("start", start), **named)


def from_moves(moves: Mapping[str, Sequence[str]], entropies: Mapping[str, float | int], **named) -> BlockMDP:
    """A deterministic world, from each state's successors, one per action, and its emission entropy in nats.

    States with fewer actions than others repeat their first.
    """
    states = tuple(moves)
    index = {state: i for i, state in enumerate(states)}
    for state, targets in moves.items():
        unknown = [target for target in targets if target not in index]
        if unknown or not targets:
            reason = f"a move to {unknown[0]!r}, which is not a state" if unknown else "no move at all"
            raise UserError(f"state {state!r} has {reason}")
    if set(entropies) != set(states):
        odd = sorted(set(entropies) ^ set(states))
        raise UserError(f"entropies must be given for exactly the states that have moves; check {', '.join(odd)}")
    num_actions = max(len(targets) for targets in moves.values())
    transition = np.zeros((len(states), num_actions, len(states)))
    for state, targets in moves.items():
        padded = [*targets, *[targets[0]] * (num_actions - len(targets))]
        transition[index[state], range(num_actions), [index[t] for t in padded]] = 1.0
    start = named.pop("start", 0)
    start = index[start] if isinstance(start, str) and start in index else start
    wanted = _floats("entropies", [entropies[state] for state in states])
    if not ((wanted >= 0) & (wanted <= MOST_NATS)).all():
        raise UserError(f"entropies must be from 0 to {MOST_NATS} nats")
    copies = np.exp(wanted)
    return from_arrays(transition, np.eye(len(states)), start, copies=copies, states=states, **named)


def load(path: pathlib.Path) -> BlockMDP:
    """Reads a world from a JSON file; docs/theory.md has the format."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not text") from error
    except (ValueError, RecursionError) as error:  # also raised for numbers of thousands of digits
        raise UserError(f"{path} is not valid JSON: {error}") from error
    try:
        return from_dict(raw, name=path.stem)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def from_dict(raw: Any, *, name: str = "world") -> BlockMDP:
    """A world from the dictionary in a JSON file: full tables, or `moves` and `entropies` by state name."""
    if not isinstance(raw, dict):
        raise UserError("a world is a JSON object with `transition` and `emission`, or `moves` and `entropies`")
    unknown = sorted(set(raw) - KEYS)
    if unknown:
        raise UserError(f"unknown key {unknown[0]!r}; known: {', '.join(sorted(KEYS))}")
    horizon = raw.get("horizon")
    if horizon is not None and (type(horizon) is not int or not 1 <= horizon <= MOST_STEPS):
        raise UserError(f"horizon must be a whole number of steps, from 1 to {MOST_STEPS:,}")
    named = {"name": str(raw.get("name", name)), "horizon": horizon}
    if "moves" in raw:
        return _from_named_moves(raw, named)
    missing = [key for key in ("transition", "emission") if key not in raw]
    if missing:
        raise UserError(f"the key {missing[0]!r} is missing")
    states = raw.get("states", [])
    if not isinstance(states, list):
        raise UserError("states must be a list of names")
    start, states = raw.get("start", 0), tuple(str(state) for state in states)
    start = states.index(start) if start in states else start
    return from_arrays(raw["transition"], raw["emission"], start, copies=raw.get("copies"), states=states, **named)


def _from_named_moves(raw: dict[str, Any], named: dict[str, Any]) -> BlockMDP:
    moves, entropies = raw["moves"], raw.get("entropies")
    if not isinstance(moves, dict) or not all(isinstance(targets, list) for targets in moves.values()):
        raise UserError("moves must map each state's name to the list of states its actions lead to")
    if not all(isinstance(target, str) for targets in moves.values() for target in targets):
        raise UserError("moves must name the states they lead to")
    numbers = isinstance(entropies, dict) and all(isinstance(h, float | int) for h in entropies.values())
    if not moves or not isinstance(entropies, dict) or not numbers:
        raise UserError("moves needs at least one state, and entropies that map each state's name to a number")
    start = raw.get("start", 0)
    if isinstance(start, str) and start not in moves:
        raise UserError(f"start is {start!r}, which is not a state")
    return from_moves(moves, entropies, start=start, **named)


def _floats(what: str, value) -> np.ndarray:
    try:
        return np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{what} must be a table of numbers with rows of equal length") from error


def _check_shapes(world: BlockMDP) -> None:
    transition, emission = world.transition, world.emission
    if transition.ndim != 3 or transition.shape[0] != transition.shape[2] or not transition.size:
        raise UserError(f"transition must have shape [S, A, S], but has {list(transition.shape)}")
    states = transition.shape[0]
    if emission.ndim != 2 or emission.shape[0] != states or not emission.size:
        raise UserError(f"emission must have shape [{states}, O] for {states} states, but has {list(emission.shape)}")
    if world.start.shape != (states,):
        raise UserError(f"start must have {states} entries, but has shape {list(world.start.shape)}")
    if len(world.states) != states or len(set(world.states)) != states:
        raise UserError(f"states must be {states} different names")
    if world.copies is not None and (world.copies.shape != emission.shape[1:] or not _are_counts(world.copies)):
        raise UserError(f"copies must be {emission.shape[1]} numbers, each at least 1")


def _are_counts(copies: np.ndarray) -> bool:
    return bool((np.isfinite(copies) & (copies >= 1)).all())


def _check_numbers(world: BlockMDP) -> None:
    for state, action in _bad_rows(world.transition)[:1]:
        what = f"transition: the row of state {world.states[state]!r} under action {action}"
        raise UserError(f"{what} {_fault(world.transition[state, action])}")
    for (state,) in _bad_rows(world.emission)[:1]:
        raise UserError(f"emission: the row of state {world.states[state]!r} {_fault(world.emission[state])}")
    if len(_bad_rows(world.start)):
        raise UserError(f"start {_fault(world.start)}")


def _bad_rows(table: np.ndarray) -> np.ndarray:
    """Indices of the rows that are not distributions, in one pass: tables have thousands."""
    with np.errstate(invalid="ignore"):
        sums = np.abs(table.sum(axis=-1) - 1) <= TOLERANCE
    return np.argwhere(~(np.isfinite(table).all(axis=-1) & (table >= 0).all(axis=-1) & sums))


def _fault(row: np.ndarray) -> str:
    """Why the row is not a distribution."""
    if not np.isfinite(row).all():
        return "has an entry that is not a finite number"
    return f"has the negative entry {row.min():g}" if (row < 0).any() else f"sums to {row.sum():g}, not 1"


def _check_supports(world: BlockMDP) -> None:
    emitters = world.emission > 0
    shared = np.flatnonzero(emitters.sum(axis=0) > 1)
    if len(shared):
        first, second = world.names(np.flatnonzero(emitters[:, shared[0]])[:2])
        raise UserError(
            f"states {first!r} and {second!r} both emit observation {shared[0]}, "
            "but the states of a block MDP share no observation"
        )
