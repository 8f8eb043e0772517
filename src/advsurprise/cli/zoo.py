"""`advsurprise zoo`: the trained agents that ship with the package."""

import textwrap
from typing import Any

from advsurprise import zoo

HEADS = ("name", "method", "world", "steps", "size")
LABEL_WIDTH, CELL_WIDTH = 62, 16
WIDTH = 2 + LABEL_WIDTH + 2 * CELL_WIDTH


def list_agents() -> dict[str, Any]:
    """The card of every agent."""
    return {"agents": zoo.cards()}


def text(result: dict[str, Any]) -> str:
    """Every agent with its most telling measures, next to those of random actions."""
    lines = [_row(*HEADS), *(line for card in result["agents"] for line in _agent(card))]
    name = result["agents"][0]["name"] if result["agents"] else "NAME"
    return "\n".join(
        [
            *lines,
            "",
            "mean and 95% interval over episodes; only one seed was trained for each agent",
            f"Watch one:    advsurprise replay {zoo.PREFIX}{name} --open",
            f"Evaluate one: advsurprise eval {zoo.PREFIX}{name}",
        ]
    )


def _row(name: str, method: str, world: str, steps: str, size: str) -> str:
    return f"{name:22}{method:24}{world:16}{steps:>10}{size:>12}"


def _agent(card: dict[str, Any]) -> list[str]:
    steps, size = f"{card['steps'] / 1e6:.1f}M", f"{card['bytes'] / 1e6:.2f} MB"
    shown = [card["measures"][name] for name in card["shown"]]
    return [
        "",
        _row(card["name"], card["method"], card["env"], steps, size),
        *textwrap.wrap(card["sees"], WIDTH, initial_indent="  ", subsequent_indent="  "),
        f"  {'':{LABEL_WIDTH}}{'trained':>{CELL_WIDTH}}{'random':>{CELL_WIDTH}}",
        *(f"  {each['label']:{LABEL_WIDTH}}{_cell(each['trained'])}{_cell(each['random'])}" for each in shown),
    ]


def _cell(estimate: dict[str, Any]) -> str:
    mean, half = estimate["mean"], (estimate["high"] - estimate["low"]) / 2
    return f"{mean:.2f} ± {half:.2f}".rjust(CELL_WIDTH)
