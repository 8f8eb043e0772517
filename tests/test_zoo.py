"""The agents that ship with the package: their cards, where they can be used, and how they play."""

import json
import pathlib
import shlex
from typing import Any

import pytest
import tyro

from advsurprise import api, envs, methods, zoo
from advsurprise.cli import main as cli
from advsurprise.cli import resolve
from advsurprise.cli.verbs import Train
from advsurprise.config import RunConfig
from advsurprise.learning.interaction import Agent
from advsurprise.methods.base import Empty
from advsurprise.training import checkpoint
from advsurprise.training.folder import read_run

EXPECTED = {
    "rooms-door": ("adversarial-surprise", "rooms/door"),
    "rooms-four": ("adversarial-surprise", "rooms/four"),
    "rooms-four-rnd": ("rnd", "rooms/four"),
    "rooms-four-smirl": ("smirl", "rooms/four"),
    "rooms-four-two-models": ("adversarial-surprise", "rooms/four"),
    "rooms-four-whole-turn": ("adversarial-surprise", "rooms/four"),
    "rooms-switch": ("adversarial-surprise", "rooms/switch"),
}
SLACK = 0.02
"""For measures that hardly differ from one episode to another: four episodes of two hundred."""
CARDS = {card["name"]: card for card in zoo.cards()}


def test_the_command_line_lists_them(capsys):
    cli.main(["zoo", "--json"])
    (agents,) = json.loads(capsys.readouterr().out).values()
    assert {card["name"]: (card["method"], card["env"]) for card in agents} == EXPECTED
    cli.main(["zoo"])
    text = capsys.readouterr().out
    assert all(name in text for name in EXPECTED)
    assert text.splitlines()[-1] == "Evaluate one: advsurprise eval zoo:rooms-door"


@pytest.mark.parametrize("name", EXPECTED)
def test_a_card_says_what_is_in_the_folder(name):
    card, folder = CARDS[name], zoo.folder(f"zoo:{name}")
    record, complaints = checkpoint.newest_good(folder / "checkpoints")
    assert record is not None
    assert complaints == []
    tensors, cfg = checkpoint.read_record(record)["tensors"], read_run(folder)
    assert (card["bytes"], card["sha256"]) == (tensors["bytes"], tensors["sha256"])
    assert tensors["bytes"] <= 2_000_000
    assert (card["updates"], card["steps"]) == (cfg.updates, cfg.updates * cfg.steps_per_update)
    assert cfg.seeds == (card["seed"],)
    measured = card["measures"][card["shown"][0]]
    assert not measured["trained"]["low"] <= measured["random"]["mean"] <= measured["trained"]["high"]


@pytest.mark.parametrize("name", EXPECTED)
def test_the_command_on_a_card_asks_for_its_run(name):
    program, verb, *words = shlex.split(CARDS[name]["command"])
    assert (program, verb) == ("advsurprise", "train")
    asked = tyro.cli(Train, args=words)
    cfg = resolve.resolve(
        config=None,
        env=asked.env,
        method=asked.method,
        steps=asked.steps,
        seeds=asked.seeds,
        bodies=asked.bodies,
        settings=asked.settings,
    )
    assert cfg == read_run(zoo.folder(f"zoo:{name}"))


def test_a_name_that_is_not_there_is_a_mistake(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["eval", "zoo:room-four"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err == ("advsurprise: the zoo has no agent 'room-four'; did you mean 'rooms-four'?\n")


@pytest.mark.parametrize("words", [["resume", "zoo:rooms-four"], ["train", "--out", "zoo:rooms-four"]])
def test_they_are_not_trained_further(words, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(words)
    assert stopped.value.code == 2
    assert "zoo:rooms-four holds trained policies without their training state" in capsys.readouterr().err


def test_they_have_no_curves_to_plot(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["plot", "zoo:rooms-four"])
    assert stopped.value.code == 2
    assert "zoo:rooms-four ships without its training metrics" in capsys.readouterr().err


def stub(folder: pathlib.Path, cfg: RunConfig) -> api.Trained:
    """A run whose policies are not needed."""
    method = methods.make(cfg.method, envs.make(cfg.env, **cfg.env_fields).spec, **cfg.method_fields)
    return api.Trained(folder, cfg, [Agent(method, {}, Empty())], 0)


def test_files_about_them_go_to_the_current_folder():
    folder = zoo.folder("zoo:rooms-four")
    agent = stub(folder, read_run(folder))
    assert (agent.name, str(agent.default_path("replay.html"))) == ("zoo:rooms-four", "rooms-four-replay.html")


def test_beside_a_run_they_play_in_its_world_if_they_can():
    folder = zoo.folder("zoo:rooms-switch")
    agent = stub(folder, read_run(folder))

    def fields(**of_run: Any) -> dict[str, Any] | None:
        cfg = RunConfig(**{"env": "rooms/switch", "method": "smirl", **of_run})
        return agent._fields_beside(stub(pathlib.Path("run"), cfg))

    assert fields(env_fields={"max_side": 6, "grid": 14}) == {"max_side": 6, "grid": 14}
    assert fields(env_fields={"view": 5}) is None
    assert fields(env="rooms/four") is None


def evaluate(name: str) -> None:
    """Plays the episodes of the card. Numbers differ a little where another machine rounds differently, since one
    action that differs changes the rest of its episode."""
    card = CARDS[name]
    agent = api.load(f"zoo:{name}")
    asked = {key: card["evaluation"][key] for key in ("episodes", "seeds")}
    played = agent.evaluate(**asked)
    for measure in card["shown"]:
        on_card = card["measures"][measure]["trained"]
        assert on_card["low"] - SLACK <= played[measure]["mean"] <= on_card["high"] + SLACK, measure
        assert played[measure]["n"] == on_card["n"], measure


@pytest.mark.slow
def test_it_plays_as_its_card_says():
    evaluate("rooms-switch")


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(set(EXPECTED) - {"rooms-switch"}))
def test_the_others_play_as_their_cards_say(name):
    evaluate(name)
