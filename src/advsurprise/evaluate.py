"""Frozen policies at play: whole episodes, no learning, the paper's measures with intervals."""

import functools
from collections.abc import Iterable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import stdtrit

from advsurprise.collect import HostCollector, ScanCollector
from advsurprise.envs.base import AbstractEnv, Host
from advsurprise.errors import UserError
from advsurprise.interaction import Agent
from advsurprise.measures import surprise
from advsurprise.methods.base import ended
from advsurprise.networks import FixedPolicy
from advsurprise.types import View

Stand = Literal["trained", "greedy", "random", "motionless"]
"""Who plays a role: its policy (sampled), its policy's likeliest action, uniform actions, or nobody (action `done`)."""
MAX_CHUNKS = 1000
"""Stretches of play after which a host world that ends no episodes is given up."""
SURE = 1e6
"""Factor on logits that leaves the likeliest action alone."""


class GreedyPolicy(eqx.Module):
    """A policy's likeliest action."""

    policy: eqx.Module

    def __call__(self, view: View) -> tuple[Float[Array, "*n A"], Float[Array, "*n V"]]:
        logits, value = self.policy(view)  # pyright: ignore[reportCallIssue]
        return logits * SURE, value


def stand_in(agent: Agent, stands: dict[str, Stand]) -> Agent:
    """The agent with some roles played by somebody else."""
    actions, streams = agent.method.spec.num_actions, len(agent.method.streams)
    policies: dict[str, Any] = dict(agent.policies)
    for role, stand in stands.items():
        if role not in policies:
            raise UserError(f"there is no role {role!r}; roles are {', '.join(policies)}")
        bias = jnp.asarray(agent.method.action_bias(role), jnp.float32)
        if stand == "greedy":
            policies[role] = GreedyPolicy(agent.policies[role])
        elif stand == "random":
            policies[role] = FixedPolicy(bias, streams)
        elif stand == "motionless":
            # The last action of the room worlds is `done`, which does nothing.
            policies[role] = FixedPolicy(jnp.where(jnp.arange(bias.size) == actions - 1, SURE, bias), streams)
    return Agent(agent.method, policies, agent.learnt)


def everyone(agent: Agent, stand: Stand) -> Agent:
    """The agent with all roles played by the same kind of player."""
    return stand_in(agent, dict.fromkeys(agent.method.roles, stand))


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
        for name, value in getattr(rollout.signal, "outcomes", {}).items():
            ends.setdefault(name, []).extend(np.asarray(value, dtype=np.float64)[over].tolist())
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
    found["mean/surprise"] = jnp.sum(surprises * known, axis=0) / jnp.maximum(jnp.sum(known, axis=0), 1.0)
    scored = getattr(rollout.signal, "scored", None)
    if scored is not None:
        counted = jnp.where(scored, within, 0.0)
        total = jnp.sum(rollout.signal.log_prob * counted, axis=0)
        found["log_prob"] = total / jnp.maximum(jnp.sum(counted, axis=0), 1.0)
    # What the method says of each episode on its last step.
    for name, value in getattr(rollout.signal, "outcomes", {}).items():
        found[name] = jnp.sum(jnp.where(last > 0, value, 0.0), axis=0)
    return found
