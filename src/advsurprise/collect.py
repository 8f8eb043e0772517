"""Collecting experience: a compiled scan over a pure world, or a host loop over any. Same interface, same rollout."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, Shaped

from advsurprise import interaction
from advsurprise.envs.base import AbstractEnv, Host, reset_all, step_all
from advsurprise.interaction import Agent, role_schedule
from advsurprise.types import Decision, Rollout, TimeStep


class Carry(eqx.Module):
    """Where collecting stands between two rollouts."""

    env_key: PRNGKeyArray
    """Key chain of the world."""
    env_state: Any
    """State of all bodies."""
    memory: Any
    """The method's memories of all bodies."""


class ScanCollector(eqx.Module):
    """Collects in a pure world, within one compiled program."""

    env: AbstractEnv = eqx.field(static=True)
    bodies: int = eqx.field(static=True)
    length: int = eqx.field(static=True)
    """Steps of each body in a rollout."""

    def start(self, agent: Agent, *, key: PRNGKeyArray) -> Carry:
        """Begins the first episode of every body."""
        env_key, env_state, timestep = reset_all(self.env, self.bodies, key)
        return Carry(env_key, env_state, interaction.start(agent, timestep.obs))

    def collect(self, agent: Agent, carry: Carry, *, key: PRNGKeyArray) -> tuple[Carry, Rollout]:
        """One rollout, continuing where the last ended."""
        schedule = role_schedule(agent.method, self.length)

        def step(carry: Carry, now):
            role, step_key = now
            decision = interaction.decide(agent, carry.memory, key=step_key, role=role)
            env_key, env_state, timestep = step_all(self.env, carry.env_key, carry.env_state, decision.action)
            memory, signal, final_value = interaction.absorb(agent, carry.memory, decision, timestep)
            return Carry(env_key, env_state, memory), note(decision, timestep, signal, final_value)

        keys = jax.random.split(key, self.length)
        roles = None if schedule is None else jnp.asarray(schedule, jnp.int32)
        carry, noted = jax.lax.scan(step, carry, (roles, keys))
        return carry, as_rollout(noted, interaction.values(agent, carry.memory))


def note(decision: Decision, timestep: TimeStep, signal, final_value) -> dict[str, Any]:
    """What a rollout keeps of one step."""
    return {
        "decision": decision,
        "reward": timestep.reward,
        "terminated": timestep.terminated,
        "truncated": timestep.truncated,
        "final_value": final_value,
        "signal": signal,
        "info": timestep.info,
    }


def as_rollout(noted: dict[str, Any], last_value: dict[str, Array]) -> Rollout:
    """A rollout from what was noted at each step, stacked over time."""
    return Rollout(last_value=last_value, **noted)


class HostCollector:
    """Collects in a host world: the same two halves, jitted, around `send` and `recv`."""

    def __init__(self, host: Host, length: int):
        self.host = host
        self.length = length
        self._decide = jax.jit(interaction.decide)
        self._absorb = jax.jit(interaction.absorb)
        self._values = jax.jit(interaction.values)

    def start(self, agent: Agent, *, key: PRNGKeyArray) -> Any:
        """Begins the first episode of every body. Memories are all there is to carry: the world keeps its own state."""
        timestep = self.host.reset(key)
        return interaction.start(agent, jnp.asarray(timestep.obs))

    def collect(self, agent: Agent, memory: Any, *, key: PRNGKeyArray) -> tuple[Any, Rollout]:
        """One rollout, continuing where the last ended."""
        schedule = role_schedule(agent.method, self.length)
        noted = []
        for index, step_key in enumerate(jax.random.split(key, self.length)):
            role = None if schedule is None else jnp.int32(schedule[index])
            decision = self._decide(agent, memory, key=step_key, role=role)
            self.host.send(np.asarray(decision.action))
            timestep: TimeStep = jax.tree.map(jnp.asarray, self.host.recv())
            memory, signal, final_value = self._absorb(agent, memory, decision, timestep)
            noted.append(note(decision, timestep, signal, final_value))
        stacked: dict[str, Shaped[Array, ...]] = jax.tree.map(lambda *leaves: jnp.stack(leaves), *noted)
        return memory, as_rollout(stacked, self._values(agent, memory))
