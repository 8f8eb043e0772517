"""Gymnasium environments by name. Imports no jax: worker processes that run one body need none."""

import contextlib
import copy
import functools
import re
from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium.envs.registration import EnvSpec as Registration

from advsurprise.envs.foreign.load import is_foreign
from advsurprise.envs.world import World
from advsurprise.errors import UserError
from advsurprise.trust import check_named
from advsurprise.userfile import is_file_class, load_class

if TYPE_CHECKING:
    from advsurprise.envs.host.base import Host
    from advsurprise.types import EnvSpec


def is_gymnasium(name: str) -> bool:
    """Whether a name is a Gymnasium id or a class in a file, not one of our own worlds."""
    named = ":" in name and not is_foreign(name)
    return named or name in gymnasium.registry or re.search(r"-v\d+$", name) is not None


def world(name: str) -> World:
    """Registry entry for a Gymnasium name; whether the environment exists is known only once it is opened."""
    spec, build = functools.partial(_spec, name), functools.partial(_open, name)
    return World(name, "a Gymnasium environment", "host", build, None, spec=spec, foreign=True)


def _spec(name: str, *, vectorization: Any = "auto", **kwargs: Any) -> "EnvSpec":
    from advsurprise.envs.host.gymnasium import read_spec

    _check_code(name)
    with contextlib.closing(make_env(name, kwargs)) as env:
        return read_spec(env, name)


def _open(name: str, bodies: int, *, seeds: int = 1, vectorization: Any = "auto", **kwargs: Any) -> "Host":
    from advsurprise.envs.host.gymnasium import open_host

    _check_code(name)
    return open_host(name, bodies, seeds=seeds, kwargs=kwargs, vectorization=vectorization)


def _check_code(name: str) -> None:
    """Refuses to import a package or run a file that the user has not named. An id alone does neither."""
    if ":" in name:
        check_named(name)


def make_env(name: str, kwargs: dict[str, Any] | None = None) -> gymnasium.Env:
    """Makes one environment from `package:Name-v0`, `Name-v0` or `path/to/file.py:Class`.

    This imports the package or runs the file: name only code you trust. `kwargs` go to the environment, except
    `max_episode_steps`, which truncates its episodes.
    """
    options: dict[str, Any] = {"disable_env_checker": True} | (kwargs or {})
    try:
        return gymnasium.make(_registered(name), **options)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{name} could not be made: {sentence(error)}") from error


def make_body(name: str, kwargs: dict[str, Any] | None = None) -> gymnasium.Env:
    """One body of a vector environment."""
    return Body(make_env(name, kwargs))


class Body(gymnasium.Wrapper):
    """Copies observations, since some environments overwrite the last one and would corrupt the final observation by
    resetting; drops infos, which are not used."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        """Starts an episode."""
        obs, _ = self.env.reset(seed=seed, options=options)
        return copy.deepcopy(obs), {}

    def step(self, action):
        """Takes one step."""
        obs, reward, terminated, truncated, _ = self.env.step(action)
        return copy.deepcopy(obs), reward, terminated, truncated, {}


def sentence(error: BaseException) -> str:
    """An error in one line; Gymnasium's own do not need their class name."""
    line = " ".join(str(error).split()) or "no reason given"
    return line if isinstance(error, gymnasium.error.Error) else f"{type(error).__name__}: {line}"


def _registered(name: str) -> str | Registration:
    """What `gymnasium.make` takes: an id, or a registration of a class in a file."""
    if not is_file_class(name):
        return name
    return Registration(id=name.rpartition(":")[2], entry_point=load_class(name, gymnasium.Env))
