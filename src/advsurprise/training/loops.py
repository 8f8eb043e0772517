"""The loop that fits a world."""

import dataclasses

from advsurprise.config import RunConfig
from advsurprise.envs.host.load import is_foreign
from advsurprise.training.fused import Fused, make_env
from advsurprise.training.hosted import Hosted


def make_loop(cfg: RunConfig) -> Fused | Hosted:
    """The loop that fits the world: compiled for ours, hosted for those of others."""
    return Hosted(cfg) if is_foreign(cfg.env) else Fused(cfg)


def whole_episodes(cfg: RunConfig) -> RunConfig:
    """The configuration with its rollout rounded to whole episodes where their length is fixed: turns are then known
    beforehand, and no Control turn is paid in two parts."""
    length = 0 if is_foreign(cfg.env) else make_env(cfg).spec.max_steps
    if not length:
        return cfg
    return dataclasses.replace(cfg, rollout=max(1, round(cfg.rollout / length)) * length)
