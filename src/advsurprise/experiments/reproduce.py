"""`advsurprise reproduce`: trains what a figure of the paper needs, measures the frozen policies, draws it, and judges
the claims. Everything can be stopped and goes on where it was.

OUT/WORLD-ARM/    the runs
OUT/rows.csv      means over equal stretches of training, for every training seed
OUT/frozen.csv    what the frozen policies did, for every training seed
OUT/about.json    what was run, for how long, with which software
OUT/claims.json   the claims, with intervals and verdicts
OUT/NAME.png      the figure, and as PDF
"""

import dataclasses
import datetime
import json
import math
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from advsurprise import envs
from advsurprise.config import RunConfig
from advsurprise.errors import UserError, nearest
from advsurprise.evaluation import sweep
from advsurprise.experiments import (
    control,
    coverage,
    doom_coverage,
    emergence,
    evaluate,
    horizon,
    incentive,
    two_models,
    zero_shot,
)
from advsurprise.experiments.cells import binned
from advsurprise.experiments.drawing import learning_curves
from advsurprise.experiments.figure import ALONE, SAMPLED, Figure, Results, Scale
from advsurprise.experiments.runs import run_config
from advsurprise.experiments.settings import tuned
from advsurprise.training import files
from advsurprise.training.folder import CONFIG, METRICS, check_folder, read_run
from advsurprise.training.jobs import Job, Log, run_jobs
from advsurprise.training.metrics import read_rows
from advsurprise.training.run import updates_done
from advsurprise.training.versions import versions

FIGURES = {each.FIGURE.name: each.FIGURE for each in (coverage, control, emergence, horizon, incentive, two_models)}
FIGURES |= {each.name: each for each in (zero_shot.ATARI, zero_shot.DOOM, doom_coverage.FIGURE)}
CLAIMS, ABOUT = "claims.json", "about.json"


@dataclasses.dataclass(frozen=True)
class Asked:
    """What is to be made of a figure."""

    figure: Figure
    scale: Scale
    seeds: int
    """Training seeds, from 0 on."""
    steps: int
    """Environment steps of each."""
    out: pathlib.Path
    """Where results go."""
    runs: pathlib.Path
    """Where runs are."""
    worlds: tuple[str, ...]
    """Worlds to train in."""
    arms: tuple[str, ...]
    """Arms to train."""
    stages: int
    """How often frozen policies are played, at equal distances of training."""
    env_workers: int | None = None
    """Worker processes of each run's host world; None for about one per core."""
    quick: bool = False
    """Whether the end of training is played like the other stages: sampled actions alone."""

    @property
    def trains(self) -> Figure:
        """The figure whose runs these are."""
        return find(self.figure.trained_for) if self.figure.trained_for else self.figure

    @property
    def episodes(self) -> int:
        """Episodes of each training seed's frozen policies."""
        return self.trains.episodes[self.scale]


def find(name: str) -> Figure:
    """The figure by its name."""
    if name not in FIGURES:
        raise UserError(f"unknown figure {nearest(name, FIGURES, listed='`advsurprise reproduce --list`')}")
    return FIGURES[name]


def ask(
    name: str,
    *,
    scale: Scale,
    seeds: int | None = None,
    steps: int | None = None,
    out: pathlib.Path | None = None,
    runs: pathlib.Path | None = None,
    worlds: Sequence[str] = (),
    arms: Sequence[str] = (),
    stages: int | None = None,
    quick: bool = False,
    env_workers: int | None = None,
) -> Asked:
    """A figure with what is asked for, or with what its scale has."""
    figure = find(name)
    given = {"--steps": steps is not None, "--worlds": worlds, "--arms": arms, "--env-workers": env_workers is not None}
    given |= {"--stages": stages is not None, "--quick": quick}
    if figure.untrained and any(given.values()):
        raise UserError(
            f"{name} trains nothing: leave out {next(flag for flag, is_given in given.items() if is_given)}"
        )
    seeds, steps = figure.seeds[scale] if seeds is None else seeds, figure.steps[scale] if steps is None else steps
    out = out or default_folder(name, scale)
    runs = runs or (default_folder(figure.trained_for, scale) if figure.trained_for else out)
    worlds = _chosen(name, "world", worlds, figure.worlds) or figure.worlds_of(scale)
    arms = _chosen(name, "arm", arms, figure.arms) or tuple(figure.arms)
    stages = figure.stages[scale] if stages is None else stages
    for flag, number in (("--seeds", seeds), ("--stages", stages)):
        if number < 1:
            raise UserError(f"{flag} must be at least 1, not {number}")
    least = figure.batch_of(scale).steps
    if steps < least:
        raise UserError(f"--steps must be at least one update's {least:,}, not {steps:,}")
    if env_workers is not None:
        _check_hosts(worlds)
    return Asked(figure, scale, seeds, steps, out, runs, worlds, arms, stages, env_workers, quick)


