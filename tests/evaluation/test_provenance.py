"""Settings that a report lists, and the command that trains it again."""

import dataclasses
import pathlib
import shlex

import pytest
import tyro

from advsurprise.cli import resolve
from advsurprise.cli.verbs import Train
from advsurprise.config import PPOConfig, RunConfig
from advsurprise.evaluation import provenance
from advsurprise.evaluation.comparison import Comparison

FOLDER = pathlib.Path("runs/a b")
BASE = RunConfig(env="rooms/door", steps=100_000, seeds=(0, 1, 2), rollout=480)
CHANGED = RunConfig(
    env="rooms/four",
    env_fields={"rooms": 6, "kinds": ("dark", "noisy")},
    ppo=PPOConfig(lr=1e-4, normalise_advantage=False),
    method_fields={"quiet": 0.25, "scope": "round"},
    seeds=(3, 7),
    bodies=4,
    rollout=77,
    save_every=3,
)


def asked(command: str) -> tuple[RunConfig | Comparison, pathlib.Path | None]:
    """What a command asks for."""
    program, verb, *words = shlex.split(command)
    assert (program, verb) == ("advsurprise", "train")
    flags = tyro.cli(Train, args=words)
    named = ("method", "config", "env", "steps", "seeds", "bodies", "settings")
    given = {name: getattr(flags, name) for name in named}
    read = resolve.resolve_comparison if "," in given["method"] else resolve.resolve
    return read(**given), flags.out


@pytest.mark.parametrize(
    "cfg", [BASE, CHANGED, RunConfig(env="CartPole-v1", env_fields={"a": "5", "b": [1, None], "c": "word"})]
)
def test_the_command_asks_for_the_same_run(cfg):
    command = provenance.train_command({cfg.method: cfg}, FOLDER)
    assert asked(command) == (cfg, FOLDER)
    assert ("rollout" in command) == (cfg is CHANGED)  # what `train` chooses by itself need not be said


def test_the_command_asks_for_the_same_comparison():
    fields = {"adversarial-surprise": {"quiet": 0.25}, "smirl": {"stack": 2}, "random": {}}
    compared = Comparison(dataclasses.replace(CHANGED, method_fields={}), fields)
    again, folder = asked(provenance.train_command(compared.configs, FOLDER))
    assert isinstance(again, Comparison)
    assert (again.configs, folder) == (compared.configs, FOLDER)


def test_only_fields_that_differ_are_listed():
    fields = {"adversarial-surprise": {"quiet": 0.25, "stack": 4}, "smirl": {}}
    rows = provenance.settings(Comparison(CHANGED, fields).configs)
    listed = {row["name"]: (row["values"], row["default"]) for row in rows}
    assert listed["env.rooms"] == (["6", "6"], "4")
    assert listed["ppo.normalise_advantage"] == (["false", "false"], "true")
    assert listed["method.quiet"] == (["0.25", None], "0.5")  # SMiRL has no such field
    assert listed["seeds"] == (["3,7", "3,7"], "0")
    assert not {"env", "ppo.clip", "devices", "method.stack"} & set(listed)
    unknown = provenance.settings({"gone": dataclasses.replace(CHANGED, method="gone", env="gone/world")})
    assert {"name": "env.rooms", "values": ["6"], "default": None} in unknown
