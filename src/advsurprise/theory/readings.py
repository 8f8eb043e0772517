"""The theorem's conclusion on random worlds that meet its assumptions, under each reading of "the game"."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from advsurprise.theory.block_mdp import BlockMDP
from advsurprise.theory.coverage import (
    Verdict,
    assumptions,
    certain_after,
    covered,
    dark_rooms,
    satisfies,
    semiquasimetric,
    symmetric,
)
from advsurprise.theory.game import Solution, commitment, solve
from advsurprise.theory.solutions import StateVerdict, covered_by_some_answer, every_solution
from advsurprise.theory.zoo import random_world

READINGS = {
    "every_solution": "as stated: all solutions of the game cover",
    "solver_solution": "as stated: the solution the solver returns covers",
    "control_commits": "main text's order, Control commits and then Explore chooses: covers",
    "proof": "the proof's Control, a dark room from each hand-over state: covers",
    "control_commits_c_star": "Control commits, and (c) holds for all states, not only dark rooms, (c*): covers",
    "some_answer_c_star": "as stated with (c*): each state is covered by some best answer of Control",
}
"""The claims that are checked, by name; docs/theory.md proves the last three."""


@dataclass(frozen=True, eq=False)
class Case:
    """A deterministic world with everything the readings need."""

    world: BlockMDP
    """The world."""
    horizon: int
    """Length T of Control's turn."""
    verdicts: dict[str, Verdict]
    """Which assumptions hold."""
    distance: Float[np.ndarray, "S S"]
    """The symmetric distance."""
    solution: Solution
    """The game's solution that the solver returns."""
    always: list[StateVerdict]
    """State by state, whether every solution covers it."""

    def covers(self, final: Float[np.ndarray, " S"]) -> bool:
        """Whether a final marginal T-covers the states."""
        return bool(covered(self.distance, final, self.horizon).all())

    @property
    def every(self) -> str:
        """Whether every solution covers: `yes`, `no` or `open`."""
        seen = {each.verdict for each in self.always}
        return "no" if "not always" in seen else "open" if "open" in seen else "yes"


def examine(world: BlockMDP, horizon: int, verdicts: dict[str, Verdict], quasi: Float[np.ndarray, "S S"]) -> Case:
    """Solves the game of a deterministic world and checks for each state whether all solutions cover it."""
    distance, solution = symmetric(quasi), solve(world, horizon)
    return Case(world, horizon, verdicts, distance, solution, every_solution(world, horizon, solution, distance))


def fails(case: Case) -> dict[str, bool]:
    """For each reading that applies to the world, whether its claim fails: for `every_solution`, in some solution."""
    world, horizon = case.world, case.horizon
    committed = not case.covers(commitment(world, horizon).final)
    dark = certain_after(world, horizon) & dark_rooms(world)
    result = {
        "every_solution": case.every == "no",
        "solver_solution": not case.covers(case.solution.final),
        "control_commits": committed,
        "proof": not case.covers(commitment(world, horizon, dark).final),
    }
    if case.verdicts["c_star"].holds:
        some = covered_by_some_answer(world, horizon, case.solution, case.distance)
        result |= {"control_commits_c_star": committed, "some_answer_c_star": not bool(some.all())}
    return result


def random_worlds(*, seed: int, satisfying: int) -> dict[str, Any]:
    """Draws worlds until `satisfying` of them satisfy (a), (b) and (c); counts where each reading's claim fails."""
    rng = np.random.default_rng(seed)
    tried, satisfied, undecided, gap, smallest = 0, 0, 0, 0.0, None
    checked, failed = dict.fromkeys(READINGS, 0), dict.fromkeys(READINGS, 0)
    while satisfied < satisfying:
        case = _draw(rng)
        tried += 1
        if case is None:
            continue
        satisfied += 1
        undecided += case.every == "open"
        gap = max(gap, case.solution.gap)
        for name, bad in fails(case).items():
            checked[name] += 1
            failed[name] += bad
        if case.every == "no" and (smallest is None or case.world.num_states < smallest.world.num_states):
            smallest = case
    rows = [
        {"name": name, "claim": READINGS[name], "worlds": checked[name], "violations": failed[name]}
        for name in READINGS
    ]
    return {
        "seed": seed,
        "tried": tried,
        "satisfying": satisfied,
        "violations": failed["every_solution"],
        "undecided": undecided,
        "largest_gap": gap,
        "readings": rows,
        "smallest_violation": None if smallest is None else violation(smallest),
    }


def violation(case: Case) -> dict[str, Any]:
    """A solution that leaves a state uncovered, with the world it happens in."""
    worst = next(each for each in case.always if each.witness is not None)
    assert worst.witness is not None
    return {
        "world": case.world.to_dict() | {"horizon": case.horizon},
        "uncovered": case.world.states[worst.state],
        "hand_over": named(case.world, worst.witness.hand_over),
        "final": named(case.world, worst.witness.final),
        "value": worst.witness.value,
    }


def named(world: BlockMDP, marginal: Float[np.ndarray, " S"]) -> dict[str, float]:
    """A marginal by state name."""
    return {state: float(mass) for state, mass in zip(world.states, marginal, strict=True)}


def _draw(rng: np.random.Generator) -> Case | None:
    world = random_world(rng)
    assert world.horizon is not None
    quasi = semiquasimetric(world)
    verdicts = assumptions(world, world.horizon, quasi)
    return examine(world, world.horizon, verdicts, quasi) if satisfies(verdicts) else None
