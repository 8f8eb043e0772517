"""Makes the tables of the documentation from the rows in docs/results.

    python -m advsurprise.experiments.tables            # writes them
    python -m advsurprise.experiments.tables --check    # lists pages that differ from their rows

A table is written between the lines `<!-- table: NAME -->` and `<!-- end -->` of a page. Intervals are 95%: of training
curves over training seeds (Student's t, or the bootstrap of docs/plots.md), of one policy over its evaluation. If a
file of results has no per-seed numbers, no valid interval can be computed and none is written.
"""

import json
import pathlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tyro

from advsurprise.errors import UserError, nearest
from advsurprise.experiments import claim_tables, game_tables, incentive_tables, room_tables
from advsurprise.experiments.cells import (
    bootstrapped,
    markdown,
    over_seeds,
    played,
    read_csv,
    seed_means,
    with_interval,
)

BLOCK = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
MEANS_ONLY = (
    "Means alone: these rows hold no training seed's own numbers, and an interval over the pairs of training and "
    "evaluation seeds would be too narrow."
)
COMPARED = ("adversarial-surprise", "rnd", "asp", "random", "agac", "smirl")
ROOMS, STILLED = "rooms visited per episode", "noisy rooms stilled at the end"
COMMON, SCORED = "surprise of all observations, nats per step", "surprise of scored steps, nats"


@dataclass(frozen=True)
class Settings:
    """Pages and mode."""

    docs: pathlib.Path = pathlib.Path("docs")
    """Folder of the documentation, with the rows in results/."""
    check: bool = False
    """Write nothing; exit with code 1 if a page differs from its rows."""


# ----------------------------------------------------------------------------------------------------- tables


def comparison_small(results: pathlib.Path) -> str:
    rows = read_csv(results / "comparison_small_cpu.csv")
    last = {(row["metric"], row["method"]): row for row in rows if row["step"] == max(each["step"] for each in rows)}
    columns = {"end/rooms_episode": (ROOMS, 2), "end/stilled": (STILLED, 3), "mean/surprise": (COMMON, 1)}
    lines = [
        [method, *(_point(last[column, method], digits) for column, (_, digits) in columns.items())]
        for method in dict.fromkeys(row["method"] for row in rows)
    ]
    return markdown(["method", *(head for head, _ in columns.values())], lines)


def _point(row: dict[str, Any], digits: int) -> str:
    return with_interval(row["iqm"], row["low"], row["high"], digits)


def comparison_long(results: pathlib.Path) -> str:
    rows = read_csv(results / "comparison_h200.csv")
    end = max(row["step"] for row in rows)
    columns = {
        "end/rooms_episode": (ROOMS, 2),
        "end/stilled": (STILLED, 3),
        "mean/surprise": (COMMON, 1),
        "end/dark_steps": ("steps in dark rooms per episode", 0),
    }
    lines = []
    for method in COMPARED:
        mine = [row for row in rows if row["method"] == method]
        cells = (bootstrapped(seed_means(mine, column, end - 1, end), n) for column, (_, n) in columns.items())
        lines.append([method, *cells])
    return markdown(["method", *(head for head, _ in columns.values())], lines)


def cross(file: str, columns: dict[str, tuple[str, int]], *, interval: bool) -> Callable[[pathlib.Path], str]:
    """Table of pairings: with an interval over evaluation seeds for one training seed, else only means."""

    def make(results: pathlib.Path) -> str:
        result = json.loads((results / file).read_text())
        roles = result["roles"]
        rows = [row for row in result["cross"] if all(row["measures"][c]["mean"] is not None for c in columns)]
        lines = [
            [*(row[role] for role in roles)]
            + [played(row["measures"], column, digits, interval=interval) for column, (_, digits) in columns.items()]
            for row in rows
        ]
        heads = [role.capitalize() for role in roles] + [head for head, _ in columns.values()]
        table = markdown(heads, lines, left=len(roles))
        return table if interval else f"{table}\n{MEANS_ONLY}\n"

    return make


def players(
    file: str, columns: dict[str, tuple[str, int]], *, interval: bool, greedy: bool = True
) -> Callable[[pathlib.Path], str]:
    """Table of an evaluation of trained, greedy and random players."""

    def make(results: pathlib.Path) -> str:
        result = json.loads((results / file).read_text())
        names = {"measures": "trained", **({"greedy": "trained, greedy"} if greedy else {}), "random": "random"}
        lines = [
            [name, *(played(result[key], column, digits, interval=interval) for column, (_, digits) in columns.items())]
            for key, name in names.items()
        ]
        table = markdown(["player", *(head for head, _ in columns.values())], lines)
        return table if interval else f"{table}\n{MEANS_ONLY}\n"

    return make


