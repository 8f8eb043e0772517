"""Where the results of runs come from: the non-default settings, and the command that trains the runs again."""

import contextlib
import dataclasses
import json
import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from advsurprise import envs, methods
from advsurprise.config import PPOConfig, RunConfig
from advsurprise.errors import UserError
from advsurprise.training.loops import whole_episodes

NO_FLAG = ("rollout", "save_every", "devices")
"""Fields of a run without a flag, changed with --set."""


def settings(configs: Mapping[str, RunConfig]) -> list[dict[str, Any]]:
    """Fields that are not the defaults or differ between runs: `name`, the `values` of all runs in order, and the
    `default`. A value is None if the method has no such field, a default if it is unknown."""
    flat = {name: _flat(cfg) for name, cfg in configs.items()}
    usual = {name: _defaults(cfg) for name, cfg in configs.items()}
    rows = []
    for field in dict.fromkeys(field for values in flat.values() for field in values):
        values = [flat[name].get(field, usual[name].get(field)) for name in configs]
        default = next((each[field] for each in usual.values() if field in each), None)
        if any(value != values[0] for value in values) or values[0] != default:
            rows.append({"name": field, "values": [_text(value) for value in values], "default": _text(default)})
    return rows


def _flat(cfg: RunConfig) -> dict[str, Any]:
    """All fields of a run except the method, by their names in --set."""
    own = {
        each.name: getattr(cfg, each.name)
        for each in dataclasses.fields(cfg)
        if each.name not in ("method", "method_fields", "env_fields", "ppo")
    }
    parts = {"env": cfg.env_fields, "method": cfg.method_fields, "ppo": dataclasses.asdict(cfg.ppo)}
    return own | {f"{part}.{name}": value for part, fields in parts.items() for name, value in fields.items()}


def _defaults(cfg: RunConfig) -> dict[str, Any]:
    """Defaults of a run's fields, as far as its world and its method can be found."""
    known = _flat(RunConfig())
    with contextlib.suppress(UserError):
        known |= {f"env.{name}": value for name, value in _world_defaults(cfg.env).items()}
    with contextlib.suppress(UserError):
        fields = dataclasses.fields(methods.method_class(cfg.method))
        known |= {f"method.{each.name}": each.default for each in fields if each.default is not dataclasses.MISSING}
    return known


def _world_defaults(id: str) -> dict[str, Any]:
    world = envs.find(id)
    if world.kind == "pure":
        env = world.make()
        return {name: getattr(env, name) for name in world.fields or ()}
    return dataclasses.asdict(world.settings()) if world.settings else {}


def _text(value: Any) -> str | None:
    """A value as --set takes it."""
    return None if value is None else setting(value)


# -------------------------------------------------------------------------------------------------- commands


def train_command(configs: Mapping[str, RunConfig], folder: pathlib.Path | None = None) -> str:
    """The command line that trains these runs."""
    return command(train_words(configs, folder))


def train_words(configs: Mapping[str, RunConfig], folder: pathlib.Path | None = None) -> list[str]:
    """Arguments of `advsurprise` that train these runs: one run, or several that differ only in their method."""
    first, several = next(iter(configs.values())), len(configs) > 1
    usual = {**_flat(RunConfig()), "rollout": _usual_rollout(first)}
    fields = {name: getattr(first, name) for name in NO_FLAG}
    fields |= {f"ppo.{each.name}": getattr(first.ppo, each.name) for each in dataclasses.fields(PPOConfig)}
    changed = {name: setting(value) for name, value in fields.items() if value != usual[name]}
    guessed = _accepts_any(first.env)
    changed |= {f"env.{name}": setting(value, guessed=guessed) for name, value in first.env_fields.items()}
    for method, cfg in configs.items():
        changed |= {f"{method if several else 'method'}.{k}": setting(value) for k, value in cfg.method_fields.items()}
    flags = {"env": first.env, "method": ",".join(configs), "steps": first.steps}
    return flag_words(flags | {"seeds": seeds(first.seeds), "bodies": first.bodies}, changed, folder)


def flag_words(flags: Mapping[str, Any], changed: Mapping[str, str], folder: pathlib.Path | None) -> list[str]:
    """Arguments of a `train` command: its flags, --set arguments and output folder."""
    words = ["train", *(word for name, value in flags.items() for word in (f"--{name}", str(value)))]
    words += [word for name, value in changed.items() for word in ("--set", f"{name}={value}")]
    return words if folder is None else [*words, "--out", str(folder)]


def command(words: Sequence[str]) -> str:
    """A shell command line."""
    return shlex.join(["advsurprise", *words])


def seeds(chosen: Sequence[int]) -> str:
    """Seeds as --seeds takes them."""
    if len(chosen) > 1 and list(chosen) == list(range(chosen[0], chosen[-1] + 1)):
        return f"{chosen[0]}..{chosen[-1]}"
    return ",".join(map(str, chosen))


def setting(value: Any, *, guessed: bool = False) -> str:
    """A value as --set takes it; `guessed` if the field has no type, so that its text is read as JSON if possible."""
    if guessed and not isinstance(value, str):
        return json.dumps(value)
    if guessed:
        return json.dumps(value) if _is_json(value) else value
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(setting, value)) if isinstance(value, tuple | list) else str(value)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _accepts_any(id: str) -> bool:
    """Whether a world takes arbitrary keywords, so that its settings have no types."""
    try:
        return envs.find(id).all_fields is None
    except UserError:
        return False


def _usual_rollout(cfg: RunConfig) -> int | None:
    """The rollout length that `train` chooses by default; None if the world cannot be found."""
    try:
        default = RunConfig.__dataclass_fields__["rollout"].default
        return whole_episodes(dataclasses.replace(cfg, rollout=default, steps=10**12)).rollout
    except UserError:
        return None
