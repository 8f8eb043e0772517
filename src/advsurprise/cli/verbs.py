"""One dataclass per verb: its flags, its help, and the function that does the work."""

import pathlib
import sys
from dataclasses import dataclass
from typing import Annotated, Any

from tyro.conf import Positional, UseAppendAction, arg

from advsurprise.cli.output import log, show
from advsurprise.errors import EXIT_FAILED, UserError
from advsurprise.trust import allow


def optional(metavar: str, default: str) -> Any:
    """A flag that may be left out, with what happens then."""
    return arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


Json = Annotated[bool, arg(help="Print one JSON object on standard output and nothing else.")]
RunFolder = Annotated[Positional[pathlib.Path], arg(metavar="RUN")]
EnvSettings = Annotated[
    UseAppendAction[tuple[str, ...]],
    arg(name="set", metavar="FIELD=VALUE", help="Change a field of the environment."),
]
Settings = Annotated[
    UseAppendAction[tuple[str, ...]],
    arg(name="set", metavar="FIELD=VALUE", help="Change any field: ppo.lr=1e-4, env.rooms=6, method.quiet=0.25 …"),
]
Allow = Annotated[
    UseAppendAction[tuple[str, ...]],
    arg(
        metavar="NAME",
        help="A world or method of the run that is a class in a file or comes from a package: it is run only if named.",
        help_behavior_hint="(repeatable)",
    ),
]


@dataclass(frozen=True)
class Train:
    """Train a method, or several to compare. An existing run in the folder is continued."""

    env: Annotated[str | None, optional("ENV", "rooms/four")] = None
    """The environment: one of `advsurprise envs`, a Gymnasium id (CartPole-v1), a class in a file (file.py:Class), or a
    JAX world (gymnax:NAME, pgx:NAME, package.module:function)."""
    method: Annotated[str | None, optional("METHOD", "adversarial-surprise")] = None
    """The method: one of `advsurprise methods`, a class in a file (file.py:Class), or several to compare (a,b,c)."""
    steps: Annotated[str | None, optional("STEPS", "2M")] = None
    """Environment steps per seed, such as 300k or 2M, rounded down to whole updates."""
    seeds: Annotated[str | None, optional("SEEDS", "0")] = None
    """Seeds, trained together: 0..4, 0,3,7 or 5."""
    bodies: Annotated[int | None, optional("INT", "16")] = None
    """Parallel environments per seed."""
    out: Annotated[pathlib.Path | None, optional("FOLDER", "runs/ENV-METHOD, or runs/ENV-comparison")] = None
    """Output folder."""
    config: Annotated[pathlib.Path | None, optional("FILE", "none")] = None
    """A .json or .toml file of settings. Flags and --set override it."""
    settings: Settings = ()
    track: Annotated[str | None, optional("TRACKER[,…]", "those that the run had before, or none")] = None
    """Trackers that get the metrics too (extra `track`): tensorboard, wandb (offline, unless WANDB_MODE is set)."""
    fresh: bool = False
    """Delete an existing run in the folder and start over."""
    dry_run: bool = False
    """Train nothing; print sizes, memory and estimated time."""
    json: Json = False

    def run(self) -> None:
        from advsurprise.cli import plan, resolve, train
        from advsurprise.learning import devices
        from advsurprise.training.track import read_names

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
            asked = resolve.resolve_comparison(self.method, **flags)
        else:
            asked = resolve.resolve(method=self.method, **flags)
        if self.dry_run:
            return show(plan.dry_run(asked, log), plan.text, as_json=self.json)
        trackers = None if self.track is None else read_names(self.track)
        result = train.train(asked, self.out, trackers=trackers, fresh=self.fresh, quiet=self.json, log=log)
        train.show_trained(result, as_json=self.json)


@dataclass(frozen=True)
class Resume:
    """Continue a run or a comparison that was stopped or killed, or train a finished one for longer."""

    run_folder: RunFolder
    """Folder of the run or comparison."""
    steps: Annotated[str | None, optional("STEPS", "what the run was started with")] = None
    """New total of environment steps per seed, such as 4M."""
    allow: Allow = ()
    json: Json = False

    def run(self) -> None:
        from advsurprise.cli import train
        from advsurprise.learning import devices

        devices.see_cores()
        allow(*self.allow)
        result = train.resume(self.run_folder, steps=self.steps, quiet=self.json, log=log)
        train.show_trained(result, as_json=self.json)


