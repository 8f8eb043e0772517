"""What a run leaves on disk, written by the real writers without training."""

import dataclasses
import json
import pathlib
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from advsurprise.config import RunConfig
from advsurprise.learning.interaction import Agent
from advsurprise.training.folder import CONFIG, METRICS, write_config
from advsurprise.training.fused import Fused
from advsurprise.training.run import save


def begin(folder: pathlib.Path, cfg: RunConfig) -> None:
    """A run that has been asked for."""
    write_config(folder / CONFIG, {"config": cfg.as_dict()}, fresh=True)


def write_rows(folder: pathlib.Path, cfg: RunConfig, update: int, *, level: float) -> None:
    """The rows of an update: seeds differ, and so do levels."""
    at = {"step": update * cfg.steps_per_update, "update": update, "steps_per_s": 1234.0, "episodes": 2}
    rows = [at | {"seed": seed, "common_surprise": level + seed / 100, "end/uses": 1.5} for seed in cfg.seeds]
    with (folder / METRICS).open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def write_checkpoint(folder: pathlib.Path, cfg: RunConfig, update: int, agents: Sequence[Agent]) -> None:
    """The checkpoint of an update after which the seeds' agents were these; worlds and optimisers are blank."""
    shapes = Fused(dataclasses.replace(cfg, devices=1)).like()
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), (shapes.learner, shapes.carry))
    agent = jax.tree.map(lambda *leaves: jnp.stack(leaves), *agents)
    state = dataclasses.replace(
        shapes,
        learner=dataclasses.replace(blank[0], agent=agent),
        carry=blank[1],
        update=jnp.full(len(cfg.seeds), update, jnp.int32),
        key=jax.random.split(jax.random.key(0), len(cfg.seeds)),
    )
    save(folder, cfg, update, state)
