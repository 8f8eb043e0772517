"""The real gymnax and the real pgx, in the compiled loop."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from advsurprise import envs
from advsurprise.cli import main as cli
from advsurprise.envs.foreign import world
from advsurprise.envs.foreign.rules import their_rules
from advsurprise.errors import UserError

BREAKOUT, ASTERIX = "gymnax:Breakout-MinAtar", "pgx:minatar-asterix"
BODIES, STEPS, LIMIT = 6, 40, 9
SETTINGS = ("rollout=8", "ppo.epochs=1", "ppo.minibatch=16", "method.k_explore=4", "method.k_control=4")


@functools.cache
def _played(name, **fields):
    """Random play of some bodies: states before each step, actions, keys, timesteps and states after it."""
    env = envs.make(name, **fields)

    @jax.jit
    def play(key):
        reset_key, step_key, action_key = jax.random.split(key, 3)
        state, _ = jax.vmap(lambda key: env.reset(key=key))(jax.random.split(reset_key, BODIES))
        actions = jax.random.randint(action_key, (STEPS, BODIES), 0, env.spec.num_actions)

        def step(state, both):
            action, key = both
            keys = jax.random.split(key, BODIES)
            after, timestep = jax.vmap(lambda s, a, k: env.step(s, a, key=k))(state, action, keys)
            return after, (state, action, keys, timestep)

        return jax.lax.scan(step, state, (actions, jax.random.split(step_key, STEPS)))[1]

    return env, play(jax.random.key(0))


def test_breakouts_spec():
    spec = envs.make(BREAKOUT).spec
    assert (spec.observation_shape, spec.observation_kind, spec.num_classes) == ((10, 10, 4), "classes", 2)
    assert (spec.num_actions, spec.action_names, spec.noop) == (3, ("none", "left", "right"), 0)
    assert envs.make(BREAKOUT, use_minimal_action_set=False).spec.num_actions == 6


@pytest.mark.slow
def test_breakouts_ends_are_those_of_its_own_steps():
    env, (before, actions, keys, timestep) = _played(BREAKOUT, max_steps_in_episode=LIMIT)
    made = env.foreign.made

    def own(state, action, key):
        # The key that a step moves with; `step_env` is gymnax's own, and resets nothing.
        move_key = jax.random.key_data(jax.random.split(key)[0])
        obs, after, _, done, *_ = made.env.step_env(move_key, state.inner, action, made.params)
        return obs, after.time, done

    with their_rules():
        obs, time, done = jax.jit(jax.vmap(jax.vmap(own)))(before, actions, keys)
    ended = np.asarray(timestep.terminated | timestep.truncated)
    assert np.array_equal(timestep.final_obs, obs.astype(jnp.uint8))
    assert np.array_equal(timestep.info["episode_length"], time)
    assert np.array_equal(ended, done | (time >= LIMIT))
    # The clock stops whoever has not lost the ball, and nobody else.
    assert np.array_equal(timestep.truncated, (time == LIMIT) & ~np.asarray(timestep.terminated))
    assert timestep.truncated.any()
    assert timestep.terminated.any()
    assert not (timestep.terminated & timestep.truncated).any()
    # Where an episode ended, `obs` is the next one's first: the ball is at a side, in the fourth row.
    first = np.asarray(timestep.obs)[ended]
    assert (first[:, 3, 0, 1] + first[:, 3, 9, 1] == 1).all()
    assert np.array_equal(np.asarray(timestep.obs)[~ended], np.asarray(timestep.final_obs)[~ended])


@pytest.mark.parametrize(
    ("name", "kind", "shape", "classes"),
    [
        ("gymnax:CartPole-v1", "vector", (4,), 0),
        pytest.param(ASTERIX, "classes", (10, 10, 4), 2, marks=pytest.mark.long),
        pytest.param("gymnax:Asterix-MinAtar", "classes", (10, 10, 4), 2, marks=pytest.mark.long),
        pytest.param("gymnax:Catch-bsuite", "classes", (10, 5), 2, marks=pytest.mark.long),
        pytest.param("pgx:2048", "classes", (4, 4, 31), 2, marks=pytest.mark.long),
    ],
)
def test_how_observations_are_shown(name, kind, shape, classes):
    spec = envs.make(name).spec
    assert (spec.observation_kind, spec.observation_shape, spec.num_classes) == (kind, shape, classes)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("gymnax:Pendulum-v1", "continuous actions are not supported"),
        ("gymnax:Breakout-MinAtr", "gymnax has no environment 'Breakout-MinAtr'; did you mean 'Breakout-MinAtar'?"),
        ("pgx:minatar-asterx", "pgx has no game 'minatar-asterx'; did you mean 'minatar-asterix'?"),
        ("pgx:tic_tac_toe", "a game for 2 players"),
    ],
)
def test_what_is_refused(name, sentence, capsys):
    with pytest.raises(SystemExit) as left:
        cli.main(["train", "--env", name])
    assert left.value.code == 2
    assert sentence in capsys.readouterr().err


def test_an_unknown_parameter_gets_the_nearest(capsys):
    with pytest.raises(SystemExit) as left:
        cli.main(["train", "--env", BREAKOUT, "--set", "env.max_steps_in_epsode=9"])
    assert left.value.code == 2
    assert "has no field 'max_steps_in_epsode'; did you mean 'max_steps_in_episode'?" in capsys.readouterr().err


def _words(name, method, steps, folder):
    sizes = ["--bodies", "2", "--seeds", "0..1", "--steps", str(steps), "--out", str(folder)]
    settings = [setting for setting in SETTINGS if method == "adversarial-surprise" or "method." not in setting]
    return ["train", "--env", name, "--method", method, *sizes, *(w for each in settings for w in ("--set", each))]


@pytest.mark.long
def test_gymnaxs_own_wrappers_take_our_worlds():
    from gymnax.environments import spaces
    from gymnax.wrappers import purerl

    env = envs.as_gymnax("rooms/four", one_hot=True, view=3)
    assert isinstance(env.observation_space(None), spaces.Box)
    wrapped = purerl.LogWrapper(purerl.FlattenObservationWrapper(env))
    obs, _ = jax.eval_shape(wrapped.reset, jax.random.PRNGKey(0), env.default_params)
    assert obs.shape == (3 * 3 * env.world.spec.num_classes,)
    with pytest.raises(UserError, match="no classes to one-hot encode"):
        envs.as_gymnax("gymnax:CartPole-v1", one_hot=True)


@pytest.mark.long
@pytest.mark.parametrize("name", [BREAKOUT, ASTERIX])
def test_a_run_in_parts_is_the_run(name, tmp_path):
    straight, parts = tmp_path / "straight", tmp_path / "parts"
    cli.main([*_words(name, "adversarial-surprise", 48, straight), "--json"])
    cli.main([*_words(name, "adversarial-surprise", 32, parts), "--json"])
    cli.main(["resume", str(parts), "--steps", "48", "--json"])
    rows = [(folder / "metrics.jsonl").read_text().splitlines() for folder in (straight, parts)]
    kept = [[{k: v for k, v in json.loads(row).items() if k != "steps_per_s"} for row in each] for each in rows]
    assert len(kept[0]) == 6
    assert repr(kept[0]) == repr(kept[1])


@pytest.mark.long
@pytest.mark.parametrize("method", ["adversarial-surprise", "rnd", "smirl", "asp", "agac", "task"])
@pytest.mark.parametrize("name", [BREAKOUT, ASTERIX])
def test_every_method_trains(name, method, tmp_path, capsys):
    cli.main([*_words(name, method, 32, tmp_path / "run"), "--json"])
    assert json.loads(capsys.readouterr().out)["steps"] == 32


@pytest.mark.long
def test_every_environment_of_gymnax_with_numbered_actions_is_made():
    import gymnax

    # The first loads its images from the network; the second's own step raises in 0.0.9.
    refused = {}
    for name in sorted(set(gymnax.registered_envs) - {"MNISTBandit-bsuite", "SimpleBandit-bsuite"}):
        try:
            env = envs.make(f"gymnax:{name}")
        except UserError as error:
            refused[name] = str(error)
        else:
            assert world.time_limit(env.foreign.made.params) == "max_steps_in_episode"
    continuous = {"MountainCarContinuous-v0", "Pendulum-v1", "PointRobot-misc", "Reacher-misc", "Swimmer-misc"}
    assert set(refused) == continuous, refused
    assert all("continuous actions" in sentence for sentence in refused.values())
