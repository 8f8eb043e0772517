"""Small worlds that each show one point (docs/theory.md), and random ones from a seed."""

import math

import numpy as np

from advsurprise.theory.block_mdp import BlockMDP, from_arrays, from_moves

LIGHT = math.log(6)
"""Entropy of one light that flashes in six colours."""
HALLS = ("hall 12", "hall 23", "hall 31")
"""The halls of *three halls*, each named for the two rooms it is one step from."""


def noisy_tv() -> BlockMDP:
    """Three dark rooms in a row and, behind the first, a screen of nine lights."""
    moves = {
        "left": ["left", "middle", "screen"],
        "middle": ["middle", "left", "right"],
        "right": ["right", "middle"],
        "screen": ["screen", "left"],
    }
    return from_moves(moves, _noise(moves, screen=9 * LIGHT), name="noisy TV", start="left", horizon=1)


def dark_room() -> BlockMDP:
    """One dark closet in a noisy flat: a minimiser never leaves it."""
    rooms = ["kitchen", "street", "garden"]
    moves = {"closet": ["closet", *rooms]} | {room: [room, "closet"] for room in rooms}
    return from_moves(moves, _noise(moves, kitchen=0.5, street=2.0, garden=1.0), name="dark room", horizon=1)


def chain_of_rooms() -> BlockMDP:
    """Dark and noisy rooms in turn along a corridor, as in the experiments of the paper."""
    names = [f"{'noisy' if i % 2 else 'dark'} {i}" for i in range(7)]
    moves = {name: [name, *names[max(i - 1, 0) : i], *names[i + 1 : i + 2]] for i, name in enumerate(names)}
    noise = _noise(moves, **{name: 2 * LIGHT for name in names if name.startswith("noisy")})
    return from_moves(moves, noise, name="chain of rooms", horizon=1)


def far_noise() -> BlockMDP:
    """Breaks (a): the hall is two steps from the only dark room. (b) falls too: (b) and (c) imply (a)."""
    moves = {"cellar": ["stairs", "hall"], "stairs": ["hall", "cellar"], "hall": ["hall", "stairs"]}
    return from_moves(moves, _noise(moves, stairs=1.0, hall=0.3), name="breaks (a)", horizon=1)


def no_waiting() -> BlockMDP:
    """Breaks (b) alone: the dark room is one step from everywhere, but from itself not in exactly one."""
    moves = {"porch": ["dark", "hall"], "dark": ["hall", "porch"], "hall": ["hall", "dark"]}
    return from_moves(moves, _noise(moves, porch=0.3, hall=0.3), name="breaks (b)", horizon=1)


def one_way_ring() -> BlockMDP:
    """Breaks (c) alone: three dark rooms in a ring that can only be walked one way."""
    moves = {"north": ["north", "east"], "east": ["east", "west"], "west": ["west", "north"]}
    return from_moves(moves, _noise(moves), name="breaks (c)", horizon=1)


def row_of_dark_rooms() -> BlockMDP:
    """Three dark rooms in a row: every assumption holds, but Control is free to gather in the middle."""
    moves = {"left": ["left", "middle"], "middle": ["middle", "left", "right"], "right": ["right", "middle"]}
    return from_moves(moves, _noise(moves), name="ties", horizon=1)


def dim_hall() -> BlockMDP:
    """Two dark rooms and a hall that is only a little noisier, where Control prefers to end."""
    moves = {
        "den": ["den", "hall"],
        "hall": ["hall", "den", "stairs"],
        "stairs": ["vault", "hall"],
        "vault": ["vault", "hall", "stairs"],
    }
    return from_moves(moves, _noise(moves, hall=0.1, stairs=1.0), name="dim hall", horizon=1)


def three_halls() -> BlockMDP:
    """Every assumption of Appendix A holds and no solution of the game covers, at the end of the turn or before.

    Each pair of dark rooms shares a dim hall from which only one of them is near. Control merges any one
    pair; and the closet, from which all halls are near, is of no use to Explore.
    """
    return _with_halls(_three_halls(), name="three halls")


def twinned_halls() -> BlockMDP:
    """*Three halls* with a dark twin for each dark state, so that the main text's d(s, s') = T holds as well.

    A twin has the moves of its original and an edge to it and back. The value of the game is the same, and
    every solution leaves five of the twelve states uncovered.
    """
    moves = _three_halls()
    for original in ("room 1", "room 2", "room 3", "closet"):
        twin = f"{original} twin"
        moves[twin] = [twin, *moves[original]]
        moves[original] = [*moves[original], twin]
    return _with_halls(moves, name="twinned halls")