def long_run(results: pathlib.Path) -> str:
    rows = read_csv(results / "as_rooms_four_h200_long.csv")
    columns = {"surprise": (SCORED, 1), "end/rooms_episode": (ROOMS, 2), "end/stilled": (STILLED, 2)}
    lines = []
    for millions in (3, 10, 25, 50, 100, 150, 200, 272):
        first, last = 1e6 * max(0, millions - 5), 1e6 * millions + 1e6 * (millions == 272)
        cells = [over_seeds(seed_means(rows, column, first, last), n) for column, (_, n) in columns.items()]
        lines.append([f"{millions}M", *cells])
    return markdown(["steps", *(head for head, _ in columns.values())], lines, left=0)


SETTINGS = {
    "base": "defaults",
    "norm": "ppo.normalise_advantage=true",
    "lowent": "ppo.entropy_coef=0.001",
    "normlowent": "ppo.normalise_advantage=true, ppo.entropy_coef=0.003",
    "lr1e3": "ppo.lr=1e-3",
    "wide": "256 bodies x 128 steps, ppo.minibatch=2048",
    "round": "method.scope=round, ppo.normalise_advantage=true",
}


def settings_short(results: pathlib.Path) -> str:
    rows = read_csv(results / "as_settings_h200.csv")
    columns = {"surprise": (SCORED, 1), "end/rooms_episode": (ROOMS, 2), "end/stilled": (STILLED, 2)}
    lines = []
    for name, setting in SETTINGS.items():
        mine = [row for row in rows if row["setting"] == name]
        cells = (over_seeds(seed_means(mine, column, 1.8e6 - 1, 2.0e6), n) for column, (_, n) in columns.items())
        lines.append([setting, *cells])
    return markdown(["setting", *(head for head, _ in columns.values())], lines)


def settings_long(results: pathlib.Path) -> str:
    rows = read_csv(results / "as_settings_h200_long.csv")
    columns = {"end/rooms_episode": "rooms", "end/stilled": "stilled"}
    lines = []
    for setting in dict.fromkeys(row["setting"] for row in rows):
        mine = [row for row in rows if row["setting"] == setting]
        reached = max(row["step"] for row in mine)
        for column, head in columns.items():
            cells = [
                over_seeds(seed_means(mine, column, at - 5e6, at), 2) if reached >= at else "–"
                for at in (25e6, 36e6, 50e6, 90e6)
            ]
            lines.append([setting, head, *cells])
    return markdown(["setting", "", "25M", "36M", "50M", "90M"], lines, left=2)


def adversary(results: pathlib.Path) -> str:
    rows = read_csv(results / "agac_adversary.csv")
    columns = ("adversary/kl", "adversary/kl_uniform", "adversary/likelihood", "adversary/accuracy", "agent/entropy")
    lines = []
    for setting in dict.fromkeys(row["setting"] for row in rows):
        for seed in (0, 1):
            mine = [row for row in rows if (row["setting"], row["seed"]) == (setting, seed)]
            steps = sorted(row["step"] for row in mine)
            kl, uniform, likelihood, accuracy, entropy = (
                seed_means(mine, column, steps[-4], steps[-1])[0] for column in columns
            )
            name = setting if setting == "defaults" else f"`--set method.{setting}`"
            shares = f"{1 - kl / uniform:.0%}", f"{likelihood:.3f}", f"{accuracy:.3f}", f"{entropy:.2f}"
            lines.append([name, str(seed), f"{kl:.3f}", f"{uniform:.3f}", *shares])
    heads = ("KL to the adversary", "KL to uniform", "explained", "likelihood", "accuracy", "entropy of the actor")
    return markdown(["setting", "seed", *heads], lines)


def counts(results: pathlib.Path) -> str:
    without = [row for row in read_csv(results / "comparison_h200.csv") if row["method"] == "agac"]
    end = max(row["step"] for row in without)
    rows = read_csv(results / "agac_counts_cpu.csv")
    steps = sorted({row["step"] for row in rows})
    lines = [
        [
            "`counts=0`, after 8M steps ([comparison](../comparison.md))",
            over_seeds(seed_means(without, "end/rooms_episode", end - 1, end), 2),
            "not kept",
        ],
        [
            "`counts=0.1`, last three of 36 updates, and rising",
            *(
                over_seeds(seed_means(rows, f"{when}/rooms_episode", steps[-4], steps[-1]), 2)
                for when in ("end", "mean")
            ),
        ],
    ]
    return markdown(["", ROOMS, "rooms visited so far, time mean"], lines)


def first_stop(results: pathlib.Path) -> str:
    rows = json.loads((results / "asp_first_stop.json").read_text())["rows"]
    solved = {(row["alice"], row["bob"]): row["measures"]["solved"]["mean"] for row in rows}
    kinds = {"random": "random", "0.5": "P = 0.5", "0.1": "P = 0.1", "0.05": "P = 0.05"}
    lines = [[name, *(f"{solved[alice, bob]:.2f}" for bob in kinds)] for alice, name in kinds.items()]
    return markdown(["Alice \\ Bob", *kinds.values()], lines) + f"\n{MEANS_ONLY}\n"


