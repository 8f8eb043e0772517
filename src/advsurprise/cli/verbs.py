"""One dataclass per verb: its flags, its help, and the function that does the work."""

import pathlib
import sys
from dataclasses import dataclass
from typing import Annotated, Any

from tyro.conf import Positional, arg

from advsurprise.cli.flags import Allow, EnvSettings, Json, RunFolder, Settings, optional
from advsurprise.cli.output import log, show
from advsurprise.errors import EXIT_FAILED, UserError
from advsurprise.trust import allow


@dataclass(frozen=True)
class Train:
    """Train a method, or compare several. Continues the run if the folder already holds it."""

    env: Annotated[
        str | None,
        optional(
            "ENV",
            "rooms/four",
            "The environment: one of `advsurprise envs`, a Gymnasium id (CartPole-v1), a class in a file "
            "(file.py:Class), or a JAX world (gymnax:NAME, pgx:NAME, package.module:function).",
        ),
    ] = None
    method: Annotated[str | None, optional("METHOD", "adversarial-surprise")] = None
    """The method: one of `advsurprise methods`, a class in a file (file.py:Class), or several to compare (a,b,c)."""
    steps: Annotated[str | None, optional("STEPS", "2M")] = None
    """Environment steps per seed, such as 300k or 2M, rounded down to whole updates."""
    seeds: Annotated[str | None, optional("SEEDS", "0")] = None
    """Seeds, trained together: a range (0..4), a list (0,3,7) or a single one (5)."""
    bodies: Annotated[int | None, optional("INT", "16")] = None
    """Parallel environments per seed."""
    out: Annotated[pathlib.Path | None, optional("FOLDER", "runs/ENV-METHOD, or runs/ENV-comparison")] = None
    """Output folder."""
    config: Annotated[pathlib.Path | None, optional("FILE|RUN", "none")] = None
    """Settings: a .json or .toml file, or those of a run (its folder, or zoo:NAME). Flags and --set override them."""
    settings: Settings = ()
    allow: Allow = ()
    track: Annotated[str | None, optional("TRACKER[,…]", "as before, or none for a new run")] = None
    """Also log metrics to tensorboard or wandb (extra `track`; wandb is offline unless WANDB_MODE is set)."""
    fresh: bool = False
    """Delete an existing run in the folder and start over."""
    dry_run: bool = False
    """Train nothing; print sizes, memory and estimated time."""
    json: Json = False

    def run(self) -> None:
        from advsurprise.cli import plan, resolve, train
        from advsurprise.learning import devices
        from advsurprise.training.track import read_names

        allow(*self.allow)
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
            cfg = resolve.resolve_comparison(self.method, **flags)
        else:
            cfg = resolve.resolve(method=self.method, **flags)
        if self.dry_run:
            return show(plan.dry_run(cfg, log), plan.text, as_json=self.json)
        trackers = None if self.track is None else read_names(self.track)
        result = train.train(cfg, self.out, trackers=trackers, fresh=self.fresh, quiet=self.json, log=log)
        train.show_trained(result, as_json=self.json)


@dataclass(frozen=True)
class Resume:
    """Continue a run or comparison that was stopped or killed, or train a finished one for longer."""

    run_folder: RunFolder
    """Folder of the run or comparison."""
    steps: Annotated[str | None, optional("STEPS", "unchanged")] = None
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
    """Plot learning curves as PNG, PDF and CSV: interquartile mean over seeds, 95% bootstrap interval, each seed."""

    folders: Annotated[
        Positional[tuple[pathlib.Path, ...]], arg(metavar="FOLDER [FOLDER …]", help_behavior_hint="(required)")
    ]
    """Runs and comparisons to plot together."""
    metric: Annotated[
        str | None,
        optional(
            "METRIC[,…]",
            "the world's first two measures, and surprise",
            "Measures to plot, one panel each: short names (in room worlds: rooms, rooms-mean, stilled, surprise, "
            "dark …) or columns of metrics.jsonl.",
        ),
    ] = None
    out: Annotated[pathlib.Path | None, optional("PATH", "FOLDER/comparison, or FOLDER/plot for a single run")] = None
    """Output path without extension."""
    smooth: Annotated[int | None, optional("UPDATES", "1/20 of the longest run")] = None
    """Width of the moving average; 1 for no smoothing."""
    allow: Allow = ()
    json: Json = False

    def run(self) -> None:
        from advsurprise.evaluation import comparison, plot

        allow(*self.allow)
        result = comparison.draw(self.folders, metric=self.metric, out=self.out, smooth=self.smooth, log=log)
        show(result, plot.end_text, as_json=self.json)


