"""Worlds with gymnax's interface behind our contract, and what is said of those that are wrong."""

import functools
import json
import pathlib
import re
import sys

import corridor
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import advsurprise
from advsurprise import envs
from advsurprise.cli import main as cli
from advsurprise.config import RunConfig
from advsurprise.envs.foreign import check
from advsurprise.envs.foreign.load import is_foreign
from advsurprise.envs.host.load import is_gymnasium
from advsurprise.errors import UserError

STAY, GO_ON = 0, 1


@functools.partial(jax.jit, static_argnums=(0, 1))
def _play(env, steps, actions):
    """Timesteps of bodies that each do the same all the time, axes [time, body, …]; time 0 is the reset."""
    keys = jax.random.split(jax.random.key(3), len(actions))
    state, first = jax.vmap(lambda key: env.reset(key=key))(keys)

    def step(state, number):
        each = jax.vmap(lambda key: jax.random.fold_in(key, number))(keys)
        return jax.vmap(lambda s, a, k: env.step(s, a, key=k))(state, actions, each)

    _, rest = jax.lax.scan(step, state, jnp.arange(steps))
    return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, rest)


@pytest.mark.parametrize(
    "name", ["corridor:Corridor", "corridor:Newer", pytest.param("corridor:Six", marks=pytest.mark.long)]
)
def test_the_last_observation_and_how_the_episode_ended(name):
    played = jax.tree.map(np.asarray, _play(envs.make(name), 11, jnp.int32([STAY, GO_ON])))
    # Whoever stays is stopped by the clock, on step 5; whoever goes on is at the goal on step 3.
    assert np.flatnonzero(played.truncated[:, 0]).tolist() == [5, 10]
    assert np.flatnonzero(played.terminated[:, 1]).tolist() == [3, 6, 9]
    assert not played.terminated[:, 0].any()
    assert not played.truncated[:, 1].any()
    # What the action led to, and what the next episode begins with.
    assert played.final_obs[5, 0, :2].tolist() == [0, 5]
    assert played.final_obs[3, 1, :2].tolist() == [3, 3]
    assert played.obs[5, 0, :2].tolist() == played.obs[3, 1, :2].tolist() == [0, 0]
    assert played.info["episode_length"][:, 0].tolist() == [0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1]
    assert played.info["episode_return"][:7, 1].tolist() == [0, 1, 3, 6, 1, 3, 6]
    # Every episode has noise of its own, and what is seen is what the state was when it was seen.
    assert len(np.unique(played.obs[..., 2])) == played.obs[..., 2].size


def test_a_goal_on_the_last_step_is_a_goal():
    played = _play(envs.make("corridor:Corridor", goal=5), 5, jnp.int32([GO_ON, STAY]))
    assert played.terminated[5].tolist() == [True, False]
    assert played.truncated[5].tolist() == [False, True]


def test_fields_are_the_makers_and_the_parameters():
    short = functools.partial(envs.make, "corridor:with_params", name="short")
    env = short(size=4, pay=2)
    assert env.settings == {"name": "short", "size": 4, "max_steps_in_episode": 5, "goal": 2, "pay": 2.0}
    assert env.foreign.made.env.size == 4
    assert env.foreign.made.params == corridor.Params(goal=2, pay=2.0)
    assert short(pay=2, size=4) == env
    assert short(pay=3, size=4) != env
    spec = env.spec
    assert (spec.observation_shape, spec.observation_kind, spec.num_actions, spec.max_steps) == ((3,), "vector", 2, 0)
    assert (spec.truncates, spec.places, spec.noop) == (True, (), None)


def test_numbers_made_of_true_and_false_are_classes():
    spec = envs.make("corridor:Planes").spec
    assert (spec.observation_kind, spec.num_classes, spec.observation_dtype) == ("classes", 2, "uint8")


@pytest.mark.parametrize(
    ("name", "fields", "sentence"),
    [
        ("corridor:Corridr", {}, "corridor has no function 'Corridr'; did you mean 'Corridor'?"),
        ("corridor:Corridor", {"gaol": 2}, "has no field 'gaol'; did you mean 'goal'?"),
        ("corridor:Corridor", {"goal": 2.5}, "goal must be a whole number, not 2.5"),
        ("corridor:Corridor", {"size": "big"}, "size must be a whole number, not 'big'"),
        ("corridor:with_params", {}, r"needs a value for name: add --set env.name=VALUE"),
        ("no_such_package.module:make", {}, "could not be imported: ModuleNotFoundError: No module named 'no_such"),
        ("corridor:NoStepEnv", {}, r"NoStepEnv has no step_env\(key, state, action, params\)"),
        ("corridor:NotATree", {}, r"state of reset is not a pytree of arrays: state\['board'\] is a Board"),
        ("corridor:Growing", {}, r"state.noise has shape \(\) after reset and \(3,\) after a step"),
        ("corridor:Masked", {}, "reset cannot be compiled: NonConcreteBooleanIndexError"),
        ("corridor:Branching", {}, "step_env cannot be compiled: TracerBoolConversionError"),
        ("corridor:Short", {}, r"step_env must return \(obs, state, reward, done, info\) or .* not a tuple of 3"),
        ("corridor:Narrowing", {}, "state.noise is float32 after reset and int32 after a step"),
        ("corridor:Continuous", {}, "continuous actions are not supported"),
    ],
)
def test_what_cannot_be_trained_is_refused_with_a_sentence(name, fields, sentence):
    with pytest.raises(UserError, match=sentence):
        envs.make(name, **fields)
    assert any(re.search(sentence, each) for each in _problems(name, fields))