def _three_halls() -> dict[str, list[str]]:
    halls = list(HALLS)
    return {
        "room 1": ["room 1", "hall 12", "hall 31"],
        "room 2": ["room 2", "hall 12", "hall 23"],
        "room 3": ["room 3", "hall 23", "hall 31"],
        "hall 12": [*halls, "room 1", "ladder"],
        "hall 23": [*halls, "room 2", "ladder"],
        "hall 31": [*halls, "room 3", "ladder"],
        "ladder": ["closet", *halls],
        "closet": ["closet", *halls, "ladder"],
    }


def _with_halls(moves: dict[str, list[str]], *, name: str) -> BlockMDP:
    return from_moves(moves, _noise(moves, **dict.fromkeys(HALLS, 0.1), ladder=1.0), name=name, horizon=1)


def leap() -> BlockMDP:
    """A world with coin flips in which every assumption holds: a leap lands in either noisy room."""
    names = ("dark 1", "noisy 1", "noisy 2", "dark 2")
    next_states = [[0, 1], [1, 0, 2], [2, 3, 1], [3, 2]]
    transition = np.zeros((4, 4, 4))
    for state, targets in enumerate(next_states):
        padded = [*targets, *[state] * (3 - len(targets))]
        transition[state, range(3), padded] = 1.0
        transition[state, 3, [1, 2]] = 0.5
    copies = np.exp([0.0, 2 * LIGHT, LIGHT, 0.0])
    return from_arrays(transition, np.eye(4), copies=copies, states=names, name="leap (coin flips)", horizon=1)


def slippery() -> BlockMDP:
    """A world with coin flips that breaks (a) and (c): noisy rooms can be left for certain, but not entered."""
    names = ("dark 1", "noisy 1", "noisy 2", "dark 2")
    transition = np.zeros((4, 2, 4))
    transition[range(4), 0, [0, 0, 3, 3]] = 1.0
    transition[[0, 3], 1, 1] = transition[[0, 3], 1, 2] = 0.5
    transition[[1, 2], 1, [2, 1]] = 1.0
    copies = np.exp([0.0, 2 * LIGHT, LIGHT, 0.0])
    return from_arrays(transition, np.eye(4), copies=copies, states=names, name="slippery (coin flips)", horizon=1)


def zoo() -> list[BlockMDP]:
    """All hand-made worlds."""
    made = [noisy_tv, dark_room, chain_of_rooms, far_noise, no_waiting, one_way_ring]
    made += [row_of_dark_rooms, dim_hall, three_halls, twinned_halls, leap, slippery]
    return [make() for make in made]


def random_world(rng: np.random.Generator) -> BlockMDP:
    """A deterministic world of 3 to 6 states and a turn of 1 to 3 steps.

    A third have random moves, a third are undirected graphs, a third are undirected graphs with waiting.
    """
    states, horizon, kind = int(rng.integers(3, 7)), int(rng.integers(1, 4)), int(rng.integers(3))
    if kind == 0:
        following = rng.integers(0, states, (states, int(rng.integers(2, 4))))
    else:
        following = _random_graph(rng, states, waiting=kind == 2)
    transition = np.zeros((*following.shape, states))
    np.put_along_axis(transition, following[:, :, None], 1.0, axis=2)
    dark = rng.random(states) < rng.uniform(0.3, 0.9)
    dark[rng.integers(states)] = True
    noise = np.where(dark, 0.0, rng.exponential(rng.choice([0.2, 1.0, 3.0]), states))
    return from_arrays(transition, np.eye(states), copies=np.exp(noise), name="random", horizon=horizon)


def random_block_mdp(rng: np.random.Generator, *, states: int = 4, actions: int = 2) -> BlockMDP:
    """Random transitions, and for each state one to four observations of its own, some standing for several."""
    transition = rng.dirichlet(np.ones(states), (states, actions))
    owner = np.repeat(np.arange(states), rng.integers(1, 5, states))
    emission = np.zeros((states, len(owner)))
    emission[owner, np.arange(len(owner))] = rng.exponential(size=len(owner)) * (rng.random(len(owner)) < 0.9) + 1e-3
    emission /= emission.sum(axis=1, keepdims=True)
    copies = np.exp(rng.exponential(size=len(owner)))
    return from_arrays(transition, emission, rng.dirichlet(np.ones(states)), copies=copies)


def _random_graph(rng: np.random.Generator, states: int, *, waiting: bool) -> np.ndarray:
    upper = np.triu(rng.random((states, states)) < rng.uniform(0.2, 0.6), 1)
    edges = upper | upper.T | (np.eye(states, dtype=bool) if waiting else False)
    edges |= np.diag(~edges.any(axis=1))
    most = int(edges.sum(axis=1).max())
    return np.stack([np.resize(np.flatnonzero(row), most) for row in edges])


def _noise(moves: dict[str, list[str]], **noise: float) -> dict[str, float]:
    """Entropies by name: as given, 0 elsewhere."""
    return dict.fromkeys(moves, 0.0) | noise