@dataclass(frozen=True)
class Plot:
    """Plot learning curves as PNG, PDF and CSV: interquartile mean over seeds, 95% bootstrap interval, every seed."""

    folders: Annotated[
        Positional[tuple[pathlib.Path, ...]], arg(metavar="FOLDER [FOLDER …]", help_behavior_hint="(required)")
    ]
    """Runs and comparisons to plot together."""
    metric: Annotated[str | None, optional("METRIC", "the world's first two measures, and surprise")] = None
    """What to plot, one panel each, separated by commas: short names of measures (in room worlds rooms, rooms-mean,
    stilled, surprise, dark …) or columns of metrics.jsonl."""
    out: Annotated[pathlib.Path | None, optional("PATH", "FOLDER/comparison, or FOLDER/plot for a single run")] = None
    """Path of the files to write, without extension."""
    smooth: Annotated[int | None, optional("UPDATES", "a twentieth of the longest run")] = None
    """Updates in the moving average; 1 for no smoothing."""
    allow: Allow = ()
    json: Json = False

    def run(self) -> None:
        from advsurprise.evaluation import comparison, plot

        allow(*self.allow)
        result = comparison.draw(self.folders, metric=self.metric, out=self.out, smooth=self.smooth, log=log)
        show(result, plot.end_text, as_json=self.json)


@dataclass(frozen=True)
class Eval:
    """Evaluate trained policies, sampled and greedy, next to random actions."""

    run_folder: RunFolder
    """Folder of the run, or zoo:NAME."""
    episodes: int = 200
    """Episodes per training seed and kind of player, split over ten evaluation seeds."""
    env: Annotated[str | None, optional("ENV", "the run's own")] = None
    """Evaluate in another environment, without further training."""
    settings: EnvSettings = ()
    cross: bool = False
    """Evaluate all combinations of trained, random and motionless players for the roles, in the run's own
    environment."""
    allow: Allow = ()
    json: Json = False

    def run(self) -> None:
        from advsurprise.cli import evaluate

        allow(self.env, *self.allow)
        play, text = (
            (evaluate.cross, evaluate.cross_text) if self.cross else (evaluate.evaluate, evaluate.evaluate_text)
        )
        result = play(self.run_folder, episodes=self.episodes, env=self.env, settings=self.settings, log=log)
        show(result, text, as_json=self.json)


@dataclass(frozen=True)
class Replay:
    """Watch trained policies: writes one HTML page that replays episodes in a browser, step by step."""

    folders: Annotated[Positional[tuple[pathlib.Path, ...]], arg(metavar="RUN [RUN2]", help_behavior_hint="(required)")]
    """Folder of the run, or zoo:NAME; of two runs, to see them side by side on the same layouts."""
    episodes: int = 6
    """Episodes of every seed."""
    out: Annotated[pathlib.Path | None, optional("FILE", "replay.html in the run's folder, or NAME-replay.html")] = None
    """Page to write."""
    open: bool = False
    """Open the page in a browser."""
    allow: Allow = ()
    json: Json = False

    def run(self) -> None:
        from advsurprise.cli import replay

        allow(*self.allow)
        result = replay.replay(self.folders, episodes=self.episodes, out=self.out, show=self.open, log=log)
        show(result, replay.text, as_json=self.json)


@dataclass(frozen=True)
class Film:
    """Write a film of trained policies: the world, what the body sees, who acts, and the surprise. Needs no display."""

    run_folder: RunFolder
    """Folder of the run."""
    episodes: int = 1
    """Episodes, one after the other."""
    seed: Annotated[int | None, optional("SEED", "the run's first")] = None
    """Training seed whose policies are shown."""
    world_seed: int = 0
    """Number of the evaluation seed that layouts and noise come from; 0 for those of the replay."""
    out: Annotated[pathlib.Path | None, optional("FILE", "film.mp4 in the run's folder")] = None
    """File to write: .mp4 (extra `video`), .gif, or .png for a contact sheet of pictures at equal intervals."""
    fps: int = 8
    """Steps per second."""
    allow: Allow = ()
    json: Json = False

    def run(self) -> None:
        from advsurprise.cli import film

        allow(*self.allow)
        result = film.film(
            self.run_folder,
            episodes=self.episodes,
            seed=self.seed,
            world_seed=self.world_seed,
            out=self.out,
            fps=self.fps,
            log=log,
        )
        show(result, film.text, as_json=self.json)


@dataclass(frozen=True)
class Watch:
    """Watch a run while it trains: serves the replay of its newest checkpoint to a browser on this machine."""

    run_folder: RunFolder
    """Folder of the run."""
    port: int = 0
    """Port to serve on; 0 for any that is free."""
    episodes: int = 3
    """Episodes of every seed."""
    open: bool = False
    """Open the page in a browser."""
    allow: Allow = ()
    json: Json = False

    def run(self) -> None:
        from advsurprise.cli import watch

        allow(*self.allow)

        def announce(result: dict[str, Any]) -> None:
            show(result, watch.text, as_json=self.json)
            sys.stdout.flush()

        watch.watch(self.run_folder, port=self.port, episodes=self.episodes, show=self.open, announce=announce)


