"""The command line: one binary, one dataclass per verb.

A verb parses here and works elsewhere: `run` imports what it needs, so that `--help` answers before jax is loaded.
With `--json` a verb prints exactly one JSON object on standard output and nothing else there.
"""

import gc
import json
import math
import pathlib
import sys
from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from tyro.conf import OmitSubcommandPrefixes, Positional, UseAppendAction, arg, subcommand

from advsurprise import __version__
from advsurprise.errors import UserError

OBJECTS_BETWEEN_COLLECTIONS = 50_000
"""For Python's garbage collector: with its 700 it takes half a second of the five that a run needs to begin."""
Json = Annotated[bool, arg(help="Print one JSON object on standard output and nothing else there.")]
Settings = Annotated[
    UseAppendAction[tuple[str, ...]],
    arg(name="set", metavar="FIELD=VALUE", help="Change a field of the world; may be given several times."),
]


@dataclass(frozen=True)
class Train:
    """Train a method in a world, or several one after the other. What lies in the folder already is continued."""

    env: str | None = None
    """The world (default rooms/four)."""
    method: str | None = None
    """The method (default adversarial-surprise), or several to compare: a,b,c."""
    steps: str | None = None
    """Environment steps per seed, for example 300k or 2M (default 2M); rounded down to whole updates."""
    seeds: str | None = None
    """Seeds, trained together: 0..4, 0,3,7 or 5 (default 0)."""
    bodies: int | None = None
    """Bodies per seed that act at the same time (default 16)."""
    out: pathlib.Path | None = None
    """Folder of the run (default runs/WORLD-METHOD) or of the comparison (default runs/WORLD-comparison)."""
    config: pathlib.Path | None = None
    """A .json or .toml file of settings; flags and --set win over it."""
    settings: Annotated[
        UseAppendAction[tuple[str, ...]],
        arg(name="set", metavar="FIELD=VALUE", help="Change any field: ppo.lr=1e-4, env.rooms=6, method.quiet=0.25 …"),
    ] = ()
    fresh: bool = False
    """Throw away a run that lies in the folder already."""
    dry_run: bool = False
    """Print sizes, memory and an estimate of the time, and train nothing."""
    json: Json = False

    def run(self) -> None:
        from advsurprise.cli import commands
        from advsurprise.learning import devices

        devices.see_cores()
        flags: dict[str, Any] = {
            "config": self.config,
            "env": self.env,
            "steps": self.steps,
            "seeds": self.seeds,
            "bodies": self.bodies,
            "settings": self.settings,
        }
        if self.method and "," in self.method:
            asked = commands.resolve_comparison(self.method, **flags)
        else:
            asked = commands.resolve(method=self.method, **flags)
        if self.dry_run:
            return _print(commands.dry_run(asked, _log), commands.dry_run_text, as_json=self.json)
        _trained(commands.train(asked, self.out, fresh=self.fresh, quiet=self.json, log=_log), as_json=self.json)


@dataclass(frozen=True)
class Resume:
    """Go on with a run or a comparison that was stopped or killed, or make a finished one longer."""

    run_folder: Annotated[Positional[pathlib.Path], arg(metavar="RUN")]
    """The folder of the run or of the comparison."""
    steps: str | None = None
    """Train to this many steps instead, for example 4M."""
    json: Json = False

    def run(self) -> None:
        from advsurprise.cli import commands
        from advsurprise.learning import devices

        devices.see_cores()
        _trained(commands.resume(self.run_folder, steps=self.steps, quiet=self.json, log=_log), as_json=self.json)


@dataclass(frozen=True)
class Plot:
    """Draw learning curves: interquartile mean over seeds, 95% bootstrap interval, every seed; PNG, PDF and CSV."""

    folders: Annotated[Positional[tuple[pathlib.Path, ...]], arg(metavar="FOLDER [FOLDER …]")]
    """Comparisons and runs to draw beside each other."""
    metric: str | None = None
    """What to draw, a panel each: short names of measures (in room worlds rooms, rooms-mean, stilled, surprise, dark …)
    or columns of metrics.jsonl, with commas between them (default the world's first two measures and surprise)."""
    out: pathlib.Path | None = None
    """Beginning of the files' names (default FOLDER/comparison, FOLDER/plot for a run)."""
    smooth: int | None = None
    """Updates a moving average covers, 1 for none (default a twentieth of the longest run's)."""
    json: Json = False

    def run(self) -> None:
        from advsurprise.evaluation import comparison, plot

        result = comparison.draw(self.folders, metric=self.metric, out=self.out, smooth=self.smooth, log=_log)
        _print(result, plot.end_text, as_json=self.json)


