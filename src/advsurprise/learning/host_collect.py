"""Collecting experience in a host world: the two halves of a step, compiled, around `send` and `recv`.

    group 0   | worlds step | policies    | worlds step | policies    | …
    group 1   | policies    | worlds step | policies    | worlds step | …

While one group's worlds step on other cores, the other group's policies are computed here. Every array has a
leading axis S, one entry per seed. Rollouts are written into buffers that are allocated once.
"""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, Shaped

from advsurprise.envs.host.base import Host
from advsurprise.learning import interaction
from advsurprise.learning.collect import older_frames, record_step
from advsurprise.learning.interaction import Agent, role_schedule
from advsurprise.tree import over_seeds
from advsurprise.types import CONTINUE, Decision, Rollout, TimeStep, View, Views


class Pending(eqx.Module):
    """A group that waits for the timesteps of its decisions, axes [S, b, …]."""

    memory: Any
    view: View
    decision: Decision


Place = tuple[Any, Any]
"""A step of the rollout, and the first body of a group."""


class Arrived(eqx.Module):
    """A timestep on its way to the device, in as few arrays as possible: each costs as much as a small network."""

    obs: Shaped[Any, "S b ..."]
    """The observations to act on next."""
    final_obs: Shaped[Any, "S b ..."]
    """The last observations of ended episodes; ignored elsewhere."""
    numbers: Float[Any, "S b n"]
    """Reward, terminated, truncated, and the float measures."""
    others: dict[str, Any]
    """The other measures."""
    places: tuple[Any, Any]
    """Places of bodies, now and at the end of ended episodes; None in worlds that do not reveal them."""
    names: tuple[str, ...] = eqx.field(static=True)
    """Names of the float measures."""

    def timestep(self) -> TimeStep:
        """The timestep of one seed."""
        reward, terminated, truncated, *measures = jnp.moveaxis(self.numbers, -1, 0)
        ended = (terminated + truncated > 0).reshape(-1, *[1] * (self.obs.ndim - 1))
        final_obs = jnp.where(ended, self.final_obs, self.obs)
        info = dict(zip(self.names, measures, strict=True)) | self.others
        return TimeStep(self.obs, reward, terminated > 0, truncated > 0, final_obs, info, *self.places)