@dataclass(frozen=True)
class Report:
    """Write one HTML page about a comparison: curves, final measures, replays, settings, versions and commands."""

    folder: Annotated[Positional[pathlib.Path], arg(metavar="FOLDER")]
    """A comparison, or a single run."""
    metric: Annotated[str | None, optional("METRIC", "the world's first two measures, and surprise")] = None
    """Curves to show, separated by commas, as in `plot`. The first one chooses the median seeds."""
    episodes: int = 3
    """Episodes of every method's median seed."""
    out: Annotated[pathlib.Path | None, optional("FILE", "report.html in the folder")] = None
    """Page to write."""
    open: bool = False
    """Open the page in a browser."""
    allow: Allow = ()
    json: Json = False

    def run(self) -> None:
        from advsurprise.cli import report

        allow(*self.allow)
        result = report.write_report(
            self.folder, out=self.out, metric=self.metric, episodes=self.episodes, show=self.open, log=log
        )
        show(result, report.text, as_json=self.json)


@dataclass(frozen=True)
class Zoo:
    """List the trained agents that ship with the package. zoo:NAME can be used wherever a run can."""

    json: Json = False

    def run(self) -> None:
        from advsurprise.cli import zoo

        show(zoo.list_agents(), zoo.text, as_json=self.json)


@dataclass(frozen=True)
class Methods:
    """List the methods."""

    json: Json = False

    def run(self) -> None:
        from advsurprise.cli import listing

        show(listing.list_methods(), listing.methods_text, as_json=self.json)


@dataclass(frozen=True)
class CheckEnv:
    """Check whether an environment can be trained in, and report what is wrong with it."""

    env: Annotated[Positional[str], arg(metavar="ENV")]
    """A Gymnasium id (CartPole-v1, package:Name-v0), a class in a file (file.py:Class), or a JAX world (gymnax:NAME,
    pgx:NAME, package.module:function)."""
    settings: EnvSettings = ()
    json: Json = False

    def run(self) -> None:
        from advsurprise import envs
        from advsurprise.config import read_fields
        from advsurprise.envs.host import check

        report = envs.check(self.env, read_fields(self.settings, None))
        show(report, check.text, as_json=self.json)
        if not report["ok"]:
            raise SystemExit(EXIT_FAILED)


@dataclass(frozen=True)
class Doctor:
    """Show versions, devices and missing extras."""

    json: Json = False

    def run(self) -> None:
        from advsurprise.cli import doctor

        show(doctor.doctor(), doctor.text, as_json=self.json)


@dataclass(frozen=True)
class Envs:
    """List the environments, or describe and draw one."""

    world: Annotated[Positional[str | None], optional("[ENV]", "list all")] = None
    """The environment to describe, such as rooms/four."""
    png: Annotated[pathlib.Path | None, optional("FILE", "none")] = None
    """PNG file to draw one layout to."""
    seed: int = 0
    """Seed of the layout that is drawn."""
    settings: EnvSettings = ()
    json: Json = False

    def run(self) -> None:
        from advsurprise.envs import describe

        if self.world is None and (self.png or self.settings):
            raise UserError("--png and --set need a world, for example: advsurprise envs rooms/four --png four.png")
        if self.world is None:
            show(describe.listing(), describe.listing_text, as_json=self.json)
        else:
            card = describe.card(self.world, settings=self.settings, png=self.png, seed=self.seed)
            show(card, describe.card_text, as_json=self.json)


@dataclass(frozen=True)
class Theory:
    """Check the paper's theorem in small worlds: its assumptions, each objective's optimum, what the game covers."""

    world: Annotated[Positional[pathlib.Path | None], optional("[FILE]", "the built-in worlds")] = None
    """A JSON file with a world of your own, in the format of docs/theory.md."""
    horizon: Annotated[int | None, optional("STEPS", "the world's own, or the fewest that satisfy the assumptions")] = (
        None
    )
    """Steps of Control's turn."""
    random: Annotated[int | None, optional("INT", "500, or 0 with a world of your own")] = None
    """Number of random worlds to check, all of which satisfy the assumptions."""
    seed: int = 0
    """Seed of the random worlds."""
    figure: Annotated[pathlib.Path | None, optional("FILE", "theory.png")] = pathlib.Path("theory.png")
    """File to plot where each objective spends its time to; None for no plot."""
    json: Json = False

    def run(self) -> None:
        from advsurprise.theory import report

        random = (500 if self.world is None else 0) if self.random is None else self.random
        result = report.run(self.world, horizon=self.horizon, random=random, seed=self.seed)
        result = report.draw(result, self.figure) if self.figure else result
        show(result, report.text, as_json=self.json)
