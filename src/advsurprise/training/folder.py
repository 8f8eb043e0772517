"""The folder of a run.

config.json     the configuration, and the software versions
metrics.jsonl   one row per update and seed
checkpoints/    the two newest checkpoints
card.md         a summary, and how to use the run
track/          output of trackers, if any
"""

import contextlib
import dataclasses
import errno
import json
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

from advsurprise import envs, zoo
from advsurprise.config import MAY_CHANGE, RunConfig, from_dict
from advsurprise.envs.world import PLACEMENT
from advsurprise.errors import UserError
from advsurprise.training import files
from advsurprise.training.versions import versions

CONFIG, METRICS, CHECKPOINTS, CARD, TRACK = "config.json", "metrics.jsonl", "checkpoints", "card.md", "track"
FROZEN = "frozen"
"""Key that marks a run without its training state."""


def check_folder(cfg: RunConfig, folder: pathlib.Path, *, fresh: bool) -> None:
    """Refuses a folder that holds anything but this run, possibly with fewer steps. Changes nothing."""
    refuse_frozen(folder)
    there = (folder / CONFIG).exists()
    refuse_other(folder, there=there, kind="run")
    if there and not fresh:
        _check_same(cfg, read_run(folder), folder)


def refuse_frozen(folder: pathlib.Path) -> None:
    """Refuses to train a run without its training state, such as an agent of the zoo."""
    if read_json(zoo.folder(folder) / CONFIG).get(FROZEN):
        raise UserError(
            f"{folder} holds trained policies without their training state: they can be evaluated and replayed, but "
            "not trained further"
        )


def refuse_other(folder: pathlib.Path, *, there: bool, kind: str) -> None:
    """Refuses a file, and a non-empty folder without a `kind` in it."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file, not a folder")
    if not there and folder.exists() and not all(map(files.is_temporary, folder.iterdir())):
        raise UserError(f"{folder} is not empty and holds no {kind}; choose another folder")


def prepare_folder(cfg: RunConfig, folder: pathlib.Path, *, fresh: bool) -> None:
    """Writes config.json into a folder that `check_folder` accepts; `fresh` first removes an existing run."""
    check_folder(cfg, folder, fresh=fresh)
    if fresh and (folder / CONFIG).exists():
        for name in (CONFIG, METRICS, CARD):
            (folder / name).unlink(missing_ok=True)
        for name in (CHECKPOINTS, TRACK):
            shutil.rmtree(folder / name, ignore_errors=True)
    write_config(folder / CONFIG, {"config": cfg.as_dict()}, fresh=fresh)


@contextlib.contextmanager
def locked(folder: pathlib.Path) -> Iterator[None]:
    """Keeps other processes from training into a folder, which is created if needed.

    The lock is on the folder itself and ends with the process, however that ends. File systems without locks have no
    such protection.
    """
    files.make_folder(folder)
    if os.name == "nt":  # no flock, and folders cannot be opened
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: pathlib.Path) -> None:
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(
            f"{folder} is being trained by another process; wait for it, or choose another folder"
        ) from None
    except OSError as error:
        if error.errno not in (errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL):
            raise


def write_config(path: pathlib.Path, contents: dict[str, Any], *, fresh: bool) -> None:
    """Writes a configuration with the software versions of its start, and a list of later ones that differ."""
    files.make_folder(path.parent)
    before = {} if fresh else read_json(path)
    first, later = before.get("versions", versions()), before.get("resumed_with", [])
    if [first, *later][-1] != versions():
        later = [*later, versions()]
    resumed = {"resumed_with": later} if later else {}
    files.write(path, json.dumps({**contents, "versions": first, **resumed}, indent=1) + "\n")


def read_json(path: pathlib.Path) -> dict[str, Any]:
    """The object in a JSON file; empty if there is none."""
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def read_run(folder: pathlib.Path) -> RunConfig:
    """The configuration of the run in a folder."""
    path = folder / CONFIG
    if zoo.folder(folder) != folder:
        raise UserError(f"{folder} ships without its training metrics: it can be evaluated, replayed and filmed")
    if not path.exists():
        raise UserError(f"there is no run in {folder}: {path.name} is missing")
    values = read_json(path).get("config")
    if not isinstance(values, dict):
        raise UserError(f"{path} is damaged: it does not hold a run's configuration")
    return from_dict(values, source=str(path))


def write_card(cfg: RunConfig, folder: pathlib.Path, steps: int, metrics: dict[str, float]) -> None:
    """Writes a summary of a run."""
    lines = [
        f"# {cfg.method} in {cfg.env}",
        "",
        f"{steps:,} of {cfg.steps:,} environment steps per seed; seeds: {', '.join(map(str, cfg.seeds))}.",
        "",
        f"    advsurprise eval {folder}      # evaluate, and compare with random actions",
        f"    advsurprise resume {folder}    # continue training",
        "",
        "| metric of the last update | mean over seeds |",
        "|---|---:|",
        *(f"| {name} | {value:.4g} |" for name, value in sorted(metrics.items())),
        "",
        f"Configuration: `{CONFIG}`. Metrics of every update: `{METRICS}`. Tensors: `{CHECKPOINTS}/`, safetensors.",
        "",
    ]
    files.write(folder / CARD, "\n".join(lines))


def _check_same(cfg: RunConfig, existing: RunConfig, folder: pathlib.Path) -> None:
    """Refuses a change to an existing run, except to its length and to how it is spread over processes."""
    cfg, existing = (_unplaced(each) for each in (cfg, existing))
    for each in dataclasses.fields(RunConfig):
        mine, theirs = getattr(cfg, each.name), getattr(existing, each.name)
        if each.name not in MAY_CHANGE and mine != theirs:
            raise UserError(
                f"{folder} holds another run ({each.name} is {_short(theirs)} there, {_short(mine)} asked for); "
                "choose another folder, or --fresh to start over"
            )


def _unplaced(cfg: RunConfig) -> RunConfig:
    """The configuration without the fields that say how the bodies of a host world are run."""
    if not PLACEMENT.keys() & cfg.env_fields.keys() or envs.find(cfg.env).settings is None:
        return cfg
    kept = {name: value for name, value in cfg.env_fields.items() if name not in PLACEMENT}
    return dataclasses.replace(cfg, env_fields=kept)


def _short(value: Any) -> str:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    return json.dumps(value)
