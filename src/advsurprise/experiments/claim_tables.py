"""Tables of claims, tuning and variants for the documentation."""

import json
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from advsurprise.experiments import tuning, variants
from advsurprise.experiments.cells import bootstrapped, markdown, over_seeds, read_csv, seed_means
from advsurprise.experiments.figure import LAST, Results
from advsurprise.experiments.reproduce import CLAIMS, FIGURES
from advsurprise.experiments.variants_plot import DRAWN

PUBLISHED = (
    *("coverage", "control", "emergence", "horizon", "incentive", "two-models", "whole-turn"),
    *("atari-zero-shot", "doom-zero-shot", "doom-coverage"),
)
"""Figures whose claims are in the documentation."""
ROOMS, STILLED = "end/rooms_episode", "end/stilled"
OWN_SCALE, STOPS = "own-scale", " explore-"
"""In the names of variants in which Explore's reward has its own scale, and in which Explore stops learning first."""
OTHER_WEIGHTS = {
    "turns-12 round-models falling-10M": "quiet steps cost Control nothing",
    "turns-12 round-models quiet-0.3 falling-10M": "quiet steps cost Control three tenths",
    "turns-12 round unquiet falling-10M": "quiet steps cost Control as much as scored ones",
}
"""Variants in which Explore is paid for the whole turn, and quiet steps cost Control less or more than a tenth."""
EARLIER = {
    "shared_scale_h200": "turns of 12 and 4, the whole turn paid, constant rate",
    "own_scale_h200": "the same, Explore's own scale",
}
"""Settings of earlier runs with two models on the seeds of the figures, by the file that holds them."""
FALLING_ROOMS, TURN = "turns-8 own-scale scored falling-10M", 8
"""A run in which rooms fall, and the steps of its turns."""


def claims(figure: str) -> Callable[[pathlib.Path], str]:
    """Table of the claims of one figure, with the measured values."""

    def make(results: pathlib.Path) -> str:
        every = json.loads((results.parents[1] / "results" / CLAIMS).read_text())
        head = ("claim", "measured", "ours [95% interval]", "better half of the seeds", "verdict")
        rows = [_row(each) for each in every if each["figure"] == figure]
        return markdown(head, rows, left=2)

    return make


def _row(claim: dict[str, Any]) -> tuple[str, ...]:
    ours, low, high, half = (_number(claim[name]) for name in ("ours", "low", "high", "top_half"))
    interval = "none" if claim["ours"] is None else ours if ours == low == high else f"{ours} [{low}, {high}]"
    measure = claim["measure"].replace("difference of interquartile means", "difference")
    return claim["claim"], measure, interval, half, f"**{claim['verdict']}**"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value / 1e6:.2f}M" if abs(value) > 1e4 else f"{value + 0.0:.3f}"


def measured(figure: str, columns: dict[str, str]) -> Callable[[pathlib.Path], str]:
    """Table of measures of every arm's frozen policies."""

    def make(results: pathlib.Path) -> str:
        read = Results.read(results.parents[1] / "results" / figure)
        rows = []
        for world, arm in FIGURES[figure].runs:
            cells = [bootstrapped(read.of_frozen(world, arm, column).tolist(), 2) for column in columns]
            rows.append((world, FIGURES[figure].arms[arm].label, *cells))
        return markdown(("world", "method", *columns.values()), rows, left=2)

    return make


def tuned(file: str) -> Callable[[pathlib.Path], str]:
    """Table of every setting's value for its method; the chosen one in bold."""

    def make(results: pathlib.Path) -> str:
        rows = []
        for method, each in json.loads((results / file).read_text())["methods"].items():
            chosen = tuning.best(each["worth"])
            for name, values in each["worth"].items():
                cell = _worth(values)
                rows.append((method, name, f"**{cell}**" if name == chosen else cell))
        return markdown(("method", "setting", "worth by its own objective"), rows, left=2)

    return make


def _worth(values: list[float]) -> str:
    """Mean and interval over seeds; of two seeds, whose interval says nothing, the mean and both."""
    if len(values) > 2:
        return over_seeds(values, 2)
    return f"{np.mean(values):,.4g} ({', '.join(f'{value:,.4g}' for value in values)})"


