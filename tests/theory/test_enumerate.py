"""Pure worlds as block MDPs: the same moves, the same noise, and honest about states that look alike."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from advsurprise.envs import rooms
from advsurprise.envs.base import AbstractEnv, Outcome
from advsurprise.envs.reader import RANDOM
from advsurprise.errors import UserError
from advsurprise.theory.coverage import semiquasimetric
from advsurprise.theory.enumerate import aliases, enumerate_world
from advsurprise.types import EnvSpec

SMALL = {"min_side": 4, "max_side": 4, "grid": 8, "view": 3}


class Ring(AbstractEnv):
    """Five cells in a ring, seen as they are; `slip` makes a step of the body a matter of luck."""

    slip: bool = eqx.field(static=True, default=False)
    blind: bool = eqx.field(static=True, default=False)

    @property
    def spec(self):
        return EnvSpec("ring", (1,), "uint8", "classes", 5, 2, 0, ())

    def initial(self, *, key):
        return jnp.int32(0)

    def transition(self, state, action, *, key):
        luck = jax.random.randint(key, (), 0, 1000) if self.slip else 0
        never = jnp.bool_(False)
        return (state + action + luck) % 5, Outcome(jnp.float32(0), never, never)

    def observe(self, state):
        return jnp.where(self.blind, 0, state)[None].astype(jnp.uint8)

    def measure(self, state):
        return {}

    def place(self, state):
        return jnp.stack([state, jnp.int32(0)])

    def rewind(self, first, state):
        return first


def test_a_plain_world_is_read_whole():
    world = enumerate_world(Ring(), labelled=False)
    assert world.num_states == 5
    assert world.deterministic
    assert not world.entropies.any()
    assert semiquasimetric(world)[0].tolist() == [0, 1, 2, 3, 4]


def test_what_cannot_be_enumerated_is_refused():
    with pytest.raises(UserError, match="moves at random"):
        enumerate_world(Ring(slip=True))
    with pytest.raises(UserError, match="more than 3 states"):
        enumerate_world(Ring(), most=3)
    with pytest.raises(UserError, match="world with balls"):
        enumerate_world(rooms.make("rooms/door", **SMALL, noise="balls"))


def test_states_that_look_alike_are_named_or_labelled():
    with pytest.raises(UserError, match="10 pairs of states can look the same, for example 'state 0' and 'state 1'"):
        enumerate_world(Ring(blind=True), labelled=False)
    assert enumerate_world(Ring(blind=True)).num_states == 5


def test_views_overlap_where_noise_may_show_what_another_state_does():
    seen = np.array([[1, 2], [1, RANDOM], [3, RANDOM], [RANDOM, RANDOM]])
    assert aliases(seen).tolist() == [[0, 1], [0, 3], [1, 3], [2, 3]]


@pytest.fixture(scope="module")
def walk():
    """A long random walk in a small room world, beside the same actions in its block MDP."""
    env = rooms.make("rooms/switch", **SMALL)
    world = enumerate_world(env, seed=2)
    start_key, _, _ = jax.random.split(jax.random.key(2), 3)
    actions = jax.random.randint(jax.random.key(5), (6000,), 0, env.spec.num_actions)

    def step(state, inputs):
        action, key = inputs
        state, _ = env.transition(state, action, key=key)
        return state, (env.observe(state), env.measure(state))

    keys = jax.random.split(jax.random.key(6), len(actions))
    start = jax.jit(lambda key: env.initial(key=key))(start_key)
    _, (seen, measures) = jax.jit(lambda s, i: jax.lax.scan(step, s, i))(start, (actions, keys))
    following = world.transition.argmax(axis=2)
    path, here = [], 0
    for action in np.asarray(actions):
        here = int(following[here, action])
        path.append(here)
    return world, np.array(path), np.asarray(seen).reshape(len(path), -1), jax.tree.map(np.asarray, measures)


@pytest.mark.slow
def test_a_room_world_moves_as_its_block_mdp(walk):
    world, path, _, measures = walk
    assert (world.num_states, world.num_actions) == (104, 7)
    for step, state in enumerate(path):
        facing = ">v<^"[measures["direction"][step]]
        assert world.states[state].startswith(f"({measures['x'][step]},{measures['y'][step]}){facing}")
        assert ("shut" in world.states[state]) == (measures["doors_closed"][step] == 1)
        assert ("still" in world.states[state]) == (measures["stilled"][step] == 1)


def test_emission_entropy_counts_the_lights_that_flash(walk):
    world, path, seen, _ = walk
    checked = 0
    for state in np.unique(path):
        # A stilled room keeps other colours each time, so that only rooms that flash are compared.
        views = seen[path == state]
        if len(views) < 15 or "still" in world.states[state]:
            continue
        # Fifteen draws of six colours agree by chance in one of 6^14 cells.
        flashing = (views != views[0]).any(axis=0).sum()
        assert world.entropies[state] == pytest.approx(flashing * np.log(6))
        checked += flashing > 0
    assert checked > 5


@pytest.mark.slow
def test_a_stilled_room_is_dark(walk):
    world, _, _, _ = walk
    still = np.array(["still" in name for name in world.states])
    assert not world.entropies[still].any()
    assert world.entropies[~still].any()


@pytest.mark.slow
def test_the_egocentric_view_alone_makes_no_block_mdp():
    with pytest.raises(UserError, match=r"^257 pairs of states can look the same, for example '\(\d,\d\)"):
        enumerate_world(rooms.make("rooms/door", **SMALL), labelled=False)
