"""`advsurprise reproduce`: trains the runs of a figure of the paper, evaluates the frozen policies, draws the figure
and judges the claims. Safe to interrupt: run the same command again to continue.

OUT/WORLD-ARM/    the runs
OUT/rows.csv      means over equal bins of training, for every training seed
OUT/frozen.csv    evaluations of the frozen policies, for every training seed
OUT/about.json    runs, steps, command and software versions
OUT/claims.json   the claims, with intervals and verdicts
OUT/NAME.png      the figure, also as PDF
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
    whole_turn,
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

IN_ROOMS = (coverage, control, emergence, horizon, incentive, two_models, whole_turn)
FIGURES = {each.FIGURE.name: each.FIGURE for each in IN_ROOMS}
FIGURES |= {each.name: each for each in (zero_shot.ATARI, zero_shot.DOOM, doom_coverage.FIGURE)}
CLAIMS, ABOUT = "claims.json", "about.json"


@dataclasses.dataclass(frozen=True)
class Request:
    """A figure to make, and at what size."""

    figure: Figure
    scale: Scale
    seeds: int
    """Number of training seeds."""
    steps: int
    """Environment steps per seed."""
    out: pathlib.Path
    """Folder of the results."""
    runs: pathlib.Path
    """Folder of the runs."""
    worlds: tuple[str, ...]
    """Worlds to train in."""
    arms: tuple[str, ...]
    """Arms to train."""
    stages: int
    """Number of evaluations, equally spaced over training."""
    env_workers: int | None = None
    """Worker processes per run in a host world; default: about one per core."""
    quick: bool = False
    """Whether to evaluate the end of training like the other stages, with sampled actions only."""
    first_seed: int = 0
    """The first training seed."""

    @property
    def training_seeds(self) -> tuple[int, ...]:
        """The training seeds."""
        return tuple(range(self.first_seed, self.first_seed + self.seeds))

    @property
    def trains(self) -> Figure:
        """The figure that the runs belong to."""
        return find(self.figure.trained_for) if self.figure.trained_for else self.figure

    @property
    def episodes(self) -> int:
        """Evaluation episodes per training seed."""
        return self.trains.episodes[self.scale]


def find(name: str) -> Figure:
    """Returns the figure with this name."""
    if name not in FIGURES:
        raise UserError(f"unknown figure {nearest(name, FIGURES, listed='`advsurprise reproduce --list`')}")
    return FIGURES[name]


def make_request(
    name: str,
    *,
    scale: Scale,
    seeds: int | None = None,
    first_seed: int = 0,
    steps: int | None = None,
    out: pathlib.Path | None = None,
    runs: pathlib.Path | None = None,
    worlds: Sequence[str] = (),
    arms: Sequence[str] = (),
    stages: int | None = None,
    quick: bool = False,
    env_workers: int | None = None,
) -> Request:
    """Checks the arguments for a figure and fills in the defaults of its scale."""
    figure = find(name)
    given = {"--steps": steps is not None, "--worlds": worlds, "--arms": arms, "--env-workers": env_workers is not None}
    given |= {"--stages": stages is not None, "--quick": quick, "--first-seed": first_seed}
    if figure.untrained and any(given.values()):
        raise UserError(
            f"{name} trains nothing: leave out {next(flag for flag, is_given in given.items() if is_given)}"
        )
    seeds, steps = figure.seeds[scale] if seeds is None else seeds, figure.steps[scale] if steps is None else steps
    out = out or default_folder(name, scale, first_seed)
    runs = runs or (default_folder(figure.trained_for, scale, first_seed) if figure.trained_for else out)
    worlds = _chosen(name, "world", worlds, figure.worlds) or figure.worlds_of(scale)
    arms = _chosen(name, "arm", arms, figure.arms) or tuple(figure.arms)
    stages = figure.stages[scale] if stages is None else stages
    for flag, number in (("--seeds", seeds), ("--stages", stages)):
        if number < 1:
            raise UserError(f"{flag} must be at least 1, not {number}")
    if first_seed < 0:
        raise UserError(f"--first-seed must be at least 0, not {first_seed}")
    least = figure.batch_of(scale).steps
    if steps < least:
        raise UserError(f"--steps must be at least one update's {least:,}, not {steps:,}")
    if env_workers is not None:
        _check_hosts(worlds)
    return Request(figure, scale, seeds, steps, out, runs, worlds, arms, stages, env_workers, quick, first_seed)


def _check_hosts(worlds: Sequence[str]) -> None:
    for world in worlds:
        if envs.find(world).kind == "pure":
            raise UserError(f"{world} is a pure world without worker processes: leave out --env-workers")


def default_folder(name: str, scale: Scale, first_seed: int = 0) -> pathlib.Path:
    """Default folder of a figure; further seeds have their own."""
    return pathlib.Path("runs/reproduce") / (f"{name}-{scale}" + (f"-from-{first_seed}" if first_seed else ""))


def _chosen(name: str, what: str, chosen: Sequence[str], known: dict[str, Any]) -> tuple[str, ...]:
    for each in chosen:
        if each not in known:
            raise UserError(f"{name} has no {what} {each!r}; it has {', '.join(known)}")
    return tuple(dict.fromkeys(chosen))


# --------------------------------------------------------------------------------------------------------- making it


def reproduce(requests: Sequence[Request], *, workers: int, log: Log) -> list[dict[str, Any]]:
    """Makes figures in parallel: their runs share the workers, and a run that several figures use is trained once.
    Finished parts are skipped."""
    if workers < 1:
        raise UserError(f"--workers must be at least 1, not {workers}")
    # Existing runs with other settings are refused before anything is written.
    jobs = {folder: each for request in requests for folder, each in jobs_of(request).items()}
    for request in requests:
        for folder in (request.out, request.runs):
            files.make_folder(folder)
    here = pathlib.Path(os.path.commonpath([request.runs for request in requests]))
    names = {folder: str(folder.relative_to(here)) for folder in jobs}
    waiting = [dataclasses.replace(each, name=names[folder]) for folder, each in jobs.items() if each.commands]
    failed, signal = run_jobs(waiting, workers=workers, folder=here, log=log)
    results = []
    for request in requests:
        why = {names[folder]: failed[names[folder]] for folder in jobs_of(request) if names[folder] in failed}
        about = {"figure": request.figure.name, "out": str(request.out), "signal": signal, "failed": why}
        try:
            made = _made(request, log, stopped=bool(signal))
        except UserError as error:  # the other figures are still made
            made = {"failed": why | {request.figure.name: str(error)}}
        results.append(about | {"claims": [], "files": []} | made)
    return results


def _made(request: Request, log: Log, *, stopped: bool) -> dict[str, Any]:
    """Writes a figure if all its runs are finished."""
    if request.figure.untrained:
        return {} if stopped else write(request, request.figure.untrained.make(request.scale, request.seeds, log))
    return {} if any(each.commands for each in jobs_of(request).values()) else write(request, gather(request))


def jobs_of(request: Request) -> dict[pathlib.Path, Job]:
    """Remaining work of a figure, per run."""
    runs = [] if request.figure.untrained else [(world, arm) for world in request.worlds for arm in request.arms]
    return {folder_of(request, *run): job(request, *run) for run in runs}


def job(request: Request, world: str, arm: str) -> Job:
    """Trains one arm in one world to each stage and evaluates it there; only what is left to do."""
    figure, folder, chosen = request.trains, folder_of(request, world, arm), request.figure.arms[arm]
    cfg = config_of(request, world, arm)
    check_folder(cfg, folder, fresh=False)
    done, entries = updates_done(folder), evaluate.read(folder)
    whole, commands = sweep.job(cfg, folder), []
    for updates in stages_of(cfg, request.stages if chosen.learns else 1):
        end = updates == cfg.updates
        # A run that was already trained for longer is evaluated as it is.
        updates = max(updates, done) if end else updates
        staged = dataclasses.replace(cfg, steps=updates * cfg.steps_per_update)
        every = end and chosen.learns and not request.quick
        wanted = (*figure.players, *(f"{role}{ALONE}" for role in chosen.alone)) if every else (SAMPLED,)
        players = evaluate.left(entries, steps=staged.steps, episodes=request.episodes, players=wanted, end=end)
        if players and updates >= done:
            commands += sweep.job(staged, folder).commands if updates > done else ()
            commands.append(evaluate.command(folder, episodes=request.episodes, players=players, end=end))
    return dataclasses.replace(whole, commands=tuple(commands))


def config_of(request: Request, world: str, arm: str) -> RunConfig:
    """The configuration of a run."""
    figure, chosen = request.trains, request.figure.arms[arm]
    chosen = dataclasses.replace(chosen, fields=tuned(figure.tuned).get(chosen.method, {}) | chosen.fields)
    fields = request.figure.worlds[world] | ({} if request.env_workers is None else {"workers": request.env_workers})
    batch = figure.batch_of(request.scale)
    seeds, steps = (request.training_seeds, chosen.trained_for(request.steps)) if chosen.learns else ((0,), batch.steps)
    return run_config(world, fields, chosen, seeds=seeds, steps=steps, batch=batch)


def stages_of(cfg: RunConfig, stages: int) -> list[int]:
    """Updates after which policies are evaluated, including the last."""
    return sorted({max(1, cfg.updates * stage // stages) for stage in range(1, stages + 1)})


def folder_of(request: Request, world: str, arm: str) -> pathlib.Path:
    """Folder of a run."""
    return request.runs / f"{world.replace('/', '-')}-{arm}"


@dataclasses.dataclass(frozen=True)
class Finished:
    """A run that is fully trained and evaluated."""

    config: RunConfig
    entries: list[dict[str, Any]]
    """Evaluations of its frozen policies."""

    @property
    def about(self) -> dict[str, int]:
        """Its numbers of seeds and steps."""
        return {"seeds": len(self.config.seeds), "steps": max(entry["steps"] for entry in self.entries)}


def finished(request: Request) -> dict[tuple[str, str], Finished]:
    """All finished runs in the folder, by world and arm, also those not selected."""
    runs: dict[tuple[str, str], Finished] = {}
    for world, arm in request.figure.runs:
        folder = folder_of(request, world, arm)
        if not (folder / CONFIG).exists():
            continue
        cfg, entries = read_run(folder), evaluate.read(folder)
        whole = cfg.updates * cfg.steps_per_update
        if any(entry["end"] and entry["player"] == SAMPLED and entry["steps"] >= whole for entry in entries):
            runs[world, arm] = Finished(cfg, entries)
    return runs


def gather(request: Request) -> Results:
    """Collects the results of the finished runs."""
    rows, played, columns = [], [], request.figure.columns
    for (world, arm), run in finished(request).items():
        whose = {"world": world, "arm": arm}
        metrics = read_rows(folder_of(request, world, arm) / METRICS)
        rows += [whose | row for row in binned(metrics, columns, request.figure.bins)]
        played += [whose | row for row in evaluate.rows(run.entries, columns)]
    return Results(tuple(rows), tuple(played))


def write(request: Request, results: Results) -> dict[str, Any]:
    """Writes the numbers, the claims and the figure."""
    figure = request.figure
    about = {"figure": figure.name, "scale": request.scale, **_made_with(request)}
    about |= {"versions": versions(), "date": datetime.date.today().isoformat()}
    claims = claims_of(figure, results)
    made = contents(figure, results, claims, about, request.out)
    files.write_all(made)
    return {"claims": claims, "files": [str(path) for path in made]}


def _made_with(request: Request) -> dict[str, Any]:
    figure = request.figure
    command = f"advsurprise reproduce {figure.name} --scale {request.scale} --seeds {request.seeds}"
    if figure.untrained:
        return {"layout_seeds": request.seeds, "steps": request.steps, "command": command}
    runs = finished(request)
    arms = list(dict.fromkeys(arm for _, arm in runs))
    command += f" --first-seed {request.first_seed}" if request.first_seed else ""
    command += f" --steps {request.steps}"
    if request.worlds != figure.worlds_of(request.scale):
        command += f" --worlds {' '.join(request.worlds)}"
    if request.arms != tuple(figure.arms):
        command += f" --arms {' '.join(request.arms)}"
    return {
        "training_seeds": request.seeds,
        "steps": request.steps,
        "episodes": request.episodes,
        "bodies": request.trains.batch_of(request.scale).bodies,
        "rollout": request.trains.batch_of(request.scale).rollout,
        "command": command,
        "worlds": list(dict.fromkeys(world for world, _ in runs)),
        "arms": arms,
        "runs": [{"world": world, "arm": arm} | run.about for (world, arm), run in runs.items()],
        "tuned": {arm: tuned(request.trains.tuned).get(figure.arms[arm].method, {}) for arm in arms},
    }


def contents(
    figure: Figure, results: Results, claims: list[dict[str, Any]], about: dict[str, Any], folder: pathlib.Path
) -> dict[pathlib.Path, str | bytes]:
    """Contents of all files of a figure."""
    return {
        **results.files(folder),
        folder / ABOUT: json.dumps(about, indent=1),
        folder / CLAIMS: json.dumps(claims, indent=1),
        **{folder / f"{figure.name}{ending}": data for ending, data in drawn(figure, results).items()},
    }


def claims_of(figure: Figure, results: Results) -> list[dict[str, Any]]:
    """Judges the claims of a figure, as written to JSON: None for nan."""
    known = {(row["world"], row["arm"]) for row in results.rows}
    complete = figure.judges_parts or figure.untrained or known >= set(figure.runs)
    judged = figure.judge(results) if complete else []
    claims = [dataclasses.asdict(claim) | {"figure": figure.name} for claim in judged]
    return [{name: _known(value) for name, value in claim.items()} for claim in claims]


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def drawn(figure: Figure, results: Results) -> dict[str, bytes]:
    """Draws the figure, as file contents by ending."""
    return figure.draw(results) if figure.draw else learning_curves(figure, results)


def text(results: Sequence[dict[str, Any]]) -> str:
    """The results as text."""
    parts = [_text(each) for each in results]
    if len(parts) > 1:
        parts = [f"{each['figure']}\n{part}" for each, part in zip(results, parts, strict=True)]
    unfinished = any(each["failed"] or each["signal"] for each in results)
    return "\n\n".join([*filter(None, parts), *(["Run the same command again to continue."] if unfinished else [])])


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
