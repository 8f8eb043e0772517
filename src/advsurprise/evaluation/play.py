"""Evaluation of frozen policies: whole episodes, the same number per body, no learning.

Counting the first episodes to finish would favour short ones; instead each body's first few episodes count, however
long they take.
"""

import functools
from collections.abc import Callable, Sequence
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
from advsurprise.methods.base import AbstractMethod, ended
from advsurprise.tree import over_seeds, with_seed_axis
from advsurprise.types import GAME_OVER, Measured, Rollout

CHUNK = 128
"""Steps per chunk in worlds whose episodes have no fixed length."""
MAX_CHUNKS = 1000
"""Most chunks: the evaluation fails if episodes do not end by then."""

Collect = Callable[[Any, int], tuple[Any, Steps, Measured]]
"""Maps the carry and the index of a chunk to the new carry, the chunk's steps and their common surprise, the last two
with an axis S."""


def play(env: AbstractEnv, agent: Agent, *, episodes: int, seed: int) -> dict[str, np.ndarray]:
    """Measures of the first episode of each of `episodes` bodies in a pure world, one entry per episode."""
    start_key, play_key = jax.random.split(jax.random.key(seed))
    collector = ScanCollector(env, episodes, env.spec.max_steps or CHUNK)

    start, play_chunk = _programs()

    def collect(carry, number):
        carry, *chunk = play_chunk(collector, agent, carry, jax.random.fold_in(play_key, number))
        return carry, *with_seed_axis(chunk)

    carry = start(collector, agent, start_key), no_models(env.spec, episodes)
    return _whole_episodes(collect, carry, agent.method, 1)[0]


def evaluator(host: Host) -> HostCollector:
    """A collector of whole episodes, or of whole games where the world reports them: a method may not rewind or restart
    those."""
    return HostCollector(host, CHUNK, relocates=GAME_OVER not in host.spec.info)


def play_host(
    world: Host | HostCollector, agents: Sequence[Agent], *, episodes: int, seed: int
) -> list[dict[str, np.ndarray]]:
    """Measures of each agent's whole episodes in a host world, or whole games where a game is several episodes, one
    entry each: at least `episodes`, the same number for each of the host's bodies. All agents are of one method.

    As many agents play in parallel as the host has seeds. All start with the same keys, and agents do not affect each
    other. Passing a collector reuses its compiled programs.
    """
    collector = world if isinstance(world, HostCollector) else evaluator(world)
    size, played = collector.host.seeds, []
    for first in range(0, len(agents), size):
        batch = list(agents[first : first + size])
        padded = batch + [batch[-1]] * (size - len(batch))
        played += _play_together(collector, padded, episodes=episodes, seed=seed)[: len(batch)]
    return played


