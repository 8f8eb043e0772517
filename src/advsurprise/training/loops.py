"""Chooses the training loop for a world."""

import dataclasses
import pathlib
from collections.abc import Iterator
from contextlib import closing, contextmanager

import numpy as np

from advsurprise import methods
from advsurprise.config import RunConfig
from advsurprise.envs import find
from advsurprise.learning.interaction import Agent
from advsurprise.training import checkpoint
from advsurprise.training.frozen import is_frozen, thaw
from advsurprise.training.fused import Fused, make_env
from advsurprise.training.hosted import Hosted, state_shapes
from advsurprise.training.state import TrainState, split_seeds


@contextmanager
def open_loop(cfg: RunConfig) -> Iterator[Fused | Hosted]:
    """The loop for the run's world, fused if it is pure and hosted otherwise; closes the world at the end."""
    if find(cfg.env).kind == "pure":
        yield Fused(cfg)
        return
    with closing(Hosted(cfg)) as loop:
        yield loop


def check_loop(cfg: RunConfig) -> None:
    """Refuses what cannot be trained, with the same error as `open_loop`."""
    if find(cfg.env).kind == "pure":
        Fused(cfg)
        return
    methods.make(cfg.method, find(cfg.env).read_spec(**cfg.env_fields), **cfg.method_fields)


def load_agents(cfg: RunConfig, record: pathlib.Path) -> tuple[list[Agent], int]:
    """One agent per seed from a run's checkpoint, and the updates done. No world is stepped."""
    like = _state_shapes(cfg)
    if is_frozen(record):
        agent, update = thaw(record, like.learner.agent, like.update)
    else:
        state = checkpoint.load(record, like)
        agent, update = state.learner.agent, state.update
    return split_seeds(agent, len(cfg.seeds)), int(np.ravel(update)[0])


def _state_shapes(cfg: RunConfig) -> TrainState:
    if find(cfg.env).kind == "host":
        return state_shapes(cfg, find(cfg.env).read_spec(**cfg.env_fields))
    return Fused(dataclasses.replace(cfg, devices=1)).like()  # the devices it was trained on may not exist here


def whole_episodes(cfg: RunConfig) -> RunConfig:
    """The configuration with its rollout rounded to whole episodes where their length is fixed: turns are then known in
    advance, and no Control turn is rewarded in two parts."""
    length = 0 if find(cfg.env).kind == "host" else make_env(cfg).spec.max_steps
    if not length:
        return cfg
    return dataclasses.replace(cfg, rollout=max(1, round(cfg.rollout / length)) * length)
