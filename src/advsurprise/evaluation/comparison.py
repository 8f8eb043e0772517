"""Several methods in one world, trained one after the other into one folder.

comparison.json   what was asked for: what all methods share, and each method's own fields
METHOD/           the run of each method, an ordinary run folder
"""

import dataclasses
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from advsurprise import methods
from advsurprise.config import MAY_CHANGE, RunConfig, from_dict
from advsurprise.errors import UserError, nearest
from advsurprise.evaluation import plot, sweep
from advsurprise.training import metrics, run
from advsurprise.training.folder import METRICS, prepare_folder, refuse_other, write_config
from advsurprise.training.loops import check_loop
from advsurprise.training.run import updates_done
from advsurprise.training.signals import stop_signals
from advsurprise.trust import allow

FILE = "comparison.json"
OWN = ("method", "method_fields")
"""Fields of a run that differ from method to method; all others are the same by construction."""

TrainOne = Callable[[RunConfig, pathlib.Path], run.RunResult]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What is compared."""

    base: RunConfig
    """What all methods share; its method and method fields are ignored."""
    fields: dict[str, dict[str, Any]]
    """For each method, in the order of training, its fields that differ from their defaults."""

    @property
    def configs(self) -> dict[str, RunConfig]:
        """One run for each method."""
        return {
            name: dataclasses.replace(self.base, method=name, method_fields=fields)
            for name, fields in self.fields.items()
        }

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        shared = {name: value for name, value in self.base.as_dict().items() if name not in OWN}
        return {"config": shared, "methods": self.fields}


# ---------------------------------------------------------------------------------------------- what is asked


def read_names(text: str) -> list[str]:
    """Method names with commas between them."""
    names = [part.strip() for part in text.split(",")]
    allow(*names)
    for name in names:
        methods.method_class(name)
        if names.count(name) > 1:
            raise UserError(f"{name} is named twice in --method")
    return names


def share_out(names: Sequence[str], words: Sequence[str]) -> dict[str, list[str]]:
    """The words of --set that concern each method.

    method.FIELD=VALUE goes to the methods that have the field, METHOD.FIELD=VALUE to that one, all others to all.
    """
    shared: dict[str, list[str]] = {name: [] for name in names}
    for word in words:
        home, _, rest = word.partition("=")[0].rpartition(".")
        if home in methods.names() and home not in names:
            raise UserError(f"{home} is not one of the methods compared: {', '.join(names)}")
        chosen = [home] if home in names else [name for name in names if home != "method" or rest in known(name)]
        if not chosen:
            raise UserError(f"unknown field {nearest(f'method.{rest}', _all_fields(names))}")
        own = "method" + word.removeprefix(home) if home in names else word
        for name in chosen:
            shared[name].append(own)
    return shared


def known(name: str) -> set[str]:
    """Fields of a method that can be set."""
    return {field.name for field in dataclasses.fields(methods.method_class(name))} - {"spec"}


def _all_fields(names: Sequence[str]) -> set[str]:
    return {f"method.{field}" for name in names for field in known(name)}


def of(configs: dict[str, RunConfig]) -> Comparison:
    """A comparison of runs that differ in their methods only. A configuration file gives its fields to all methods:
    those that do not have a field do without it, but one must have it."""
    names = list(configs)
    for field in {field for cfg in configs.values() for field in cfg.method_fields}:
        if not any(field in known(name) for name in names):
            raise UserError(f"unknown field {nearest(f'method.{field}', _all_fields(names))}")
    fields = {
        name: {field: value for field, value in cfg.method_fields.items() if field in known(name)}
        for name, cfg in configs.items()
    }
    return Comparison(dataclasses.replace(configs[names[0]], method_fields={}), fields)


# ------------------------------------------------------------------------------------------------- the folder


def is_comparison(folder: pathlib.Path) -> bool:
    """Whether a folder holds a comparison."""
    return (folder / FILE).exists()


def read(folder: pathlib.Path) -> Comparison:
    """The comparison in a folder."""
    path = folder / FILE
    try:
        values = json.loads(path.read_text())
        shared, fields = dict(values["config"]), {name: dict(own) for name, own in values["methods"].items()}
        first = next(iter(fields))
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError, StopIteration):
        raise UserError(f"{path} is damaged: it does not hold what is compared") from None
    base = from_dict({**shared, "method": first}, source=str(path))
    # As run folders do: JSON has no tuples.
    each = {name: from_dict({"method_fields": own}, source=str(path)).method_fields for name, own in fields.items()}
    return Comparison(base, each)


def prepare(asked: Comparison, folder: pathlib.Path, *, fresh: bool) -> None:
    """Makes the folder and the runs' folders, or checks that they hold this very comparison, perhaps shorter or of
    fewer methods. A mistake in any method shows here, before the first is trained."""
    there = is_comparison(folder)
    refuse_other(folder, there=there, kind="comparison")
    if there and not fresh:
        _check_same(asked, read(folder), folder)
    for cfg in asked.configs.values():
        check_loop(cfg)
    write_config(folder / FILE, asked.as_dict(), fresh=fresh)
    for name, cfg in asked.configs.items():
        prepare_folder(cfg, folder / name, fresh=fresh)


def _check_same(asked: Comparison, existing: Comparison, folder: pathlib.Path) -> None:
    """An existing comparison may be made longer and be given more methods, nothing else."""
    change = "choose another folder, or --fresh to start over"
    mine, theirs = asked.as_dict()["config"], existing.as_dict()["config"]
    for name, value in theirs.items():
        if name not in MAY_CHANGE and mine[name] != value:
            raise UserError(
                f"{folder} holds another comparison ({name} is {json.dumps(value)} there, "
                f"{json.dumps(mine[name])} asked for); {change}"
            )
    if asked.base.steps < existing.base.steps:
        raise UserError(f"{folder} is set to {existing.base.steps} steps, more than {asked.base.steps}; {change}")
    for name, own in existing.fields.items():
        if asked.fields.get(name) != own:
            there = f"{name} with {json.dumps(own)}" if own else f"{name} with its defaults"
            raise UserError(f"{folder} holds another comparison ({there} is part of it); {change}")


def gathered(folder: pathlib.Path) -> dict[str, RunConfig] | None:
    """The runs in the subfolders of a comparison or a sweep; None if a folder is neither."""
    if is_comparison(folder):
        return read(folder).configs
    return sweep.read(folder).configs if sweep.is_sweep(folder) else None


def go_on(folder: pathlib.Path) -> str:
    """The command that goes on with a comparison, a sweep or a run."""
    return sweep.read(folder).command if sweep.is_sweep(folder) else f"advsurprise resume {folder}"


def begun(folder: pathlib.Path, log: run.Log) -> list[pathlib.Path]:
    """Folders of the runs of a comparison or a sweep that have metrics."""
    names = list(gathered(folder) or ())
    started = [name for name in names if metrics.read_rows(folder / name / METRICS)]
    if not started:
        raise UserError(f"{folder} has no metrics yet; continue with: {go_on(folder)}")
    if len(started) < len(names):
        log(f"not trained yet: {', '.join(name for name in names if name not in started)}")
    return [folder / name for name in started]


# --------------------------------------------------------------------------------------------------- training


def train(asked: Comparison, folder: pathlib.Path, train_one: TrainOne, *, log: run.Log) -> tuple[int, dict[str, str]]:
    """Trains the methods that are not finished yet, one after the other, in a prepared folder.

    Returns the number of the signal that stopped it (0 if it finished), and for each method that failed the reason. A
    method whose losses are no longer finite does not keep the others from being trained.
    """
    waiting, failed = _unfinished(asked, folder, log), {}
    # A run catches signals itself; these are the ones between two runs.
    with stop_signals() as stop:
        while waiting and not stop:
            name, cfg = waiting[0]
            try:
                result = train_one(cfg, folder / name)
            except run.NonFinite as error:
                failed[name] = str(error)
                log(f"{name}: {error}")
                waiting = waiting[1:]
            else:
                stop += [result.signal] if result.signal else []
                waiting = waiting if result.stopped_by else waiting[1:]
    return (stop[0] if waiting else 0), failed


def _unfinished(asked: Comparison, folder: pathlib.Path, log: run.Log) -> list[tuple[str, RunConfig]]:
    waiting = []
    for name, cfg in asked.configs.items():
        if updates_done(folder / name) < cfg.updates:
            waiting.append((name, cfg))
        else:
            log(f"{name} is already trained to {cfg.updates * cfg.steps_per_update:,} steps: skipped")
    return waiting


# ---------------------------------------------------------------------------------------------------- drawing


def draw(
    folders: Sequence[pathlib.Path],
    *,
    metric: str | None = None,
    out: pathlib.Path | None = None,
    smooth: int | None = None,
    log: run.Log,
) -> dict[str, Any]:
    """Draws runs and the runs of comparisons and sweeps beside each other. Of what the * of a shell finds in a sweep,
    files and runs without metrics are passed over."""
    if len(folders) > 1:
        folders = [each for each in folders if not each.is_file() and not _is_late(each, log)]
    if not folders:
        raise UserError("name a run or a comparison to plot, for example: advsurprise plot runs/rooms-four-comparison")
    runs = [one for each in folders for one in ([each] if gathered(each) is None else begun(each, log))]
    home = folders[0] if len(folders) == 1 else pathlib.Path()
    prefix = home / ("plot" if runs == list(folders) and len(runs) == 1 else "comparison")
    return plot.draw(runs, metric=metric, out=out or prefix, smooth=smooth, log=log)


def _is_late(folder: pathlib.Path, log: run.Log) -> bool:
    late = sweep.is_sweep(folder.resolve().parent) and not metrics.read_rows(folder / METRICS)
    if late:
        log(f"not trained yet: {folder.name}")
    return late


def text(result: dict[str, Any]) -> str:
    """The end of a comparison, for a person."""
    folder = result["comparison"]
    return "\n".join(
        [
            plot.end_text(result),
            *(f"{name} failed: {why}" for name, why in result["failed"].items()),
            f"Other metrics: advsurprise plot {folder} --metric {','.join(result['others']) or 'COLUMN'}",
            f"Evaluate one:  advsurprise eval {folder}/{result['methods'][0]}",
        ]
    )
