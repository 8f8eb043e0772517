"""Tables of games for the documentation."""

import json
import pathlib
from collections.abc import Callable
from typing import Any

from advsurprise import envs
from advsurprise.experiments.cells import markdown, over_seeds, read_csv, with_interval
from advsurprise.experiments.figure import ALONE, GREEDY, SAMPLED, Results
from advsurprise.experiments.zero_shot import ARMS, BASELINES, COVER, GAMES, OURS, ROLES, SCORE, SCORED

EARLIER = {"as-16": "16/16"}
"""Arms from an earlier run in Take Cover, by their turns."""
MILLION = "take_cover_1m_frozen.csv"
"""What frozen policies did in Take Cover after one million steps; the published figure has two million."""


def overview(results: pathlib.Path) -> str:
    """Table of all games: steps, and the scores of every method in the paper, of random play and of a human."""
    compared, lines = (OURS, *BASELINES), []
    for figure, games in (("atari-zero-shot", GAMES), ("doom-zero-shot", COVER)):
        rows = [row for row in _published(figure, results) if row["player"] == SAMPLED]
        for world, game in games.items():
            mine = {arm: [row for row in rows if (row["world"], row["arm"]) == (world, arm)] for arm in ARMS}
            last = max((row["step"] for arm in compared for row in mine[arm]), default=0)
            scores = [[row[SCORE] for row in mine[arm] if row["step"] == last] for arm in compared]
            human = envs.find(world).published.get("human")
            cells = (*(over_seeds(each, 0) for each in scores), over_seeds([row[SCORE] for row in mine["random"]], 0))
            lines.append((game, f"{last / 1e6:.0f}M" if last else "", *cells, f"{human:.0f}" if human else ""))
    return markdown(("game", "steps", *(ARMS[arm].label for arm in compared), "random", "human, published"), lines)


def freeway(results: pathlib.Path) -> str:
    """Table of scores in Freeway."""
    rows = [row for row in _published("atari-zero-shot", results) if row["world"] == "atari/freeway"]
    return _scores({arm: _cells([row for row in rows if row["arm"] == arm], 1) for arm in ARMS})


def take_cover_1m(results: pathlib.Path) -> str:
    """Table of scores in Take Cover after one million steps."""
    rows = read_csv(results / MILLION)
    cells = {arm: _cells([row for row in rows if row["arm"] == arm], 0) for arm in ARMS}
    return _scores(cells | _earlier(json.loads((results / "take_cover_eval_h200.json").read_text()), 0))


def _published(figure: str, results: pathlib.Path) -> tuple[dict[str, Any], ...]:
    """What frozen policies did in a published figure."""
    return Results.read(results.parents[1] / "results" / figure).frozen


def _scores(cells: dict[str, tuple[str, ...]]) -> str:
    """Table of training seeds and scores of whole games, sampled and greedy; a single score if nothing was trained."""
    lines = [(ARMS[arm].label, *cells[arm]) for arm in ARMS if any(cells[arm])]
    return markdown(("method", "seeds", "score, sampled", "score, greedy"), lines)


def _cells(rows: list[dict[str, Any]], digits: int) -> tuple[str, ...]:
    cells = [f"{len(seeds)}" if len(seeds := {row["seed"] for row in rows}) > 1 else ""]
    for player in (SAMPLED, GREEDY):
        cells.append(over_seeds([row[SCORE] for row in rows if row["player"] == player], digits))
    return tuple(cells)


def _earlier(played: list[dict[str, Any]], digits: int) -> dict[str, tuple[str, ...]]:
    """Means and intervals over training seeds, from files without per-seed values."""
    lines = {}
    for arm, turns in EARLIER.items():
        by_player = {each["player"]: each[SCORE] for each in played if each["turns"] == turns}
        cells = (by_player[player] for player in ("trained", "greedy"))
        shown = (with_interval(cell["mean"], cell["low"], cell["high"], digits) for cell in cells)
        lines[arm] = (f"{by_player['trained']['n']}", *shown)
    return lines


LIVES = {
    "turns-16": "turns of 16; the game ends with the life",
    "turns-16 outlasts": "turns of 16; a game of 4 rounds outlasts lives",
    "turns-16 outlasts-16": "turns of 16; a game of 16 rounds",
    "turns-64/128 outlasts": "turns of 64 and 128; a game of 4 rounds",
}
PLAYERS = {SAMPLED: "both in turn, sampled", GREEDY: "greedy"} | {
    f"{role}{ALONE}": f"{role.capitalize()} alone" for role in ROLES
}
MEASURED = {SCORE: "Score of a whole game", "end/episode_length": "Steps per life"}


