"""What check-env says of Gymnasium environments."""

import inspect
import json
import shlex
import textwrap

import pytest
from gymnasium_worlds import HEADER, Grid, Picture

from advsurprise.cli import main as cli
from advsurprise.envs.host.check import check, text

pytestmark = pytest.mark.slow


def test_a_sound_environment_is_ready(tmp_path):
    report = check("CartPole-v1", {"max_episode_steps": 50})
    assert report["ok"], report
    assert report["problems"] == []
    assert (report["kind"], report["density"], report["actions"]) == ("vector", "gaussian", "Discrete(2)")
    assert report["steps_per_s"] > 100
    assert report["train_with"] == "advsurprise train --env CartPole-v1 --set env.max_episode_steps=50"
    assert json.loads(json.dumps(report)) == report
    assert "ready to train" in text(report)
    assert text(report).endswith(report["train_with"])


def test_the_line_to_train_with_is_one_that_the_command_line_takes(monkeypatch):
    settings = {"max_episode_steps": 50, "sutton_barto_reward": True}
    report = check("CartPole-v1", settings)
    assert report["ok"], report
    seen = []
    monkeypatch.setattr("advsurprise.cli.train.train", lambda asked, *_, **__: seen.append(asked) or {})
    monkeypatch.setattr("advsurprise.cli.train.text", lambda result: "")
    program, *words = shlex.split(report["train_with"])
    assert program == "advsurprise"
    cli.main([*words, "--method", "task"])
    assert (seen[0].env, seen[0].env_fields) == ("CartPole-v1", settings)


SOUND = inspect.getsource(Grid).replace("Grid", "Env")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("spaces.Discrete(4)", "spaces.Box(-1, 1, (2,), np.float32)", "action_space is Box"),
        ("spaces.Discrete(4)", "4", "action_space must be a gymnasium space, not 4"),
        ("spaces.Box(10, 12, (5, 5), np.int64)", "spaces.Dict(a=spaces.Discrete(2))", "observation_space Dict"),
        ("spaces.Box(10, 12, (5, 5), np.int64)", "None", "observation_space must be a gymnasium space, but is missing"),
        ("spaces.Box(10, 12, (5, 5), np.int64)", "spaces.Box(10, 12, (5, 4), np.int64)", "has shape (5, 5), but"),
        ("spaces.Box(10, 12, (5, 5), np.int64)", "spaces.Box(10, 12, (5, 5), np.uint8)", "has dtype int64, but"),
        ("spaces.Box(10, 12, (5, 5), np.int64)", "spaces.Box(10, 11, (5, 5), np.int64)", "is not within"),
        ("(10, 13, (5, 5)), {}", "(10, 13, (5, 5))", "reset must return (observation, info), not a ndarray"),
        (
            ", False, {}",
            ", {}",
            "step must return (observation, reward, terminated, truncated, info), not a tuple of 4",
        ),
        (", False, {}", ", 0, {}", "truncated of step must be True or False, not 0"),
        (", False, {}", ", False, None", "the info of step must be a dict, not None"),
        (", 0.0,", ", float('nan'),", "the reward of step must be a finite number, not nan"),
        (", 0.0,", ", None,", "the reward of step must be a finite number, not None"),
        (", 0.0,", ", 1 / 0,", "raised ZeroDivisionError: division by zero"),
        ("seed=None, ", "", "unexpected keyword argument 'seed'"),
        ("super().reset(seed=seed)", "super().reset()", "super().reset(seed=seed)"),
        ("return self.np_random.integers(10, 13, (5, 5)), 0.0", "return self.noise(), 0.0", "at step 1"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, old, new, sentence):
    path = tmp_path / "env.py"
    noise = "\n    def noise(self):\n        return np.random.default_rng().integers(10, 13, (5, 5))\n"
    assert old in SOUND
    path.write_text(HEADER + SOUND.replace(old, new) + noise)
    report = check(f"{path}:Env")
    assert not report["ok"]
    assert report["train_with"] is None
    assert any(sentence in problem for problem in report["problems"]), report
    assert all("\n" not in problem for problem in report["problems"])
    assert "not ready" in text(report)


def test_what_is_worth_knowing_is_noted(tmp_path, capsys):
    path = tmp_path / "env.py"
    path.write_text(HEADER + SOUND.replace("bool(self.np_random.random() < 0.1)", "bool(print('step'))"))
    report = check(f"{path}:Env")
    assert report["ok"], report
    assert any("no episode ended within 1000 random steps" in note for note in report["notes"])
    assert capsys.readouterr().out == ""
    path.write_text(HEADER + textwrap.dedent(inspect.getsource(Picture)))
    report = check(f"{path}:Picture")
    assert report["ok"], report
    assert any("two seeds gave the same" in note for note in report["notes"])
    assert (report["kind"], report["density"]) == ("image", "gaussian")


def test_names_that_lead_nowhere_are_problems():
    report = check("CartPol-v1")
    assert (report["ok"], len(report["problems"])) == (False, 1)
    assert "Did you mean: `CartPole`" in report["problems"][0]
