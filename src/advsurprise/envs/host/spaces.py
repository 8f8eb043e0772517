"""What Gymnasium's spaces mean here: the kind of an observation, its classes, the number of actions."""

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
"""Integers of a Box are classes up to this many values, and numbers beyond."""
MAX_ONE_HOT = 2**16
"""Most numbers (entries times classes) of one observation written as one-hot classes."""
MAX_CHANNELS = 16
"""A first axis that is no longer than this, and shorter than both others, is taken for channels."""

CONTINUOUS = (
    "continuous actions cannot be trained: policies choose among numbered actions. Make a world whose Discrete actions "
    "stand for a few of them, or write a policy head of real numbers (learning/networks.py) with its log-probability "
    "and entropy (learning/ppo.py)"
)
"""Why a world of real-valued actions is refused, and what would be needed."""
ACCEPTED = "accepted are Box (a vector, an image or a grid of classes), Discrete, MultiDiscrete and MultiBinary"


@dataclass(frozen=True, eq=False)
class Reading:
    """How observations of a space are shown to a learner."""

    kind: Literal["classes", "image", "vector"]
    """As in `EnvSpec.observation_kind`."""
    shape: tuple[int, ...]
    """Shape of one observation as shown."""
    num_classes: int = 0
    """Number of classes; 0 unless the kind is `classes`."""
    low: Shaped[np.ndarray, "..."] | float = 0.0
    """What is taken off every entry: the first class, or an image's black."""
    span: float = 1.0
    """What real entries are then divided by."""
    levels: bool = False
    """Whether entries are grey or colour levels from 0 to 255, shown as they are."""

    @property
    def dtype(self) -> str:
        """Type of the entries as shown."""
        if self.levels:
            return "uint8"
        if self.kind != "classes":
            return "float32"
        return "uint8" if self.num_classes <= 256 else "int32"

    def encode(self, seen: Shaped[np.ndarray, "bodies ..."]) -> Num[np.ndarray, "bodies ..."]:
        """Observations of all bodies as shown; raises ValueError for one that the space does not hold."""
        if self.levels:
            shown = seen
        elif self.kind == "classes":
            shown = seen.astype(np.int64) - self.low
            if shown.size and (shown.min() < 0 or shown.max() >= self.num_classes):
                raise ValueError(f"an observation holds a class outside the {self.num_classes} that it declares")
        else:
            shown = (seen.astype(np.float32) - np.float32(self.low)) / np.float32(self.span)
            if not np.isfinite(shown).all():
                raise ValueError("an observation holds a number that is not finite")
        return shown.astype(self.dtype).reshape(len(seen), *self.shape)


def read_observations(space: gymnasium.Space, name: str) -> Reading:
    """How to show observations of a space, or a sentence that says why they cannot be shown."""
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
        raise UserError(f"{name}: observation_space is {short(space)}, which cannot be shown; {ACCEPTED}{_hint(space)}")
    size = math.prod(reading.shape) * reading.num_classes
    if size > MAX_ONE_HOT:
        raise UserError(
            f"{name}: observation_space {short(space)} has {math.prod(reading.shape)} entries of "
            f"{reading.num_classes} classes, {size} numbers as one-hot; at most {MAX_ONE_HOT} are accepted"
        )
    return reading


def read_actions(space: gymnasium.Space, name: str) -> spaces.Discrete:
    """The actions, or a sentence that says why they cannot be chosen."""
    if isinstance(space, spaces.Discrete):
        return space
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        raise UserError(f"{name}: action_space is {short(space)}, and {CONTINUOUS}")
    raise UserError(f"{name}: action_space is {short(space)}; only Discrete actions are accepted")


def read_metadata(metadata: Mapping[str, Any], actions: spaces.Discrete, name: str) -> dict[str, Any]:
    """What an environment says of itself beyond its spaces, as fields of `EnvSpec`: the action that does nothing
    (`metadata["noop"]`, numbered as its own action space is) and the role that begins (`metadata["first_role"]`)."""
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
    """What would help with parts that could be shown if they were one."""
    if isinstance(space, spaces.Dict | spaces.Tuple) and space.is_np_flattenable:
        return "; wrap the environment in gymnasium.wrappers.FlattenObservation, or show one part of it"
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
                "taken for classes, and an image is uint8 or float"
            )
    if rank <= 1:
        return Reading("vector", space.shape or (1,))
    return _read_image(space, name)


def _read_image(space: spaces.Box, name: str) -> Reading:
    """Images are shown as [rows, columns, channels]: bytes from 0 to 255 as they are, which learners divide by 255,
    others scaled to [0, 1] where the bounds of all entries are the same."""
    shape = space.shape if len(space.shape) != 2 else (*space.shape, 1)
    if len(shape) == 3 and shape[0] <= MAX_CHANNELS and shape[0] < min(shape[1:]):
        raise UserError(
            f"{name}: observation_space has shape {space.shape}, which looks like channels first; images are "
            "[rows, columns, channels]; wrap the environment in gymnasium.wrappers.TransformObservation"
        )
    low, high = float(space.low.min()), float(space.high.max())
    if space.dtype == np.uint8 and (low, high) == (0, 255):
        return Reading("image", shape, levels=True)
    same = np.all(space.low == low) and np.all(space.high == high)
    if same and np.isfinite([low, high]).all() and high > low:
        return Reading("image", shape, low=low, span=high - low)
    return Reading("image", shape)
