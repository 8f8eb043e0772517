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
from advsurprise.training.state import TrainState


def begin(folder: pathlib.Path, cfg: RunConfig) -> None:
    """A run that has been asked for."""
    write_config(folder / CONFIG, {"config": cfg.as_dict()}, fresh=True)


def write_rows(folder: pathlib.Path, cfg: RunConfig, update: int, *, level: float) -> None:
    """The rows of an update: seeds differ, and so do levels."""
    at = {"step": update * cfg.steps_per_update, "update": update, "steps_per_s": 1234.0, "episodes": 2}
    rows = [at | {"seed": seed, "common_surprise": level + seed / 100, "end/uses": 1.5} for seed in cfg.seeds]
    with (folder / METRICS).open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def blank_state(cfg: RunConfig) -> TrainState:
    """A state of zeros."""
    shapes = Fused(dataclasses.replace(cfg, devices=1)).like()
    learner, carry, update = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), (shapes.learner, shapes.carry, shapes.update)
    )
    return TrainState(learner, carry, update, jax.random.split(jax.random.key(0), len(cfg.seeds)))


def write_checkpoint(
    folder: pathlib.Path, cfg: RunConfig, update: int, agents: Sequence[Agent], blank: TrainState
) -> None:
    """The checkpoint of an update after which the seeds' agents were these; worlds and optimisers are blank."""
    agent = jax.tree.map(lambda *leaves: jnp.stack(leaves), *agents)
    learner = dataclasses.replace(blank.learner, agent=agent)
    save(folder, cfg, update, TrainState(learner, blank.carry, jnp.full_like(blank.update, update), blank.key))
