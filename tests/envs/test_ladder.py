"""Micro-worlds whose answers are derived by hand, learnt by the real learner in seconds, one idea a rung."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import advsurprise
from advsurprise.config import PPOConfig, RunConfig
from advsurprise.envs import ladder
from advsurprise.errors import UserError
from advsurprise.learning import interaction
from advsurprise.training.fused import Fused
from advsurprise.types import TimeStep

pytestmark = pytest.mark.slow

GAMMA = 0.5
PPO = PPOConfig(lr=1e-2, minibatch=48, epochs=4, entropy_coef=0.0, value_clip=0.0, normalise_advantage=False)


def _train(updates, **fields):
    """The agent of one seed after some updates, and the metrics of each."""
    loop = Fused(RunConfig(seeds=(0,), steps=10**9, **fields))
    state = loop.init()
    history = []
    for _ in range(updates):
        state, metrics = jax.block_until_ready(loop.update(state))
        history.append(metrics)
    agent = jax.tree.map(lambda leaf: leaf[0], state.learner.agent)
    return agent, {name: np.array([metrics[name][0] for metrics in history]) for name in history[0]}


def _train_task(id, updates=60):
    return _train(
        updates, env=id, method="task", method_fields={"gamma": GAMMA, "stack": 1}, ppo=PPO, bodies=16, rollout=6
    )


def _seen(obs):
    obs, no = jnp.array(obs, jnp.int32), jnp.bool_(False)
    return TimeStep(obs, jnp.float32(0), no, no, obs, {})


def _answers(agent, observations, role="agent"):
    """Action probabilities and values after a path of observations, the first of them the episode's first."""
    method = agent.method
    memory = method.start(_seen(observations[0]))
    for obs in observations[1:]:
        memory, _ = method.advance(agent.learnt, memory, jnp.int32(0), _seen(obs))
    logits, value = agent.policies[role](method.see(memory))
    return np.asarray(jax.nn.softmax(logits)), float(value[0])


def test_a_value():
    # One step that pays 1: V = 1.
    agent, history = _train_task("ladder/value")
    assert abs(history["agent/value"][0]) < 0.7
    assert _answers(agent, [(0, 0)])[1] == pytest.approx(1.0, abs=0.02)


def test_a_discount():
    # s0 -> s1 -> end, paid 1 on the second step: V(s1) = 1, V(s0) = γ.
    agent, _ = _train_task("ladder/discount")
    assert _answers(agent, [(0, 0)])[1] == pytest.approx(GAMMA, abs=0.03)
    assert _answers(agent, [(0, 0), (1, 0)])[1] == pytest.approx(1.0, abs=0.03)


def test_a_clock_that_is_no_true_end():
    # Every step pays 1 for ever; episodes are cut after 3 steps: V = 1 / (1 − γ) = 2 at every time, since what the
    # cut leaves out is bootstrapped. If cuts were ends, V would be 1.75, 1.5 and 1.
    agent, _ = _train_task("ladder/endless", updates=150)
    for time in range(3):
        assert _answers(agent, [(0, 0)] * (time + 1))[1] == pytest.approx(1 / (1 - GAMMA), abs=0.06)


def test_a_value_that_depends_on_what_is_seen():
    # V = 1 in one place and −1 in the other; actions do not matter, so advantages vanish and the policy stays even.
    agent, history = _train_task("ladder/observation")
    (even, high), (_, low) = _answers(agent, [(0, 0)]), _answers(agent, [(1, 0)])
    assert (high, low) == (pytest.approx(1.0, abs=0.03), pytest.approx(-1.0, abs=0.03))
    assert history["agent/explained_variance"][-1] > 0.99
    assert even[0] == pytest.approx(0.5, abs=0.2)


def test_a_policy():
    # Action 0 pays in place 0, action 1 in place 1: an even policy earns ½, the best 1.
    agent, history = _train_task("ladder/policy")
    assert history["agent/reward"][0] == pytest.approx(0.5, abs=0.2)
    assert history["agent/reward"][-1] > 0.97
    for place in (0, 1):
        assert _answers(agent, [(place, 0)])[0][place] > 0.95