def noisy_tv(results: pathlib.Path) -> str:
    rows = read_csv(results / "rnd_noisy_tv.csv")
    kinds = {
        "dark": "in the dark room, no light in view",
        "mixed": "in the dark room, lights seen through the door",
        "noisy": "in the noisy room",
    }
    lines = []
    for kind, name in kinds.items():
        share = np.mean([row[f"{kind}/share"] for row in rows])
        spans = ((0, 1), (10, 20), (40, 50), (90, 100))
        errors = (np.mean([row[f"{kind}/error"] for row in rows[slice(*span)]]) for span in spans)
        lines.append([name, f"{share:.0%}", *(f"{error:.2f}" for error in errors)])
    return markdown(["observations", "share of steps", "update 1", "11 to 20", "41 to 50", "91 to 100"], lines)


def rnd_sweep(results: pathlib.Path) -> str:
    rows = json.loads((results / "rnd_sweep_h200.json").read_text())
    columns = {"intrinsic/raw": 2, "end/rooms_episode": 2, "end/stilled": 2, "agent/entropy": 2}
    lines = []
    for setting in sorted({row["setting"] for row in rows}, reverse=True):
        mine = [row for row in rows if row["setting"] == setting]
        entropy, clip, rate = re.fullmatch(r"e(.*?)-c(.*?)-l(.*)", setting).groups()  # pyright: ignore[reportOptionalMemberAccess]
        lines.append(
            [entropy, clip, rate, *(over_seeds([row[name] for row in mine], n) for name, n in columns.items())]
        )
    fields = ("`ppo.entropy_coef`", "`ppo.clip`", "`ppo.lr`")
    return markdown([*fields, "error r, its objective", ROOMS, STILLED, "entropy of the policy"], lines, left=0)


PAIRED = {
    "log_prob": ("Control's log-probability per scored step", 2),
    "end/rooms_episode": (ROOMS, 2),
    "mean/rooms_episode": ("rooms visited so far, time mean", 2),
}
STILLING = {"end/stilled": (STILLED, 2), "mean/stilled": ("noisy rooms stilled, time mean", 2)}
TABLES: dict[str, Callable[[pathlib.Path], str]] = {
    "comparison-small": comparison_small,
    "comparison-long": comparison_long,
    "as-cross-cpu": cross("as_rooms_four_cpu_cross.json", PAIRED, interval=True),
    "as-cross-h200": cross("as_rooms_four_h200_cross.json", PAIRED, interval=False),
    "as-long": long_run,
    "as-cross-long": cross("as_rooms_four_h200_long_cross.json", PAIRED | STILLING, interval=False),
    "as-settings": settings_short,
    "as-settings-long": settings_long,
    "agac-adversary": adversary,
    "agac-counts": counts,
    "asp-cross": cross(
        "asp_quiet_cpu_cross.json",
        {
            "solved": ("solved", 2),
            "time_alice": ("t_A", 1),
            "time_bob": ("t_B", 1),
            "end/rooms_episode": ("rooms at the end of the game", 2),
            "mean/rooms_episode": ("rooms, time mean", 2),
        },
        interval=True,
    ),
    "asp-first-stop": first_stop,
    "rnd-noisy-tv": noisy_tv,
    "rnd-sweep": rnd_sweep,
    **room_tables.TABLES,
    **claim_tables.TABLES,
    **incentive_tables.TABLES,
    **game_tables.TABLES,
    "smirl-dark": players(
        "smirl_dark_cpu.json",
        {"log_prob": ("log-probability per step", 3), "end/place": ("place at the end (1 is the dark)", 3)},
        interval=False,
    ),
    "smirl-door": players(
        "smirl_door_cpu.json",
        {
            "log_prob": ("log-probability per step", 2),
            "end/dark_steps": ("steps in the dark, of 96", 1),
            "end/doors_closed": ("doors closed at the end", 2),
            "mean/doors_closed": ("doors closed, time mean", 2),
        },
        interval=False,
        greedy=False,
    ),
    "task-door-key": players(
        "task_door_key_cpu.json",
        {"end/episode_return": ("return", 3), "end/episode_length": ("steps per episode", 1)},
        interval=True,
    ),
}
"""All tables by name."""


# ------------------------------------------------------------------------------------------------------- pages


def remade(page: str, results: pathlib.Path) -> str:
    """A page with its tables remade from the rows."""

    def block(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in TABLES:
            raise UserError(f"unknown table {nearest(name, TABLES)}")
        return f"{match[1]}{TABLES[name](results)}{match[3]}"

    return BLOCK.sub(block, page)


def pages(docs: pathlib.Path) -> list[pathlib.Path]:
    """Pages with such tables."""
    return [path for path in sorted(docs.rglob("*.md")) if BLOCK.search(path.read_text())]


def main(settings: Settings) -> None:
    """Writes every table, or checks them."""
    stale = []
    for path in pages(settings.docs):
        before = path.read_text()
        after = remade(before, settings.docs / "results")
        if after != before:
            stale.append(path)
            print(f"{path}: {'differs from its rows' if settings.check else 'written'}")
        if after != before and not settings.check:
            path.write_text(after)
    if settings.check and stale:
        raise SystemExit(1)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
