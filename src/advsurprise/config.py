"""Configuration of a run. Derived sizes are properties, never stored."""

import dataclasses
import json
import math
import pathlib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin, get_type_hints

from advsurprise.errors import UserError, check, choice_rule, nearest


@dataclass(frozen=True)
class PPOConfig:
    """Hyperparameters of PPO, the same for every role and method."""

    lr: float = 3e-4
    """Learning rate of Adam."""
    lr_end_steps: int = 0
    """Environment steps over which the learning rate decays linearly to 0, however long the run; 0 for no decay."""
    adam_eps: float = 1e-5
    """Adam's epsilon."""
    epochs: int = 4
    """Passes over each batch."""
    minibatch: int = 256
    """Samples per gradient step."""
    minibatches: int = 0
    """Gradient steps per pass, of any size (useful with many bodies); 0 to use `minibatch` instead."""
    clip: float = 0.2
    """Clipping range of the probability ratio around 1."""
    value_clip: float = 0.2
    """Clipping range of a value around the one predicted when collecting; 0 for no clipping."""
    value_coef: float = 0.5
    """Weight of the value loss."""
    entropy_coef: float = 0.01
    """Weight of the policy's entropy."""
    max_grad_norm: float = 0.5
    """Maximum norm of a gradient; larger ones are scaled down."""
    gae_lambda: float = 0.95
    """λ of generalised advantage estimation."""
    normalise_advantage: bool = True
    """Whether advantages are standardised over each minibatch (the authors of Adversarial Surprise did not)."""

    def __post_init__(self):
        rules = [
            (self.lr > 0, f"ppo.lr must be positive, not {self.lr}"),
            (self.lr_end_steps >= 0, f"ppo.lr_end_steps must be at least 0, not {self.lr_end_steps}"),
            (self.epochs >= 1, f"ppo.epochs must be at least 1, not {self.epochs}"),
            (self.minibatch >= 1, f"ppo.minibatch must be at least 1, not {self.minibatch}"),
            (self.minibatches >= 0, f"ppo.minibatches must be at least 0, not {self.minibatches}"),
            (self.clip > 0, f"ppo.clip must be positive, not {self.clip}"),
            (self.value_clip >= 0, f"ppo.value_clip must be at least 0, not {self.value_clip}"),
            (self.max_grad_norm > 0, f"ppo.max_grad_norm must be positive, not {self.max_grad_norm}"),
            (0 <= self.gae_lambda <= 1, f"ppo.gae_lambda must be 0 to 1, not {self.gae_lambda}"),
        ]
        check(rules)

    def minibatch_of(self, samples: int) -> int:
        """Samples per gradient step of a role with about `samples` steps."""
        return max(1, samples // self.minibatches) if self.minibatches else self.minibatch


MOST_STEPS = 2**31
"""Limit on the steps of an update, which are counted with 32 bits."""
MOST_SEEDS = 10_000
"""Limit on the number of seeds; more must be a mistake."""
WIDEST = 64
"""Limit on `network_width`; more must be a mistake."""
MAY_CHANGE = ("steps", "save_every", "devices")
"""Fields that may change when a run is resumed."""


@dataclass(frozen=True)
class RunConfig:
    """One training run of one method in one world, for one or several seeds."""

    env: str = "rooms/four"
    """The world."""
    env_fields: dict[str, Any] = field(default_factory=dict)
    """Fields of the world that differ from its defaults."""
    method: str = "adversarial-surprise"
    """The method."""
    method_fields: dict[str, Any] = field(default_factory=dict)
    """Fields of the method that differ from its defaults."""
    ppo: PPOConfig = field(default_factory=PPOConfig)
    """Hyperparameters of PPO."""
    steps: int = 2_000_000
    """Environment steps per seed; rounded down to whole updates."""
    seeds: tuple[int, ...] = (0,)
    """Seeds, trained together."""
    bodies: int = 16
    """Parallel environments per seed."""
    rollout: int = 512
    """Steps per body and update; the default is rounded to whole episodes where their length is fixed."""
    network_width: int = 1
    """Multiplies the width of every layer of the policies; 1 for the paper's networks."""
    save_every: int = 20
    """Updates between two checkpoints."""
    devices: int = 0
    """Number of devices; 0 for the fastest number of CPU cores, or one device of any other kind."""

    def __post_init__(self):
        rules = [
            (self.bodies >= 1, f"bodies must be at least 1, not {self.bodies}"),
            (self.devices >= 0, f"devices must be at least 0, not {self.devices}"),
            (self.rollout >= 1, f"rollout must be at least 1, not {self.rollout}"),
            (
                1 <= self.network_width <= WIDEST,
                f"network_width must be from 1 to {WIDEST}, not {self.network_width}",
            ),
            (self.save_every >= 1, f"save_every must be at least 1, not {self.save_every}"),
            (
                self.steps_per_update < MOST_STEPS,
                f"an update has fewer than {MOST_STEPS:,} steps (bodies x rollout), not {self.steps_per_update:,}",
            ),
            (len(self.seeds) >= 1, "at least one seed is needed"),
            (len(self.seeds) <= MOST_SEEDS, f"at most {MOST_SEEDS:,} seeds, not {len(self.seeds):,}"),
            (all(0 <= seed < 2**32 for seed in self.seeds), "seeds must be from 0 to 4,294,967,295"),
            (len(set(self.seeds)) == len(self.seeds), f"seeds must differ from each other, not {list(self.seeds)}"),
        ]
        check(rules)
        # After the others, since `updates` divides by bodies x rollout.
        least = f"steps must be at least {self.steps_per_update}, one update (bodies x rollout), not {self.steps}"
        check([(self.updates >= 1, least)])

    @property
    def steps_per_update(self) -> int:
        """Environment steps between two updates, per seed."""
        return self.bodies * self.rollout

    @property
    def updates(self) -> int:
        """Updates in the whole run."""
        return self.steps // self.steps_per_update

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return dataclasses.asdict(self)


def read_value(name: str, hint: Any, text: str) -> Any:
    """Parses text as a value of type `hint`; refuses anything else."""
    if hint is bool:
        if text.lower() not in ("true", "false"):
            raise UserError(f"{name} must be true or false, not {text!r}")
        return text.lower() == "true"
    if hint is int:
        return read_count(name, text)
    if hint is float:
        try:
            return float(text)
        except ValueError:
            raise UserError(f"{name} must be a number, not {text!r}") from None
    if get_origin(hint) is tuple:
        inner = get_args(hint)[0]
        return tuple(read_value(name, inner, part) for part in text.split(",") if part)
    choices = get_args(hint)
    if choices and text not in choices:
        raise UserError(f"unknown {name} {nearest(text, choices)}")
    return text


def read_count(name: str, text: str) -> int:
    """Parses a whole number, which may be written as 300k, 2M or 1e6."""
    match = re.fullmatch(r"(-?\d+(?:\.\d+)?(?:e\d+)?)([kM]?)", text)
    value = float(match[1]) * {"": 1, "k": 1000, "M": 1_000_000}[match[2]] if match else 0.5
    if not value.is_integer():
        raise UserError(f"{name} must be a whole number such as 500, 300k or 2M, not {text!r}")
    return int(value)


def read_seeds(text: str) -> tuple[int, ...]:
    """Parses seeds: 0..4 (inclusive), 0,3,7 or 5."""
    span = re.fullmatch(r"(\d+)\.\.(\d+)", text)
    if span and int(span[2]) - int(span[1]) >= MOST_SEEDS:
        raise UserError(f"at most {MOST_SEEDS:,} seeds, not {text}")
    if span and int(span[1]) <= int(span[2]):
        return tuple(range(int(span[1]), int(span[2]) + 1))
    if re.fullmatch(r"\d+(,\d+)*", text):
        return tuple(int(part) for part in text.split(","))
    raise UserError(f"seeds are written 0..4 or 0,3,7 or 5, not {text!r}")


def read_fields(settings: Iterable[str], fields: Mapping[str, Any] | None) -> dict[str, Any]:
    """Parses settings such as rooms=6 by the types in `fields`. If that is None, any field is accepted, and values are
    JSON or else plain text."""
    values: dict[str, Any] = {}
    for setting in settings:
        name, text = _split(setting)
        if fields is not None and name not in fields:
            raise UserError(f"unknown field {nearest(name, fields)}")
        values[name] = _guess(text) if fields is None else read_value(name, fields[name], text)
    return values


def _split(setting: str) -> tuple[str, str]:
    name, equals, text = setting.partition("=")
    if not equals:
        raise UserError(f"write --set FIELD=VALUE, not {setting!r}")
    return name, text


def changed(
    cfg: RunConfig, words: Iterable[str], *, world_fields: Mapping[str, Any] | None, method_type: type, **given: Any
) -> RunConfig:
    """The configuration with fields changed by name and by settings such as ppo.lr=1e-4, env.rooms=6, bodies=64.

    `world_fields` are the types of the world's fields; None if it accepts any.
    """
    hints_of = {"ppo": get_type_hints(PPOConfig), "env": world_fields, "method": get_type_hints(method_type)}
    parts: dict[str, dict[str, Any]] = {"ppo": {}, "env": {}, "method": {}, "": {}}
    for word in words:
        name, text = _split(word)
        prefix, dot, last = name.rpartition(".")
        if dot and prefix not in hints_of:
            raise UserError(f"unknown field {name!r}: fields start with ppo., env. or method., or belong to the run")
        hints = hints_of[prefix] if dot else get_type_hints(RunConfig)
        if hints is None:
            parts[prefix][last] = _guess(text)
            continue
        own = {"spec"} if dot else {"env", "env_fields", "method", "method_fields", "ppo", "seeds"}
        hints = {key: hint for key, hint in hints.items() if key not in own}
        if last not in hints:
            known = {f"{prefix}{dot}{key}" for key in hints} | (
                {f"ppo.{k}" for k in get_type_hints(PPOConfig)} if not dot else set()
            )
            raise UserError(f"unknown field {nearest(name, known)}")
        parts[prefix][last] = read_value(name, hints[last], text)
    return dataclasses.replace(
        cfg,
        ppo=dataclasses.replace(cfg.ppo, **parts["ppo"]),
        env_fields={**cfg.env_fields, **parts["env"]},
        method_fields={**cfg.method_fields, **parts["method"]},
        **{**given, **parts[""]},
    )


def from_dict(values: dict[str, Any], *, source: str) -> RunConfig:
    """A configuration from plain values, as `as_dict` gives them; unknown keys are refused."""
    hints, ppo_hints = get_type_hints(RunConfig), get_type_hints(PPOConfig)
    for name in values:
        if name not in hints:
            raise UserError(f"{source}: unknown key {nearest(name, hints)}")
    ppo = values.get("ppo", {})
    for part in ("ppo", "env_fields", "method_fields"):
        if not isinstance(values.get(part, {}), dict):
            raise UserError(f"{source}: {part} must be a table, not {values[part]!r:.80}")
    for name in ppo:
        if name not in ppo_hints:
            raise UserError(f"{source}: unknown key ppo.{nearest(name, ppo_hints)}")
    own = {name: hint for name, hint in hints.items() if name in values and get_origin(hint) is not dict}
    for name, hint in own.items():
        check_value(source, name, hint if name != "ppo" else None, values[name])
    for name, value in ppo.items():
        check_value(source, f"ppo.{name}", ppo_hints[name], value)
    values = {**values, **({"seeds": tuple(values["seeds"])} if "seeds" in values else {})}
    for part in ("env_fields", "method_fields"):
        values[part] = {key: tuple(v) if isinstance(v, list) else v for key, v in values.get(part, {}).items()}
    return RunConfig(**{**values, "ppo": PPOConfig(**ppo)})


NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
"""Names of types in error messages."""


def check_value(subject: str, name: str, hint: Any, value: Any) -> None:
    """Refuses a value that is not of its field's type; numbers must be finite."""
    if get_origin(hint) is tuple:
        if not isinstance(value, tuple | list):
            raise UserError(f"{subject}: {name} must be a list, not {value!r:.80}")
        for each in value:
            check_value(subject, name, get_args(hint)[0], each)
    elif hint in NAMES:
        accepted = (int, float) if hint is float else hint
        wrong = not isinstance(value, accepted) or (hint is not bool and isinstance(value, bool))
        if wrong or (hint is float and not math.isfinite(value)):
            raise UserError(f"{subject}: {name} must be {NAMES[hint]}, not {value!r:.80}")
    elif get_origin(hint) is Literal:
        check([choice_rule(name, value, get_args(hint))], subject=subject)


def read_config(path: pathlib.Path) -> RunConfig:
    """A configuration from a .json or .toml file."""
    readers = {".json": json.loads, ".toml": tomllib.loads}
    if path.suffix not in readers:
        raise UserError(f"a configuration is a .json or .toml file, or a run's folder, not {path.name!r}")
    try:
        values = readers[path.suffix](path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"could not read {path}: {str(error).splitlines()[0]}") from None
    if not isinstance(values, dict):
        raise UserError(f"{path} does not hold a table of settings")
    return from_dict(values, source=str(path))


def _guess(text: str) -> Any:
    """A value for a field of unknown type: parsed as JSON if possible, else plain text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