# The game. Explore moves once, from the hub into a room; Control then has four steps of which the last two are scored
# (quiet = ½). An observation is (room, light), each of 4 classes. Whatever is seen, the first scored step pays
# 2 log ¼. The model then holds one observation, so the second pays 0 for each entry that repeats it and
# log 10⁻³ (the floor) for each that does not. The room always repeats; the light repeats
#   dark:     always                                    -> 0
#   lamp:     ¼ of the time, always if held (action 1)   -> ¾ log 10⁻³, or 0 if Control holds it
#   flicker:  ¼ of the time, ½ if held                   -> ¾ log 10⁻³, or ½ log 10⁻³ if Control holds it
# Control therefore holds, and Explore's best answer to that is the flicker: the value of the game is
# 2 log ¼ + ½ log 10⁻³ ≈ −6.227 (−7.954 if Control stays idle, −2.773 if Explore goes to the dark).
GAME_VALUE = 2 * math.log(1 / 4) + 0.5 * math.log(1e-3)
IDLE_VALUE = 2 * math.log(1 / 4) + 0.75 * math.log(1e-3)
DARK_VALUE = 2 * math.log(1 / 4)


@pytest.fixture(scope="module")
def game():
    return _train(
        100,
        env="ladder/game",
        method="adversarial-surprise",
        method_fields={"k_explore": 1, "k_control": 4, "stack": 1},
        ppo=PPOConfig(lr=3e-3, minibatch=128, entropy_coef=0.005, normalise_advantage=False),
        bodies=64,
        rollout=20,
    )


def test_the_game_reaches_its_value(game):
    _, history = game
    # `surprise` is per scored step, of which an episode has two.
    value = -2 * history["scored_surprise"]
    # 256 episodes an update, each of standard deviation ½ |log 10⁻³| ≈ 3.45: 30 updates have a standard error of 0.04.
    assert value[-30:].mean() == pytest.approx(GAME_VALUE, abs=0.2)
    # Even policies hold a third of the time. Then the light repeats with probability 1/9 + 8/9 · ¼ = ⅓ in the lamp and
    # 1/9 · ½ + 8/9 · ¼ = 5/18 in the flicker, so the rooms are worth −2.773, −7.378 and −7.762, in the mean −5.971.
    assert value[0] == pytest.approx(-5.971, abs=0.7)
    # Explore learns in a few updates to go where an unskilled Control fares worst; Control brings the value back.
    assert value[5:15].mean() < GAME_VALUE - 0.15


def test_both_roles_play_the_equilibrium(game):
    agent, _ = game
    explore, _ = _answers(agent, [(0, 0)], role="explore")
    assert explore[2] > 0.9
    # In the lamp as well, which Explore now avoids: were it not held, Explore would gain by going there.
    for room, light in ((2, 0), (2, 1), (3, 0), (3, 1)):
        hold = _answers(agent, [(0, 0)] + [(room, light)] * 3, role="control")[0][1]
        assert hold > 0.8


def test_idle_and_dark_play_give_the_values_derived(getkey):
    # The two numbers around the game's value, from play with fixed actions: Explore to the flicker or to the dark,
    # Control idle.
    env = advsurprise.make("ladder/game")
    method = advsurprise.methods.make("adversarial-surprise", env.spec, k_explore=1, k_control=4)
    agent = interaction.make_agent(method, 1, key=getkey())
    score = jax.jit(jax.vmap(lambda room, key: _score_episode(env, agent, room, key), in_axes=(None, 0)))
    for room, expected in ((2, IDLE_VALUE), (0, DARK_VALUE)):
        scores = score(jnp.int32(room), jax.random.split(getkey(), 2000))
        assert float(scores.mean()) == pytest.approx(expected, abs=0.3)


def _score_episode(env, agent, room, key):
    """Sum of log-probabilities of one episode: Explore goes to a room, Control does nothing."""
    reset_key, *step_keys = jax.random.split(key, 6)
    state, timestep = env.reset(key=reset_key)
    memory = agent.method.start(timestep)
    total = jnp.float32(0)
    for index, step_key in enumerate(step_keys):
        action = room if index == 0 else jnp.int32(0)
        state, timestep = env.step(state, action, key=step_key)
        memory, signal = agent.method.advance(agent.learnt, memory, action, timestep)
        total = total + signal.log_prob
    return total


def test_rungs_are_made_by_name_and_left_out_of_lists():
    for id in ladder.WORLDS:
        assert advsurprise.make(id).spec.id == id
    assert not set(ladder.WORLDS) & set(advsurprise.list_envs())
    with pytest.raises(UserError, match="did you mean 'ladder/value'"):
        advsurprise.make("ladder/valeu")
    for fields, sentence in [
        ({"max_step": 3}, "did you mean 'max_steps'"),
        ({"places": ()}, "has no field 'places'"),
        ({"starts": 2}, "starts must be 1 to 1, not 2"),
        ({"max_steps": "3"}, "max_steps must be a whole number"),
    ]:
        with pytest.raises(UserError, match=sentence):
            advsurprise.make("ladder/value", **fields)