def lives(results: pathlib.Path) -> str:
    """Table of scores in Take Cover: games of Adversarial Surprise that end with the body's life, and that do not."""
    rows = read_csv(results / "take_cover_lives_cpu_frozen.csv")
    return _by_player({label: [row for row in rows if row["arm"] == arm] for arm, label in LIVES.items()})


TURNS = {
    "turns-16/32 unquiet": "turns of 16 and 32, every step scored",
    "turns-16/32 unquiet floor-0.05": "the same, floor of 0.05",
    "turns-16/32": "turns of 16 and 32, second half scored",
    "turns-64/128": "turns of 64 and 128, second half scored",
    "turns-64/128 skip-1": "the same, one tic per step",
}


OFFSETS = {
    "turns of 64 and 128; log p": "as",
    "turns of 64 and 128; less its maximum": "turns-64/128 from-max",
    "turns of 16 and 32, all scored; log p": SCORED,
    "turns of 16 and 32, all scored; less its maximum": "turns-16/32 unquiet from-max",
    "turns of 16 and 32, all scored; log p, games of 4 rounds": "turns-16/32 unquiet outlasts",
}
"""Rewards, and the published arm or the variant that has them."""


def scored(results: pathlib.Path) -> str:
    """Table of scores in Take Cover: shorter turns, and which part of Control's turn is scored."""
    figure = read_csv(results / MILLION)
    tuning = read_csv(results / "take_cover_scored_cpu_frozen.csv")
    games = {"turns of 16 and 32, every step scored; seeds 0 to 2, 1M": [row for row in figure if row["arm"] == SCORED]}
    games |= {label: [row for row in tuning if row["arm"] == arm] for arm, label in TURNS.items()}
    return _by_player(games)


def offset(results: pathlib.Path) -> str:
    """Tables of scores and of steps per life in Take Cover: rewards as published, counted from the largest, and in
    games that outlast lives."""
    published = _published("doom-zero-shot", results)
    last = max(row["step"] for row in published)
    rows = [row for row in published if row["step"] == last] + read_csv(results / "take_cover_offset_cpu_frozen.csv")
    return _by_measure({label: [row for row in rows if row["arm"] == arm] for label, arm in OFFSETS.items()})


def long_run(results: pathlib.Path) -> str:
    """Table of scores in Take Cover over two million steps: sampled at every stage, other players at the end."""
    rows = _published("doom-zero-shot", results)
    stages = sorted({row["step"] for row in rows if ARMS[row["arm"]].learns})
    columns = [(SAMPLED, step) for step in stages] + [(player, stages[-1]) for player in PLAYERS if player != SAMPLED]
    lines = []
    for arm in (arm for arm in ARMS if ARMS[arm].learns and arm in {row["arm"] for row in rows}):
        mine = [row for row in rows if row["arm"] == arm]
        cells = [[row[SCORE] for row in mine if (row["player"], row["step"]) == column] for column in columns]
        lines.append((ARMS[arm].label, *(over_seeds(values, 0) for values in cells)))
    heads = [f"{step / 1e6:.1f}M" for step in stages] + [name for player, name in PLAYERS.items() if player != SAMPLED]
    return markdown(("method", *heads), lines)


def roles(figure: str, world: str) -> Callable[[pathlib.Path], str]:
    """Table of scores and of steps per life, of all roles in turn and of each alone, for every arm with results."""

    def make(results: pathlib.Path) -> str:
        frozen = _published(figure, results)
        mine = {arm: [row for row in frozen if (row["world"], row["arm"]) == (world, arm)] for arm in ARMS}
        played = {ARMS[arm].label: rows for arm, rows in mine.items() if rows}
        return _by_measure(played)

    return make


def _by_measure(games: dict[str, list[dict[str, Any]]]) -> str:
    """A table of scores and one of steps per life."""
    return "\n".join(f"{label}:\n\n{_by_player(games, column)}" for column, label in MEASURED.items())


def _by_player(games: dict[str, list[dict[str, Any]]], column: str = SCORE) -> str:
    """Scores, or another column, of both roles in turn and of each alone, from the rows of every game."""
    lines = []
    for label, rows in games.items():
        by_player = [[row[column] for row in rows if row["player"] == player] for player in PLAYERS]
        lines.append((label, f"{len(by_player[0])}", *(over_seeds(values, 0) for values in by_player)))
    return markdown(("game", "seeds", *PLAYERS.values()), lines)


TABLES: dict[str, Callable[[pathlib.Path], str]] = {
    "games-overview": overview,
    "games-freeway": freeway,
    "games-take-cover": take_cover_1m,
    "games-assault": roles("atari-zero-shot", "atari/assault"),
    "games-space-invaders": roles("atari-zero-shot", "atari/space-invaders"),
    "games-berzerk": roles("atari-zero-shot", "atari/berzerk"),
    "games-lives": lives,
    "games-scored": scored,
    "games-offset": offset,
    "games-long": long_run,
}