def varied(results: pathlib.Path) -> str:
    """Table of rooms visited and stilled by every variant, at the end of training."""
    rows = read_csv(results / "variants.csv")
    return _variants(rows, dict.fromkeys(row["arm"] for row in rows))


def two_models(results: pathlib.Path) -> str:
    """The same for the variants with two models and those they are compared with."""
    rows = read_csv(results / "variants.csv")
    further = (row["arm"] for row in rows if "two-models" in row["arm"])
    return _variants(rows, dict.fromkeys((*DRAWN, *further)))


def own_scale(results: pathlib.Path) -> str:
    """Rooms visited and stilled over training by the variants in which Explore's reward has its own scale."""
    rows = [row for row in read_csv(results / "variants.csv") if OWN_SCALE in row["arm"]]
    return _over_training([row for row in rows if STOPS not in row["arm"]], (6e6, 10e6, 15e6, 20e6))


def explore_first(results: pathlib.Path) -> str:
    """Rooms visited and stilled over training by the variants in which Explore stops learning before Control."""
    rows = [row for row in read_csv(results / "variants.csv") if STOPS in row["arm"]]
    return _over_training(rows, (4e6, 6e6, 8e6, 10e6, 13e6), before=1e6)


def whole_turn(results: pathlib.Path) -> str:
    """The same for the ten seeds in which Explore is paid for the whole turn, and with other weights on quiet steps."""
    ten = read_csv(results.parents[1] / "results" / "whole-turn" / "rows.csv")
    rows = [row | {"arm": "ten seeds of the figure"} for row in ten if row["arm"] == "whole-turn"]
    rows += [
        row | {"arm": OTHER_WEIGHTS[row["arm"]]}
        for row in read_csv(results / "variants.csv")
        if row["arm"] in OTHER_WEIGHTS
    ]
    return _over_training(rows, (2e6, 4e6, 6e6, 8e6, 10e6), before=1e6)


def paid_by_both(results: pathlib.Path) -> str:
    """The same for variants in which Explore was paid under both models."""
    return _over_training(read_csv(results / "two_models_both_h200.csv"), (6e6, 10e6, 15e6, 20e6))


def long_own_scale(results: pathlib.Path) -> str:
    """Rooms visited and stilled by ten seeds over 50M steps, beside one model with the same turns and batch."""
    return _over_training(read_csv(results / "two_models_own_scale_h200.csv"), (10e6, 20e6, 30e6, 40e6, 50e6))


def _over_training(rows: Sequence[dict[str, Any]], ends: Sequence[float], before: float = 2e6) -> str:
    """Rooms visited and stilled by every arm, means over the `before` steps before each of `ends`."""
    made = []
    for name in dict.fromkeys(row["arm"] for row in rows):
        mine = [row for row in rows if row["arm"] == name]
        for column, label in ((ROOMS, "rooms"), (STILLED, "stilled")):
            cells = [over_seeds(seed_means(mine, column, end - before, end), 2) for end in ends]
            made.append((name, label, *cells))
    return markdown(("variant", "", *(f"{end / 1e6:.0f}M" for end in ends)), made, left=2)


def earlier_two_models(results: pathlib.Path) -> str:
    """What frozen policies of ten seeds with earlier settings of two models did, beside one model each time."""
    made = []
    for file, settings in EARLIER.items():
        rows = read_csv(results / f"two_models_{file}_frozen.csv")
        for arm in dict.fromkeys(row["arm"] for row in rows):
            mine = [row for row in rows if row["arm"] == arm]
            name, used = ("one model", "same turns and batch") if arm == "as-large" else ("two models", settings)
            cells = [bootstrapped([row[column] for row in mine], 2) for column in (ROOMS, STILLED)]
            made.append((name, used, f"{mine[0]['step'] / 1e6:.0f}M", *cells))
    return markdown(("variant", "settings", "steps", "rooms per episode", "stilled"), made, left=2)