def _problems(name, fields=None):
    report = check.check(name, fields)
    assert report["ok"] is False
    assert report["train_with"] is None
    return report["problems"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("corridor:Remembering", "changes the environment's attribute 'last'"),
        ("corridor:Dice", "step_env is not a pure function: tracing it twice gave two different programs"),
        pytest.param(
            "corridor:Callback",
            "the same key and actions gave different results the second time",
            marks=pytest.mark.long,
        ),
    ],
)
def test_results_that_depend_on_pythons_state_are_named(name, sentence):
    problems = _problems(name)
    assert len(problems) == 1
    assert sentence in problems[0]


def test_two_faults_are_two_sentences(monkeypatch):
    monkeypatch.setattr(corridor.NotATree, "action_space", corridor.Continuous.action_space)
    problems = _problems("corridor:NotATree")
    assert len(problems) == 2
    assert "continuous actions" in problems[0]
    assert "not a pytree of arrays" in problems[1]


def test_a_sound_world_is_reported_with_its_speed(capsys):
    cli.main(["check-env", "corridor:Corridor", "--set", "goal=4", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert (report["ok"], report["problems"], report["notes"]) == (True, [], [])
    assert (report["observation"], report["kind"], report["actions"]) == ("float32[3]", "vector", "Discrete(2)")
    assert report["density"] == "gaussian"
    assert report["steps_per_s"] > 0
    assert report["train_with"] == "advsurprise train --env corridor:Corridor --set env.goal=4"


def test_the_card_shows_fields_and_measures(capsys):
    cli.main(["envs", "corridor:Corridor", "--set", "goal=4", "--json"])
    card = json.loads(capsys.readouterr().out)
    assert (card["kind"], card["actions"]) == ("pure", ["0", "1"])
    assert card["fields"] == {"size": 9, "max_steps_in_episode": 5, "goal": 4, "pay": 1.0}
    assert list(card["measures"]) == ["episode_return", "episode_length"]


def test_names():
    for name in ("gymnax:Breakout-MinAtar", "pgx:2048", "package.module:function", "module:Class"):
        assert is_foreign(name)
        assert not is_gymnasium(name)
        assert envs.find(name).kind == "pure"
    for name in ("CartPole-v1", "pkg:Name-v0", "a/file.py:Class", "file.py:Class", "rooms/four", "ale_py:ALE/Pong-v5"):
        assert not is_foreign(name)


def test_a_module_of_the_current_folder_is_found(tmp_path, monkeypatch):
    source = pathlib.Path(corridor.__file__).read_text()
    (tmp_path / "corridor_of_mine.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("/nowhere")  # the path is restored afterwards
    assert envs.make("corridor_of_mine:Corridor").spec.num_actions == 2


@pytest.mark.parametrize("library", ["gymnax", "pgx"])
@pytest.mark.parametrize("verb", [["train", "--env"], ["check-env"], ["envs"]])
def test_a_missing_library_is_named_with_the_line_that_installs_it(library, verb, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(SystemExit) as left:
        cli.main([*verb, f"{library}:Anything"])
    assert left.value.code == 3
    assert f'pip install "advsurprise[{library}]"' in capsys.readouterr().err


def test_train_refuses_continuous_actions(capsys, tmp_path):
    with pytest.raises(SystemExit) as left:
        cli.main(["train", "--env", "corridor:Continuous", "--out", str(tmp_path / "run")])
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert "continuous actions are not supported" in said
    assert "learning/networks.py" in said
    assert not (tmp_path / "run").exists()


def test_the_folder_of_a_run_calls_no_function_that_the_user_has_not_named(tmp_path, capsys):
    victim, run = tmp_path / "victim", tmp_path / "run"
    victim.mkdir()
    run.mkdir()
    config = RunConfig(env="shutil:rmtree", env_fields={"path": str(victim)}).as_dict()
    (run / "config.json").write_text(json.dumps({"config": config}))
    for verb in ("resume", "eval", "replay", "plot"):
        with pytest.raises(SystemExit) as left:
            cli.main([verb, str(run)])
        assert left.value.code == 2
        assert victim.exists()
    assert "if you trust it, add --allow" in capsys.readouterr().err
    # Named, it is called.
    with pytest.raises(SystemExit):
        cli.main(["resume", str(run), "--allow", "shutil:rmtree"])
    assert not victim.exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["corridor:Corridor", pytest.param("gymnax:Breakout-MinAtar", marks=pytest.mark.long)])
def test_two_seeds_are_trained_together_resumed_and_evaluated(name, tmp_path):
    run, limit = str(tmp_path / "run"), 9
    sizes = ["--bodies", "2", "--seeds", "0..1", "--steps", "16", "--set", "rollout=8"]
    limited = ["--set", f"env.max_steps_in_episode={limit}"]
    cli.main(["train", "--env", name, "--method", "random", *sizes, *limited, "--out", run, "--json"])
    cli.main(["resume", run, "--allow", name, "--steps", "32", "--json"])
    rows = [json.loads(row) for row in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [(row["step"], row["seed"]) for row in rows] == [(16, 0), (16, 1), (32, 0), (32, 1)]
    played = advsurprise.load(run, allow=name).evaluate(episodes=3, seeds=1, player="random")
    # Whole episodes, as many of each body, with the clock that was set.
    assert played["end/episode_length"]["n"] == 3
    assert 2 <= played["end/episode_length"]["mean"] <= limit
