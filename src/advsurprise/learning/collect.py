"""Collecting experience in a pure world, within one compiled program, and what every collector records of a step."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PRNGKeyArray, Shaped

from advsurprise import tree
from advsurprise.envs.base import (
    AbstractEnv,
    Prepared,
    first_states,
    prepare,
    relocate_all,
    reset_all,
    step_all,
    step_keys,
)
from advsurprise.learning import interaction
from advsurprise.learning.chunks import largest_divisor, split
from advsurprise.learning.devices import ONE_DEVICE, Devices
from advsurprise.learning.interaction import Agent, role_schedule
from advsurprise.methods.base import AbstractMethod
from advsurprise.types import RESTART, Decision, Rollout, TimeStep, View, Views

PREPARED_STEPS = 16
"""Most steps for which first states are prepared together; more would take more memory."""


class Carry(eqx.Module):
    """State of a collector between two rollouts."""

    env_key: PRNGKeyArray
    """Key of all randomness in the world."""
    env_count: Int[Array, ""]
    """Steps the world has taken."""
    env_state: Any
    """State of all bodies."""
    memory: Any
    """The method's memories of all bodies."""
    first: Any = None
    """First states of the bodies' current episodes, if the method makes requests; else None."""


class ScanCollector(eqx.Module):
    """Collects in a pure world, within one compiled program."""

    env: AbstractEnv = eqx.field(static=True)
    bodies: int = eqx.field(static=True)
    length: int = eqx.field(static=True)
    """Steps per body in a rollout."""
    devices: Devices = eqx.field(static=True, default=ONE_DEVICE)
    """Devices among which bodies are split while collecting."""

    def start(self, agent: Agent, *, key: PRNGKeyArray) -> Carry:
        """Starts the first episode of every body."""
        env_key, env_state, timestep = reset_all(self.env, self.bodies, key)
        first = env_state if agent.method.makes_requests else None
        return Carry(env_key, jnp.int32(0), env_state, interaction.start(agent, timestep), first)

    def collect(self, agent: Agent, carry: Carry, *, key: PRNGKeyArray) -> tuple[Carry, Rollout]:
        """Collects one rollout, continuing where the last ended. With several devices, each steps its own bodies and
        all get the whole rollout."""
        schedule = role_schedule(agent.method, self.length)

        def step(carry: Carry, now):
            role, noise, keys, prepared = now
            view, decision = interaction.decide(agent, carry.memory, noise=noise, role=role)
            action = interaction.world_action(agent, carry.memory, decision)
            env_state, timestep = step_all(self.env, keys, carry.env_state, action, prepared)
            memory, signal, final_value = interaction.absorb(agent, carry.memory, decision, timestep)
            carry = Carry(carry.env_key, carry.env_count + 1, env_state, memory, carry.first)
            carry, request = self._grant(agent, carry, timestep, keys, prepared)
            return carry, record_step(view, decision, timestep, signal, final_value, request)

        packings: list[tree.Packing] = []

        def packed_step(carry: Carry, now):
            carry, recorded = step(carry, now)
            # Shapes are known once the step is traced; a second trace only for them would take as long.
            packings.append(tree.Packing.of(recorded))
            return carry, packings[-1].pack(recorded)

        # Random numbers for all steps at once: on a CPU many small draws cost more than a large one.
        noise = jax.vmap(lambda key: interaction.chance(agent.method, self.bodies, key=key))(
            jax.random.split(key, self.length)
        )
        counts = carry.env_count + jnp.arange(self.length, dtype=jnp.int32)
        keys = jax.vmap(lambda count: step_keys(carry.env_key, count, self.bodies))(counts)
        roles = None if schedule is None else jnp.asarray(schedule, jnp.int32)
        noise, keys = self.devices.local((noise, keys), axis=1)
        older = self.devices.all_gather(older_frames(agent, carry.memory), axis=1)
        if prepares(agent.method):
            carry, recorded = self._in_chunks(packed_step, carry, (roles, noise, keys))
        else:
            carry, recorded = jax.lax.scan(packed_step, carry, (roles, noise, keys, None))
        recorded = packings[-1].unpack(self.devices.all_gather(recorded, axis=1))
        last_value = self.devices.all_gather(interaction.values(agent, carry.memory), axis=0)
        next_role = self.devices.all_gather(interaction.turns(agent, carry.memory), axis=0)
        return carry, as_rollout(recorded, older, last_value, next_role)

    def _in_chunks(self, step: Callable, carry: Carry, now: tuple[Any, Any, Key[Array, "T B 3"]]) -> tuple[Carry, Any]:
        """Scans over steps in chunks, each with its first states prepared."""

        def chunk(carry, now):
            return jax.lax.scan(step, carry, (*now, prepare(self.env, now[-1])))

        carry, recorded = jax.lax.scan(chunk, carry, split(now, largest_divisor(self.length, PREPARED_STEPS)))
        return carry, jax.tree.map(lambda leaf: leaf.reshape(self.length, *leaf.shape[2:]), recorded)

    def _grant(
        self,
        agent: Agent,
        carry: Carry,
        timestep: TimeStep,
        keys: Key[Array, "B 3"],
        prepared: Prepared | None,
    ) -> tuple[Carry, Any]:
        """Relocates bodies as the method requests before the next step."""
        if not agent.method.makes_requests:
            return carry, None
        first = first_states(carry.first, carry.env_state, timestep)
        request = interaction.requests(agent, carry.memory)
        first, env_state, timestep = relocate_all(self.env, keys, first, carry.env_state, request, prepared)
        memory = interaction.relocated(agent, carry.memory, request, timestep)
        return Carry(carry.env_key, carry.env_count, env_state, memory, first), request


