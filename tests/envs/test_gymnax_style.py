"""Our worlds in somebody else's loop, as short programs for gymnax's environments are written."""

import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from advsurprise import envs
from advsurprise.errors import UserError

LENGTH = 6
ROOMS = {"rooms": 2, "grid": 12, "max_side": 5, "view": 5, "max_steps": LENGTH}
BODIES, ROLLOUT = 4, 8


class Transition(NamedTuple):
    obs: jax.Array
    action: jax.Array
    log_prob: jax.Array
    reward: jax.Array
    done: jax.Array
    info: dict


def make_train(env, params, updates, paid):
    """A whole training run as one function of a key: the shape of such loops, with a linear policy and REINFORCE."""
    optimiser = optax.sgd(0.05)
    size = int(np.prod(env.observation_space(params).shape))

    def logits_of(weight, obs):
        return obs.reshape(obs.shape[0], size) @ weight

    def train(rng):
        rng, reset_rng = jax.random.split(rng)
        obs, state = jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(reset_rng, BODIES), params)
        weight = jnp.zeros((size, env.action_space(params).n))

        def env_step(carry, _):
            weight, state, obs, rng = carry
            rng, act_rng, step_rng = jax.random.split(rng, 3)
            logits = logits_of(weight, obs)
            action = jax.random.categorical(act_rng, logits)
            log_prob = jax.nn.log_softmax(logits)[jnp.arange(BODIES), action]
            after, state, reward, done, info = jax.vmap(env.step, in_axes=(0, 0, 0, None))(
                jax.random.split(step_rng, BODIES), state, action, params
            )
            return (weight, state, after, rng), Transition(obs, action, log_prob, reward, done, info)

        def loss(weight, batch):
            # Room worlds have no reward of their own: a measure is paid.
            gain = batch.info[paid].astype(jnp.float32)
            logits = logits_of(weight, batch.obs.reshape(-1, size))
            chosen = jax.nn.log_softmax(logits)[jnp.arange(len(logits)), batch.action.reshape(-1)]
            return -((gain - gain.mean()).reshape(-1) * chosen).mean()

        def update(carry, _):
            weight, optimiser_state, state, obs, rng = carry
            (_, state, obs, rng), batch = jax.lax.scan(env_step, (weight, state, obs, rng), None, ROLLOUT)
            changes, optimiser_state = optimiser.update(jax.grad(loss)(weight, batch), optimiser_state)
            return (optax.apply_updates(weight, changes), optimiser_state, state, obs, rng), batch

        carry = (weight, optimiser.init(weight), state, obs, rng)
        return jax.lax.scan(update, carry, None, updates)

    return train


@pytest.mark.slow
@pytest.mark.parametrize(
    ("id", "fields", "paid"),
    [
        ("ladder/game", {"max_steps": LENGTH}, "place"),
        pytest.param("rooms/four", ROOMS, "x", marks=pytest.mark.long),
    ],
)
def test_our_worlds_train_in_a_loop_written_for_gymnax(id, fields, paid):
    env = envs.as_gymnax(id, one_hot=True, **fields)
    train = make_train(env, env.default_params, updates=3, paid=paid)
    # Keys of two words, and several seeds at once, as such loops have them.
    (weight, *_), batch = jax.jit(jax.vmap(train))(jax.random.split(jax.random.PRNGKey(0), 2))
    assert np.abs(np.asarray(weight)).max() > 0
    assert np.isfinite(np.asarray(weight)).all()
    done = np.asarray(batch.done).reshape(2, 3 * ROLLOUT, BODIES)
    expected = np.arange(1, 3 * ROLLOUT + 1) % LENGTH == 0
    assert np.array_equal(done, np.broadcast_to(expected[None, :, None], done.shape))


def test_step_begins_anew_and_step_env_does_not(monkeypatch):
    monkeypatch.delitem(sys.modules, "gymnax.environments.spaces", raising=False)
    env = envs.as_gymnax("ladder/observation", max_steps=9)
    params = env.default_params._replace(max_steps_in_episode=2)

    @jax.jit
    def play(key):
        obs, state = env.reset(key, params)
        once = env.step(key, state, jnp.int32(0), params)
        twice = env.step(key, once[1], jnp.int32(0), params)
        bare = env.step_env(jax.random.split(key)[0], once[1], jnp.int32(0), params)
        return obs, once, twice, bare

    obs, once, twice, bare = play(jax.random.key(1))
    assert (bool(once[3]), bool(twice[3]), bool(bare[3])) == (False, True, True)
    assert [int(each[1].time) for each in (once, twice, bare)] == [1, 0, 2]
    assert [int(each[1].inner.time) for each in (once, twice, bare)] == [1, 0, 2]
    assert np.array_equal(twice[4]["final_observation"], bare[0])
    # Cut by the parameter, not ended by the world.
    assert (bool(twice[4]["truncated"]), float(twice[4]["discount"])) == (True, 1.0)
    space = env.observation_space(params)
    assert (space.shape, obs.shape, space.dtype) == ((2,), (2,), obs.dtype)
    assert bool(space.contains(obs))
    assert (env.name, env.num_actions, env.action_space(params).n) == ("ladder/observation", 2, 2)
    for each in (space, env.action_space(params)):
        assert bool(each.contains(each.sample(jax.random.key(0))))


def test_six_values_and_what_is_refused():
    env = envs.as_gymnax("ladder/endless", values=6)
    _, state = jax.eval_shape(env.reset, jax.random.key(0))
    answer = jax.eval_shape(env.step, jax.random.key(0), state, jnp.int32(0))
    assert len(answer) == 6
    assert answer[3].dtype == answer[4].dtype == bool
    with pytest.raises(UserError, match="5 or 6 values"):
        envs.as_gymnax("ladder/endless", values=4)
    with pytest.raises(UserError, match="did you mean 'rooms/four'"):
        envs.as_gymnax("rooms/for")
