"""The loop that fits a world."""

import dataclasses

from advsurprise.config import RunConfig
from advsurprise.envs import find
from advsurprise.training.fused import Fused, make_env
from advsurprise.training.hosted import Hosted


def make_loop(cfg: RunConfig) -> Fused | Hosted:
    """The loop that fits the world: compiled for pure ones, hosted for the others."""
    return Hosted(cfg) if find(cfg.env).kind == "host" else Fused(cfg)


def whole_episodes(cfg: RunConfig) -> RunConfig:
    """The configuration with its rollout rounded to whole episodes where their length is fixed: turns are then known
    beforehand, and no Control turn is paid in two parts."""
    length = 0 if find(cfg.env).kind == "host" else make_env(cfg).spec.max_steps
    if not length:
        return cfg
    return dataclasses.replace(cfg, rollout=max(1, round(cfg.rollout / length)) * length)