@dataclass(frozen=True)
class Eval:
    """Let frozen policies play, sampled and greedy, against random actions; no learning."""

    run_folder: Annotated[Positional[pathlib.Path], arg(metavar="RUN")]
    """The run's folder."""
    episodes: int = 200
    """Episodes of each training seed and kind of player, shared by ten evaluation seeds."""
    env: str | None = None
    """Another world to play in (zero-shot); the run's own if left out."""
    settings: Settings = ()
    cross: bool = False
    """Play every role by its policy, by random actions and by nobody, against each other, in the run's own world."""
    json: Json = False

    def run(self) -> None:
        from advsurprise.cli import evaluate

        if self.cross:
            result = evaluate.cross(
                self.run_folder, episodes=self.episodes, env=self.env, settings=self.settings, log=_log
            )
            return _print(result, evaluate.cross_text, as_json=self.json)
        result = evaluate.evaluate(
            self.run_folder, episodes=self.episodes, env=self.env, settings=self.settings, log=_log
        )
        _print(result, evaluate.evaluate_text, as_json=self.json)


@dataclass(frozen=True)
class Methods:
    """List the methods."""

    json: Json = False

    def run(self) -> None:
        from advsurprise.cli import commands

        _print(commands.list_methods(), commands.methods_text, as_json=self.json)


@dataclass(frozen=True)
class CheckEnv:
    """Say whether an environment can be trained in, and what is wrong with it if not."""

    env: Positional[str]
    """A Gymnasium id (CartPole-v1, package:Name-v0) or a file with a class (file.py:Class)."""
    settings: Settings = ()
    json: Json = False

    def run(self) -> None:
        from advsurprise.config import read_fields
        from advsurprise.envs.host import check

        report = check.check(self.env, read_fields(self.settings, None))
        _print(report, check.text, as_json=self.json)
        if not report["ok"]:
            raise SystemExit(1)


@dataclass(frozen=True)
class Doctor:
    """Say what this machine offers and which extras are missing."""

    json: Json = False

    def run(self) -> None:
        from advsurprise.cli import commands

        _print(commands.doctor(), commands.doctor_text, as_json=self.json)


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
            log=_log,
        )
        _print(result, worlds.text, as_json=self.json)


@dataclass(frozen=True)
class BenchTrain:
    """Environment steps per second of training from end to end, and what share of the machine that uses."""

    env: str = "rooms/four"
    """The world."""
    method: str = "adversarial-surprise"
    """The method, or several: a,b,c."""
    bodies: tuple[int, ...] = (16, 64)
    """Numbers of bodies, a row each."""
    seeds: tuple[int, ...] = (1,)
    """Numbers of seeds trained together, a row each."""
    updates: int = 5
    """Updates to time in each row, after one that is not timed."""
    settings: Annotated[
        UseAppendAction[tuple[str, ...]],
        arg(name="set", metavar="FIELD=VALUE", help="Change any field: ppo.minibatch=1024, env.rooms=6 …"),
    ] = ()
    json: Json = False

    def run(self) -> None:
        from advsurprise.bench import train
        from advsurprise.cli import commands
        from advsurprise.learning import devices

        devices.see_cores()
        result = train.run(
            self.env,
            methods=self.method.split(","),
            bodies=self.bodies,
            seeds=self.seeds,
            updates=self.updates,
            settings=self.settings,
            resolve=commands.resolve,
            log=_log,
        )
        _print(result, train.text, as_json=self.json)


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

        result = oracle.run(steps=self.steps, seed=self.seed, log=_log)
        _print(result, oracle.text, as_json=self.json)
        if result["mismatches"]:
            raise SystemExit(1)


@dataclass(frozen=True)
class Bench:
    """Measure this machine: speed of the worlds and of training, agreement with Farama MiniGrid."""

    what: (
        Annotated[BenchWorlds, subcommand("worlds")]
        | Annotated[BenchTrain, subcommand("train")]
        | Annotated[BenchOracle, subcommand("oracle")]
    )

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
    Annotated[Train, subcommand("train")]
    | Annotated[Resume, subcommand("resume")]
    | Annotated[Eval, subcommand("eval")]
    | Annotated[Plot, subcommand("plot")]
    | Annotated[Methods, subcommand("methods")]
    | Annotated[Envs, subcommand("envs")]
    | Annotated[CheckEnv, subcommand("check-env")]
    | Annotated[Theory, subcommand("theory")]
    | Annotated[Bench, subcommand("bench")]
    | Annotated[Doctor, subcommand("doctor")]
)


def main(words: list[str] | None = None) -> None:
    """Entry point of `advsurprise`. Exit codes: 0 done, 1 a check failed, 2 usage, 3 an extra is missing."""
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
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


def _log(line: str) -> None:
    """Progress goes to standard error, so that standard output holds the result alone."""
    print(line, file=sys.stderr, flush=True)


def _trained(result: dict[str, Any], *, as_json: bool) -> None:
    """The end of training. A method of a comparison that could not be trained is a check that failed."""
    from advsurprise.cli import commands

    _print(result, commands.train_text, as_json=as_json)
    if result.get("failed"):
        raise SystemExit(1)


def _print(result: dict[str, Any], text, *, as_json: bool) -> None:
    print(json.dumps(_finite(result), allow_nan=False) if as_json else text(result))


def _finite(value: Any) -> Any:
    """The value with null for numbers that JSON does not know: a mean over nothing, for example."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
