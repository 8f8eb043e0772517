"""Real games from end to end: every method trains in them, no reward of theirs is learnt from unless it is asked for,
and a run that was killed goes on to the bit."""

import dataclasses
import functools
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import time

import equinox as eqx
import numpy as np
import pytest
from sameness import bits

from advsurprise import methods
from advsurprise.config import PPOConfig, RunConfig
from advsurprise.envs.host.base import Host
from advsurprise.training import checkpoint, run
from advsurprise.training.hosted import Hosted, open_world
from advsurprise.training.metrics import read_rows
from advsurprise.training.state import TrainState

pytestmark = pytest.mark.slow

WORLDS = {
    # Games of 10 steps after at most three frames without action.
    "atari/freeway": {"side": 20, "noops": 3, "max_frames": 43},
    "doom/take-cover": {"max_tics": 44},
}
FIELDS = {
    "adversarial-surprise": {"k_explore": 2, "k_control": 4},
    "asp": {"first_stop": 0.3},
    "rnd": {"priming": 16, "width": 16},
}
TWO_ROLES = ("adversarial-surprise", "asp")
SHORT = {
    "atari/freeway": ("adversarial-surprise", "task"),
    "doom/take-cover": ("adversarial-surprise", "asp", "smirl"),
}
"""What `make test` trains; `make long` trains the other pairs."""
PAIRS = [
    pytest.param(env, name, marks=() if name in SHORT[env] else pytest.mark.long)
    for env in WORLDS
    for name in dict.fromkeys((*TWO_ROLES, *methods.names()))
]
RESUMED = [
    pytest.param(env, name, marks=() if name == "adversarial-surprise" else pytest.mark.long)
    for env in WORLDS
    for name in TWO_ROLES
]


class Changed(Host):
    """A world whose rewards and measures are what a function makes of them."""

    def __init__(self, host: Host):
        self.host, self.change = host, lambda told: told
        self.seeds, self.bodies, self.groups = host.seeds, host.bodies, host.groups
        self.resumes, self.rewinds = host.resumes, host.rewinds

    @property
    def spec(self):
        return self.host.spec

    def reset(self, seed):
        return self.host.reset(seed)

    def send(self, action, group=0):
        self.host.send(action, group)

    def recv(self, group=0):
        timestep = self.host.recv(group)
        changed = self.change(timestep.reward), {name: self.change(each) for name, each in timestep.info.items()}
        return eqx.tree_at(lambda timestep: (timestep.reward, timestep.info), timestep, changed)

    def relocate(self, request, group=0):
        return self.host.relocate(request, group)

    def save(self):
        return self.host.save()

    def load(self, state):
        self.host.load(state)

    def close(self):
        self.host.close()


def _config(env: str, method: str) -> RunConfig:
    # Two seeds together for the method that the library is about.
    return RunConfig(
        env=env,
        env_fields=WORLDS[env],
        method=method,
        method_fields=FIELDS.get(method, {}),
        ppo=PPOConfig(epochs=1, minibatch=8),
        steps=16 * 2,
        bodies=2,
        rollout=8,
        seeds=(3, 4) if method == "adversarial-surprise" else (3,),
    )


@pytest.fixture(scope="module", autouse=True)
def closed():
    """Worlds are closed with the module."""
    yield
    for world in OPEN.values():
        world.close()
    OPEN.clear()
    _loop.cache_clear()


OPEN: dict[tuple[str, tuple[int, ...]], Changed] = {}


@functools.cache
def _loop(env: str, method: str) -> Hosted:
    """The one compiled loop of a method in a world, which all methods with as many seeds share: `init` and `run.train`
    begin it anew."""
    cfg = _config(env, method)
    if (env, cfg.seeds) not in OPEN:
        OPEN[env, cfg.seeds] = Changed(open_world(cfg))
    return Hosted(cfg, OPEN[env, cfg.seeds])


@pytest.mark.parametrize(("env", "method"), PAIRS)
def test_every_method_trains_and_only_one_that_is_told_to_learns_from_the_games_reward(env, method, tmp_path):
    loop, cfg = _loop(env, method), _config(env, method)
    before = [bits(agent.policies) for agent in loop.agents(loop.init())]
    trained = run.train(cfg, tmp_path, loop=loop)
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert [(row["update"], row["seed"]) for row in rows] == [(u, seed) for u in (1, 2) for seed in cfg.seeds]
    assert all(math.isfinite(value) for row in rows for name, value in row.items() if name.endswith("loss"))
    assert {row["workers_replaced"] for row in rows} == {0.0}
    _check_scores(rows, env, loop.method.makes_requests)
    shares = [[value for name, value in row.items() if name.startswith("share/position_y/")] for row in rows]
    assert [sum(each) for each in shares] == pytest.approx([float(env == "doom/take-cover")] * len(rows))
    after = [bits(agent.policies) for agent in loop.agents(trained.state)]
    for left, right in zip(before, after, strict=True):
        assert (left != right) == loop.method.trains
    # Not from where the body is either: positions are measured, and no method sees them.
    same = bits(_learnt(_with_other_rewards_and_measures(loop))) == bits(_learnt(trained.state))
    assert same == (method != "task")


