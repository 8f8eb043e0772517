"""How lives end in Assault: every shot heats the cannon, and a full heat bar costs a life, as a hit does. Plays
scripted players and the frozen policies of runs.

python -m advsurprise.experiments.assault_heat [RUN ...]    # prints JSON, one row per player or training seed
"""

import dataclasses
import json
import pathlib
from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro
from jaxtyping import UInt8

from advsurprise.api import load
from advsurprise.envs.host.atari_body import make
from advsurprise.errors import UserError
from advsurprise.evaluation.record import Episode
from advsurprise.experiments.runs import say, script
from advsurprise.training.run import keep_compiled

GAME, WORLD, SIZE = "assault", "atari/assault", (84, 84)
BAR = np.s_[77:79, 50:84]
"""Pixels of an observation that the full heat bar covers."""
BRIGHT = 60
"""Bar pixels are brighter than this, and the black beside it is not."""
FULL = 33
"""Columns of the bar, of 34, from which it counts as full."""
LAST_STEPS = 30
"""A life ended by heat if the bar was full within its last steps: the bar empties in the flash that follows."""
LONGEST = 1500
"""Steps after which a scripted player's life is no longer followed."""
PLAYERS = {
    "random": None,
    "stands still": ("NOOP",),
    "walks at random, never shoots": ("LEFT", "RIGHT"),
    "always shoots": ("UP",),
}
"""The actions that each scripted player draws from; None for all."""


@dataclasses.dataclass(frozen=True)
class Heat:
    """Who plays, and how many lives."""

    runs: Annotated[tyro.conf.Positional[tuple[pathlib.Path, ...]], tyro.conf.arg(metavar="RUN")] = ()
    """Run folders; a run's lives are followed for 512 steps."""
    lives: int = 60
    """Lives of each scripted player, and of each training seed."""


class Life(NamedTuple):
    """One life."""

    steps: int
    """Its length."""
    ended: bool
    """Whether it ended while it was followed."""
    overheated: bool
    """Whether the bar was full shortly before its end."""


def measure(args: Heat) -> list[dict[str, Any]]:
    """Plays all players; returns one row each."""
    if args.lives < 1:
        raise UserError(f"--lives must be at least 1, not {args.lives}")
    runs = [load(run) for run in args.runs]
    for run, folder in zip(runs, args.runs, strict=True):
        if run.config.env != WORLD:
            raise UserError(f"{folder} is a run in {run.config.env}, not in {WORLD}")
        if (size := run.agents[0].method.spec.observation_shape) != SIZE:
            raise UserError(f"{folder} has images of {size[0]}x{size[1]} pixels; the bar is known at 84x84 only")
    say(f"scripted players: {args.lives} lives each")
    rows = [row(name, scripted(actions, args.lives)) for name, actions in PLAYERS.items()]
    for run in runs:
        say(f"{run.folder}: {args.lives} lives of each training seed")
        for seed, episodes in run.recorded(args.lives).seeds.items():
            rows.append(row(f"{run.config.method}, seed {seed}", map(recorded, episodes)))
    return rows


def scripted(actions: tuple[str, ...] | None, lives: int, *, longest: int = LONGEST) -> list[Life]:
    """Lives of a player that draws from these actions uniformly."""
    body, random = make(GAME), np.random.default_rng(0)
    body.reset(0)
    chosen = [body.action_names.index(name) for name in actions or body.action_names]
    return [_life(body, chosen, random, longest) for _ in range(lives)]


def _life(body: Any, actions: list[int], random: np.random.Generator, longest: int) -> Life:
    seen, ended = [], False
    while not ended and len(seen) < longest:
        step = body.step(int(random.choice(actions)))
        seen.append(heat(step.obs))
        ended = step.terminated or step.truncated
    body.begin()
    return Life(len(seen), ended, ended and max(seen[-LAST_STEPS:]) >= FULL)


def recorded(episode: Episode) -> Life:
    """A recorded life."""
    ended = episode.end == "terminated"
    return Life(len(episode.action), ended, ended and max(map(heat, episode.obs[-LAST_STEPS:])) >= FULL)


def heat(obs: UInt8[np.ndarray, "84 84"]) -> int:
    """Length of the heat bar in pixels."""
    return int((obs[BAR] > BRIGHT).any(axis=0).sum())


def row(player: str, lives: Iterable[Life]) -> dict[str, Any]:
    """A player's lives in numbers."""
    steps, ended, overheated = zip(*lives, strict=True)
    counts = {"lives": len(steps), "ended": sum(ended), "overheated": sum(overheated)}
    return {"player": player, **counts, "steps": float(np.mean(steps))}


def main(args: Heat) -> None:
    """Prints the rows."""
    keep_compiled()
    print(json.dumps(measure(args), indent=1))


if __name__ == "__main__":
    script(main, Heat, __doc__)
