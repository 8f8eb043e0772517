"""The command line: one binary, one dataclass per verb.

A verb parses here and works elsewhere: `run` imports what it needs, so that `--help` answers before jax is loaded.
With `--json` a verb prints exactly one JSON object on standard output and nothing else there.
"""

import json
import pathlib
import sys
from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from tyro.conf import OmitSubcommandPrefixes, Positional, UseAppendAction, arg, subcommand

from advsurprise import __version__
from advsurprise.errors import UserError

Json = Annotated[bool, arg(help="Print one JSON object on standard output and nothing else there.")]
Settings = Annotated[
    UseAppendAction[tuple[str, ...]],
    arg(name="set", metavar="FIELD=VALUE", help="Change a field of the world; may be given several times."),
]


@dataclass(frozen=True)
class Envs:
    """List the worlds, or describe and draw one."""

    world: Positional[str | None] = None
    """The world to describe, for example rooms/four; all are listed if left out."""
    png: pathlib.Path | None = None
    """Draw one layout of the world into this file."""
    seed: int = 0
    """Seed of the layout that is drawn."""
    settings: Settings = ()
    json: Json = False

    def run(self) -> None:
        from advsurprise.envs import describe

        if self.world is None and (self.png or self.settings):
            raise UserError("--png and --set need a world, for example: advsurprise envs rooms/four --png four.png")
        if self.world is None:
            _print(describe.listing(), describe.listing_text, as_json=self.json)
        else:
            card = describe.card(self.world, settings=self.settings, png=self.png, seed=self.seed)
            _print(card, describe.card_text, as_json=self.json)


@dataclass(frozen=True)
class BenchWorlds:
    """Steps per second of a room world under random actions, beside Farama MiniGrid in the same run."""

    world: Positional[str] = "rooms/four"
    """The world to time."""
    bodies: tuple[int, ...] = (1, 16, 64, 256, 1024, 4096)
    """Numbers of bodies, a row each."""
    seconds: float = 2.0
    """Wall-clock time to spend on each row after compiling."""
    settings: Settings = ()
    minigrid: bool = True
    """Time Farama MiniGrid's MultiRoom-N4-S5 in one process too."""
    json: Json = False

    def run(self) -> None:
        from advsurprise.bench import worlds

        result = worlds.run(
            self.world,
            settings=self.settings,
            bodies=self.bodies,
            seconds=self.seconds,
            minigrid=self.minigrid,
            tell=_tell,
        )
        _print(result, worlds.text, as_json=self.json)


@dataclass(frozen=True)
class BenchOracle:
    """Play the room worlds side by side with Farama MiniGrid and count the steps on which they differ."""

    steps: int = 200_000
    """Steps in all, shared evenly by the worlds and both view sizes."""
    seed: int = 0
    """Seed of layouts and actions."""
    json: Json = False

    def run(self) -> None:
        from advsurprise.bench import oracle

        result = oracle.run(steps=self.steps, seed=self.seed, tell=_tell)
        _print(result, oracle.text, as_json=self.json)
        if result["mismatches"]:
            raise SystemExit(1)


@dataclass(frozen=True)
class Bench:
    """Measure this machine: speed of the worlds, agreement with Farama MiniGrid."""

    what: Annotated[BenchWorlds, subcommand("worlds")] | Annotated[BenchOracle, subcommand("oracle")]

    def run(self) -> None:
        self.what.run()


@dataclass(frozen=True)
class Theory:
    """Check the paper's theorem world by world: its assumptions, what each objective does, what the game covers."""

    world: Positional[pathlib.Path | None] = None
    """A JSON file with one world (docs/theory.md has the format); the built-in worlds if left out."""
    horizon: int | None = None
    """Steps of Control's turn; the world's own, or the fewest that meet the assumptions, if left out."""
    random: int | None = None
    """Random worlds to check that satisfy the assumptions; 500 if left out, none beside a world of your own."""
    seed: int = 0
    """Seed of the random worlds."""
    figure: pathlib.Path | None = pathlib.Path("theory.png")
    """Draw where each objective spends its time into this file; None for no figure."""
    json: Json = False

    def run(self) -> None:
        from advsurprise.theory import report

        random = (500 if self.world is None else 0) if self.random is None else self.random
        result = report.run(self.world, horizon=self.horizon, random=random, seed=self.seed)
        result = report.draw(result, self.figure) if self.figure else result
        _print(result, report.text, as_json=self.json)


Verb = (
    Annotated[Envs, subcommand("envs")]
    | Annotated[Bench, subcommand("bench")]
    | Annotated[Theory, subcommand("theory")]
)


def main(words: list[str] | None = None) -> None:
    """Entry point of `advsurprise`. Exit codes: 0 done, 1 a check failed, 2 usage, 3 an extra is missing."""
    words = sys.argv[1:] if words is None else words
    if words in (["--version"], ["-V"]):
        print(f"advsurprise {__version__}")
        return
    verb = tyro.cli(
        OmitSubcommandPrefixes[Verb],  # pyright: ignore[reportArgumentType]
        prog="advsurprise",
        description="Explore and Control with Adversarial Surprise: unsupervised RL in stochastic worlds.",
        args=words,
    )
    try:
        verb.run()
    except UserError as error:
        print(f"advsurprise: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except BrokenPipeError:
        raise SystemExit(0) from None


def _tell(line: str) -> None:
    """Progress goes to standard error, so that standard output holds the result alone."""
    print(line, file=sys.stderr, flush=True)


def _print(result: dict[str, Any], text, *, as_json: bool) -> None:
    print(json.dumps(result) if as_json else text(result))