def _check_scores(rows: list[dict], env: str, makes_requests: bool) -> None:
    """A score where a game has ended, which is in the second of two rollouts of 8 steps if no method begins others."""
    assert all("game/score" in row for row in rows)
    if makes_requests:
        return
    first, last = rows[0]["game/score"], rows[-1]["game/score"]
    assert math.isnan(float(first))
    # Freeway gives a point for a crossing, which takes longer; Take Cover one for every tic.
    assert last == (44.0 if env.startswith("doom") else 0.0)


def _with_other_rewards_and_measures(loop: Hosted):
    """What two updates learn from the beginning where all rewards and measures are others."""
    rng = np.random.default_rng(0)
    loop.host.change = lambda told: (100 * told + rng.normal(size=told.shape)).astype(np.float32)
    state = loop.init()
    for _ in range(2):
        state, _ = loop.update(state)
    loop.host.change = lambda told: told
    return state


def _learnt(state: TrainState) -> list:
    """All that learning changes: not the steps that wait for their reward, which are kept as they were recorded."""
    learner = state.learner
    return [getattr(learner, field.name) for field in dataclasses.fields(learner) if field.name != "tail"]


# ------------------------------------------------------------------------------------------------------ exact resume


def _words(cfg: RunConfig, folder: pathlib.Path, path: pathlib.Path) -> list[str]:
    """The command that trains a configuration."""
    path.write_text(json.dumps(cfg.as_dict()))
    return [sys.executable, "-m", "advsurprise", "train", "--config", str(path), "--out", str(folder), "--json"]


def _tensors(folder: pathlib.Path) -> bytes:
    record, _ = checkpoint.newest_good(folder / "checkpoints")
    return (record.parent / checkpoint.read_record(record)["tensors"]["file"]).read_bytes()


def _rows(folder: pathlib.Path) -> str:
    rows = read_rows(folder / "metrics.jsonl")
    return json.dumps([{name: value for name, value in row.items() if name != "steps_per_s"} for row in rows])


def _kill_in_the_middle(command: list[str], folder: pathlib.Path, rows: int, log: pathlib.Path) -> None:
    """Ends a run by a signal that no process can catch, once it has written so many rows."""
    with log.open("w") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env=os.environ)
    path = folder / "metrics.jsonl"
    while not (path.exists() and path.read_bytes().count(b"\n") >= rows):
        assert process.poll() is None, log.read_text()
        time.sleep(0.005)
    process.kill()
    assert process.wait() == -signal.SIGKILL


@pytest.mark.parametrize(("env", "method"), RESUMED)
def test_killed_in_the_middle_of_games_a_run_goes_on_to_the_bit(env, method, tmp_path):
    """Ten steps to a game and eight to a rollout: at every checkpoint games and turns are under way."""
    loop, whole, killed = _loop(env, method), tmp_path / "whole", tmp_path / "killed"
    cfg = dataclasses.replace(_config(env, method), steps=16 * 12, save_every=3)
    run.train(cfg, whole, loop=loop)
    command = _words(cfg, killed, tmp_path / "config.json")
    _kill_in_the_middle(command, killed, 5 * len(cfg.seeds), tmp_path / "log")
    assert len(read_rows(killed / "metrics.jsonl")) < 12 * len(cfg.seeds), "it was not killed in the middle"
    lines: list[str] = []
    run.train(cfg, killed, loop=loop, log=lines.append)
    assert any(line.startswith("continuing from update ") for line in lines)
    assert _tensors(killed) == _tensors(whole)
    assert _rows(killed) == _rows(whole)


def test_a_checkpoint_without_worlds_goes_on_with_new_episodes(tmp_path):
    """As it is written when a world has failed for good."""
    loop = _loop("doom/take-cover", "random")
    state, _ = loop.update(loop.init())
    run.save_without_worlds(tmp_path, loop.cfg, 1, state, print)
    state, done = run.restore(loop, tmp_path, print)
    _, measured = loop.update(state)
    assert (done, float(measured["episodes"][0])) == (1, 0.0), "games of 11 steps went on after their eighth"
