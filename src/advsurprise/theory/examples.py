"""Two examples of docs/theory.md that need more than a row of the table."""

import math
from typing import Any

import numpy as np

from advsurprise.theory.block_mdp import from_moves
from advsurprise.theory.coverage import certain_after, covered, semiquasimetric, symmetric
from advsurprise.theory.game import solve
from advsurprise.theory.optima import closed_form, maximiser
from advsurprise.theory.zoo import LIGHT, chain_of_rooms


def examples() -> dict[str, Any]:
    """The examples by name."""
    return {"hand_overs_within_reach": hand_overs_within_reach(), "corridor": corridor()}


def hand_overs_within_reach() -> dict[str, float]:
    """The share of *chain of rooms* that the game covers if Explore walks k steps from the first room, by k."""
    world = chain_of_rooms()
    distance = symmetric(semiquasimetric(world))
    finals = {k: solve(world, 1, allowed=certain_after(world, k)[0]).final for k in (1, 2, 4, 6)}
    return {str(k): float(covered(distance, final, 1).mean()) for k, final in finals.items()}


def corridor() -> dict[str, float]:
    """The maximiser's time in the dark in a corridor of dark and noisy rooms without waiting.

    Exact, and by the closed form e^{h_i} / Σ_j e^{h_j}.
    """
    names = [str(i) for i in range(7)]
    moves = {name: [*names[max(i - 1, 0) : i], *names[i + 1 : i + 2]] for i, name in enumerate(names)}
    world = from_moves(moves, {name: 2 * LIGHT * (i % 2) for i, name in enumerate(names)})
    dark = np.arange(7) % 2 == 0
    best = maximiser(world)
    return {
        "dark_share": float(best.marginal[dark].sum()),
        "closed_form_dark_share": float(closed_form(world)[dark].sum()),
        "value": best.value,
        "closed_form_value": math.log(float(np.exp(world.entropies).sum())),
    }