class HostCollector:
    """Collects in a host world, for all its seeds together. A rollout's arrays are valid until the next one starts.

    Without `relocates`, requests are ignored: bodies stay where they are, and the method continues from there.
    """

    def __init__(self, host: Host, length: int, *, relocates: bool = True):
        self.host = host
        self.length = length
        self.relocates = relocates
        self._buffer: Any = None
        self._zeros_of: dict[tuple[int, ...], Array] = {}
        self._start = self._compiled(_started)
        self._noise = self._compiled(self._noise_of_all)
        self._older = self._compiled(older_frames)
        self._relocated = self._compiled(_relocated)
        self._ending = self._compiled(_ending)
        self._decide = jax.jit(self._decided)
        self._absorb = jax.jit(self._absorbed, donate_argnums=3)
        self._absorb_and_decide = jax.jit(self._absorbed_and_decided, donate_argnums=3)
        self._keep_older = jax.jit(_kept_older, donate_argnums=0)

    def start(self, agent: Agent, *, key: Key[Array, " S"]) -> Any:
        """Starts the first episode of every body; returns memories [S, B, …]. The world keeps its own state."""
        return self._start(agent, self._arrived(self.host.reset(key)))

    def collect(self, agent: Agent, memory: Any, *, key: Key[Array, " S"]) -> tuple[Any, Rollout]:
        """Collects one rollout, continuing where the last ended; memories and rollout have an axis S."""
        noise, older = self._noise(agent, key), self._older(agent, memory)
        size = self.host.group_bodies
        groups = range(self.host.groups)
        memories = [jax.tree.map(lambda leaf, g=group: leaf[:, g * size : (g + 1) * size], memory) for group in groups]
        waiting: list[Any] = [self._send(group, agent, memories[group], noise, 0) for group in groups]
        for index in range(self.length):
            for group in groups:
                arrived = self._arrived(self.host.recv(group))
                if index == group == 0:
                    self._prepare_buffer(agent, waiting[group], arrived, older)
                memories[group], waiting[group] = self._next_step(group, agent, waiting[group], arrived, noise, index)
        memory = jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=1), *memories)
        last_value, next_role = self._ending(agent, memory)
        return memory, jax.vmap(_rollout)(self._buffer, last_value, next_role)

    def _next_step(self, group: int, agent: Agent, waiting: Pending, arrived: Arrived, noise: Any, index: int):
        """Absorbs a step and sends the next; returns memories after a rollout's last step, pending decisions before."""
        place, more = self._place(index, group), index + 1 < self.length
        if more and not agent.method.makes_requests:
            turn = self._absorb_and_decide(agent, waiting, arrived, self._buffer, noise, place)
            waiting, action, self._buffer = turn
            self.host.send(_rows(action), group)
            return None, waiting
        memory, request, self._buffer = self._absorb(agent, waiting, arrived, self._buffer, place)
        if agent.method.makes_requests:
            moves = _rows(request) if self.relocates else np.full_like(_rows(request), CONTINUE)
            seen = self._arrived(self.host.relocate(moves, group))
            memory = self._relocated(agent, memory, request, seen)
        return (None, self._send(group, agent, memory, noise, index + 1)) if more else (memory, None)

    def _send(self, group: int, agent: Agent, memory: Any, noise: Any, index: int) -> Pending:
        """Decides for a group and starts its step."""
        waiting, action = self._decide(agent, memory, noise, self._place(index, group))
        self.host.send(_rows(action), group)
        return waiting

    def _arrived(self, timestep: TimeStep) -> Arrived:
        """A copy of the timestep with the axis S: the host overwrites its arrays."""
        split = functools.partial(_by_seed, seeds=self.host.seeds)
        real = sorted(name for name, value in timestep.info.items() if value.dtype == np.float32)
        columns = (timestep.reward, timestep.terminated, timestep.truncated, *(timestep.info[name] for name in real))
        numbers = split(np.stack([np.asarray(column, np.float32) for column in columns], axis=-1))
        others = {name: split(np.asarray(value)) for name, value in timestep.info.items() if name not in real}
        place, final_place = (
            None if each is None else split(np.asarray(each)) for each in (timestep.place, timestep.final_place)
        )
        obs = split(np.asarray(timestep.obs))
        final_obs = split(np.asarray(timestep.final_obs)) if numbers[..., 1:3].any() else self._no_final_obs(obs)
        return Arrived(obs, final_obs, numbers, others, (place, final_place), tuple(real))

    def _no_final_obs(self, obs: np.ndarray) -> Array:
        """Zeros that are on the device already."""
        if obs.shape not in self._zeros_of:
            self._zeros_of[obs.shape] = jnp.zeros(obs.shape, obs.dtype)
        return self._zeros_of[obs.shape]

    def _place(self, index: int, group: int) -> Place:
        return np.int32(index), np.int32(group * self.host.group_bodies)

    # Compiled, all seeds together.

    def _compiled(self, function: Callable) -> Callable:
        return jax.jit(over_seeds(function, self.host.seeds))

    def _noise_of_all(self, agent: Agent, key: PRNGKeyArray) -> Float[Array, "T B A"]:
        """The random part of all decisions of a rollout, the same however bodies are grouped."""
        keys = jax.random.split(key, self.length)
        return jax.vmap(lambda key: interaction.chance(agent.method, self.host.bodies, key=key))(keys)

    def _decided(self, agent: Agent, memory: Any, noise: Any, place: Place) -> tuple[Pending, Int[Array, "S b"]]:
        index, body = place
        size = self.host.group_bodies
        now = jax.lax.dynamic_slice_in_dim(noise[:, index], body, size, axis=1)
        schedule = role_schedule(agent.method, self.length)
        role = None if schedule is None else jnp.asarray(schedule, jnp.int32)[index]

        def one(agent, memory, noise):
            view, decision = interaction.decide(agent, memory, noise=noise, role=role)
            return Pending(memory, view, decision), interaction.world_action(agent, memory, decision)

        return over_seeds(one, self.host.seeds)(agent, memory, now)

    def _recorded(self, agent: Agent, waiting: Pending, arrived: Arrived):
        """Memories, requests and the record of a step."""

        def one(agent, waiting, arrived):
            timestep = arrived.timestep()
            memory, signal, final_value = interaction.absorb(agent, waiting.memory, waiting.decision, timestep)
            request = interaction.requests(agent, memory) if agent.method.makes_requests else None
            moves = request if self.relocates else None
            step = record_step(waiting.view, waiting.decision, timestep, signal, final_value, moves)
            return memory, request, step

        return over_seeds(one, self.host.seeds)(agent, waiting, arrived)

    def _absorbed(self, agent: Agent, waiting: Pending, arrived: Arrived, buffer: Any, place: Place):
        memory, request, step = self._recorded(agent, waiting, arrived)
        return memory, request, _written(buffer, step, place)

    def _absorbed_and_decided(self, agent, waiting, arrived: Arrived, buffer: Any, noise: Any, place: Place):
        memory, _, buffer = self._absorbed(agent, waiting, arrived, buffer, place)
        waiting, action = self._decided(agent, memory, noise, (place[0] + 1, place[1]))
        return waiting, action, buffer

    # The buffers.

    def _prepare_buffer(self, agent: Agent, waiting: Pending, arrived: Arrived, older: Any) -> None:
        """Allocates the buffers on the first call, and writes the observations before the first step to the front."""
        if self._buffer is None:
            _, _, step = jax.eval_shape(self._recorded, agent, waiting, arrived)
            lengths = jax.tree.map(lambda _: self.length, step) | {"frame": self.length + older.shape[1]}
            self._buffer = jax.tree.map(self._zeros, step, lengths)
        self._buffer = self._keep_older(self._buffer, older)

    def _zeros(self, leaf: jax.ShapeDtypeStruct, length: int) -> Array:
        return jnp.zeros((leaf.shape[0], length, self.host.bodies, *leaf.shape[2:]), leaf.dtype)


