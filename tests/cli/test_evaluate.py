"""What `advsurprise eval` prints, from estimates that nobody had to play for."""

import json
import pathlib

import pytest

from advsurprise import api, envs, methods
from advsurprise.cli import evaluate
from advsurprise.cli import main as cli
from advsurprise.config import RunConfig
from advsurprise.learning.interaction import Agent
from advsurprise.methods.base import Empty

CONFIG = RunConfig(env="rooms/door", method="adversarial-surprise", seeds=(0, 1, 2))
COLUMNS = ("scored_surprise", "common_surprise", "end/stilled", "mean/stilled", "handover/control/first/in_dark")


def estimate(mean: float, over: str) -> dict:
    return {"mean": mean, "low": mean - 0.5, "high": mean + 0.5, "n": 3, "over": over}


@pytest.fixture
def trained(monkeypatch):
    """A run of three seeds whose evaluations are made up."""
    method = methods.make(CONFIG.method, envs.make(CONFIG.env).spec)
    run = api.Trained(pathlib.Path("run"), CONFIG, [Agent(method, {}, Empty())] * 3, 5)
    asked = []

    def play(self, *, player, **named):
        asked.append((player, named))
        over = "episodes" if player == "random" else "training seeds"
        measures = {name: estimate(float(number), over) for number, name in enumerate(COLUMNS)}
        measures["end/stilled"] = {**measures["end/stilled"], "mean": float("nan")}
        measures["mean/stilled"] = {**measures["mean/stilled"], "low": float("nan"), "high": float("nan")}
        return measures

    def cross_play(self, **named):
        return [{"explore": "random", "control": "trained", "measures": play(self, player="trained", **named)}]

    monkeypatch.setattr(api.Trained, "evaluate", play)
    monkeypatch.setattr(api.Trained, "cross_play", cross_play)
    monkeypatch.setattr(evaluate, "load", lambda folder: run)
    return asked


def test_every_number_says_what_it_is_and_what_its_interval_is_over(trained, capsys):
    cli.main(["eval", "run", "--episodes", "50"])
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "adversarial-surprise in rooms/door, 50 episodes for each of 3 training seed(s)"
    assert lines[2].split("  ")[0] == "interval over"
    assert lines[2].split()[2:] == ["episodes", "training", "seeds", "training", "seeds"]
    cells = {line[:70].rstrip(): line[70:].split("  ")[-1].strip() for line in lines[3:-1]}
    assert cells == {
        "surprise of scored steps (nats, the method's own model)": "0.00 ± 0.50",
        "surprise of all observations (nats per step, common model)": "1.00 ± 0.50",
        "noisy rooms stilled at the end of the episode": "–",
        "noisy rooms stilled, time mean": "3.00",
        "": "",
        "when each role's first turn ends (all turns: --json)": "",
        "in a dark room when control's first turn ends": "4.00 ± 0.50",
    }
    assert [player for player, _ in trained] == ["random", "trained", "greedy"]


def test_json_has_labels_and_no_nan(trained, capsys):
    cli.main(["eval", "run", "--episodes", "50", "--set", "max_steps=64", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert result["labels"]["mean/stilled"] == "noisy rooms stilled, time mean"
    assert result["measures"]["end/stilled"]["mean"] is None
    assert (result["training_seeds"], result["random"]["mean/stilled"]["over"]) == (3, "episodes")
    assert all(named["env_fields"] == {"max_steps": 64} for _, named in trained)


def test_pairings_are_labelled(trained, capsys):
    cli.main(["eval", "run", "--cross"])
    lines = capsys.readouterr().out.splitlines()
    assert "[3] noisy rooms stilled at the end of the episode" in lines
    assert lines[-2].split() == [
        *("random", "trained", "0.00", "±", "0.50", "1.00", "±", "0.50", "–", "3.00", "training", "seeds")
    ]


def test_pairings_are_played_at_home(trained, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["eval", "run", "--cross", "--env", "rooms/four"])
    assert stopped.value.code == 2
    assert "--cross plays in the run's own world" in capsys.readouterr().err
