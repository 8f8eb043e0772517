"""Explore and Control with Adversarial Surprise: unsupervised reinforcement learning in stochastic worlds.

Importing the package makes its worlds known to Gymnasium. All other names are resolved on first use, so that
``import advsurprise`` (and with it ``advsurprise --help``) imports neither jax nor any environment.
"""

import importlib
from typing import TYPE_CHECKING

from advsurprise.envs.registration import register as _register

__version__ = "0.1.0"

if TYPE_CHECKING:
    from advsurprise.envs import list_envs as list_envs
    from advsurprise.envs import make as make
    from advsurprise.types import EnvSpec as EnvSpec
    from advsurprise.types import TimeStep as TimeStep

_HOME = {
    "EnvSpec": "advsurprise.types",
    "TimeStep": "advsurprise.types",
    "list_envs": "advsurprise.envs",
    "make": "advsurprise.envs",
}

__all__ = ["EnvSpec", "TimeStep", "__version__", "list_envs", "make"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'advsurprise' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


_register()
