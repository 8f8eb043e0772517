"""A world with gymnax's interface (`reset_env`, `step_env`) behind our contract, with our own autoreset.

The `step` of such worlds resets automatically and loses the final observation of an episode, so `step_env`, which does
not reset, is used.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from advsurprise.envs.base import AbstractEnv, Outcome
from advsurprise.envs.foreign.load import Made, attempt, replaced, values
from advsurprise.envs.foreign.rules import their_rules
from advsurprise.envs.foreign.spaces import describe_actions, encode, is_binary, read_space
from advsurprise.envs.host.gymnasium import MEASURES
from advsurprise.envs.host.spaces import Reading
from advsurprise.errors import UserError
from advsurprise.types import EnvSpec

LIMITS = ("max_steps_in_episode", "max_timesteps", "max_steps")
"""Names of the parameter that limits the length of episodes."""
STEP_RETURNS = "(obs, state, reward, done, info) or (obs, state, reward, terminated, truncated, info)"
KINDS = "biuf"
"""Kinds of numbers in numpy, from narrow to wide."""
WIDENED = 4
"""Times that types may widen before they settle: there are four kinds."""
ACTION = jax.ShapeDtypeStruct((), jnp.int32)


class Moved(NamedTuple):
    """Result of a step of another library's world."""

    obs: Any
    state: Any
    reward: Any
    terminated: Any
    truncated: Any


class ForeignState(eqx.Module):
    """State of one body's world."""

    inner: Any
    """The world's own state."""
    obs: Shaped[Array, "..."]
    """What the body sees; stored, because such worlds may draw it at random."""
    total: Float[Array, ""]
    """Reward of this episode so far."""
    steps: Int[Array, ""]
    """Steps of this episode so far."""


@dataclasses.dataclass(frozen=True, eq=False)
class Foreign:
    """An environment and what is known about it; compared by identity."""

    made: Made
    """The environment and its parameters."""
    reading: Reading
    """How its observations are encoded."""
    state: Any
    """Shapes and types of its state."""
    spec: EnvSpec
    """What a learner needs to know about it."""