def prepares(method: AbstractMethod) -> bool:
    """Whether first states are prepared for all bodies and steps. Where a method restarts bodies at any time, some body
    needs one on nearly every step. A CPU computes them then; a GPU would wait for the host to branch, and then run
    hundreds of small kernels, on every step."""
    return method.makes_requests and jax.default_backend() != "cpu"


def rollout_shapes(agent: Agent, bodies: int, length: int) -> Rollout:
    """Shapes of a rollout, without the world's measures."""

    def over_bodies(tree):
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (bodies, *leaf.shape)), tree)

    def one():
        timestep = over_bodies(interaction.blank_timestep(agent.method.spec))
        memory = interaction.start(agent, timestep)
        noise = jnp.zeros((bodies, len(agent.method.action_bias(agent.method.roles[0]))))
        older = older_frames(agent, memory)
        view, decision = interaction.decide(agent, memory, noise=noise)
        memory, signal, final_value = interaction.absorb(agent, memory, decision, timestep)
        step = record_step(view, decision, timestep, signal, final_value, None)
        steps = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (length, *leaf.shape)), step)
        return as_rollout(steps, older, interaction.values(agent, memory), interaction.turns(agent, memory))

    return jax.eval_shape(one)


def record_step(
    view: View, decision: Decision, timestep: TimeStep, signal: Any, final_value: Any, request: Any
) -> dict[str, Any]:
    """What a rollout keeps of one step, axes [B, …]. An episode that the method restarts counts as terminated."""
    restarted = False if request is None else request == RESTART
    return {
        "frame": view.frames[:, -1],
        "view": {"age": view.age, "features": view.features, "time": view.time, "goal": view.goal},
        "decision": decision,
        "reward": timestep.reward,
        "terminated": timestep.terminated | restarted,
        "truncated": timestep.truncated,
        "final_value": final_value,
        "signal": signal,
        "info": timestep.info,
    }


def older_frames(agent: Agent, memory: Any) -> Shaped[Array, "..."]:
    """All but the newest of the frames that bodies see now, axes [k − 1, B, *observation]."""
    return jnp.moveaxis(jax.vmap(agent.method.see)(memory).frames[:, :-1], 1, 0)


def as_rollout(steps: dict[str, Any], older: Shaped[Array, "..."], last_value: Any, next_role: Any) -> Rollout:
    """Makes a rollout from recorded steps [T, B, …] and the observations before the first."""
    frames = jnp.concatenate([older, steps["frame"]])
    others = {name: steps[name] for name in steps if name not in ("frame", "view")}
    views = Views(frames, **steps["view"])
    return Rollout(**others, last_value=last_value, next_role=next_role, views=views)
