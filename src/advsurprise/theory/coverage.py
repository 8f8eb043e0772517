"""Distances between states, dark rooms, the theorem's assumptions, and what it means to T-cover.

"For certain" means with probability 1, and "at exactly step k" is the paper's definition: being there sooner
and moving on does not count. Policies may depend on time.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from advsurprise.theory.block_mdp import TOLERANCE, BlockMDP

VISITED = 1e-6
"""Mass up to this is a solver's rounding error: the state does not count as visited."""


class Verdict(NamedTuple):
    """Whether an assumption holds, and for which states it does not."""

    holds: bool
    """Whether it holds."""
    witness: tuple[str, ...] = ()
    """Names of the states for which it fails."""
    reason: str = ""
    """The failure in one sentence."""


def step_back(world: BlockMDP, arrived: Bool[np.ndarray, "S Y"]) -> Bool[np.ndarray, "S Y"]:
    """W_{k+1}(y) = {s : some action has all its outcomes in W_k(y)}, for every target y at once."""
    if world.deterministic:
        return np.any(arrived[world.transition.argmax(axis=2)], axis=1)
    misses = np.einsum("sat,ty->say", world.support.astype(np.float64), (~arrived).astype(np.float64))
    return np.any(misses == 0, axis=1)


def certain_after(world: BlockMDP, steps: int) -> Bool[np.ndarray, "S S"]:
    """Entry [s, s']: some policy is in s' for certain at exactly step `steps` from s."""
    arrived = np.eye(world.num_states, dtype=bool)
    for _ in range(steps):
        arrived = step_back(world, arrived)
    return arrived


def semiquasimetric(world: BlockMDP) -> Float[np.ndarray, "S S"]:
    """d~(s, s') = min{k : some policy has P_k(s' | s) = 1}, infinite if there is none; d~(s, s) = 0."""
    if world.deterministic:
        return shortest_path(csr_array(world.support.any(axis=1).astype(np.float64)), unweighted=True)
    columns = [_certain_distances(world, target) for target in range(world.num_states)]
    return np.stack(columns, axis=1)


def _certain_distances(world: BlockMDP, target: int) -> Float[np.ndarray, " S"]:
    """Distances to one target. The sets W_k need not grow, so they are followed until one repeats."""
    distance = np.full(world.num_states, np.inf)
    arrived = np.eye(world.num_states, dtype=bool)[:, [target]]
    seen, step = set(), 0
    while arrived.tobytes() not in seen and np.isinf(distance).any():
        seen.add(arrived.tobytes())
        distance[arrived[:, 0] & np.isinf(distance)] = step
        arrived, step = step_back(world, arrived), step + 1
    return distance


def symmetric(quasi: Float[np.ndarray, "S S"]) -> Float[np.ndarray, "S S"]:
    """d(s, s') = max{d~(s, s'), d~(s', s)}."""
    return np.maximum(quasi, quasi.T)


def dark_rooms(world: BlockMDP) -> Bool[np.ndarray, " S"]:
    """The states with the smallest emission entropy."""
    return world.entropies <= world.entropies.min() + TOLERANCE


def covered(
    distance: Float[np.ndarray, "S S"], marginal: Float[np.ndarray, " S"], horizon: int, *, dust: float = 0.0
) -> Bool[np.ndarray, " S"]:
    """Which states s have an s' with d(s, s') ≤ T and more mass than `dust`; `distance` is the symmetric one."""
    return np.any(distance[:, marginal > dust] <= horizon, axis=1)


def assumption_a(world: BlockMDP, horizon: int, quasi: Float[np.ndarray, "S S"]) -> Verdict:
    """(a) From every state s some dark room s' has d(s, s') ≤ T."""
    near = np.any(symmetric(quasi)[:, dark_rooms(world)] <= horizon, axis=1)
    return _for_every_state(world, near, f"no dark room s' has d(s, s') ≤ {horizon}")


def assumption_b(world: BlockMDP, horizon: int) -> Verdict:
    """(b) From every state some policy is in a dark room for certain at exactly step T."""
    near = np.any(certain_after(world, horizon)[:, dark_rooms(world)], axis=1)
    return _for_every_state(world, near, f"no dark room is certain at exactly step {horizon}")


def assumption_c(world: BlockMDP, horizon: int, quasi: Float[np.ndarray, "S S"]) -> Verdict:
    """(c) If d~(s, s') ≤ T for a dark room s', then d(s, s') ≤ T: returning takes at most T steps."""
    return _can_return(world, horizon, quasi, dark_rooms(world))


def returns_everywhere(world: BlockMDP, horizon: int, quasi: Float[np.ndarray, "S S"]) -> Verdict:
    """(c*) As (c), for every s', dark or not. Not in the paper; the repaired theorem needs it."""
    return _can_return(world, horizon, quasi, np.ones(world.num_states, dtype=bool))


def main_text_assumption(world: BlockMDP, horizon: int, quasi: Float[np.ndarray, "S S"]) -> Verdict:
    """The main text's only assumption: from every state some dark room has d(s, s') = T, not ≤."""
    near = np.any(symmetric(quasi)[:, dark_rooms(world)] == horizon, axis=1)
    return _for_every_state(world, near, f"no dark room s' has d(s, s') = {horizon}")


def assumptions(world: BlockMDP, horizon: int, quasi: Float[np.ndarray, "S S"] | None = None) -> dict[str, Verdict]:
    """Appendix A's three assumptions, then the main text's one and the stronger (c*)."""
    quasi = semiquasimetric(world) if quasi is None else quasi
    return {
        "a": assumption_a(world, horizon, quasi),
        "b": assumption_b(world, horizon),
        "c": assumption_c(world, horizon, quasi),
        "main_text": main_text_assumption(world, horizon, quasi),
        "c_star": returns_everywhere(world, horizon, quasi),
    }


def satisfies(verdicts: dict[str, Verdict]) -> bool:
    """Whether the theorem of Appendix A applies: (a), (b) and (c)."""
    return all(verdicts[name].holds for name in "abc")


def holds_from(world: BlockMDP, quasi: Float[np.ndarray, "S S"]) -> dict[str, int | None]:
    """For (a), (b) and (c), the shortest turn from which on each holds, up to the largest finite distance."""
    arrived, first = np.eye(world.num_states, dtype=bool), dict.fromkeys("abc")
    for horizon in range(1, max(int(quasi[np.isfinite(quasi)].max()), 1) + 1):
        arrived = step_back(world, arrived)
        holds = {
            "a": assumption_a(world, horizon, quasi).holds,
            "b": bool(np.any(arrived[:, dark_rooms(world)], axis=1).all()),
            "c": assumption_c(world, horizon, quasi).holds,
        }
        first = {name: (first[name] or horizon) if holds[name] else None for name in first}
    return first


def _for_every_state(world: BlockMDP, good: Bool[np.ndarray, " S"], what: str) -> Verdict:
    if good.all():
        return Verdict(True)
    state = world.states[int(np.flatnonzero(~good)[0])]
    return Verdict(False, (state,), f"from {state!r} {what}")


def _can_return(
    world: BlockMDP, horizon: int, quasi: Float[np.ndarray, "S S"], targets: Bool[np.ndarray, " S"]
) -> Verdict:
    bad = np.argwhere((quasi <= horizon) & (horizon < quasi.T) & targets)
    if not len(bad):
        return Verdict(True)
    there, room = world.names(bad[0])
    back = quasi[bad[0][1], bad[0][0]]
    slow = "never certain" if np.isinf(back) else f"{back:g} steps long"
    return Verdict(False, (there, room), f"{there!r} reaches {room!r} within {horizon}, but the way back is {slow}")