def _by_seed(rows: np.ndarray, *, seeds: int) -> np.ndarray:
    """A copy of the rows of all bodies with the axis S."""
    return np.array(rows).reshape(seeds, len(rows) // seeds, *rows.shape[1:])


def _started(agent: Agent, arrived: Arrived) -> Any:
    return interaction.start(agent, arrived.timestep())


def _relocated(agent: Agent, memory: Any, request: Int[Array, " b"], arrived: Arrived) -> Any:
    return interaction.relocated(agent, memory, request, arrived.timestep())


def _ending(agent: Agent, memory: Any) -> tuple[Any, Any]:
    """Values and turns after the last step."""
    return interaction.values(agent, memory), interaction.turns(agent, memory)


def _rollout(buffer: dict[str, Any], last_value: Any, next_role: Any) -> Rollout:
    """The rollout of one seed, from the buffers; nothing is copied."""
    others = {name: part for name, part in buffer.items() if name not in ("frame", "view")}
    views = Views(buffer["frame"], **buffer["view"])
    return Rollout(**others, last_value=last_value, next_role=next_role, views=views)


def _kept_older(buffer: dict[str, Any], older: Array) -> dict[str, Any]:
    return buffer | {"frame": buffer["frame"].at[:, : older.shape[1]].set(older)}


def _written(buffer: dict[str, Any], step: dict[str, Any], place: Place) -> dict[str, Any]:
    """The buffers [S, T, B, …] with one step of one group [S, b, …] written; frames start after the older ones."""
    index, body = place
    older = buffer["frame"].shape[1] - buffer["reward"].shape[1]

    def write(whole: Array, part: Array, first: int) -> Array:
        return jax.lax.dynamic_update_slice(whole, part[:, None], (0, index + first, body, *[0] * (whole.ndim - 3)))

    rest = {name: part for name, part in step.items() if name != "frame"}
    written = jax.tree.map(lambda whole, part: write(whole, part, 0), {name: buffer[name] for name in rest}, rest)
    return written | {"frame": write(buffer["frame"], step["frame"], older)}


def _rows(of_bodies: Int[Array, "S b"]) -> Int[np.ndarray, " rows"]:
    return np.asarray(of_bodies).reshape(-1)
