"""Reads the spaces of worlds with gymnax's interface: how to encode observations, and the number of actions."""

from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped

from advsurprise.envs.foreign.load import Made, attempt
from advsurprise.envs.host.spaces import Reading, read_actions, read_metadata, read_observations
from advsurprise.errors import UserError

MINATAR_ACTIONS = ("none", "left", "up", "right", "down", "fire")
"""MinAtar's six actions; a game may use only some of them."""
_FIRST, _ALL = slice(1), slice(None)
DECISIVE = {
    **dict.fromkeys(("copy", "reshape", "transpose", "squeeze", "broadcast_in_dim", "slice", "rev", "gather"), _FIRST),
    **dict.fromkeys(("convert_element_type", "dynamic_slice", "stop_gradient"), _FIRST),
    **dict.fromkeys(("concatenate", "mul", "and", "or", "max", "min"), _ALL),
    **{"select_n": slice(1, None), "scatter": slice(0, None, 2), "dynamic_update_slice": slice(2)},
}
"""Operations whose result contains only 0 and 1 if these inputs do."""
DEEPEST = 100
"""Maximum number of operations to follow back."""


def read_space(made: Made, obs: Any, *, binary: bool) -> Reading:
    """How to encode observations: shape and type come from tracing, only the bounds from the declared space."""
    if binary:
        return Reading("classes", obs.shape or (1,), 2)
    low, high = bounds(made)
    if obs.dtype == jnp.bool_:
        return read_observations(gymnasium.spaces.MultiBinary(obs.shape or (1,)), made.name)
    if obs.dtype.kind in "iu" and not np.isfinite([np.min(low), np.max(high)]).all():
        low, high = np.iinfo(obs.dtype).min, np.iinfo(obs.dtype).max
    low, high = (np.broadcast_to(_fitting(bound, obs), obs.shape).astype(obs.dtype) for bound in (low, high))
    return read_observations(gymnasium.spaces.Box(low, high, obs.shape, obs.dtype.type), made.name)


def bounds(made: Made) -> tuple[Any, Any]:
    """Declared lower and upper bounds of observations; infinite by default."""
    space = getattr(made.env, "observation_space", None)
    declared: Any = attempt(f"{made.name}: observation_space", lambda: space(made.params)) if callable(space) else space
    if hasattr(declared, "n"):
        return 0, int(declared.n) - 1
    return np.asarray(getattr(declared, "low", -np.inf)), np.asarray(getattr(declared, "high", np.inf))


def _fitting(bound: Any, obs: Any) -> Any:
    """A bound for every entry; the outermost if the declared bounds have another shape."""
    try:
        return np.broadcast_to(bound, obs.shape)
    except ValueError:
        return np.max(np.abs(bound)) * np.sign(np.ravel(bound)[0])


def encode(reading: Reading, obs: Any) -> Shaped[Array, "..."]:
    """Encodes an observation."""
    seen = jnp.asarray(obs)
    if reading.kind == "classes":
        seen = seen.astype(jnp.int32) - jnp.asarray(reading.low, jnp.int32)
    elif not reading.levels:
        seen = (seen.astype(jnp.float32) - jnp.asarray(reading.low, jnp.float32)) / jnp.float32(reading.span)
    return seen.astype(reading.dtype).reshape(reading.shape)


def describe_actions(made: Made) -> tuple[int, dict[str, Any]]:
    """The number of actions, and further fields of `EnvSpec` about them; refuses actions that are not discrete."""
    name, space = made.name, getattr(made.env, "action_space", None)
    declared: Any = attempt(f"{name}: action_space", lambda: space(made.params)) if callable(space) else space
    number = getattr(declared, "n", None) if declared is not None else getattr(made.env, "num_actions", None)
    if number is None and hasattr(declared, "low"):
        read_actions(_box(declared), name)
    if number is None:
        raise UserError(f"{name}: action_space is {declared!r}; only Discrete actions are accepted")
    actions = gymnasium.spaces.Discrete(int(number))
    about = read_metadata(getattr(made.env, "metadata", None) or {}, actions, name)
    names = action_names(name, made.env, int(number))
    if "none" in names and about["noop"] is None:
        about["noop"] = names.index("none")
    return int(number), about | {"action_names": names}


def _box(space: Any) -> gymnasium.spaces.Box:
    low, high = (np.broadcast_to(np.asarray(bound, np.float32), space.shape) for bound in (space.low, space.high))
    return gymnasium.spaces.Box(low, high, space.shape)


def action_names(name: str, env: Any, number: int) -> tuple[str, ...]:
    """MinAtar's names of the actions; empty for other worlds."""
    chosen = getattr(env, "action_set", None)
    if "minatar" not in name.lower() or chosen is None or len(chosen) != number:
        return ()
    return tuple(MINATAR_ACTIONS[int(action)] for action in chosen)


def is_binary(function: Callable[..., Any], *args: Any) -> bool:
    """Whether a function's result, an array of any type, contains only 0 and 1, as far as its jaxpr shows: constants of
    that kind, or numbers computed from booleans."""
    program = jax.make_jaxpr(function)(*args).jaxpr
    return len(program.outvars) == 1 and _Reader(program, {}).binary(program.outvars[0])


class _Reader:
    """Finds out which variables of a jaxpr contain only 0 and 1."""

    def __init__(self, program: Any, arguments: dict[Any, Callable[[], bool]]):
        self.arguments = arguments
        self.made_by = {variable: equation for equation in program.eqns for variable in equation.outvars}
        self.known: dict[Any, bool] = {}

    def binary(self, variable: Any, depth: int = 0) -> bool:
        """Whether a variable contains only 0 and 1; False if it is too deep in the program to tell."""
        if hasattr(variable, "val"):
            return bool(np.isin(np.asarray(variable.val), (0, 1)).all())
        if variable.aval.dtype == jnp.bool_:
            return True
        if variable not in self.known:
            self.known[variable] = depth < DEEPEST and self._read(variable, depth + 1)
        return self.known[variable]

    def _read(self, variable: Any, depth: int) -> bool:
        if variable in self.arguments:
            return self.arguments[variable]()
        equation = self.made_by.get(variable)
        if equation is None:
            return False
        if equation.primitive.name in ("jit", "pjit"):
            inner = equation.params["jaxpr"].jaxpr
            given = {name: lambda each=each: self.binary(each, depth) for name, each in _pairs(inner, equation)}
            return _Reader(inner, given).binary(inner.outvars[equation.outvars.index(variable)], depth)
        decisive = DECISIVE.get(equation.primitive.name)
        return decisive is not None and all(self.binary(each, depth) for each in equation.invars[decisive])


def _pairs(inner: Any, equation: Any) -> Any:
    return zip(inner.invars, equation.invars, strict=True)
