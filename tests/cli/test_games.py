"""Real games on the command line: whole games are what is evaluated, and a missing extra is one line."""

import json
import subprocess
import sys

import pytest

from advsurprise import api
from advsurprise.cli import main as cli

pytestmark = [pytest.mark.slow, pytest.mark.long]

WITHOUT_EXTRAS = """
import sys
from importlib.machinery import PathFinder

class Hides(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in ("ale_py", "vizdoom") else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Hides
from advsurprise.cli.main import main
for env in ("atari/freeway", "doom/take-cover"):
    try:
        main(["train", "--env", env, "--out", sys.argv[1]])
    except SystemExit as end:
        print(end.code)
"""


def test_a_missing_extra_is_one_line_and_exit_code_3(tmp_path):
    words = [sys.executable, "-c", WITHOUT_EXTRAS, str(tmp_path / "run")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.stdout.split() == ["3", "3"], done.stderr
    assert [line for line in done.stderr.splitlines() if line.startswith("advsurprise: ")] == [
        'advsurprise: ale_py is not installed; install it with: pip install "advsurprise[atari]"',
        'advsurprise: vizdoom is not installed; install it with: pip install "advsurprise[doom]"',
    ]
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def _run(capsys, *words: str) -> dict:
    cli.main([*words, "--json"])
    return json.loads(capsys.readouterr().out)


def _train(capsys, tmp_path, env: str, *words: str) -> str:
    """The folder of a run of one update for two seeds."""
    sizes = ("--bodies", "2", "--steps", "8", "--seeds", "0..1", "--set", "rollout=4", "--set", "ppo.minibatch=8")
    return _run(capsys, "train", "--env", env, "--method", "task", *sizes, *words, "--out", str(tmp_path))["run"]


@pytest.mark.parametrize(
    ("env", "fields", "score"),
    [
        # 44 tics of Take Cover, a point each, in which nobody dies; Freeway's crossings take longer than 40 frames.
        ("doom/take-cover", ("env.side=8", "env.max_tics=44"), 44.0),
        ("atari/freeway", ("env.side=8", "env.noops=0", "env.max_frames=40"), 0.0),
    ],
)
def test_whole_games_are_evaluated_for_each_kind_of_player(capsys, tmp_path, monkeypatch, env, fields, score):
    monkeypatch.setattr(api, "CHUNK", 12)
    folder = _train(capsys, tmp_path, env, *(part for field in fields for part in ("--set", field)))
    result = _run(capsys, "eval", folder, "--episodes", "10")
    assert result["training_seeds"] == 2
    assert result["published"] == ({"random": 0.0, "human": 29.6} if env == "atari/freeway" else {})
    for kind, over in (("measures", "training seeds"), ("greedy", "training seeds"), ("random", "episodes")):
        assert result[kind]["game/score"]["mean"] == score
        assert result[kind]["game/score"]["over"] == over
        shares = [each["mean"] for name, each in result[kind].items() if name.startswith("share/position_y/")]
        assert (len(shares), sum(shares)) == ((23, pytest.approx(1)) if env == "doom/take-cover" else (0, 0))
    assert result["labels"]["game/score"]
