"""Frozen runs: agents without training state, in the folder and the files of a run.

config.json    the run's configuration, marked as frozen
checkpoints/   one checkpoint with the agents only: no worlds, no optimisers
"""

import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import optax

from advsurprise.config import RunConfig
from advsurprise.learning.interaction import Agent
from advsurprise.training import checkpoint, files
from advsurprise.training.folder import CHECKPOINTS, CONFIG, FROZEN
from advsurprise.training.versions import Versions


def freeze(
    cfg: RunConfig, agents: list[Agent], updates: int, folder: pathlib.Path, *, made_with: Versions
) -> pathlib.Path:
    """Writes a frozen run and returns the record of its checkpoint. `made_with`: versions that it was trained with."""
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *agents)
    state = {"agent": without_optimisers(stacked), "update": jnp.full(len(agents), updates, jnp.int32)}
    meta = {"config": cfg.as_dict(), FROZEN: True}
    files.make_folder(folder)
    files.write(folder / CONFIG, json.dumps({**meta, "versions": made_with}, indent=1) + "\n")
    return checkpoint.save(folder / CHECKPOINTS, updates, state, meta, keep=1)


def is_frozen(record: pathlib.Path) -> bool:
    """Whether a checkpoint holds agents only."""
    return checkpoint.read_record(record)["meta"].get(FROZEN) is True


def thaw(record: pathlib.Path, agent: Agent, update: Any) -> tuple[Agent, Any]:
    """Agents [S, …] and updates done of a frozen run, from the shapes of both; optimisers are reset."""
    state = checkpoint.load(record, {"agent": without_optimisers(agent), "update": update})
    return with_optimisers(state["agent"], agent), state["update"]


def without_optimisers(tree: Any) -> Any:
    """The tree with None for the state of every Adam."""
    return jax.tree.map(lambda node: None if _is_adam(node) else node, tree, is_leaf=_is_adam)


def with_optimisers(tree: Any, like: Any) -> Any:
    """The tree with the state of every Adam that `like` has, as it is before the first step."""

    def fill(node: Any, mine: Any) -> Any:
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), node) if _is_adam(node) else mine

    return jax.tree.map(fill, like, tree, is_leaf=_is_adam)


def _is_adam(node: Any) -> bool:
    return isinstance(node, optax.ScaleByAdamState)