def _check_hosts(worlds: Sequence[str]) -> None:
    for world in worlds:
        if envs.find(world).kind == "pure":
            raise UserError(f"{world} is compiled and has no worker processes: leave out --env-workers")


def default_folder(name: str, scale: Scale) -> pathlib.Path:
    """Where a figure goes if nobody says where."""
    return pathlib.Path("runs/reproduce") / f"{name}-{scale}"


def _chosen(name: str, what: str, chosen: Sequence[str], there: dict[str, Any]) -> tuple[str, ...]:
    for each in chosen:
        if each not in there:
            raise UserError(f"{name} has no {what} {each!r}; it has {', '.join(there)}")
    return tuple(dict.fromkeys(chosen))


# --------------------------------------------------------------------------------------------------------- making it


def reproduce(figures: Sequence[Asked], *, workers: int, log: Log) -> list[dict[str, Any]]:
    """Makes figures, side by side: their runs wait for the same workers, and one that several figures show is trained
    once. What is there already is not made again."""
    if workers < 1:
        raise UserError(f"--workers must be at least 1, not {workers}")
    # Runs that are there already and differ from those asked for are refused before anything is written.
    jobs = {folder: each for asked in figures for folder, each in jobs_of(asked).items()}
    for asked in figures:
        for folder in (asked.out, asked.runs):
            files.make_folder(folder)
    here = pathlib.Path(os.path.commonpath([asked.runs for asked in figures]))
    names = {folder: str(folder.relative_to(here)) for folder in jobs}
    waiting = [dataclasses.replace(each, name=names[folder]) for folder, each in jobs.items() if each.commands]
    failed, signal = run_jobs(waiting, workers=workers, folder=here, log=log)
    results = []
    for asked in figures:
        why = {names[folder]: failed[names[folder]] for folder in jobs_of(asked) if names[folder] in failed}
        about = {"figure": asked.figure.name, "out": str(asked.out), "signal": signal, "failed": why}
        try:
            made = _made(asked, log, stopped=bool(signal))
        except UserError as error:  # the other figures are made all the same
            made = {"failed": why | {asked.figure.name: str(error)}}
        results.append(about | {"claims": [], "files": []} | made)
    return results


def _made(asked: Asked, log: Log, *, stopped: bool) -> dict[str, Any]:
    """Writes a figure whose runs are finished; nothing of one whose runs are not."""
    if asked.figure.untrained:
        return {} if stopped else write(asked, asked.figure.untrained.make(asked.scale, asked.seeds, log))
    return {} if any(each.commands for each in jobs_of(asked).values()) else write(asked, gather(asked))


def jobs_of(asked: Asked) -> dict[pathlib.Path, Job]:
    """What is left to do of a figure, run by run."""
    runs = [] if asked.figure.untrained else [(world, arm) for world in asked.worlds for arm in asked.arms]
    return {folder_of(asked, *run): job(asked, *run) for run in runs}


