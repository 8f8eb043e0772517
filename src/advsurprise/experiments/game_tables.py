"""Tables of games for the documentation."""

import json
import pathlib
from collections.abc import Callable
from typing import Any

from advsurprise.experiments.cells import markdown, over_seeds, read_csv, with_interval
from advsurprise.experiments.figure import GREEDY, SAMPLED
from advsurprise.experiments.zero_shot import ARMS, SCORE

EARLIER = {"as-16": "16/16"}
"""Arms that were run in Take Cover before the others, by their turns there."""


def scores(world: str, digits: int) -> Callable[[pathlib.Path], str]:
    """Training seeds, and scores of whole games, sampled and greedy; one score alone where nothing was trained."""

    def make(results: pathlib.Path) -> str:
        rows = [row for row in read_csv(results / "games_h200_frozen.csv") if row["world"] == world]
        found = {arm: _cells([row for row in rows if row["arm"] == arm], digits) for arm in ARMS}
        if world == "doom/take-cover":
            found |= _earlier(json.loads((results / "take_cover_eval_h200.json").read_text()), digits)
        lines = [(ARMS[arm].label, *found[arm]) for arm in ARMS if any(found[arm])]
        return markdown(("method", "seeds", "score, sampled", "score, greedy"), lines)

    return make


def _cells(rows: list[dict[str, Any]], digits: int) -> tuple[str, ...]:
    cells = [f"{len(seeds)}" if len(seeds := {row["seed"] for row in rows}) > 1 else ""]
    for player in (SAMPLED, GREEDY):
        values = [row[SCORE] for row in rows if row["player"] == player]
        cells.append(over_seeds(values, digits) if len(values) > 1 else f"{values[0]:.{digits}f}" if values else "")
    return tuple(cells)


def _earlier(played: list[dict[str, Any]], digits: int) -> dict[str, tuple[str, ...]]:
    """Means and intervals over training seeds, of files that do not hold each seed's."""
    found = {}
    for arm, turns in EARLIER.items():
        by_player = {each["player"]: each[SCORE] for each in played if each["turns"] == turns}
        cells = (by_player[player] for player in ("trained", "greedy"))
        shown = (with_interval(cell["mean"], cell["low"], cell["high"], digits) for cell in cells)
        found[arm] = (f"{by_player['trained']['n']}", *shown)
    return found


TABLES: dict[str, Callable[[pathlib.Path], str]] = {
    "games-freeway": scores("atari/freeway", 1),
    "games-take-cover": scores("doom/take-cover", 0),
}
