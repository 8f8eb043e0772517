"""Makes a zoo agent from a run of one seed: freezes it, evaluates it and writes its card.

    python -m advsurprise.experiments.agents runs/four --name rooms-four --shown end/rooms_episode --sees "…"

The command on the card trains the run again.
"""

import datetime
import json
import math
import pathlib
import shutil
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from advsurprise import api, zoo
from advsurprise.errors import UserError
from advsurprise.evaluation import labels, provenance
from advsurprise.evaluation.statistics import Estimate
from advsurprise.training import checkpoint, files
from advsurprise.training.folder import CONFIG, read_json
from advsurprise.training.frozen import freeze
from advsurprise.training.run import keep_compiled

MAX_BYTES = 2_000_000
"""Largest size of an agent's tensors."""
EPISODES, SEEDS = 200, 10
"""Evaluation episodes, and the evaluation seeds that share them."""


@dataclass(frozen=True)
class Settings:
    """The run, and text for its card."""

    run: Annotated[tyro.conf.Positional[pathlib.Path], tyro.conf.arg(metavar="RUN")]
    """The run folder."""
    name: str
    """Name of the agent."""
    shown: tuple[str, ...]
    """Its most telling measures, by their names in `advsurprise eval RUN --json`."""
    sees: str
    """What its replay shows, in a sentence or two."""
    chosen: str = "the only seed that was trained with these settings; not the best of several"
    """How its training seed was chosen."""
    into: pathlib.Path = zoo.AGENTS
    """Folder that holds all agents."""


def make(settings: Settings) -> dict[str, Any]:
    """Writes the agent's folder and returns its card."""
    run = api.load(settings.run)
    if len(run.agents) != 1:
        raise UserError(f"{settings.run} has {len(run.agents)} seeds; a zoo agent comes from a run with one seed")
    versions = read_json(settings.run / CONFIG)["versions"]
    folder = settings.into / settings.name
    shutil.rmtree(folder, ignore_errors=True)
    record = checkpoint.read_record(freeze(run.config, run.agents, run.updates, folder, made_with=versions))
    if record["tensors"]["bytes"] > MAX_BYTES:
        raise UserError(f"{settings.name} has {record['tensors']['bytes']} bytes; the limit is {MAX_BYTES}")
    # Evaluates the frozen agent that ships.
    card = card_of(api.load(folder), settings) | {"versions": versions, **_size(record)}
    files.write(folder / zoo.CARD, json.dumps(card, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    return card


def card_of(agent: api.Trained, settings: Settings) -> dict[str, Any]:
    """The card of an agent: what it is, how it was made and how it plays."""
    cfg, method = agent.config, agent.agents[0].method
    table = labels.of_method(method)
    at_handovers = [name for group in table.handovers(method.roles).values() for name in group]
    named = dict.fromkeys([*settings.shown, *table.shown, *at_handovers])
    trained, random = (agent.evaluate(episodes=EPISODES, seeds=SEEDS, player=who) for who in ("trained", "random"))
    return {
        "name": settings.name,
        "method": cfg.method,
        "env": cfg.env,
        "steps": agent.updates * cfg.steps_per_update,
        "updates": agent.updates,
        "seed": cfg.seeds[0],
        "chosen": settings.chosen,
        "sees": settings.sees,
        "command": provenance.train_command({cfg.method: cfg}),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "evaluation": {"episodes": EPISODES, "seeds": SEEDS, "first_seed": api.EVALUATION_SEED},
        "shown": list(settings.shown),
        "measures": {
            name: {"label": table.label(name), "trained": _rounded(trained[name]), "random": _rounded(random[name])}
            for name in named
            if name in trained
        },
    }


def _size(record: dict[str, Any]) -> dict[str, Any]:
    return {"bytes": record["tensors"]["bytes"], "sha256": record["tensors"]["sha256"], "precision": "float32"}


def _rounded(estimate: Estimate) -> dict[str, Any]:
    """An estimate rounded to six digits, with null for nan."""

    def rounded(value: Any) -> Any:
        if not isinstance(value, float):
            return value
        return float(f"{value:.6g}") if math.isfinite(value) else None

    return {name: rounded(value) for name, value in estimate.items()}


def main() -> None:
    keep_compiled()
    card = make(tyro.cli(Settings, description=__doc__))
    print(f"{zoo.PREFIX}{card['name']}: {card['bytes']:,} bytes")
    for name in card["shown"]:
        each = card["measures"][name]
        print(f"  {each['label']:66}{each['trained']['mean']:8.3f}  random {each['random']['mean']:.3f}")


if __name__ == "__main__":
    main()
