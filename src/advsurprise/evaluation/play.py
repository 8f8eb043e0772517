"""Frozen policies at play: whole episodes, no learning, the paper's measures with intervals."""

import functools
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.special import stdtrit

from advsurprise.envs.base import AbstractEnv
from advsurprise.envs.host.base import Host
from advsurprise.errors import UserError
from advsurprise.learning.collect import HostCollector, ScanCollector
from advsurprise.learning.interaction import Agent
from advsurprise.learning.measures import surprise
from advsurprise.methods.base import ended

MAX_CHUNKS = 1000
"""Stretches of play after which a host world that ends no episodes is given up."""


def play(env: AbstractEnv, agent: Agent, *, episodes: int, seed: int) -> dict[str, np.ndarray]:
    """Measures of whole episodes, one entry per episode: `end/…`, `mean/…`, and what the method itself scores."""
    if not env.spec.max_steps:
        raise UserError(f"{env.spec.id} has no fixed episode length")
    return jax.tree.map(np.asarray, _play(env, episodes, agent, jax.random.key(seed)))


def play_host(host: Host, agent: Agent, *, episodes: int, seed: int, chunk: int = 128) -> dict[str, np.ndarray]:
    """Measures of the first whole episodes in a host world, one entry per episode."""
    start_key, play_key = jax.random.split(jax.random.key(seed))
    collector = HostCollector(host, chunk)
    memory = collector.start(agent, key=start_key)
    ends: dict[str, list[float]] = {f"end/{name}": [] for name in host.spec.info}
    for number in range(MAX_CHUNKS):
        memory, rollout = collector.collect(agent, memory, key=jax.random.fold_in(play_key, number))
        over = np.asarray(rollout.terminated | rollout.truncated)
        for name, value in rollout.info.items():
            ends[f"end/{name}"] += np.asarray(value, dtype=np.float64)[over].tolist()
        for name, each in agent.method.measure(rollout).items():
            counted = np.where(np.asarray(each.counts), np.asarray(each.value, dtype=np.float64), np.nan)
            ends.setdefault(name, []).extend(counted[over].tolist())
        if all(len(values) >= episodes for values in ends.values()):
            return {name: np.asarray(values[:episodes]) for name, values in ends.items()}
    raise UserError(f"{host.spec.id}: {episodes} episodes did not end within {MAX_CHUNKS * chunk} steps")


def summary(samples: Iterable[dict[str, np.ndarray]]) -> dict[str, dict[str, float]]:
    """Mean over evaluation seeds and its 95% interval (Student's t over the seeds' means) for every measure.

    Layouts without a noisy room have nothing to still: `stilled` leaves them out. So does any measure the episodes for
    which it is not a number.
    """
    by_seed: dict[str, list[float]] = {}
    for sample in samples:
        noisy = sample.get("end/noisy_rooms")
        for name, values in sample.items():
            kept = values[noisy > 0] if noisy is not None and name.endswith("/stilled") else values
            kept = kept[~np.isnan(kept)]
            by_seed.setdefault(name, []).append(float(np.mean(kept)) if len(kept) else float("nan"))
    return {name: interval(np.asarray(means)) for name, means in by_seed.items()}


def interval(means: np.ndarray) -> dict[str, float]:
    """Mean and 95% interval; with a single value the interval is that value."""
    centre = float(np.mean(means))
    if len(means) < 2:
        return {"mean": centre, "low": centre, "high": centre}
    half = float(stdtrit(len(means) - 1, 0.975) * np.std(means, ddof=1) / np.sqrt(len(means)))
    return {"mean": centre, "low": centre - half, "high": centre + half}


@functools.partial(jax.jit, static_argnums=(0, 1))
def _play(env: AbstractEnv, episodes: int, agent: Agent, key) -> dict[str, Array]:
    start_key, play_key = jax.random.split(key)
    collector = ScanCollector(env, episodes, env.spec.max_steps)
    _, rollout = collector.collect(agent, collector.start(agent, key=start_key), key=play_key)
    found: dict[str, Array] = {}
    # Each body's first episode: a method may give one up for a new one before its time is over.
    over = ended(rollout)
    within = (jnp.cumsum(over, axis=0) - over.astype(jnp.int32) == 0).astype(jnp.float32)
    last = jnp.where(over, within, 0.0)
    for name, value in rollout.info.items():
        found[f"end/{name}"] = jnp.sum(value.astype(jnp.float32) * last, axis=0)
        found[f"mean/{name}"] = jnp.sum(value.astype(jnp.float32) * within, axis=0) / jnp.sum(within, axis=0)
    surprises, known = surprise(rollout, env.spec, episodes, env.spec.max_steps)
    known = jnp.where(known, within, 0.0)
    found["common_surprise"] = jnp.sum(surprises * known, axis=0) / jnp.maximum(jnp.sum(known, axis=0), 1.0)
    for name, each in agent.method.measure(rollout).items():
        counted = jnp.where(each.counts, within, 0.0)
        number = jnp.sum(counted, axis=0)
        found[name] = jnp.where(number > 0, jnp.sum(each.value * counted, axis=0) / jnp.maximum(number, 1.0), jnp.nan)
    return found
