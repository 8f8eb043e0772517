"""Records shared by all layers. Axis letters: S seeds, T time, B bodies, V value streams, A actions."""

from typing import Literal, NamedTuple

import equinox as eqx
from jaxtyping import Array, Bool, Float, Shaped


class EnvSpec(NamedTuple):
    """What a learner must know of a world before it sees it."""

    id: str
    """Name under which `advsurprise.make` finds the world."""
    observation_shape: tuple[int, ...]
    """Shape of one observation."""
    observation_dtype: str
    """numpy name of the observation's type."""
    observation_kind: Literal["classes", "image", "vector"]
    """`classes`: every entry is a category; `image`: channels last; `vector`: real numbers."""
    num_classes: int
    """Number of categories an entry can take; 0 unless the kind is `classes`."""
    num_actions: int
    """Actions are the integers from 0 to this, exclusive."""
    max_steps: int
    """Length of an episode where it is fixed; 0 where it is not."""
    info: tuple[str, ...]
    """Keys of `TimeStep.info`, always all present."""


class TimeStep(eqx.Module):
    """What the world says after a reset or a step. The contract is docs/contract.md."""

    obs: Shaped[Array, "..."]
    """What to act on next; after an episode's end it already belongs to the new episode."""
    reward: Float[Array, "..."]
    """The world's own reward (zero in the room worlds)."""
    terminated: Bool[Array, "..."]
    """The episode ended and has no future."""
    truncated: Bool[Array, "..."]
    """The clock ran out: bootstrap from `final_obs`. If both hold, `terminated` wins."""
    final_obs: Shaped[Array, "..."]
    """What the action really led to; equals `obs` unless the episode ended."""
    info: dict[str, Array]
    """Measures of the state the action led to, keys as in `EnvSpec.info`."""
