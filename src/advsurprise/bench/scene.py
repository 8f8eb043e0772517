"""A folder with one of everything that commands read: a small run, a comparison, settings, a theory world."""

import contextlib
import dataclasses
import json
import pathlib
import shutil
from collections.abc import Iterator, Mapping

import jax
import jax.numpy as jnp

from advsurprise.config import RunConfig
from advsurprise.training.folder import CONFIG, METRICS, write_config
from advsurprise.training.fused import Fused
from advsurprise.training.run import save
from advsurprise.training.state import TrainState

RUN, COMPARISON, NOTE, WORLD, CONFIGURATION = "run", "compared", "note.txt", "world.json", "settings.json"
OUT = "out"
"""The folder that commands may write to."""
CFG = RunConfig(
    env="rooms/four",
    env_fields={"grid": 12, "max_side": 5},
    method="random",
    steps=64,
    bodies=2,
    rollout=8,
    seeds=(0, 1),
)
MOVES = {
    "name": "flat",
    "moves": {"bed": ["bed", "hall"], "hall": ["hall", "bed"], "tv": ["tv", "hall"]},
    "entropies": {"bed": 0, "hall": 0.2, "tv": 3},
    "start": "bed",
    "horizon": 2,
}
TABLES = {
    "transition": [[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [1.0, 0.0]]],
    "emission": [[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]],
    "start": [1.0, 0.0],
    "states": ["a", "b"],
    "copies": [1, 1, 2],
}


@dataclasses.dataclass(frozen=True)
class Scene:
    """The folder and its original contents."""

    folder: pathlib.Path
    """Its path."""
    files: Mapping[str, bytes]
    """Contents by path."""
    record: str
    """Path of the record of the run's checkpoint."""
    tensors: str
    """Path of its tensors."""

    @contextlib.contextmanager
    def planted(self, files: Mapping[str, bytes | None]) -> Iterator[None]:
        """Replaces or removes (None) some files, and restores them afterwards."""
        try:
            for name, content in files.items():
                _put(self.folder / name, content)
            yield
        finally:
            for name in files:
                _put(self.folder / name, self.files.get(name))


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    """All files below a folder by path, except those that commands may write."""
    paths = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in paths.items() if not name.startswith(f"{OUT}/")}


def make(folder: pathlib.Path) -> Scene:
    """Creates the scene in an empty folder, with the same writers as real runs. Nothing is trained."""
    for name in ("random", "task"):
        _write_run(folder / COMPARISON / name, dataclasses.replace(CFG, method=name))
    shared = {name: value for name, value in CFG.as_dict().items() if not name.startswith("method")}
    compared = {"config": shared, "methods": {"random": {}, "task": {}}}
    write_config(folder / COMPARISON / "comparison.json", compared, fresh=True)
    _write_run(folder / RUN, CFG)
    shapes = Fused(dataclasses.replace(CFG, devices=1)).like()
    keys = jax.random.split(jax.random.key(0), len(CFG.seeds))
    learner, carry, update = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), (shapes.learner, shapes.carry, shapes.update)
    )
    save(folder / RUN, CFG, CFG.updates, TrainState(learner, carry, update, keys))
    (folder / NOTE).write_text("A file of somebody else.\n")
    (folder / CONFIGURATION).write_text(json.dumps(CFG.as_dict()))
    (folder / WORLD).write_text(json.dumps(MOVES))
    (folder / WORLD.replace(".json", "_tables.json")).write_text(json.dumps(TABLES))
    files = contents(folder)
    [record] = (name for name in files if name.startswith(f"{RUN}/checkpoints/") and name.endswith(".json"))
    [tensors] = (name for name in files if name.endswith(".safetensors"))
    return Scene(folder, files, record, tensors)


def _write_run(folder: pathlib.Path, cfg: RunConfig) -> None:
    write_config(folder / CONFIG, {"config": cfg.as_dict()}, fresh=True)
    rows = [
        {"step": update * cfg.steps_per_update, "update": update, "seed": seed, "steps_per_s": 9.5, "episodes": 2}
        | {"common_surprise": 1.0 + seed / 10, "end/rooms_episode": 1.5, "explore/loss": 0.25}
        for update in range(1, cfg.updates + 1)
        for seed in cfg.seeds
    ]
    (folder / METRICS).write_text("".join(json.dumps(row) + "\n" for row in rows))


def _put(path: pathlib.Path, content: bytes | None) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if content is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
