"""`advsurprise eval`: frozen policies compared with random actions, or role by role with other players."""

import math
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from advsurprise import api, envs
from advsurprise.errors import UserError
from advsurprise.evaluation import comparison, labels
from advsurprise.evaluation.statistics import Estimate
from advsurprise.learning.players import Player
from advsurprise.training.run import keep_compiled

PLAYERS: dict[str, Player] = {"random": "random", "measures": "trained", "greedy": "greedy"}
"""Players, by their key in the result."""
HEADS = {"random": "random", "measures": "trained", "greedy": "trained, greedy"}
CROSS_COLUMNS = 4
"""Number of measures that fit into a table of pairings."""
LABEL_WIDTH, CELL_WIDTH = 70, 18


def evaluate(
    folder: pathlib.Path,
    *,
    episodes: int,
    env: str | None,
    settings: Sequence[str],
    log: Callable[[str], None],
) -> dict[str, Any]:
    """Evaluates frozen policies, sampled and greedy, and uniform random actions on the same evaluation seeds."""
    check_episodes(episodes)
    trained = load(folder)
    fields = envs.find(env or trained.config.env).parse(settings)
    keep_compiled()
    estimates = {}
    for name, player in PLAYERS.items():
        log(f"playing {episodes} episodes: {HEADS[name]} …")
        estimates[name] = trained.evaluate(episodes=episodes, player=player, env=env, env_fields=fields)
    return {
        "method": trained.config.method,
        "env": env or trained.config.env,
        "env_fields": fields or trained.config.env_fields,
        "run": str(folder),
        "episodes": episodes,
        "training_seeds": len(trained.agents),
        "updates": trained.updates,
        "labels": shown_labels(trained, estimates["measures"]),
        "published": dict(envs.find(env or trained.config.env).published),
        **estimates,
    }


def cross(
    folder: pathlib.Path,
    *,
    episodes: int,
    env: str | None,
    settings: Sequence[str],
    log: Callable[[str], None],
) -> dict[str, Any]:
    """Evaluates all combinations of trained, random and motionless players for the roles."""
    check_episodes(episodes)
    if env is not None or settings:
        raise UserError("--cross plays in the run's own world: remove --env and --set")
    trained = load(folder)
    keep_compiled()
    log(f"playing {episodes} episodes of each pairing …")
    rows = trained.cross_play(episodes=episodes)
    return {
        "method": trained.config.method,
        "env": trained.config.env,
        "run": str(folder),
        "episodes": episodes,
        "training_seeds": len(trained.agents),
        "updates": trained.updates,
        "steps": trained.updates * trained.config.steps_per_update,
        "roles": list(trained.agents[0].method.roles),
        "labels": shown_labels(trained, rows[0]["measures"]),
        "cross": rows,
    }


def check_episodes(episodes: int) -> None:
    """Refuses fewer episodes than there are evaluation seeds."""
    if episodes < 10:
        raise UserError(f"--episodes must be at least 10, one for each evaluation seed, not {episodes}")


def load(folder: pathlib.Path) -> api.Trained:
    """The run in a folder; refuses a comparison, which holds several."""
    refuse_comparison(folder)
    return api.load(folder)


def refuse_comparison(folder: pathlib.Path) -> None:
    """Refuses a folder that holds several runs."""
    runs = comparison.gathered(folder)
    if runs:
        kind = "comparison" if comparison.is_comparison(folder) else "sweep"
        raise UserError(f"{folder} holds a {kind}; choose one of its runs, for example {folder / next(iter(runs))}")


def shown_labels(trained: api.Trained, measured: Iterable[str]) -> dict[str, str]:
    """Labels of the table's rows, in order: measures shown by default, then all at hand-overs."""
    measured, method = set(measured), trained.agents[0].method
    table = labels.of_method(method)
    columns = table.shown + [name for group in table.handovers(method.roles).values() for name in group]
    return {name: table.label(name) for name in columns if name in measured}


# --------------------------------------------------------------------------------------------------- text output


def evaluate_text(result: dict[str, Any]) -> str:
    """The table of random and trained players as text."""
    episodes, seeds = result["episodes"], result["training_seeds"]
    lines = [
        f"{result['method']} in {result['env']}, {episodes} episodes for each of {seeds} training seed(s)",
        f"{'mean and 95% interval':{LABEL_WIDTH}}" + _cells(HEADS.values()),
        f"{'interval over':{LABEL_WIDTH}}" + _cells(_over(result[column].values()) for column in HEADS),
    ]
    handovers = [name for name in result["labels"] if name.startswith("handover/")]
    lines += [_line(result, name) for name in result["labels"] if name not in handovers]
    if handovers:
        firsts = [name for name in handovers if "/first/" in name]
        lines += ["", "when each role's first turn ends (all turns: --json)", *(_line(result, name) for name in firsts)]
    if result["published"]:
        scores = ", ".join(f"{who} {score:g}" for who, score in result["published"].items())
        lines.append(f"published scores of this game: {scores}")
    return "\n".join([*lines, f"run: {result['run']}"])


def cross_text(result: dict[str, Any]) -> str:
    """The table of pairings as text."""
    roles, names = result["roles"], list(result["labels"])[:CROSS_COLUMNS]
    head = "".join(f"{role:12}" for role in roles) + _cells(f"[{number}]" for number, _ in enumerate(names, start=1))
    lines = [
        f"{result['method']} in {result['env']} after {result['steps']:,} steps, {result['episodes']} episodes "
        f"for each of {result['training_seeds']} training seed(s), mean and 95% interval",
        *(f"[{number}] {result['labels'][name]}" for number, name in enumerate(names, start=1)),
        f"{head}  interval over",
    ]
    for row in result["cross"]:
        cells = _cells(_cell(row["measures"][name]) for name in names)
        over = _over(row["measures"].values())
        lines.append("".join(f"{row[role]:12}" for role in roles) + f"{cells}  {over}")
    return "\n".join([*lines, f"run: {result['run']}"])


def _line(result: dict[str, Any], name: str) -> str:
    return f"{result['labels'][name]:{LABEL_WIDTH}}" + _cells(_cell(result[column].get(name)) for column in HEADS)


def _cells(texts: Iterable[str]) -> str:
    return "".join(f"{text:>{CELL_WIDTH}}" for text in texts)


def _over(estimates: Iterable[Estimate]) -> str:
    """What the intervals of a column are taken over, the same for all its measures."""
    first = next(iter(estimates))
    return first["over"]


def _cell(estimate: Estimate | None) -> str:
    if estimate is None or not math.isfinite(estimate["mean"]):
        return "–"
    half = (estimate["high"] - estimate["low"]) / 2
    return f"{estimate['mean']:.2f}" + (f" ± {half:.2f}" if math.isfinite(half) else "")
