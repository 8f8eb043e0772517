"""Evaluation of frozen policies: whole episodes, the same number of each body, no learning.

Whoever counts the first episodes to finish counts too many short ones; here each body's first few count, however long
they take.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from advsurprise.envs.base import AbstractEnv
from advsurprise.envs.host.base import Host
from advsurprise.errors import UserError
from advsurprise.learning.collect import ScanCollector
from advsurprise.learning.devices import quickest_compile
from advsurprise.learning.host_collect import HostCollector
from advsurprise.learning.interaction import Agent
from advsurprise.learning.measures import Steps, columns, common_surprise, no_models, steps_of
from advsurprise.methods.base import ended
from advsurprise.tree import with_seed_axis
from advsurprise.types import GAME_OVER, Measured, Rollout

CHUNK = 128
"""Steps played at a time in worlds whose episodes have no fixed length."""
MAX_CHUNKS = 1000
"""Chunks after which a world that ends no episodes is given up."""

Collect = Callable[[Any, int], tuple[Any, Steps, Measured]]
"""From what is carried and the chunk's number: what is carried on, the chunk's steps, and their common surprise."""


def play(env: AbstractEnv, agent: Agent, *, episodes: int, seed: int) -> dict[str, np.ndarray]:
    """Measures of the first episode of each of as many bodies, one entry per episode, in a pure world."""
    start_key, play_key = jax.random.split(jax.random.key(seed))
    collector = ScanCollector(env, episodes, env.spec.max_steps or CHUNK)

    start, go_on = _programs()

    def collect(carry, number):
        return go_on(collector, agent, carry, jax.random.fold_in(play_key, number))

    return _whole_episodes(collect, (start(collector, agent, start_key), no_models(env.spec, episodes)), agent, 1)


def play_host(world: Host | HostCollector, agent: Agent, *, episodes: int, seed: int) -> dict[str, np.ndarray]:
    """Measures of whole episodes in a host world, or of whole games where they are several episodes, one entry each: at
    least `episodes`, the same number of each of the host's bodies. A collector that is given keeps its programs."""
    start_key, play_key = jax.random.split(jax.random.key(seed))
    collector = world if isinstance(world, HostCollector) else HostCollector(world, CHUNK)
    host, seeds = collector.host, with_seed_axis(agent)

    def collect(carry, number):
        memory, stats = carry
        memory, rollout = collector.collect(seeds, memory, key=jax.random.fold_in(play_key, number)[None])
        stats, steps, surprise = _reduce(agent, jax.tree.map(lambda leaf: leaf[0], rollout), stats)
        return (memory, stats), steps, surprise

    memory = collector.start(seeds, key=start_key[None])
    return _whole_episodes(collect, (memory, no_models(host.spec, host.bodies)), agent, -(-episodes // host.bodies))


def _start(collector: ScanCollector, agent: Agent, key):
    return collector.start(agent, key=key)


def _collect(collector: ScanCollector, agent: Agent, carry, key):
    world, stats = carry
    world, rollout = collector.collect(agent, world, key=key)
    stats, steps, surprise = _reduce(agent, rollout, stats)
    return (world, stats), steps, surprise


@functools.cache
def _programs() -> tuple[Callable, Callable]:
    """`_start` and `_collect`, compiled as quickly as can be: an evaluation takes longer to compile than to play."""
    options = quickest_compile()
    start, go_on = (jax.jit(each, static_argnums=0, compiler_options=options) for each in (_start, _collect))
    return start, go_on


@jax.jit
def _reduce(agent: Agent, rollout: Rollout, stats: Any) -> tuple[Any, Steps, Measured]:
    """What is kept of a rollout, and the statistics behind its common surprise."""
    observed = rollout.views.newest
    stats, surprise = common_surprise(observed, ended(rollout), agent.method.spec, stats)
    return stats, steps_of(rollout, agent.method), surprise


def _whole_episodes(collect: Collect, carry: Any, agent: Agent, each: int) -> dict[str, np.ndarray]:
    """Plays until every body has ended `each` episodes, and measures these."""
    chunks = []
    for number in range(MAX_CHUNKS):
        carry, *chunk = collect(carry, number)
        chunks.append(jax.tree.map(np.asarray, chunk))
        if np.all(sum(_ends(steps).sum(axis=0) for steps, _ in chunks) >= each):
            break
    else:
        length = sum(len(steps.over) for steps, _ in chunks)
        raise UserError(f"{agent.method.spec.id}: not every body ended {each} episode(s) within {length} steps")
    steps, surprise = jax.tree.map(lambda *parts: np.concatenate(parts), *chunks)
    begins = jnp.ones(steps.over.shape[1], bool)
    measured = columns(jax.tree.map(jnp.asarray, steps), agent.method, begins=begins)
    measured["common_surprise"] = surprise
    ends = _ends(steps)
    number = np.cumsum(ends, axis=0) - ends
    return {name: by_episode(column, number, each) for name, column in measured.items()}


def _ends(steps: Steps) -> np.ndarray:
    """Steps that ended a game, or an episode where games are not told apart from them."""
    return np.asarray(steps.info[GAME_OVER]) > 0 if GAME_OVER in steps.info else np.asarray(steps.over)


def by_episode(column: Measured, number: np.ndarray, each: int) -> Float[np.ndarray, " episodes"]:
    """Mean over the steps that count of each body's first `each` episodes, body by body within each; nan where no step
    of an episode counts. `number` says which of its body's episodes a step belongs to, [T, B]."""
    value, counts = np.asarray(column.value, np.float64), np.asarray(column.counts)
    within = [counts & (number == episode) for episode in range(each)]
    totals = [(np.where(where, value, 0.0).sum(axis=0), where.sum(axis=0)) for where in within]
    return np.concatenate([np.where(n > 0, total / np.maximum(n, 1), np.nan) for total, n in totals])
