"""Makes one of the zoo's agents from a run of one seed: freezes it, lets it play, and writes its card.

    python -m advsurprise.experiments.agents runs/four --name rooms-four --shown end/rooms_episode --sees "…"

The command on a card trains the run again.
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
"""Most bytes of an agent's tensors."""
EPISODES, SEEDS = 200, 10
"""Episodes that an agent is evaluated in, and evaluation seeds that share them."""


@dataclass(frozen=True)
class Settings:
    """Which run, and what its card says."""

    run: Annotated[tyro.conf.Positional[pathlib.Path], tyro.conf.arg(metavar="RUN")]
    """Folder of the run."""
    name: str
    """Name of the agent."""
    shown: tuple[str, ...]
    """Measures that tell most about it, as `advsurprise eval RUN --json` calls them."""
    sees: str
    """What a person sees in its replay, in a sentence or two."""
    into: pathlib.Path = zoo.AGENTS
    """Folder of all agents."""


def make(settings: Settings) -> dict[str, Any]:
    """Writes the agent's folder and returns its card."""
    run = api.load(settings.run)
    if len(run.agents) != 1:
        raise UserError(f"{settings.run} has {len(run.agents)} seeds; an agent of the zoo is the only one of its run")
    versions = read_json(settings.run / CONFIG)["versions"]
    folder = settings.into / settings.name
    shutil.rmtree(folder, ignore_errors=True)
    record = checkpoint.read_record(freeze(run.config, run.agents, run.updates, folder, made_with=versions))
    if record["tensors"]["bytes"] > MAX_BYTES:
        raise UserError(f"{settings.name} has {record['tensors']['bytes']} bytes; an agent has at most {MAX_BYTES}")
    # What plays is what ships.
    card = card_of(api.load(folder), settings) | {"versions": versions, **_size(record)}
    files.write(folder / zoo.CARD, json.dumps(card, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    return card


def card_of(agent: api.Trained, settings: Settings) -> dict[str, Any]:
    """What an agent is, how it was made and how it plays."""
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
        "chosen": "the only seed that was trained with these settings; not the best of several",
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
    """Six digits are enough for a card; null where nothing was measured."""

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
