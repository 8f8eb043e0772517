"""Reads Gymnasium spaces: kind and classes of observations, and the number of actions."""

import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import Num, Shaped

from advsurprise.errors import UserError

MAX_CLASSES = 64
"""Integers of a Box with at most this many values are classes, others are numbers."""
MAX_ONE_HOT = 2**16
"""Largest size (entries times classes) of a one-hot observation."""
MAX_CHANNELS = 16
"""A first axis of at most this length, shorter than both others, is assumed to be channels."""

CONTINUOUS = (
    "continuous actions are not supported: policies are categorical. Discretize the actions with a wrapper, or add a "
    "continuous policy head (learning/networks.py) with its log-probability and entropy (learning/ppo.py)"
)
"""Why continuous actions are refused, and what would be needed."""
ACCEPTED = "use Box (a vector, an image or a grid of classes), Discrete, MultiDiscrete or MultiBinary"


@dataclass(frozen=True, eq=False)
class Reading:
    """How observations of a space are encoded for a learner."""

    kind: Literal["classes", "image", "vector"]
    """As in `EnvSpec.observation_kind`."""
    shape: tuple[int, ...]
    """Shape of one encoded observation."""
    num_classes: int = 0
    """Number of classes; 0 unless the kind is `classes`."""
    low: Shaped[np.ndarray, "..."] | float = 0.0
    """Subtracted from every entry: the first class, or an image's black."""
    span: float = 1.0
    """Divides real entries after that."""
    levels: bool = False
    """Whether entries are grey or colour levels from 0 to 255, left as they are."""

    @property
    def dtype(self) -> str:
        """Type of encoded entries."""
        if self.levels:
            return "uint8"
        if self.kind != "classes":
            return "float32"
        return "uint8" if self.num_classes <= 256 else "int32"

    def encode(self, seen: Shaped[np.ndarray, "bodies ..."]) -> Num[np.ndarray, "bodies ..."]:
        """Encodes the observations of all bodies; raises ValueError for one outside the space."""
        if self.levels:
            shown = seen
        elif self.kind == "classes":
            shown = seen.astype(np.int64) - self.low
            if shown.size and (shown.min() < 0 or shown.max() >= self.num_classes):
                raise ValueError(f"an observation contains a class outside the {self.num_classes} declared")
        else:
            shown = (seen.astype(np.float32) - np.float32(self.low)) / np.float32(self.span)
            if not np.isfinite(shown).all():
                raise ValueError("an observation contains a number that is not finite")
        return shown.astype(self.dtype).reshape(len(seen), *self.shape)


def read_observations(space: gymnasium.Space, name: str) -> Reading:
    """How to encode observations of a space; refuses spaces that are not supported."""
    if space.shape is not None and (len(space.shape) > 3 or 0 in space.shape):
        raise UserError(f"{name}: observation_space has shape {space.shape}; shapes of 1 to 3 axes are accepted")
    if isinstance(space, spaces.Discrete):
        reading = Reading("classes", (1,), int(space.n), np.asarray(space.start))
    elif isinstance(space, spaces.MultiDiscrete):
        reading = Reading("classes", space.nvec.shape, int(space.nvec.max()), np.asarray(space.start))
    elif isinstance(space, spaces.MultiBinary):
        reading = Reading("classes", space.shape, 2)
    elif isinstance(space, spaces.Box):
        reading = _read_box(space, name)
    else:
        raise UserError(f"{name}: observation_space {short(space)} is not supported; {ACCEPTED}{_hint(space)}")
    size = math.prod(reading.shape) * reading.num_classes
    if size > MAX_ONE_HOT:
        raise UserError(
            f"{name}: observation_space {short(space)} has {math.prod(reading.shape)} entries of "
            f"{reading.num_classes} classes, {size} numbers as one-hot; at most {MAX_ONE_HOT} are accepted"
        )
    return reading


def read_actions(space: gymnasium.Space, name: str) -> spaces.Discrete:
    """The action space, if it is discrete; refuses any other."""
    if isinstance(space, spaces.Discrete):
        return space
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        raise UserError(f"{name}: action_space is {short(space)}, and {CONTINUOUS}")
    raise UserError(f"{name}: action_space is {short(space)}; only Discrete actions are accepted")


def read_metadata(metadata: Mapping[str, Any], actions: spaces.Discrete, name: str) -> dict[str, Any]:
    """Fields of `EnvSpec` from an environment's metadata: the action that does nothing (`metadata["noop"]`, numbered as
    in its action space) and the role that moves first (`metadata["first_role"]`)."""
    noop, first_role = metadata.get("noop"), metadata.get("first_role") or ""
    if noop is not None and not actions.contains(noop):
        raise UserError(f"{name}: metadata['noop'] must be an action of {short(actions)}, not {noop!r}")
    if not isinstance(first_role, str):
        raise UserError(f"{name}: metadata['first_role'] must be the name of a role, not {first_role!r}")
    return {"noop": None if noop is None else int(noop) - int(actions.start), "first_role": first_role}


def short(space: object) -> str:
    """A space in one line."""
    return textwrap.shorten(str(space), 100, placeholder=" …")


def _hint(space: gymnasium.Space) -> str:
    """A suggestion for composite spaces that can be flattened."""
    if isinstance(space, spaces.Dict | spaces.Tuple) and space.is_np_flattenable:
        return "; wrap the environment in gymnasium.wrappers.FlattenObservation, or observe one part of it"
    return ""


def _read_box(space: spaces.Box, name: str) -> Reading:
    rank = len(space.shape)
    if space.dtype is not None and space.dtype.kind in "biu":
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        values = float(np.max(high - low)) + 1
        if values <= MAX_CLASSES:
            return Reading("classes", space.shape or (1,), int(values), space.low.astype(np.int64))
        if rank > 1 and space.dtype != np.uint8:
            raise UserError(
                f"{name}: observation_space {short(space)} has {values:.0f} values per entry; up to {MAX_CLASSES} are "
                "treated as classes, and images must be uint8 or float"
            )
    if rank <= 1:
        return Reading("vector", space.shape or (1,))
    return _read_image(space, name)


def _read_image(space: spaces.Box, name: str) -> Reading:
    """Images are encoded as [rows, columns, channels]: bytes from 0 to 255 as they are, which learners divide by 255,
    others scaled to [0, 1] if all entries have the same bounds."""
    shape = space.shape if len(space.shape) != 2 else (*space.shape, 1)
    if len(shape) == 3 and shape[0] <= MAX_CHANNELS and shape[0] < min(shape[1:]):
        raise UserError(
            f"{name}: observation_space has shape {space.shape}, which looks like channels first; images must be "
            "[rows, columns, channels]: wrap the environment in gymnasium.wrappers.TransformObservation"
        )
    low, high = float(space.low.min()), float(space.high.max())
    if space.dtype == np.uint8 and (low, high) == (0, 255):
        return Reading("image", shape, levels=True)
    same = np.all(space.low == low) and np.all(space.high == high)
    if same and np.isfinite([low, high]).all() and high > low:
        return Reading("image", shape, low=low, span=high - low)
    return Reading("image", shape)