def job(asked: Asked, world: str, arm: str) -> Job:
    """Trains one arm in one world to each stage, and plays what was trained so far; only what is left to do."""
    figure, folder, chosen = asked.trains, folder_of(asked, world, arm), asked.figure.arms[arm]
    cfg = config_of(asked, world, arm)
    check_folder(cfg, folder, fresh=False)
    done, entries = updates_done(folder), evaluate.read(folder)
    whole, commands = sweep.job(cfg, folder), []
    for updates in stages_of(cfg, asked.stages if chosen.learns else 1):
        end = updates == cfg.updates
        # What was trained for longer before is played as it is now.
        updates = max(updates, done) if end else updates
        staged = dataclasses.replace(cfg, steps=updates * cfg.steps_per_update)
        every = end and chosen.learns and not asked.quick
        wanted = (*figure.players, *(f"{role}{ALONE}" for role in chosen.alone)) if every else (SAMPLED,)
        players = evaluate.left(entries, steps=staged.steps, episodes=asked.episodes, players=wanted, end=end)
        if players and updates >= done:
            commands += sweep.job(staged, folder).commands if updates > done else ()
            commands.append(evaluate.command(folder, episodes=asked.episodes, players=players, end=end))
    return dataclasses.replace(whole, commands=tuple(commands))


def config_of(asked: Asked, world: str, arm: str) -> RunConfig:
    """The configuration of a run."""
    figure, chosen = asked.trains, asked.figure.arms[arm]
    chosen = dataclasses.replace(chosen, fields=tuned(figure.tuned).get(chosen.method, {}) | chosen.fields)
    fields = asked.figure.worlds[world] | ({} if asked.env_workers is None else {"workers": asked.env_workers})
    batch = figure.batch_of(asked.scale)
    seeds, steps = (tuple(range(asked.seeds)), asked.steps) if chosen.learns else ((0,), batch.steps)
    return run_config(world, fields, chosen, seeds=seeds, steps=steps, batch=batch)