def falling_rooms(results: pathlib.Path) -> str:
    """One run over training: rooms, steps in dark rooms, and what Explore is paid per turn."""
    rows = [row for row in read_csv(results / "two_models_fall_cpu.csv") if row["arm"] == FALLING_ROOMS]
    made = []
    for end in (2e6, 3e6, 4e6, 5e6, 6e6, 8e6, 10e6):
        now = [row for row in rows if end - 1e6 < row["step"] <= end]
        rooms, stilled, dark = (_mean(now, column) for column in (ROOMS, STILLED, "end/dark_steps"))
        pay = TURN * _mean(now, "explore/reward") / _mean(now, "explore_reward_scale")
        made.append((f"{end / 1e6:.0f}M", f"{rooms:.2f}", f"{stilled:.2f}", f"{dark:.0f}", f"{pay:.0f}"))
    return markdown(("steps", "rooms", "stilled", "steps in dark rooms", "Explore's pay per turn, nats"), made)


def _mean(rows: Sequence[dict[str, Any]], column: str) -> float:
    return float(np.mean([row[column] for row in rows]))


def whole_turn_pay(results: pathlib.Path) -> str:
    """What Explore earns by where the body is, over training seeds."""
    made = []
    for run in json.loads((results / "whole_turn_pay_cpu.json").read_text()):
        for place in (name for name in run["rows"][0] if name != "seed"):
            there = [row[place] for row in run["rows"]]
            pay = over_seeds([each["pay"] for each in there], 1)
            made.append((run["run"], place, pay, f"{sum(each['steps'] for each in there):,}"))
    return markdown(("run", "where the body is", "Explore's pay per step, nats", "steps"), made, left=2)


def pay_by_room(results: pathlib.Path) -> str:
    """Explore's mean pay for a step of Control, by where the body is, for every run and training seed."""
    made = []
    for run in json.loads((results / "pay_by_room_cpu.json").read_text()):
        for row in run["rows"]:
            places = [place for name, place in row.items() if name != "seed"]
            made.append((run["run"], str(row["seed"]), *(f"{each['pay']:.0f} ({each['steps']})" for each in places)))
    head = ("run", "seed", "dark room", "noisy room, lights on", "noisy room, stilled")
    return markdown(head, made, left=2)


def _variants(rows: Sequence[dict[str, Any]], names: Iterable[str]) -> str:
    made = []
    for name in names:
        mine = [row for row in rows if row["arm"] == name]
        last = max(row["step"] for row in mine)
        cells = [over_seeds(seed_means(mine, column, LAST * last, last), 2) for column in (ROOMS, STILLED)]
        made.append((name, variants.words(name), f"{last / 1e6:.1f}M", *cells))
    head = ("variant", "settings", "steps", "rooms visited per episode", "noisy rooms stilled at the end")
    return markdown(head, made, left=2)


TABLES: dict[str, Callable[[pathlib.Path], str]] = {
    **{f"claims-{name}": claims(name) for name in PUBLISHED},
    "measured-coverage": measured(
        "coverage", {ROOMS: "rooms per episode", "mean/rooms_episode": "rooms so far, time mean", STILLED: "stilled"}
    ),
    "measured-control": measured(
        "control", {"end/uses": "switch flips", STILLED: "stilled", ROOMS: "rooms per episode"}
    ),
    "measured-horizon": measured("horizon", {ROOMS: "rooms per episode", STILLED: "stilled"}),
    "measured-two-models": measured("two-models", {ROOMS: "rooms per episode", STILLED: "stilled"}),
    "measured-whole-turn": measured("whole-turn", {ROOMS: "rooms per episode", STILLED: "stilled"}),
    "variants-whole-turn": whole_turn,
    "whole-turn-pay": whole_turn_pay,
    "tuning": tuned("tuning.json"),
    "tuning-doom": tuned("tuning_doom.json"),
    "variants": varied,
    "variants-two-models": two_models,
    "variants-own-scale": own_scale,
    "variants-explore-first": explore_first,
    "two-models-earlier": earlier_two_models,
    "variants-both": paid_by_both,
    "pay-by-room": pay_by_room,
    "falling-rooms": falling_rooms,
    "two-models-own-scale": long_own_scale,
}
