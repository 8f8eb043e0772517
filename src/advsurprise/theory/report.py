"""What `advsurprise theory` prints: for every world, which assumptions hold and what each objective does."""

import pathlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from jaxtyping import Float

from advsurprise.errors import UserError
from advsurprise.theory.block_mdp import MOST_STEPS, BlockMDP, load
from advsurprise.theory.coverage import VISITED, assumptions, covered, holds_from, satisfies, semiquasimetric, symmetric
from advsurprise.theory.entropy import entropy, observation_marginal
from advsurprise.theory.examples import examples
from advsurprise.theory.game import Solution, commitment, solve, turn_marginals
from advsurprise.theory.lemmas import lemma_errors
from advsurprise.theory.occupancy import stationary_marginal, uniform_policy
from advsurprise.theory.optima import closed_form, maximiser, minimiser
from advsurprise.theory.readings import named, random_worlds
from advsurprise.theory.solutions import every_solution
from advsurprise.theory.zoo import zoo

OBJECTIVES = {"maximiser": "surprise max", "minimiser": "surprise min", "random": "uniform", "game": "game"}
"""The objectives compared, by their key in the JSON and their heading in the table."""
MOST_STATES = 40
"""Worlds with more states are not searched for all solutions of the game."""


def study(world: BlockMDP, horizon: int | None = None) -> dict[str, Any]:
    """One row: assumptions, what each objective does in the long run, and the game."""
    quasi = semiquasimetric(world)
    horizon = horizon or world.horizon or smallest_horizon(world, quasi)
    verdicts, distance = assumptions(world, horizon, quasi), symmetric(quasi)
    solution = solve(world, horizon)
    largest, least = maximiser(world), minimiser(world)
    marginals = {
        "maximiser": largest.marginal,
        "minimiser": least.marginal,
        "random": stationary_marginal(world, uniform_policy(world)),
        "game": solution.final,
    }
    reached = covered(distance, solution.final, horizon)
    gaps = {"maximiser": largest.gap, "minimiser": least.gap, "game": solution.gap}
    return {
        "name": world.name,
        "states": list(world.states),
        "entropies": [float(h) for h in world.entropies],
        "horizon": horizon,
        "deterministic": world.deterministic,
        "assumptions": {name: verdict.holds for name, verdict in verdicts.items()},
        "holds_from": holds_from(world, quasi),
        "largest_distance": float(quasi[np.isfinite(quasi)].max()),
        "witnesses": {name: verdict.reason for name, verdict in verdicts.items() if not verdict.holds},
        "satisfies": satisfies(verdicts),
        "covers": bool(reached.all()),
        "uncovered": world.names(np.flatnonzero(~reached)),
        "objectives": {
            name: _measures(world, marginal, distance, horizon) | {"gap": gaps.get(name, 0.0)}
            for name, marginal in marginals.items()
        },
        "closed_form": named(world, closed_form(world)),
        "game": _game(world, horizon, distance, solution),
    }


def smallest_horizon(world: BlockMDP, quasi: Float[np.ndarray, "S S"]) -> int:
    """The shortest turn, up to |S| steps, for which (a), (b) and (c) hold; 1 if there is none."""
    for horizon in range(1, world.num_states + 1):
        if satisfies(assumptions(world, horizon, quasi)):
            return horizon
    return 1


def run(path: pathlib.Path | None, *, horizon: int | None, random: int, seed: int) -> dict[str, Any]:
    """The whole result: a row for the world in the file or for each built-in one, and the count on random ones."""
    if horizon is not None and not 1 <= horizon <= MOST_STEPS:
        raise UserError(f"--horizon must be from 1 to {MOST_STEPS:,}")
    if random < 0 or seed < 0:
        raise UserError("--random and --seed must be at least 0")
    if path is not None:
        rows = [study(load(path), horizon)]
        return {"worlds": rows} | _random(seed, random)
    # Imported here and not in the thread: scipy looks up jax's types and fails if jax is half imported.
    from advsurprise.theory.enumerate import small_rooms

    # Compiling the room worlds takes seconds of one core, so the others are studied meanwhile.
    with ThreadPoolExecutor(1) as pool:
        rooms = pool.submit(small_rooms)
        counts = _random(seed, random) | {"examples": examples()}
        rows = [study(world, horizon) for world in zoo()]
    return {"worlds": rows + [study(world, horizon) for world in rooms.result()]} | counts


def _random(seed: int, count: int) -> dict[str, Any]:
    return {
        "random_worlds": random_worlds(seed=seed, satisfying=count),
        "lemmas": lemma_errors(seed=seed, worlds=count),
    }