def stages_of(cfg: RunConfig, stages: int) -> list[int]:
    """Updates after which policies are played, the last among them."""
    return sorted({max(1, cfg.updates * stage // stages) for stage in range(1, stages + 1)})


def folder_of(asked: Asked, world: str, arm: str) -> pathlib.Path:
    """Where a run is."""
    return asked.runs / f"{world.replace('/', '-')}-{arm}"


@dataclasses.dataclass(frozen=True)
class Finished:
    """A run that was trained and played to its end."""

    config: RunConfig
    entries: list[dict[str, Any]]
    """What its frozen policies did."""

    @property
    def about(self) -> dict[str, int]:
        """How much of it there is."""
        return {"seeds": len(self.config.seeds), "steps": max(entry["steps"] for entry in self.entries)}


def finished(asked: Asked) -> dict[tuple[str, str], Finished]:
    """The finished runs in the folder, those that were asked for and others, by world and arm."""
    there: dict[tuple[str, str], Finished] = {}
    for world, arm in asked.figure.runs:
        folder = folder_of(asked, world, arm)
        if not (folder / CONFIG).exists():
            continue
        cfg, entries = read_run(folder), evaluate.read(folder)
        whole = cfg.updates * cfg.steps_per_update
        if any(entry["end"] and entry["player"] == SAMPLED and entry["steps"] >= whole for entry in entries):
            there[world, arm] = Finished(cfg, entries)
    return there


def gather(asked: Asked) -> Results:
    """The numbers of finished runs."""
    rows, played, columns = [], [], asked.figure.columns
    for (world, arm), run in finished(asked).items():
        whose = {"world": world, "arm": arm}
        metrics = read_rows(folder_of(asked, world, arm) / METRICS)
        rows += [whose | row for row in binned(metrics, columns, asked.figure.bins)]
        for entry in sorted(run.entries, key=lambda entry: entry["steps"]):
            about = {"player": entry["player"], "step": entry["steps"]}
            played += [whose | {"seed": each["seed"]} | about | _kept(each, columns) for each in entry["seeds"]]
    return Results(tuple(rows), tuple(played))


def _kept(measured: dict[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    return {name: _rounded(measured[name]) for name in columns if name in measured}


def _rounded(value: float | int) -> float | int | str:
    return value if isinstance(value, int) else float(f"{value:.6g}") if math.isfinite(value) else ""


def write(asked: Asked, results: Results) -> dict[str, Any]:
    """Writes the numbers, the claims and the figure."""
    figure = asked.figure
    about = {"figure": figure.name, "scale": asked.scale, **_made_with(asked)}
    about |= {"versions": versions(), "date": datetime.date.today().isoformat()}
    claims = claims_of(figure, results)
    made = contents(figure, results, claims, about, asked.out)
    files.write_all(made)
    return {"claims": claims, "files": [str(path) for path in made]}


def _made_with(asked: Asked) -> dict[str, Any]:
    figure = asked.figure
    command = f"advsurprise reproduce {figure.name} --scale {asked.scale} --seeds {asked.seeds}"
    if figure.untrained:
        return {"layout_seeds": asked.seeds, "steps": asked.steps, "command": command}
    runs = finished(asked)
    arms = list(dict.fromkeys(arm for _, arm in runs))
    command += f" --steps {asked.steps}"
    if asked.worlds != figure.worlds_of(asked.scale):
        command += f" --worlds {' '.join(asked.worlds)}"
    if asked.arms != tuple(figure.arms):
        command += f" --arms {' '.join(asked.arms)}"
    return {
        "training_seeds": asked.seeds,
        "steps": asked.steps,
        "episodes": asked.episodes,
        "bodies": asked.trains.batch_of(asked.scale).bodies,
        "rollout": asked.trains.batch_of(asked.scale).rollout,
        "command": command,
        "worlds": list(dict.fromkeys(world for world, _ in runs)),
        "arms": arms,
        "runs": [{"world": world, "arm": arm} | run.about for (world, arm), run in runs.items()],
        "tuned": {arm: tuned(asked.trains.tuned).get(figure.arms[arm].method, {}) for arm in arms},
    }


def contents(
    figure: Figure, results: Results, claims: list[dict[str, Any]], about: dict[str, Any], folder: pathlib.Path
) -> dict[pathlib.Path, str | bytes]:
    """Everything that is written about a figure."""
    return {
        **results.files(folder),
        folder / ABOUT: json.dumps(about, indent=1),
        folder / CLAIMS: json.dumps(claims, indent=1),
        **{folder / f"{figure.name}{ending}": data for ending, data in drawn(figure, results).items()},
    }


def claims_of(figure: Figure, results: Results) -> list[dict[str, Any]]:
    """The claims that a figure decides, as they are written: None for what is not a number."""
    there = {(row["world"], row["arm"]) for row in results.rows}
    complete = figure.judges_parts or figure.untrained or there >= set(figure.runs)
    judged = figure.judge(results) if complete else []
    claims = [dataclasses.asdict(claim) | {"figure": figure.name} for claim in judged]
    return [{name: _known(value) for name, value in claim.items()} for claim in claims]


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def drawn(figure: Figure, results: Results) -> dict[str, bytes]:
    """The figure, as the contents of files by their endings."""
    return figure.draw(results) if figure.draw else learning_curves(figure, results)


def text(results: Sequence[dict[str, Any]]) -> str:
    """What was made, for a person."""
    parts = [_text(each) for each in results]
    if len(parts) > 1:
        parts = [f"{each['figure']}\n{part}" for each, part in zip(results, parts, strict=True)]
    unfinished = any(each["failed"] or each["signal"] for each in results)
    return "\n\n".join([*filter(None, parts), *(["Give the same command again to go on."] if unfinished else [])])


def _text(result: dict[str, Any]) -> str:
    lines = [f"{name} failed: {reason}" for name, reason in result["failed"].items()]
    for each in result["claims"]:
        lines.append(f"{each['verdict']:14}{each['claim']}")
        known = each["ours"] is not None
        number = f"{each['ours']:.3g} [{each['low']:.3g}, {each['high']:.3g}]" if known else "no number"
        lines.append(f"{'':14}{number}, {each['measure']}, {each['seeds']} seeds")
    if result["claims"]:
        lines.append("")
    return "\n".join([*lines, *result["files"]])
