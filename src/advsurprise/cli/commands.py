"""What the verb eval does."""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from advsurprise import api, envs
from advsurprise.errors import UserError
from advsurprise.evaluation import comparison
from advsurprise.learning.players import Player
from advsurprise.training.run import keep_compiled

SHOWN = {
    "log_prob": "log-probability of scored steps (minus surprise)",
    "solved": "Alice's tasks that Bob solved",
    "time_alice": "steps of Alice's tasks",
    "time_bob": "steps Bob took",
    "mean/surprise": "surprise of what was seen, nats per step",
    "end/rooms_episode": "rooms visited per episode",
    "end/stilled": "noisy rooms stilled at the end",
    "end/uses": "boxes or switches used per episode",
    "end/dark_steps": "steps in dark rooms per episode",
    "end/doors_closed": "doors closed at the end",
    "end/doors_locked": "doors locked at the end",
    "end/episode_return": "the world's own reward per episode",
    "end/episode_length": "steps per episode",
}
"""Measures a person is shown, in this order."""


def evaluate(
    folder: pathlib.Path,
    *,
    episodes: int,
    env: str | None,
    settings: Sequence[str],
    log: Callable[[str], None],
) -> dict[str, Any]:
    """Frozen policies, sampled and greedy, against uniform random actions, on the same evaluation seeds."""
    if episodes < 10:
        raise UserError(f"--episodes must be at least 10, one for each evaluation seed, not {episodes}")
    keep_compiled()
    trained = _load(folder)
    fields = envs.find(env or trained.config.env).parse(settings)
    where = {"episodes": episodes, "env": env, "env_fields": fields}
    found = {}
    players: dict[str, Player] = {"measures": "trained", "greedy": "greedy", "random": "random"}
    for name, player in players.items():
        log(f"playing {episodes} episodes: {name if name != 'measures' else 'sampled'} …")
        found[name] = trained.evaluate(player=player, **where)
    return {
        "method": trained.config.method,
        "env": env or trained.config.env,
        "env_fields": fields or trained.config.env_fields,
        "run": str(folder),
        "episodes": episodes,
        "updates": trained.updates,
        **found,
    }


def _load(folder: pathlib.Path) -> api.Trained:
    if comparison.is_comparison(folder):
        first = next(iter(comparison.read(folder).fields))
        raise UserError(f"{folder} holds a comparison; choose one of its runs, for example {folder / first}")
    return api.load(folder)


def evaluate_text(result: dict[str, Any]) -> str:
    """Random against trained, for a person."""
    lines = [f"{result['method']} in {result['env']}, {result['episodes']} episodes, mean and 95% interval"]
    lines.append(f"{'':46}{'random':>20}{'trained':>20}{'trained, greedy':>20}")
    for name, label in SHOWN.items():
        if name in result["measures"]:
            cells = (result[column][name] for column in ("random", "measures", "greedy"))
            lines.append(f"{label:46}" + "".join(f"{_cell(cell):>20}" for cell in cells))
    return "\n".join([*lines, f"run: {result['run']}"])


def cross(folder: pathlib.Path, *, episodes: int, log: Callable[[str], None]) -> dict[str, Any]:
    """Every role by its policy, by random actions and by nobody, against each other."""
    keep_compiled()
    trained = _load(folder)
    log(f"playing {episodes} episodes of each pairing …")
    return {
        "method": trained.config.method,
        "env": trained.config.env,
        "run": str(folder),
        "episodes": episodes,
        "updates": trained.updates,
        "steps": trained.updates * trained.config.steps_per_update,
        "roles": list(trained.agents[0].method.roles),
        "cross": trained.cross_play(episodes=episodes),
    }


def cross_text(result: dict[str, Any]) -> str:
    """The pairings for a person."""
    roles = result["roles"]
    names = [name for name in SHOWN if name in result["cross"][0]["measures"]][:4]
    head = "".join(f"{role:12}" for role in roles) + "".join(f"{name:>22}" for name in names)
    lines = [f"{result['method']} in {result['env']} after {result['steps']:,} steps, mean and 95% interval", head]
    for row in result["cross"]:
        cells = "".join(f"{_cell(row['measures'][name]):>22}" for name in names)
        lines.append("".join(f"{row[role]:12}" for role in roles) + cells)
    return "\n".join([*lines, f"run: {result['run']}"])


def _cell(cell: dict[str, float]) -> str:
    return f"{cell['mean']:.2f} ± {(cell['high'] - cell['low']) / 2:.2f}"
