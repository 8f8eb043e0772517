"""Tables of the rewards of scripted players, from results/incentive (docs/incentive.md)."""

import functools
import pathlib
from collections.abc import Callable, Sequence

import numpy as np

from advsurprise.experiments.cells import markdown, over_seeds
from advsurprise.experiments.figure import Results
from advsurprise.experiments.incentive import (
    DOOR_32,
    FOUR_32,
    LOCK_32,
    NOISY_32,
    SCOPES,
    SHORT,
    SWITCH_32,
    Setting,
    of,
)
from advsurprise.experiments.scripted import BEHAVIOURS

WORLDS = (FOUR_32, NOISY_32, SWITCH_32, DOOR_32, LOCK_32)
TURNS = (FOUR_32, *SHORT)


@functools.cache
def _read(docs_results: pathlib.Path) -> Results:
    return Results.read(docs_results.parent.parent / "results" / "incentive")


def pay(scope: str, settings: Sequence[Setting], heads: Sequence[str]) -> Callable[[pathlib.Path], str]:
    """Table of the reward of every behaviour, without steps under an empty model."""

    def make(docs_results: pathlib.Path) -> str:
        results = _read(docs_results)
        lines = []
        for name, behaviour in BEHAVIOURS.items():
            cells = [over_seeds(of(results, setting, scope, name).tolist(), 2) for setting in settings]
            lines += [[behaviour.label, *cells]] if any(cells) else []
        return markdown(["Control", *heads], lines)

    return make


def constant(docs_results: pathlib.Path) -> str:
    """Table of the reward under an empty model in four rooms, and its share if Control does nothing or does best."""
    results, lines = _read(docs_results), []
    for setting in TURNS:
        for scope, best in zip(SCOPES, ("still-repeat", "still-away"), strict=True):
            step = np.mean(of(results, setting, scope, best, "pay") - of(results, setting, scope, best))
            scored = of(results, setting, scope, best, "pay_episode") / of(results, setting, scope, best, "pay")
            shares = [step / np.mean(of(results, setting, scope, name, "pay")) for name in ("nothing", best)]
            cells = [f"{step:.1f}", f"{step * np.mean(scored):.0f}", *(f"{100 * share:.0f}%" for share in shares)]
            lines.append([str(setting.turn), f"the {scope}'s", *cells])
    head = ["turns", "buffer", "nats per scored step", "nats per episode", "share: does nothing", "share: does best"]
    return markdown(head, lines, left=2)


def done(docs_results: pathlib.Path) -> str:
    """Table of noisy rooms stilled and rooms visited."""
    results, lines = _read(docs_results), []
    heads = ["rooms/four", "all noisy", "rooms/switch", "four, turns of 16", "four, turns of 8"]
    for name in ("nothing", "random", "still", "away", "still-away"):
        settings = (FOUR_32, NOISY_32, SWITCH_32, *SHORT)
        stilled, rooms = (
            [of(results, each, "round", name, column) for each in settings] for column in ("stilled", "rooms")
        )
        cells = [f"{np.nanmean(a):.2f}, {np.mean(b):.1f}" for a, b in zip(stilled, rooms, strict=True)]
        lines.append([BEHAVIOURS[name].label, *cells])
    return markdown(["stilled at the end, rooms visited", *heads], lines)


def explore(docs_results: pathlib.Path) -> str:
    """Table of Explore's gain from walking instead of staying, in nats per scored step."""
    results, lines = _read(docs_results), []
    for name, behaviour in BEHAVIOURS.items():
        cells = []
        for setting in (FOUR_32, SWITCH_32):
            stays = setting._replace(explore="stays")
            gains = [of(results, stays, scope, name) - of(results, setting, scope, name) for scope in SCOPES]
            cells += [over_seeds(each.tolist(), 2) for each in gains]
        lines.append([behaviour.label, *cells])
    heads = [f"{world}, {scope}'s" for world in ("rooms/four", "rooms/switch") for scope in SCOPES]
    return markdown(["against Control that", *heads], lines)


_WORLD_HEADS = ("rooms/four", "rooms/four, all noisy", "rooms/switch", "rooms/door", "rooms/lock")
_TURN_HEADS = ("turns of 32", "turns of 16", "turns of 8")
TABLES: dict[str, Callable[[pathlib.Path], str]] = {
    "incentive-episode": pay("episode", WORLDS, _WORLD_HEADS),
    "incentive-round": pay("round", WORLDS, _WORLD_HEADS),
    "incentive-turns-episode": pay("episode", TURNS, _TURN_HEADS),
    "incentive-turns-round": pay("round", TURNS, _TURN_HEADS),
    "incentive-constant": constant,
    "incentive-done": done,
    "incentive-explore": explore,
}
