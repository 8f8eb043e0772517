"""The verbs train and resume: mistakes get a sentence, settings come from files and flags, a dry run plans."""

import dataclasses
import json
import pathlib

import pytest

import advsurprise
from advsurprise.cli import main as cli
from advsurprise.cli import resolve
from advsurprise.config import PPOConfig, RunConfig
from advsurprise.errors import UserError


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("train", "--method", "adversarial-suprise"), "did you mean 'adversarial-surprise'"),
        (("train", "--env", "rooms/fuor"), "did you mean 'rooms/four'"),
        (("train", "--steps", "2Q"), "must be a whole number such as 500, 300k or 2M"),
        (("train", "--steps", "100"), "at least 8192, one update"),
        (("train", "--bodies", "0"), "bodies must be at least 1, not 0"),
        (("train", "--bodies", "-3"), "bodies must be at least 1, not -3"),
        (("train", "--set", "rollout=0"), "rollout must be at least 1, not 0"),
        (("train", "--set", "network_width=0"), "network_width must be from 1 to 64, not 0"),
        (("train", "--set", "rollout=-8"), "rollout must be at least 1, not -8"),
        (("train", "--method", "random,task", "--bodies", "0"), "bodies must be at least 1, not 0"),
        (("train", "--seeds", "4..0"), "seeds are written"),
        (("train", "--seeds", "1,1"), "seeds must differ"),
        (("train", "--set", "ppo.lrr=1"), "did you mean 'ppo.lr'"),
        (("train", "--set", "ppo.lr=-1"), "ppo.lr must be positive"),
        (("train", "--set", "pop.lr=1"), "fields start with ppo., env. or method."),
        (("train", "--set", "method.scope=rond"), "did you mean 'round'"),
        (("train", "--set", "method.quiet=2"), "quiet must be at least 0 and below 1"),
        (("train", "--set", "env.view=6"), "view must be odd"),
        (("train", "--set", "bodies"), "write --set FIELD=VALUE"),
        (("train", "--track", "tensorbord"), "did you mean 'tensorboard'"),
        (("train", "--config", "no.yaml"), "a .json or .toml file"),
        (("train", "--config", "no.json"), "could not read no.json"),
        (("train", "--config", "zoo:rooms-for"), "did you mean 'rooms-four'"),
        (("train", "--dry-run", "--env", "CartPole-v1"), "--dry-run needs a pure world, not CartPole-v1"),
        (("resume", "nowhere"), "there is no run in nowhere"),
        (("eval", "nowhere"), "there is no run in nowhere"),
        (("eval", "nowhere", "--episodes", "3"), "must be at least 10"),
    ],
)
def test_mistakes_get_one_sentence(capsys, monkeypatch, tmp_path, words, sentence):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        cli.main(list(words))
    assert stopped.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    last = captured.err.strip().splitlines()[-1]
    assert last.startswith("advsurprise: ")
    assert sentence in last
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("setting", [{"bodies": 0}, {"bodies": -1}, {"rollout": 0}, {"rollout": -1}])
def test_sizes_below_one_are_refused_in_files_and_in_python(tmp_path, capsys, setting):
    [(name, value)] = setting.items()
    sentence = f"{name} must be at least 1, not {value}"
    path = tmp_path / "run.json"
    path.write_text(json.dumps(setting))
    with pytest.raises(SystemExit) as stopped:
        cli.main(["train", "--config", str(path), "--out", str(tmp_path / "run")])
    assert stopped.value.code == 2
    assert sentence in capsys.readouterr().err
    with pytest.raises(UserError, match=sentence):
        advsurprise.train("ladder/game", out=tmp_path / "run", **setting)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_configurations_come_from_files_and_flags_override_them(tmp_path, capsys):
    path = tmp_path / "run.toml"
    path.write_text(
        'env = "ladder/game"\nmethod = "task"\nsteps = 200\nbodies = 2\nrollout = 10\n[ppo]\nminibatch = 8\n'
    )
    words = ["train", "--config", str(path), "--set", "ppo.epochs=1", "--set", "method.stack=2", "--steps", "400"]
    cli.main([*words, "--dry-run", "--json"])
    plan = json.loads(capsys.readouterr().out)
    assert plan["config"]["env"] == "ladder/game"
    assert plan["config"]["ppo"] == {**dataclasses.asdict(PPOConfig()), "minibatch": 8, "epochs": 1}
    assert (plan["updates"], plan["steps"]) == (20, 400)
    # Two numbers that are seen, two of them stacked, of four bytes each, at each of ten steps of two bodies.
    assert plan["rollout_bytes"] > 10 * 2 * 2 * 2 * 4
    # An update holds at least its rollout, and more bodies fit than the two that were planned.
    assert plan["update_bytes"] > plan["rollout_bytes"]
    assert plan["largest_bodies"] > 2
    assert plan["parameters_per_role"]["agent"] > 1000
    path.write_text('enw = "rooms/door"\n')
    with pytest.raises(SystemExit):
        cli.main(["train", "--config", str(path)])
    assert "did you mean 'env'" in capsys.readouterr().err


def test_settings_come_from_a_run_or_an_agent_of_the_zoo_and_flags_override_them(tmp_path):
    flags = dict.fromkeys(("env", "method", "steps", "seeds", "bodies"))
    agent = resolve.resolve(config=pathlib.Path("zoo:rooms-four-whole-turn"), settings=(), **flags)
    assert agent == advsurprise.load("zoo:rooms-four-whole-turn").config
    (tmp_path / "config.json").write_text(json.dumps({"config": agent.as_dict()}))
    flags |= {"steps": "20M", "seeds": "3,4"}
    longer = resolve.resolve(config=tmp_path, settings=["method.quiet_weight=0.2"], **flags)
    fields = agent.method_fields | {"quiet_weight": 0.2}
    assert longer == dataclasses.replace(agent, steps=20_000_000, seeds=(3, 4), method_fields=fields)


def test_a_second_interrupt_ends_without_a_traceback(monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("advsurprise.cli.train.train", interrupted)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["train", "--env", "ladder/game"])
    assert stopped.value.code == 130
    assert capsys.readouterr().err == "advsurprise: interrupted\n"


def test_a_rollout_is_whole_episodes_unless_it_is_chosen():
    from advsurprise.cli.resolve import resolve

    flags = dict.fromkeys(("config", "method", "steps", "seeds", "bodies"))
    assert resolve(env="ladder/game", settings=(), **flags).rollout == 510  # 102 episodes of 5 steps
    assert resolve(env="ladder/game", settings=("rollout=7",), **flags).rollout == 7
    assert RunConfig().rollout == 512
