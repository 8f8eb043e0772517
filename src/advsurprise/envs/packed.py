"""A pure world stepped from Python: one compiled call per step, from one byte buffer to the next.

The overhead of a compiled call grows with its number of arrays. The state of a room world has seventeen and a step
returns twenty more; passing them takes longer than computing the step. Here all of them are packed into one array,
results first, which numpy views without copying.
"""

import functools
import itertools
from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata
from jaxtyping import Array, Bool, Int, PRNGKeyArray, UInt8, UInt32

from advsurprise import tree
from advsurprise.envs import threefry
from advsurprise.envs.base import BEGIN, MOVE, AbstractEnv, relocate_all, reset_all, step_keys
from advsurprise.types import CONTINUE, RESTART, TimeStep

KEPT = 16
"""Number of worlds whose programs are cached, so that another environment with the same settings does not compile."""
ALIGNMENT = 8
"""Buffer sizes are multiples of this many bytes, so that what follows a buffer is aligned as well."""


class Place(NamedTuple):
    """Position of a leaf in the buffer."""

    begin: int
    """Its first byte."""
    end: int
    """One past its last byte."""
    dtype: np.dtype
    """Its type."""
    shape: tuple[int, ...]
    """Its shape."""


class Layout:
    """Positions of a pytree's leaves in a byte buffer, widest types first so that each is aligned."""

    def __init__(self, like: Any):
        leaves, self._structure = jax.tree.flatten(like)
        self._order = sorted(range(len(leaves)), key=lambda index: -leaves[index].dtype.itemsize)
        self._places: list[Place] = [Place(0, 0, np.dtype("u1"), ())] * len(leaves)
        begin = 0
        for index in self._order:
            leaf = leaves[index]
            end = begin + leaf.size * leaf.dtype.itemsize
            self._places[index] = Place(begin, end, np.dtype(leaf.dtype), leaf.shape)
            begin = end
        self._padding = -begin % ALIGNMENT
        self.size = begin + self._padding
        """Length in bytes."""
        self._names = [str(index) for index in range(len(leaves))]
        fields: Any = {
            "names": self._names,
            "formats": [(place.dtype, place.shape) for place in self._places],
            "offsets": [place.begin for place in self._places],
            "itemsize": self.size,
        }
        self._record = np.dtype(fields)

    def pack(self, tree: Any) -> UInt8[Array, " size"]:
        """Packs a tree into bytes, in a compiled program. Leaves of one width are joined before they become bytes:
        every change of width is a separate kernel."""
        leaves = jax.tree.leaves(tree)
        parts = [jnp.zeros(self._padding, jnp.uint8)]
        for number, indices in self._by_width():
            words = [leaves[index].reshape(leaves[index].size).view(number) for index in indices]
            parts.insert(-1, jnp.concatenate(words).view(jnp.uint8))
        return jnp.concatenate(parts)

    def unpack(self, buffer: UInt8[Array, " size"]) -> Any:
        """Unpacks a tree, in a compiled program."""
        leaves: list[Any] = [None] * len(self._places)
        for number, indices in self._by_width():
            first = self._places[indices[0]].begin
            words = buffer[first : self._places[indices[-1]].end].view(number)
            for index in indices:
                begin, end, dtype, shape = self._places[index]
                part = words[(begin - first) // number.itemsize : (end - first) // number.itemsize]
                leaves[index] = part.view(dtype).reshape(shape)
        return jax.tree.unflatten(self._structure, leaves)

    def views(self, buffer: UInt8[np.ndarray, " size"]) -> Any:
        """The tree as numpy views of a buffer."""
        record = buffer.view(self._record).reshape(())
        return jax.tree.unflatten(self._structure, [record[name] for name in self._names])

    def numbers(self) -> tuple[Struct, Any]:
        """A struct that reads all leaves from a buffer at once, scalars as Python numbers, and the tree of their
        indices in its result."""
        placed = [self._places[index] for index in self._order]
        formats = (dtype.char if not shape else f"{end - begin}s" for begin, end, dtype, shape in placed)
        where = sorted(range(len(self._order)), key=self._order.__getitem__)
        return Struct("=" + "".join(formats)), jax.tree.unflatten(self._structure, where)

    def _by_width(self) -> list[tuple[np.dtype, list[int]]]:
        """For each width, the unsigned type and the leaves of that width, in buffer order."""
        groups = itertools.groupby(self._order, key=lambda index: self._places[index].dtype.itemsize)
        return [(np.dtype(f"u{width}"), list(indices)) for width, indices in groups]


class Shown(NamedTuple):
    """Result of a step."""

    obs: Any
    """Observation to act on next."""
    reward: Any
    """The world's reward."""
    terminated: Any
    """Whether the episode ended in a terminal state."""
    truncated: Any
    """Whether the time limit ended the episode."""
    info: dict[str, Any]
    """Measures of the state that `obs` shows."""


class Bodies(eqx.Module):
    """Many bodies between two steps."""

    key: UInt32[Array, " n"]
    """Data of the key for all randomness."""
    count: Int[Array, ""]
    """Steps taken since the reset."""
    restarts: Int[Array, ""]
    """Restart requests since the last step."""
    state: Any
    """States of the world, axes [B, …]."""


class OneBody:
    """Programs for one body, compiled on first use."""

    def __init__(self, world: AbstractEnv):
        self.world = world
        state = jax.eval_shape(lambda: world.initial(key=jax.random.key(0)))
        self._state = Layout(state)
        self._shown = Layout(jax.eval_shape(lambda state: _shown(world.shown(state)), state))
        self._like = jax.ShapeDtypeStruct((self._shown.size + self._state.size,), jnp.uint8)
        self._struct, self._where = self._shown.numbers()
        self._obs_type, self._obs_shape = np.dtype(world.spec.observation_dtype), world.spec.observation_shape

    def __reduce__(self):
        return one_body, (self.world,)

    @property
    def unborn(self) -> UInt8[np.ndarray, " size"]:
        """Buffer of a body before its first episode, with nothing visited."""
        return np.zeros(self._like.shape, np.uint8)

    @functools.cached_property
    def begin(self) -> Any:
        """Program (buffer, seed) → buffer: starts the body's next episode."""
        return _compile(self._begin, self._like, jax.ShapeDtypeStruct((), jnp.int32))

    @functools.cached_property
    def step(self) -> Any:
        """Program (buffer, (action, seed)) → buffer: takes one step, without resetting."""
        return _compile_as_one(self._step, self._like, jax.ShapeDtypeStruct((2,), jnp.int32))

    def read(self, packed: UInt8[Array, " size"]) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """The values of Gymnasium's `step`: a writable observation and Python numbers."""
        numbers, where = self._struct.unpack_from(np.asarray(packed).data), self._where
        obs = np.frombuffer(bytearray(numbers[where.obs]), self._obs_type).reshape(self._obs_shape)
        info = {name: numbers[index] for name, index in where.info.items()}
        return obs, numbers[where.reward], numbers[where.terminated], numbers[where.truncated], info

    def state(self, packed: UInt8[np.ndarray, " size"]) -> Any:
        """The world's state."""
        return self._state.views(packed[self._shown.size :])

    def _begin(self, packed, seed):
        state = self.world.renew(self._unpack(packed), key=jax.random.key(seed))
        return self._pack(_shown(self.world.shown(state)), state)

    def _step(self, packed, action_and_seed):
        action, seed = action_and_seed
        state, shown = _move(self.world, self._unpack(packed), action, jax.random.key(seed))
        return self._pack(shown, state)

    def _pack(self, shown: Shown, state: Any) -> UInt8[Array, " size"]:
        return jnp.concatenate([self._shown.pack(shown), self._state.pack(state)])

    def _unpack(self, packed: UInt8[Array, " size"]) -> Any:
        return self._state.unpack(packed[self._shown.size :])


class ManyBodies:
    """Programs for many bodies that step together, compiled on first use."""

    def __init__(self, world: AbstractEnv, bodies: int):
        self.world, self.bodies = world, bodies
        start, timestep = jax.eval_shape(self._start, jnp.int32(0))
        self._shown = Layout(_shown(timestep))
        self._state = Layout(start)
        self._like = jax.ShapeDtypeStruct((self._shown.size + self._state.size,), jnp.uint8)
        self._which = jax.ShapeDtypeStruct((bodies,), jnp.bool_)

    def __reduce__(self):
        return many_bodies, (self.world, self.bodies)

    @functools.cached_property
    def begin(self) -> Any:
        """Program seed → buffer: starts the first episodes."""
        return _compile(self._begin, jax.ShapeDtypeStruct((), jnp.int32))

    @functools.cached_property
    def step(self) -> Any:
        """Program (buffer, actions) → buffer: takes one step, without resetting."""
        return _compile(self._step, self._like, jax.ShapeDtypeStruct((self.bodies,), jnp.int32))

    @functools.cached_property
    def renew(self) -> Any:
        """Program (buffer, mask) → buffer: starts the next episodes of bodies whose episodes ended.

        Separate from `step`, since most steps end no episode: as a branch it would add a fifth to their cost."""
        return _compile(self._renew, self._like, self._which)

    @functools.cached_property
    def restart(self) -> Any:
        """Program (buffer, mask) → buffer: restarts the bodies that request it."""
        return _compile(self._restart, self._like, self._which)

    def read(self, packed: UInt8[Array, " size"]) -> Shown:
        """Results of the last step, in writable arrays."""
        return self._shown.views(np.asarray(packed)[: self._shown.size].copy())

    def state(self, packed: UInt8[np.ndarray, " size"]) -> Any:
        """States of the world, axes [B, …]."""
        return self._state.views(packed[self._shown.size :]).state

    def _begin(self, seed):
        bodies, timestep = self._start(seed)
        return self._pack(bodies, _shown(timestep))

    def _step(self, packed, actions):
        before = self._unpack(packed)
        keys = step_keys(threefry.wrap(before.key), before.count, self.bodies)
        state, shown = jax.vmap(_move, in_axes=(None, 0, 0, 0))(self.world, before.state, actions, keys[:, MOVE])
        return self._pack(Bodies(before.key, before.count + 1, jnp.int32(0), state), shown)

    def _renew(self, packed, ended: Bool[Array, " B"]):
        before = self._unpack(packed)
        keys = step_keys(jax.random.wrap_key_data(before.key), before.count - 1, self.bodies)

        def one(state, ended, key):
            state = tree.select(ended, self.world.renew(state, key=key), state)
            return state, _shown(self.world.shown(state))

        state, shown = jax.vmap(one)(before.state, ended, keys[:, BEGIN])
        return self._pack(Bodies(before.key, before.count, before.restarts, state), shown)

    def _restart(self, packed, chosen: Bool[Array, " B"]):
        before = self._unpack(packed)
        keys = step_keys(jax.random.wrap_key_data(before.key), before.count - 1, self.bodies)
        # Bodies restarted twice before the next step must get different episodes.
        other = jax.vmap(jax.vmap(lambda key: jax.random.fold_in(key, 1)))
        keys = jax.lax.fori_loop(0, before.restarts, lambda _, keys: other(keys), keys)
        request = jnp.where(chosen, RESTART, CONTINUE)
        _, state, timestep = relocate_all(self.world, keys, before.state, before.state, request)
        return self._pack(Bodies(before.key, before.count, before.restarts + 1, state), _shown(timestep))

    def _start(self, seed: Int[Array, ""]) -> tuple[Bodies, TimeStep]:
        key, state, timestep = reset_all(self.world, self.bodies, jax.random.key(seed))
        return Bodies(jax.random.key_data(key), jnp.int32(0), jnp.int32(0), state), timestep

    def _pack(self, bodies: Bodies, shown: Shown) -> UInt8[Array, " size"]:
        return jnp.concatenate([self._shown.pack(shown), self._state.pack(bodies)])

    def _unpack(self, packed: UInt8[Array, " size"]) -> Bodies:
        return self._state.unpack(packed[self._shown.size :])


@functools.lru_cache(maxsize=KEPT)
def one_body(world: AbstractEnv) -> OneBody:
    """Programs for one body, shared by all environments with the same settings."""
    return OneBody(world)


@functools.lru_cache(maxsize=KEPT)
def many_bodies(world: AbstractEnv, bodies: int) -> ManyBodies:
    """Programs for many bodies, shared by all environments with the same settings."""
    return ManyBodies(world, bodies)


def _compile(function: Callable, *like: jax.ShapeDtypeStruct) -> Any:
    return jax.jit(function).lower(*like).compile()


def _compile_as_one(function: Callable, *like: jax.ShapeDtypeStruct) -> Any:
    """Compiles to a single kernel on a CPU: a step of one body is seventy small ones, which XLA would pass from thread
    to thread, taking several times as long. Falls back to `_compile` where XLA cannot; only the speed differs."""
    function = jax.jit(function)

    def call(*args):
        return set_xla_metadata(function(*args), inlineable="false", xla_cpu_small_call="true")

    if jax.default_backend() != "cpu":
        return _compile(function, *like)
    try:
        return _compile(call, *like)
    except jax.errors.JaxRuntimeError:
        return _compile(function, *like)


def _move(world: AbstractEnv, state: Any, action: Int[Array, ""], key: PRNGKeyArray) -> tuple[Any, Shown]:
    state, outcome = world.transition(state, action, key=key)
    ended = outcome.terminated, outcome.truncated
    return state, Shown(world.observe(state), outcome.reward, *ended, world.measure(state))


def _shown(timestep: TimeStep) -> Shown:
    return Shown(timestep.obs, timestep.reward, timestep.terminated, timestep.truncated, timestep.info)
