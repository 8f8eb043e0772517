"""Worlds behind the host contract, through `run`, Python and the command line: closed on every way out, loaded without
being played, resumed with new episodes."""

import dataclasses
import json

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import advsurprise
from advsurprise.cli import main as cli
from advsurprise.config import PPOConfig, RunConfig
from advsurprise.errors import UserError
from advsurprise.evaluation import comparison
from advsurprise.learning.networks import WIDTH
from advsurprise.training import folder, run
from advsurprise.training.hosted import Hosted, resume_keys
from advsurprise.training.state import TrainState, init_keys, update_keys

pytestmark = pytest.mark.slow

OPEN: list["Corridor"] = []
"""Environments that are open."""
OPENED: list["Corridor"] = []
"""All environments that ever were."""
SEEDS: list[int] = []
"""Seeds that environments were reset with."""


class Corridor(gymnasium.Env):
    """Four cells to walk along."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, breaks_after: int = 0):
        self.left = breaks_after
        self.steps = 0
        OPEN.append(self)
        OPENED.append(self)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        SEEDS.extend([] if seed is None else [seed])
        self.cell, self.time = 0, 0
        return self._see(), {}

    def step(self, action):
        self.steps += 1
        if self.left and self.steps > self.left:
            raise ZeroDivisionError("the world broke")
        self.cell, self.time = max(0, min(3, self.cell + 2 * int(action) - 1)), self.time + 1
        return self._see(), float(self.cell == 3), self.cell == 3, self.time == 6, {}

    def close(self):
        OPEN.remove(self)

    def _see(self):
        return np.array([self.cell / 3, self.time / 6], np.float32)


TINY = RunConfig(
    env="Corridor-v0",
    method="rnd",
    method_fields={"stack": 1, "priming": 8, "width": 8},
    ppo=PPOConfig(epochs=1, minibatch=4),
    steps=8 * 4,
    bodies=2,
    rollout=4,
    network_width=2,
    save_every=2,
)


@pytest.fixture(scope="module", autouse=True)
def registered():
    """The corridor is known to Gymnasium."""
    gymnasium.register("Corridor-v0", entry_point=Corridor)
    yield
    del gymnasium.registry["Corridor-v0"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory, registered):
    """The folder of a run of four updates, after which none of its two environments is open, nor the one that was tried
    out before."""
    path = tmp_path_factory.mktemp("hosted") / "run"
    before = len(OPENED)
    run.train(TINY, path)
    assert (len(OPENED) - before, len(OPEN)) == (3, 0)
    return path


@pytest.fixture(autouse=True)
def nothing_open(registered):
    """Every test leaves all environments closed."""
    for events in (OPEN, OPENED, SEEDS):
        events.clear()
    yield
    assert not OPEN


def test_loading_opens_one_environment_and_never_steps_or_resets_it(trained):
    cfg, agents, updates = run.load_agents(trained)
    assert (cfg, len(agents), updates) == (TINY, 1, 4)
    assert len(OPENED) == 1
    assert not SEEDS
    assert OPENED[0].steps == 0
    assert agents[0].policies["agent"].hidden.weight.shape[0] == 2 * WIDTH


def test_shapes_are_those_of_a_real_state_and_need_no_world(monkeypatch):
    loop = Hosted(TINY)
    state = loop.init()
    monkeypatch.setattr(loop, "init", None)
    resets = len(SEEDS)
    like = loop.like()
    assert len(SEEDS) == resets
    assert jax.tree.structure(like) == jax.tree.structure(state)
    assert (like.carry.world.shape, state.carry.world.shape) == ((-1,), (0,)), "as long as it was saved"
    like, state = ((each.learner, each.carry.memory, each.update, each.key) for each in (like, state))
    for shape, leaf in zip(jax.tree.leaves(like), jax.tree.leaves(state), strict=True):
        assert (shape.shape, shape.dtype) == (leaf.shape, leaf.dtype)
    loop.close()


def test_a_world_that_breaks_is_closed(tmp_path):
    broken = dataclasses.replace(TINY, env_fields={"breaks_after": 6})
    with pytest.raises(UserError, match="a random step failed: ZeroDivisionError: the world broke"):
        run.train(broken, tmp_path)
    assert len(OPENED) == 1


def test_a_method_that_cannot_be_made_leaves_no_world_open(tmp_path):
    with pytest.raises(UserError):
        run.train(dataclasses.replace(TINY, method_fields={"stack": 0}), tmp_path / "run")
    assert len(OPENED) == 3
    assert not (tmp_path / "run").exists()


def test_a_comparison_is_checked_with_one_environment_each(tmp_path):
    asked = comparison.Comparison(TINY, {"rnd": TINY.method_fields, "task": {"stack": 1}})
    comparison.prepare(asked, tmp_path, fresh=False)
    assert len(OPENED) == 2
    assert folder.read_run(tmp_path / "task").method == "task"


def test_keys_of_resumed_worlds_are_used_for_nothing_else():
    loop = Hosted(dataclasses.replace(TINY, method="random", method_fields={}))
    state = loop.init()
    loop.close()
    keys = [*init_keys(state.key[0])]
    for update in range(6):
        state = TrainState(state.learner, state.carry, jnp.full(1, update, jnp.int32), state.key)
        keys += [*update_keys(state.key[0], state.update[0]), resume_keys(state)[0]]
    assert len({jax.random.key_data(key).tobytes() for key in keys}) == len(keys) == 3 + 3 * 6


def test_a_resumed_run_begins_episodes_of_its_own(trained):
    run.train(dataclasses.replace(TINY, steps=8 * 6), trained)
    resumed = list(SEEDS)
    SEEDS.clear()
    loop = Hosted(TINY)
    loop.init()
    loop.close()
    # One is of the environment that was tried out, two bodies each for priming and for training.
    assert (len(resumed), len(SEEDS)) == (1 + 2, 1 + 2 + 2)
    assert set(resumed) & set(SEEDS) == {0}


def test_python_and_the_command_line_train_resume_and_load(tmp_path, capsys):
    words = ["train", "--env", "Corridor-v0", "--method", "random", "--bodies", "2"]
    words += ["--set", "rollout=4", "--steps", "16"]
    cli.main([*words, "--out", str(tmp_path), "--json"])
    assert json.loads(capsys.readouterr().out)["steps"] == 16
    cli.main(["resume", str(tmp_path), "--steps", "24", "--json"])
    assert json.loads(capsys.readouterr().out)["steps"] == 24
    assert not OPEN
    loaded = advsurprise.load(tmp_path)
    assert (loaded.updates, loaded.config.env) == (3, "Corridor-v0")


def test_training_notes_once_that_episodes_end_before_anything_is_scored(tmp_path, capsys):
    words = ["train", "--env", "Corridor-v0", "--method", "adversarial-surprise", "--bodies", "2", "--steps", "240"]
    words += ["--set", "rollout=20", "--set", "network_width=2", "--set", "ppo.minibatch=40"]
    words += ["--set", "method.k_explore=8", "--set", "method.k_control=2", "--out", str(tmp_path)]
    cli.main(words)
    printed = capsys.readouterr()
    assert printed.err.count("note: episodes last ") == printed.out.count("note: episodes last ") == 1
    assert "but the first scored step is number 10: " in printed.out
    assert printed.err.index("training 16%") < printed.err.index("note: ") < printed.err.index("training 100%")
