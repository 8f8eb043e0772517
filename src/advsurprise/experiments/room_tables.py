"""Tables of the runs in room worlds with the paper's settings (docs/results/rooms_h200.csv), and of the zoo."""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from advsurprise import zoo
from advsurprise.experiments.cells import markdown, over_seeds, read_csv, seed_means, with_interval
from advsurprise.experiments.figure import LAST

NAMES = {
    "as": "adversarial-surprise",
    "as-round": "adversarial-surprise, scope=round",
    "rnd": "rnd",
    "asp": "asp",
    "asp-cell": "asp, goal=cell",
    "smirl": "smirl",
}


def ends(world: str, variants: Sequence[str], columns: dict[str, tuple[str, int]]) -> Callable[[pathlib.Path], str]:
    """Table of several methods in a world: means over the last tenth of training, intervals over training seeds."""

    def make(results: pathlib.Path) -> str:
        lines = []
        for variant in variants:
            rows = _rows(results, f"{world}-{variant}")
            last = max(row["step"] for row in rows)
            cells = (over_seeds(seed_means(rows, name, LAST * last, last), n) for name, (_, n) in columns.items())
            lines.append([NAMES[variant], *cells])
        return markdown(["method", *(head for head, _ in columns.values())], lines)

    return make


def emergence(world: str, columns: dict[str, tuple[str, int]], points: int = 8) -> Callable[[pathlib.Path], str]:
    """Table of measures of one run over training: `points` rows, each the mean since the previous row."""

    def make(results: pathlib.Path) -> str:
        rows = _rows(results, f"{world}-as")
        last = max(row["step"] for row in rows)
        lines = []
        for index in range(points):
            start, end = last * index / points, last * (index + 1) / points
            cells = (over_seeds(seed_means(rows, name, start, end), n) for name, (_, n) in columns.items())
            lines.append([f"{end / 1e6:.1f}M", *cells])
        return markdown(["steps", *(head for head, _ in columns.values())], lines)

    return make


def settings(results: pathlib.Path) -> str:
    """Table of variants of Adversarial Surprise, on seeds that no figure uses."""
    rows = read_csv(results / "rooms_settings_h200.csv")
    names = {
        "tune-as-16": "turns of 16",
        "tune-as-16-mb1024": "turns of 16, ppo.minibatch=1024",
        "tune-as-8": "turns of 8",
        "tune-as-q75": "quiet=0.75",
        "tune-as-round-16": "scope=round, turns of 16",
        "tune-as-round-q75": "scope=round, quiet=0.75",
    }
    lines = []
    for variant, name in names.items():
        mine = [row for row in rows if row["variant"] == variant]
        last = max(row["step"] for row in mine)
        columns = (("end/rooms_episode", 2), ("mean/rooms_episode", 2), ("end/stilled", 2))
        lines.append([name, *(over_seeds(seed_means(mine, column, LAST * last, last), n) for column, n in columns)])
    return markdown(["setting", "rooms per episode", "the same, time mean", "noisy rooms stilled at the end"], lines)


def rewarded(results: pathlib.Path) -> str:
    """Table of PPO on the world's own reward: means over the preceding 0.1M steps."""
    rows = read_csv(results / "task_rooms_cpu.csv")
    columns = {
        "end/rooms_episode": ("rooms visited per episode", 2),
        "end/stilled": ("noisy rooms stilled at the end", 2),
    }
    lines = []
    for reward in dict.fromkeys(row["reward"] for row in rows):
        mine = [row for row in rows if row["reward"] == reward]
        for millions in (0.2, 0.5, 1.0, 2.0):
            last = 1e6 * millions
            cells = (over_seeds(seed_means(mine, name, last - 1e5, last), n) for name, (_, n) in columns.items())
            lines.append([f"`{reward}`", f"{millions}M", *cells])
    return markdown(["reward", "steps", *(head for head, _ in columns.values())], lines)


def agents(results: pathlib.Path) -> str:
    """Table of the agents that ship with the package, from their cards, and what their replays show."""
    lines = []
    for card in zoo.cards():
        about = [f"`{zoo.PREFIX}{card['name']}`", f"{card['method']} in `{card['env']}`", f"{card['steps'] / 1e6:.1f}M"]
        for name in card["shown"]:
            measure = card["measures"][name]
            estimates = [measure[who] for who in ("trained", "random")]
            cells = [with_interval(each["mean"], each["low"], each["high"], 2) for each in estimates]
            lines.append([*about, measure["label"], *cells])
            about = [""] * len(about)
    table = markdown(["agent", "what it is", "steps", "measure", "trained", "random"], lines, left=4)
    seen = "".join(f"- `{zoo.PREFIX}{card['name']}`: {card['sees']}\n" for card in zoo.cards())
    return f"{table}\nWhat one sees in a replay:\n\n{seen}"


def _rows(results: pathlib.Path, variant: str) -> list[dict[str, Any]]:
    return [row for row in read_csv(results / "rooms_h200.csv") if row["variant"] == variant]


EXPLORING = {
    "end/rooms_episode": ("rooms visited per episode", 2),
    "mean/rooms_episode": ("the same, time mean", 2),
    "end/stilled": ("noisy rooms stilled at the end", 2),
    "common_surprise": ("surprise of all observations, nats per step", 1),
}
CONTROLLING = {
    "end/uses": ("switch flips per episode", 2),
    "end/stilled": ("stilled at the end", 2),
    "end/rooms_episode": ("rooms visited per episode", 2),
}
SHUT = {
    "handover/control/first/in_dark": ("in the dark room", 3),
    "handover/control/first/shut_in": ("and the door closed", 3),
    "handover/explore/first/doors_closed": ("door closed when Explore's turn ends", 2),
    "handover/explore/first/in_dark": ("in the dark room when Explore's turn ends", 2),
    "scored_surprise": ("surprise of scored steps, nats", 1),
}
LOCKED = {"handover/control/first/locked_in": ("and the door locked", 3)}

TABLES: dict[str, Callable[[pathlib.Path], str]] = {
    "rooms-four": ends("four", ("as", "as-round", "rnd", "asp", "asp-cell", "smirl"), EXPLORING),
    "rooms-switch": ends("switch", ("as-round", "as", "smirl", "asp", "rnd"), CONTROLLING),
    "rooms-door": emergence("door", SHUT),
    "rooms-lock": emergence("lock", SHUT | LOCKED),
    "as-turns": settings,
    "task-rooms": rewarded,
    "zoo": agents,
}
