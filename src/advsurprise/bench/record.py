"""Episodes of a room world with everything a mirror needs to follow them, as numpy arrays."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from advsurprise.envs.picture import full_codes, unpad
from advsurprise.envs.rooms import RoomState, RoomWorld
from advsurprise.grid import geometry, tiles
from advsurprise.grid.actions import NUM_ACTIONS, Action


class Moment(NamedTuple):
    """One body's world after noise and action. Codes are of the whole unpadded grid, [x, y]."""

    obs: np.ndarray
    """Our world's observation."""
    codes: np.ndarray
    """Tile codes, with the current colours of lights."""
    stirred: np.ndarray
    """Tile codes between the noise and the action."""
    position: tuple[int, int]
    direction: int
    carried: int
    stilled: np.ndarray
    noisy: np.ndarray


@dataclasses.dataclass(frozen=True)
class Episodes:
    """Whole episodes, axes [time, body, …]; time 0 is the first state."""

    size: int
    view: int
    obs: np.ndarray
    codes: np.ndarray
    stirred: np.ndarray
    state: dict[str, np.ndarray]
    action: np.ndarray
    lights: np.ndarray
    """Axes [body, x, y]: the room whose light a cell is in the first state, -1 for none."""

    def at(self, moment: int, body: int) -> Moment:
        """The state after `moment` steps."""
        x, y = geometry.coordinates(int(self.state["position"][moment, body]), size=self.size, view=self.view)
        return Moment(
            obs=self.obs[moment, body],
            codes=self.codes[moment, body],
            stirred=self.stirred[moment, body],
            position=(x, y),
            direction=int(self.state["direction"][moment, body]),
            carried=int(self.state["carried"][moment, body]),
            stilled=self.state["stilled"][moment, body],
            noisy=self.state["noisy"][moment, body],
        )


def record_episodes(env: RoomWorld, *, bodies: int, seed: int) -> Episodes:
    """Records one whole episode per body; every other one starts in a random room instead of the first."""
    recorded = jax.tree.map(np.asarray, _record(env, bodies, jax.random.key(seed)))
    return Episodes(env.grid, env.view, *recorded)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _record(env: RoomWorld, bodies: int, key):
    layout_key, place_key, play_key = jax.random.split(key, 3)
    layout_keys, place_keys = jax.random.split(layout_key, bodies), jax.random.split(place_key, bodies)
    state = jax.vmap(lambda *body: _begin(env, *body))(jnp.arange(bodies), layout_keys, place_keys)

    def step(state, key):
        noise_key, action_key = jax.random.split(key)
        stirred = jax.vmap(lambda s, k: env.stir(s, key=k))(state, jax.random.split(noise_key, bodies))
        action = jax.vmap(lambda s, k: _busy_action(env, s, k))(stirred, jax.random.split(action_key, bodies))
        state = jax.vmap(env.act)(stirred, action)
        return state, (snapshot(state), jax.vmap(lambda s: full_codes(env, s))(stirred), action)

    def snapshot(state):
        kept = {name: getattr(state, name) for name in ("position", "direction", "carried", "stilled", "noisy")}
        return jax.vmap(env.observe)(state), jax.vmap(lambda s: full_codes(env, s))(state), kept

    _, (after, stirred, actions) = jax.lax.scan(step, state, jax.random.split(play_key, env.max_steps))
    first = snapshot(state)
    obs, codes, kept = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, after)
    raw = jax.vmap(lambda s: unpad(env, s.grid))(state)
    shining = jnp.where(tiles.is_light(raw), raw.astype(jnp.int32) - tiles.LIGHT, -1)
    return obs, codes, jnp.concatenate([first[1][None], stirred]), kept, actions, shining


def _begin(env: RoomWorld, number: jax.Array, layout_key, place_key) -> RoomState:
    """First state of an episode, in a random room for every other body."""
    state = env.initial(key=layout_key)
    place = jnp.where(number % 2 == 1, _anywhere(env, state, place_key), state.position)
    return dataclasses.replace(state, position=place)


def _anywhere(env: RoomWorld, state: RoomState, key) -> jax.Array:
    """A random cell of a random room, if a body can stand there."""
    room_key, place_key = jax.random.split(key)
    room = jax.random.randint(room_key, (), 0, env.rooms)
    x, y = state.top[room] + 1 + jax.random.randint(place_key, (2,), 0, state.side[room] - 2)
    place = geometry.cell(x, y, size=env.grid, view=env.view)
    return jnp.where(tiles.is_walkable(state.grid[place]), place, state.position)


def _busy_action(env: RoomWorld, state: RoomState, key) -> jax.Array:
    """Half of the time a random action, else one that affects the cell in front, which random play rarely does."""
    any_key, use_key, which_key = jax.random.split(key, 3)
    front = state.grid[state.position + geometry.stride(state.direction, size=env.grid, view=env.view)]
    use = jax.random.choice(use_key, jnp.asarray([Action.TOGGLE, Action.TOGGLE, Action.PICKUP, Action.LEFT]))
    blocked = (front == tiles.WALL) | (front == tiles.UNSEEN)
    walks = tiles.is_walkable(front) & ~(tiles.is_open_door(front) & (use == Action.TOGGLE))
    fitting = jnp.where(walks, Action.FORWARD, jnp.where(blocked, Action.LEFT, use))
    anything = jax.random.randint(any_key, (), 0, NUM_ACTIONS)
    return jnp.where(jax.random.bernoulli(which_key), fitting, anything).astype(jnp.int32)