class ForeignEnv(AbstractEnv[ForeignState]):
    """A world of another JAX library."""

    foreign: Foreign = eqx.field(static=True)

    @property
    def spec(self) -> EnvSpec:
        return self.foreign.spec

    @property
    def action_names(self) -> tuple[str, ...]:
        return self.spec.action_names or tuple(str(action) for action in range(self.spec.num_actions))

    @property
    def settings(self) -> dict[str, Any]:
        return self.foreign.made.fields

    def initial(self, *, key: PRNGKeyArray) -> ForeignState:
        obs, inner = reset(self.foreign.made, key)
        return ForeignState(self._settled(inner), encode(self.foreign.reading, obs), jnp.float32(0), jnp.int32(0))

    def transition(
        self, state: ForeignState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[ForeignState, Outcome]:
        moved = step(self.foreign.made, key, state.inner, action)
        reward = jnp.asarray(moved.reward).astype(jnp.float32)
        terminated, truncated = jnp.asarray(moved.terminated, bool), jnp.asarray(moved.truncated, bool)
        obs = encode(self.foreign.reading, moved.obs)
        after = ForeignState(self._settled(moved.state), obs, state.total + reward, state.steps + 1)
        return after, Outcome(reward, terminated, truncated & ~terminated)

    def observe(self, state: ForeignState) -> Shaped[Array, "..."]:
        return state.obs

    def measure(self, state: ForeignState) -> dict[str, Array]:
        return {"episode_return": state.total, "episode_length": state.steps}

    def place(self, state: ForeignState) -> Int[Array, "0"]:
        return jnp.zeros(0, jnp.int32)

    def rewind(self, first: ForeignState, state: ForeignState) -> ForeignState:
        return dataclasses.replace(first, total=state.total, steps=state.steps)

    def _settled(self, inner: Any) -> Any:
        return jax.tree.map(typed, inner, self.foreign.state)


def build(made: Made) -> ForeignEnv:
    """Builds the world; refuses it for the first fault that tracing reveals."""
    obs, state = read_reset(made)
    actions, about = describe_actions(made)
    state = read_step(made, obs, state)
    reading = read_observations(made, obs, state)
    spec = EnvSpec(
        id=made.name,
        observation_shape=reading.shape,
        observation_dtype=reading.dtype,
        observation_kind=reading.kind,
        num_classes=reading.num_classes,
        num_actions=actions,
        max_steps=0,
        measures=MEASURES,
        truncates=True,
        **about,
    )
    return ForeignEnv(Foreign(made, reading, state, spec))


def reset(made: Made, key: PRNGKeyArray) -> tuple[Any, Any]:
    """The first observation and state."""
    begin = getattr(made.env, "reset_env", None) or made.env.reset
    with their_rules():
        answer = begin(old_key(key), made.params)
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise UserError(f"{made.name}: reset must return (observation, state), not {form(answer)}")
    return answer


def step(made: Made, key: PRNGKeyArray, state: Any, action: Int[Array, ""]) -> Moved:
    """Takes one step without resetting. Worlds in the style of gymnax before 1.0 report termination and truncation as
    one `done`; the same step with a later time limit tells which it was."""
    env, params = made.env, made.params
    with their_rules():
        answer = env.step_env(old_key(key), state, action, params)
        if not isinstance(answer, tuple) or len(answer) not in (4, 5, 6):
            raise UserError(f"{made.name}: step_env must return {STEP_RETURNS}, not {form(answer)}")
        moved = Moved(*answer[:4], truncated=answer[4] if len(answer) == 6 else False)
        limit = time_limit(params)
        if len(answer) == 6:
            return moved
        if hasattr(env, "is_truncated"):
            return moved._replace(truncated=env.is_truncated(moved.state, params))
        if limit is None:
            return moved
        later = replaced(params, {limit: getattr(params, limit) + 1})
        terminated = env.step_env(old_key(key), state, action, later)[3]
        return moved._replace(terminated=terminated, truncated=moved.terminated)


def time_limit(params: Any) -> str | None:
    """Name of the parameter that limits the length of episodes; None if there is none."""
    known = values(params)
    return next((name for name in LIMITS if name in known), None)


def old_key(key: PRNGKeyArray) -> Array:
    """The key as raw words, for which such worlds were written; jax accepts both."""
    return jax.random.key_data(key)


def read_reset(made: Made) -> tuple[Any, Any]:
    """Shapes of the first observation and state; refuses a `reset` that cannot be compiled."""
    owner = type(made.env).__name__
    if not callable(getattr(made.env, "reset_env", getattr(made.env, "reset", None))):
        raise UserError(f"{made.name}: {owner} has no reset(key, params)")
    if not callable(getattr(made.env, "step_env", None)):
        raise UserError(
            f"{made.name}: {owner} has no step_env(key, state, action, params), a step without autoreset; with "
            "autoreset, the final observation would be lost"
        )

    def begin(key: PRNGKeyArray) -> tuple[Any, Any]:
        obs, state = reset(made, key)
        check_arrays(made.name, "reset", observation=obs, state=state)
        return obs, state

    obs, state = shapes(f"{made.name}: reset", begin, jax.random.key(0))
    if not hasattr(obs, "shape"):
        raise UserError(f"{made.name}: an observation must be a single array, not {form(obs)}")
    return obs, state


def read_step(made: Made, obs: Any, state: Any) -> Any:
    """Shapes of the state; refuses a `step_env` that cannot be compiled. A leaf that a step gives a wider type (0
    becomes 0.5) has that type from the start."""
    for _ in range(WIDENED):
        moved = shapes(f"{made.name}: step_env", _checked_step(made), jax.random.key(0), state, ACTION)
        wider = same_form(made.name, state, moved.state)
        if types(wider) == types(state):
            break
        state = wider
    else:
        raise UserError(f"{made.name}: the types of the state change from step to step")
    for part in ("reward", "terminated", "truncated"):
        if np.shape(getattr(moved, part)) != ():
            raise UserError(f"{made.name}: {part} must be a scalar, not of shape {getattr(moved, part).shape}")
    if form(obs) != form(moved.obs):
        raise UserError(f"{made.name}: an observation is {form(obs)} after reset and {form(moved.obs)} after a step")
    return state


def _checked_step(made: Made) -> Callable[..., Moved]:
    def move(key: PRNGKeyArray, state: Any, action: Array) -> Moved:
        moved = step(made, key, state, action)
        check_arrays(made.name, "step_env", observation=moved.obs, state=moved.state, reward=moved.reward)
        return moved

    return move


def read_observations(made: Made, obs: Any, state: Any) -> Reading:
    """How observations are encoded. Numbers computed from booleans, such as the planes of MinAtar, become two classes:
    a categorical density fits them, one of real numbers does not."""
    key = old_key(jax.random.key(0))

    def after_step(key: Array, state: Any, action: Array) -> Any:
        with their_rules():
            return made.env.step_env(key, state, action, made.params)[0]

    binary = is_binary(lambda key: reset(made, key)[0], jax.random.key(0)) and is_binary(after_step, key, state, ACTION)
    return read_space(made, obs, binary=binary)


def shapes(what: str, function: Callable[..., Any], *args: Any) -> Any:
    """Shapes of what a function returns; refuses one that cannot be compiled."""
    return attempt(f"{what} cannot be compiled", lambda: jax.eval_shape(function, *args))


def check_arrays(name: str, where: str, **parts: Any) -> None:
    """Refuses values that are not pytrees of arrays, naming the first bad leaf."""
    for part, tree in parts.items():
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            if not isinstance(leaf, jax.Array | np.ndarray | np.generic | bool | int | float):
                raise UserError(
                    f"{name}: the {part} of {where} is not a pytree of arrays: {part}{jax.tree_util.keystr(path)} is "
                    f"{form(leaf)}; use a dataclass registered with jax (flax.struct, equinox), a tuple or a dict"
                )


def same_form(name: str, before: Any, after: Any) -> Any:
    """Shapes of the state with the wider type of each leaf; refuses a step that changes its structure or shapes."""
    if jax.tree.structure(before) != jax.tree.structure(after):
        raise UserError(f"{name}: the state's structure differs between reset and step_env")
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(before)]
    pairs = zip(paths, jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    leaves = [_wider(f"{name}: state{path}", old, new) for path, old, new in pairs]
    return jax.tree.unflatten(jax.tree.structure(before), leaves)


def _wider(what: str, old: Any, new: Any) -> jax.ShapeDtypeStruct:
    if old.shape != new.shape:
        raise UserError(f"{what} has shape {old.shape} after reset and {new.shape} after a step: it must not change")
    kinds = [KINDS.find(leaf.dtype.kind) for leaf in (old, new)]
    if old.dtype != new.dtype and (kinds[0] > kinds[1] or min(kinds) < 0):
        raise UserError(f"{what} is {old.dtype} after reset and {new.dtype} after a step: it must not change")
    return jax.ShapeDtypeStruct(new.shape, new.dtype)


def types(tree: Any) -> list[Any]:
    """Type of every leaf."""
    return [leaf.dtype for leaf in jax.tree.leaves(tree)]


def typed(leaf: Any, like: jax.ShapeDtypeStruct) -> Array:
    """Casts a leaf, possibly a Python number, to the type it has in every state."""
    array = jnp.asarray(leaf)
    if jnp.issubdtype(array.dtype, jax.dtypes.extended):
        return array
    return jax.lax.convert_element_type(array, like.dtype)


def form(value: Any) -> str:
    """What a value is, for messages."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}{list(value.shape)}"
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else f"a {type(value).__name__}"
