"""Explore and Control with Adversarial Surprise: unsupervised reinforcement learning in stochastic worlds.

Importing the package registers its worlds with Gymnasium. All other names are resolved on first use, so that
``import advsurprise`` (and thus ``advsurprise --help``) imports neither jax nor any environment.
"""

import importlib
from typing import TYPE_CHECKING

from advsurprise.envs.registration import register as _register

__version__ = "0.1.0"

if TYPE_CHECKING:
    from advsurprise.api import Trained as Trained
    from advsurprise.api import load as load
    from advsurprise.api import train as train
    from advsurprise.config import PPOConfig as PPOConfig
    from advsurprise.config import RunConfig as RunConfig
    from advsurprise.envs import list_envs as list_envs
    from advsurprise.envs import make as make
    from advsurprise.types import EnvSpec as EnvSpec
    from advsurprise.types import TimeStep as TimeStep

_HOME = {
    "PPOConfig": "advsurprise.config",
    "RunConfig": "advsurprise.config",
    "Trained": "advsurprise.api",
    "load": "advsurprise.api",
    "train": "advsurprise.api",
    "EnvSpec": "advsurprise.types",
    "TimeStep": "advsurprise.types",
    "list_envs": "advsurprise.envs",
    "make": "advsurprise.envs",
}

__all__ = [
    "EnvSpec",
    "PPOConfig",
    "RunConfig",
    "TimeStep",
    "Trained",
    "__version__",
    "list_envs",
    "load",
    "make",
    "train",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'advsurprise' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


_register()