@dataclass(frozen=True)
class Eval:
    """Evaluate trained policies, sampled and greedy, and compare them with random actions."""

    run_folder: RunFolder
    """Folder of the run, or zoo:NAME."""
    episodes: int = 200
    """Episodes per training seed and player, split over ten evaluation seeds."""
    env: Annotated[str | None, optional("ENV", "the run's own")] = None
    """Evaluate in another environment, without further training."""
    settings: EnvSettings = ()
    cross: bool = False
    """Evaluate all combinations of trained, random and motionless players for the roles, in the run's environment."""
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
    """Write an HTML page that replays episodes of trained policies in a browser, step by step."""

    folders: Annotated[Positional[tuple[pathlib.Path, ...]], arg(metavar="RUN [RUN2]", help_behavior_hint="(required)")]
    """Folder of a run, or zoo:NAME; two runs are shown side by side on the same layouts."""
    episodes: int = 6
    """Episodes per seed."""
    out: Annotated[pathlib.Path | None, optional("FILE", "replay.html in the run's folder, or NAME-replay.html")] = None
    """Output file."""
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
    """Write a video of trained policies: world, view of the body, acting role and surprise. Needs no display."""

    run_folder: RunFolder
    """Folder of the run, or zoo:NAME."""
    episodes: int = 1
    """Number of episodes, shown one after the other."""
    seed: Annotated[int | None, optional("SEED", "the run's first")] = None
    """Training seed whose policies are shown."""
    world_seed: int = 0
    """Index of the evaluation seed for layouts and noise; 0 shows the same episodes as `replay`."""
    out: Annotated[pathlib.Path | None, optional("FILE", "film.mp4 in the run's folder")] = None
    """Output file: .mp4 (extra `video`), .gif, or .png for a contact sheet of evenly spaced frames."""
    fps: int = 8
    """Environment steps per second."""
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
    """Port to serve on; 0 for any free port."""
    episodes: int = 3
    """Episodes per seed."""
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
    metric: Annotated[str | None, optional("METRIC[,…]", "the world's first two measures, and surprise")] = None
    """Measures to plot, as in `plot`. The first one determines each method's median seed."""
    episodes: int = 3
    """Episodes to replay per method, of its median seed."""
    out: Annotated[pathlib.Path | None, optional("FILE", "report.html in the folder")] = None
    """Output file."""
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
    """List the trained agents that ship with the package. Use zoo:NAME in eval, replay and film."""

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
    """Check whether an environment can be used for training, and report its faults."""

    env: Annotated[
        Positional[str],
        arg(
            metavar="ENV",
            help="A Gymnasium id (CartPole-v1, package:Name-v0), a class in a file (file.py:Class), or a JAX world "
            "(gymnax:NAME, pgx:NAME, package.module:function).",
        ),
    ]
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
    """Draw one layout to this PNG file."""
    seed: int = 0
    """Seed of the layout to draw."""
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
    """Check the paper's theorem in small worlds: its assumptions, each objective's optimum and what the game covers."""

    world: Annotated[Positional[pathlib.Path | None], optional("[FILE]", "the built-in worlds")] = None
    """A JSON file with your own world, in the format of docs/theory.md."""
    horizon: Annotated[int | None, optional("STEPS", "the world's own, or the fewest that satisfy the assumptions")] = (
        None
    )
    """Length of Control's turn."""
    random: Annotated[int | None, optional("INT", "500, or 0 with your own world")] = None
    """Number of random worlds to check; all of them satisfy the assumptions."""
    seed: int = 0
    """Seed of the random worlds."""
    figure: Annotated[pathlib.Path | None, optional("FILE", "theory.png")] = pathlib.Path("theory.png")
    """Output file for a plot of where each objective spends its time; None for no plot."""
    json: Json = False

    def run(self) -> None:
        from advsurprise.theory import report

        random = (500 if self.world is None else 0) if self.random is None else self.random
        result = report.run(self.world, horizon=self.horizon, random=random, seed=self.seed)
        result = report.draw(result, self.figure) if self.figure else result
        show(result, report.text, as_json=self.json)
