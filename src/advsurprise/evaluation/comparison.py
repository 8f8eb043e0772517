"""Several methods in one world, trained one after the other into one folder.

comparison.json   the configuration: fields shared by all methods, and each method's own fields
METHOD/           the run folder of each method
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
"""Fields of a run that differ between methods; all others are the same by construction."""

TrainOne = Callable[[RunConfig, pathlib.Path], run.RunResult]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The configuration of a comparison."""

    base: RunConfig
    """Settings shared by all methods; its method and method fields are ignored."""
    fields: dict[str, dict[str, Any]]
    """Non-default fields of each method, in training order."""

    @property
    def configs(self) -> dict[str, RunConfig]:
        """The run configuration of each method."""
        return {
            name: dataclasses.replace(self.base, method=name, method_fields=fields)
            for name, fields in self.fields.items()
        }

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        shared = {name: value for name, value in self.base.as_dict().items() if name not in OWN}
        return {"config": shared, "methods": self.fields}


# ------------------------------------------------------------------------------------------ the configuration


def read_names(text: str) -> list[str]:
    """Parses comma-separated method names."""
    names = [part.strip() for part in text.split(",")]
    allow(*names)
    for name in names:
        methods.method_class(name)
        if names.count(name) > 1:
            raise UserError(f"{name} is named twice in --method")
    return names


def share_out(names: Sequence[str], words: Sequence[str]) -> dict[str, list[str]]:
    """Returns the --set arguments of each method.

    method.FIELD=VALUE goes to the methods that have the field, METHOD.FIELD=VALUE to that method, all others to all.
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
    """Names of the fields that can be set for a method."""
    return {field.name for field in dataclasses.fields(methods.method_class(name))} - {"spec"}


def _all_fields(names: Sequence[str]) -> set[str]:
    return {f"method.{field}" for name in names for field in known(name)}


def of(configs: dict[str, RunConfig]) -> Comparison:
    """Builds a comparison from runs that differ only in their method. Method fields from a configuration file are
    ignored for methods that do not have them, but at least one method must."""
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
    """Reads the comparison in a folder."""
    path = folder / FILE
    try:
        values = json.loads(path.read_text())
        shared, fields = dict(values["config"]), {name: dict(own) for name, own in values["methods"].items()}
        first = next(iter(fields))
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError, StopIteration):
        raise UserError(f"{path} is damaged: it is not a valid comparison") from None
    base = from_dict({**shared, "method": first}, source=str(path))
    # Restores tuples, which JSON does not have.
    each = {name: from_dict({"method_fields": own}, source=str(path)).method_fields for name, own in fields.items()}
    return Comparison(base, each)


def prepare(comparison: Comparison, folder: pathlib.Path, *, fresh: bool) -> None:
    """Creates the folder and the run folders, or checks that they hold the same comparison, possibly with fewer steps
    or methods. Errors in any method's settings are raised here, before training starts."""
    exists = is_comparison(folder)
    refuse_other(folder, there=exists, kind="comparison")
    if exists and not fresh:
        _check_same(comparison, read(folder), folder)
    for cfg in comparison.configs.values():
        check_loop(cfg)
    write_config(folder / FILE, comparison.as_dict(), fresh=fresh)
    for name, cfg in comparison.configs.items():
        prepare_folder(cfg, folder / name, fresh=fresh)


def _check_same(new: Comparison, existing: Comparison, folder: pathlib.Path) -> None:
    """Only more steps and more methods may differ from an existing comparison."""
    change = "choose another folder, or --fresh to start over"
    mine, theirs = new.as_dict()["config"], existing.as_dict()["config"]
    for name, value in theirs.items():
        if name not in MAY_CHANGE and mine[name] != value:
            raise UserError(
                f"{folder} holds another comparison ({name} is {json.dumps(value)} there, "
                f"{json.dumps(mine[name])} asked for); {change}"
            )
    if new.base.steps < existing.base.steps:
        raise UserError(f"{folder} is set to {existing.base.steps} steps, more than {new.base.steps}; {change}")
    for name, own in existing.fields.items():
        if new.fields.get(name) != own:
            there = f"{name} with {json.dumps(own)}" if own else f"{name} with its defaults"
            raise UserError(f"{folder} holds another comparison ({there} is part of it); {change}")


def gathered(folder: pathlib.Path) -> dict[str, RunConfig] | None:
    """Configurations of the runs in a comparison or a sweep; None if the folder is neither."""
    if is_comparison(folder):
        return read(folder).configs
    return sweep.read(folder).configs if sweep.is_sweep(folder) else None


def go_on(folder: pathlib.Path) -> str:
    """The command that resumes a comparison, a sweep or a run."""
    return sweep.read(folder).command if sweep.is_sweep(folder) else f"advsurprise resume {folder}"


def started_runs(folder: pathlib.Path, log: run.Log) -> list[pathlib.Path]:
    """Run folders of a comparison or a sweep that already have metrics."""
    names = list(gathered(folder) or ())
    started = [name for name in names if metrics.read_rows(folder / name / METRICS)]
    if not started:
        raise UserError(f"{folder} has no metrics yet; continue with: {go_on(folder)}")
    if len(started) < len(names):
        log(f"not trained yet: {', '.join(name for name in names if name not in started)}")
    return [folder / name for name in started]


# --------------------------------------------------------------------------------------------------- training


def train(
    comparison: Comparison, folder: pathlib.Path, train_one: TrainOne, *, log: run.Log
) -> tuple[int, dict[str, str]]:
    """Trains the unfinished methods one after the other, in a prepared folder.

    Returns the number of the signal that stopped training (0 if it finished), and the reason for each method that
    failed. A method whose losses become non-finite does not stop the others.
    """
    waiting, failed = _unfinished(comparison, folder, log), {}
    # A run handles its own signals; this catches those between two runs.
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


def _unfinished(comparison: Comparison, folder: pathlib.Path, log: run.Log) -> list[tuple[str, RunConfig]]:
    waiting = []
    for name, cfg in comparison.configs.items():
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
    """Plots runs, and the runs of comparisons and sweeps, in one figure. With several paths, as from a shell glob over
    a sweep, plain files and runs without metrics are skipped."""
    if len(folders) > 1:
        folders = [each for each in folders if not each.is_file() and not _is_late(each, log)]
    if not folders:
        raise UserError("name a run or a comparison to plot, for example: advsurprise plot runs/rooms-four-comparison")
    runs = [one for each in folders for one in ([each] if gathered(each) is None else started_runs(each, log))]
    home = folders[0] if len(folders) == 1 else pathlib.Path()
    prefix = home / ("plot" if runs == list(folders) and len(runs) == 1 else "comparison")
    return plot.draw(runs, metric=metric, out=out or prefix, smooth=smooth, log=log)


def _is_late(folder: pathlib.Path, log: run.Log) -> bool:
    late = sweep.is_sweep(folder.resolve().parent) and not metrics.read_rows(folder / METRICS)
    if late:
        log(f"not trained yet: {folder.name}")
    return late


def text(result: dict[str, Any]) -> str:
    """The final results of a comparison as text."""
    folder = result["comparison"]
    return "\n".join(
        [
            plot.end_text(result),
            *(f"{name} failed: {why}" for name, why in result["failed"].items()),
            f"Other metrics: advsurprise plot {folder} --metric {','.join(result['others']) or 'COLUMN'}",
            f"Evaluate one:  advsurprise eval {folder}/{result['methods'][0]}",
        ]
    )