def text(result: dict[str, Any]) -> str:
    """The result as tables."""
    lines = [_heading(), *map(_line, result["worlds"]), "", *_notes(result["worlds"])]
    if result["random_worlds"]["satisfying"]:
        lines += ["", *_random_lines(result["random_worlds"]), "", _lemma_line(result["lemmas"])]
    return "\n".join(lines + ([f"\nfigure: {result['figure']}"] if "figure" in result else []))


def draw(result: dict[str, Any], path: pathlib.Path) -> dict[str, Any]:
    """Draws the occupancies of every world into a file, and adds its path to the result."""
    from advsurprise.theory.figure import occupancies

    try:
        occupancies(result["worlds"], path)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot write the figure to {path}: {error}") from error
    return result | {"figure": str(path)}


def _measures(
    world: BlockMDP, marginal: Float[np.ndarray, " S"], distance: Float[np.ndarray, "S S"], horizon: int
) -> dict[str, Any]:
    return {
        "coverage": float(covered(distance, marginal, horizon, dust=VISITED).mean()),
        "state_entropy": entropy(marginal),
        "emission_entropy": float(marginal @ world.entropies),
        "observation_entropy": entropy(observation_marginal(marginal, world.emission), world.copies),
        "marginal": named(world, marginal),
    }


def _game(world: BlockMDP, horizon: int, distance: Float[np.ndarray, "S S"], solution: Solution) -> dict[str, Any]:
    """The game's solution, whether its whole turn covers, and what is known of the other solutions."""
    visited = turn_marginals(world, horizon, solution).max(axis=0)
    row: dict[str, Any] = {
        "value": solution.value,
        "gap": solution.gap,
        "exact_answer": solution.exact,
        "hand_over": named(world, solution.hand_over),
        "final": named(world, solution.final),
        "turn_covers": bool(covered(distance, visited, horizon).all()),
        "every_solution_covers": "not searched",
    }
    if world.deterministic:
        committed = commitment(world, horizon)
        reached = covered(distance, committed.final, horizon)
        row["control_commits"] = {"value": committed.value, "covers": bool(reached.all())}
    if (distance <= horizon).all():
        row["every_solution_covers"] = "yes"
    elif world.deterministic and world.num_states <= MOST_STATES:
        verdicts = every_solution(world, horizon, solution, distance)
        missed = [each.state for each in verdicts if each.verdict == "not always"]
        unknown = any(each.verdict == "open" for each in verdicts)
        row["every_solution_covers"] = "no" if missed else "open" if unknown else "yes"
        row["missed_by_some_solution"] = world.names(missed)
    return row


def _heading() -> str:
    first = f"{'':24}{'':>3}{'':12}"
    objectives = "".join(f"{heading:>16}" for heading in OBJECTIVES.values())
    columns = f"{'world':24}{'T':>3}  {'(a)(b)(c)':10}" + f"{'covers    H(s)':>16}" * len(OBJECTIVES)
    return f"{first}{objectives}   game covers in\n{columns}   every solution"


def _line(row: dict[str, Any]) -> str:
    marks = "  ".join("yn"[not row["assumptions"][name]] for name in "abc")
    cells = ""
    for name in OBJECTIVES:
        part = row["objectives"][name]
        cells += f"{part['coverage']:>8.0%}{part['state_entropy']:>8.3f}"
    every = row["game"]["every_solution_covers"]
    return f"{row['name'][:24]:24}{row['horizon']:>3}   {marks:9}{cells}   {every}"


def _notes(rows: list[dict[str, Any]]) -> list[str]:
    """A sentence for every assumption that fails and every state left uncovered."""
    notes = []
    for row in rows:
        notes += [
            f"{row['name']}: ({name}) fails: {row['witnesses'][name]}" for name in "abc" if name in row["witnesses"]
        ]
        if not row["covers"]:
            notes.append(f"{row['name']}: the game does not cover {_some(row['uncovered'])}")
        missed = [name for name in row["game"].get("missed_by_some_solution", []) if name not in row["uncovered"]]
        if missed:
            notes.append(f"{row['name']}: another solution of the game does not cover {_some(missed)}")
    return notes


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more


def _random_lines(counts: dict[str, Any]) -> list[str]:
    head = (
        f"random worlds (seed {counts['seed']}): {counts['tried']} tried, {counts['satisfying']} satisfy "
        f"(a), (b), (c);\n  some solution of the game does not cover in {counts['violations']}, "
        f"undecided in {counts['undecided']}"
    )
    width = max(len(row["claim"]) for row in counts["readings"])
    rows = [f"  {row['claim']:{width}}{row['violations']:>5} of {row['worlds']}" for row in counts["readings"]]
    return [head, "  claims, and in how many of the worlds they fail:", *rows]


def _lemma_line(errors: dict[str, Any]) -> str:
    largest = max(errors["lemma_1"], errors["lemma_1_at_the_fit"], errors["lemma_2"])
    return f"lemmas 1 and 2 on {errors['worlds']} random block MDPs: largest error {largest:.1e} nats"