def _play_together(
    collector: HostCollector, agents: list[Agent], *, episodes: int, seed: int
) -> list[dict[str, np.ndarray]]:
    """Plays as many agents as the host has seeds."""
    host, method, seeds = collector.host, agents[0].method, len(agents)
    start_key, play_key = jax.random.split(jax.random.key(seed))
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *agents)

    def keys(key):
        return jnp.stack([key] * seeds)

    def collect(carry, number):
        memory, stats = carry
        memory, rollout = collector.collect(stacked, memory, key=keys(jax.random.fold_in(play_key, number)))
        stats, steps, surprise = _reduce_seeds(method, seeds, rollout, stats)
        return (memory, stats), steps, surprise

    memory = collector.start(stacked, key=keys(start_key))
    models = no_models(host.spec, host.bodies)
    carry = memory, jax.tree.map(lambda leaf: jnp.stack([leaf] * seeds), models)
    return _whole_episodes(collect, carry, method, -(-episodes // host.bodies))


def _start(collector: ScanCollector, agent: Agent, key):
    return collector.start(agent, key=key)


def _collect(collector: ScanCollector, agent: Agent, carry, key):
    world, stats = carry
    world, rollout = collector.collect(agent, world, key=key)
    stats, steps, surprise = _reduce(agent.method, rollout, stats)
    return (world, stats), steps, surprise


@functools.cache
def _programs() -> tuple[Callable, Callable]:
    """`_start` and `_collect`, jitted for fast compilation: an evaluation takes longer to compile than to play."""
    options = quickest_compile()
    start, play_chunk = (jax.jit(each, static_argnums=0, compiler_options=options) for each in (_start, _collect))
    return start, play_chunk


def _reduce(method: AbstractMethod, rollout: Rollout, stats: Any) -> tuple[Any, Steps, Measured]:
    """Updates the common-surprise statistics, and returns a rollout's steps and surprise."""
    observed = rollout.views.newest
    stats, surprise = common_surprise(observed, ended(rollout), method.spec, stats)
    return stats, steps_of(rollout, method), surprise


@functools.partial(jax.jit, static_argnums=(0, 1))
def _reduce_seeds(method: AbstractMethod, seeds: int, rollout: Rollout, stats: Any) -> tuple[Any, Steps, Measured]:
    return over_seeds(functools.partial(_reduce, method), seeds)(rollout, stats)


def _whole_episodes(collect: Collect, carry: Any, method: AbstractMethod, each: int) -> list[dict[str, np.ndarray]]:
    """Plays until every body of every seed has finished `each` episodes, and returns their measures per seed."""
    chunks, ends = [], 0
    needed: dict[int, int] = {}
    """Chunks that each seed needed."""
    for number in range(MAX_CHUNKS):
        carry, *chunk = collect(carry, number)
        chunks.append(jax.tree.map(np.asarray, chunk))
        ends = ends + _ends(chunks[-1][0]).sum(axis=1)
        needed = dict.fromkeys(np.flatnonzero(np.all(ends >= each, axis=1)).tolist(), number + 1) | needed
        if len(needed) == len(ends):
            break
    else:
        length = sum(steps.over.shape[1] for steps, _ in chunks)
        raise UserError(f"{method.spec.id}: not every body ended {each} episode(s) within {length} steps")
    return [_measured(chunks[: needed[seed]], seed, method, each) for seed in range(len(needed))]


def _measured(chunks: Sequence[Any], seed: int, method: AbstractMethod, each: int) -> dict[str, np.ndarray]:
    """All measures of the first `each` episodes of each body of a seed."""
    mine = [jax.tree.map(lambda leaf: leaf[seed], chunk) for chunk in chunks]
    steps, surprise = jax.tree.map(lambda *parts: np.concatenate(parts), *mine)
    begins = jnp.ones(steps.over.shape[1], bool)
    measured = columns(jax.tree.map(jnp.asarray, steps), method, begins=begins)
    measured["common_surprise"] = surprise
    ends = _ends(steps)
    number = np.cumsum(ends, axis=0) - ends
    return {name: by_episode(column, number, each) for name, column in measured.items()}


def _ends(steps: Steps) -> np.ndarray:
    """Steps that ended a game, or an episode if the world does not report games."""
    return np.asarray(steps.info[GAME_OVER]) > 0 if GAME_OVER in steps.info else np.asarray(steps.over)


def by_episode(column: Measured, number: np.ndarray, each: int) -> Float[np.ndarray, " episodes"]:
    """Mean over the counted steps of each body's first `each` episodes, ordered by episode, then body; nan if no step
    of an episode counts. `number` is the index of a step's episode within its body, [T, B]."""
    value, counts = np.asarray(column.value, np.float64), np.asarray(column.counts)
    within = [counts & (number == episode) for episode in range(each)]
    totals = [(np.where(where, value, 0.0).sum(axis=0), where.sum(axis=0)) for where in within]
    return np.concatenate([np.where(n > 0, total / np.maximum(n, 1), np.nan) for total, n in totals])
