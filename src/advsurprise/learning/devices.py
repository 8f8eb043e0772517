"""Devices that share one run: each trains its part of the seeds, or of each seed steps its part of the bodies and
fits its part of the fit_tasks.

One program runs on all of them at once. What it does not share out, every device does for itself, so that all of them
hold the same policies at any time. jax sees as many devices in a CPU as it is configured to: two of them keep two cores
busier than one device with two threads, whose every product is cut in two and put together again.
"""

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from advsurprise.errors import UserError

Tree = TypeVar("Tree")
AXIS = "device"
WHOLE = Spec()
"""Held by every device."""


@dataclass(frozen=True)
class Devices:
    """Some devices, seen from the program that each of them runs."""

    count: int = 1
    """How many there are."""

    @property
    def in_one_memory(self) -> int:
        """How many of them share one memory."""
        return self.count if jax.default_backend() == "cpu" else 1

    def mine(self, tree: Tree, *, axis: int) -> Tree:
        """This device's part of arrays that all devices hold."""
        return jax.tree.map(lambda leaf: self._mine(leaf, axis), tree)

    def _mine(self, leaf: jax.Array, axis: int) -> jax.Array:
        if self.count == 1:
            return leaf
        size = leaf.shape[axis] // self.count
        return jax.lax.dynamic_slice_in_dim(leaf, jax.lax.axis_index(AXIS) * size, size, axis)

    def gathered(self, tree: Tree, *, axis: int) -> Tree:
        """The parts of all devices side by side, on each of them."""
        if self.count == 1:
            return tree
        return jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, AXIS, axis=axis, tiled=True), tree)

    def total(self, parts: Sequence[Callable[[], Tree]]) -> Tree:
        """The sum of what comes of each part, one of which each device does."""
        if self.count == 1:
            return parts[0]()
        return jax.lax.psum(jax.lax.switch(jax.lax.axis_index(AXIS), parts), AXIS)

    def on_first(self, tree: Tree) -> Tree:
        """What all devices hold on the first of them only, so that whoever goes on with it does not work on all."""
        return tree if self.count == 1 else jax.device_put(tree, jax.devices()[0])

    def placed(self, tree: Tree, held: Any) -> Tree:
        """Arrays on these devices; `held` says which of their axes are shared out, as a prefix of the tree."""
        if self.count == 1:
            return tree
        # By way of the host: jax would compile a program for every shape that it shares out from one device.
        return jax.device_put(jax.tree.map(_on_host, tree), self._places(held))

    def program(self, function: Callable, takes: Any, gives: Any) -> Any:
        """A compiled function on these devices; `takes` and `gives` say which axes of its arguments and results are
        shared out, as prefixes of their trees."""
        if self.count == 1:
            return jax.jit(function)
        shared = functools.partial(self._shared, function, takes, gives)
        return jax.jit(shared, in_shardings=self._places(takes), out_shardings=self._places(gives))

    def _shared(self, function: Callable, takes: Any, gives: Any, *args: Any) -> Any:
        """The function on every device. Empty arguments are not handed out but made by each device: XLA dies of them,
        as of jaxlib 0.11.2."""
        leaves, structure = jax.tree.flatten(args)
        places = jax.tree.leaves(jax.tree.broadcast(self._places(takes), args))

        def here(*handed_out):
            handed = iter(handed_out)
            pairs = zip(leaves, places, strict=True)
            own = [next(handed) if leaf.size else _empty(leaf, place) for leaf, place in pairs]
            return function(*jax.tree.unflatten(structure, own))

        full = [(leaf, place.spec) for leaf, place in zip(leaves, places, strict=True) if leaf.size]
        specs = tuple(spec for _, spec in full)
        mapped = jax.shard_map(here, mesh=self._mesh, in_specs=specs, out_specs=gives, check_vma=False)
        return mapped(*(leaf for leaf, _ in full))

    @property
    def _mesh(self) -> Mesh:
        return Mesh(np.asarray(jax.devices()[: self.count]), (AXIS,))

    def _places(self, held: Any) -> Any:
        return jax.tree.map(lambda spec: NamedSharding(self._mesh, spec), held, is_leaf=_is_spec)


ALONE = Devices()
"""A single device."""


def _is_spec(node: Any) -> bool:
    return isinstance(node, Spec)


def _on_host(leaf: Any) -> Any:
    return leaf if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else np.asarray(leaf)


def _empty(leaf: jax.Array, place: NamedSharding) -> jax.Array:
    """A device's part of an array without entries."""
    return jnp.zeros(place.shard_shape(leaf.shape), leaf.dtype)


def shared_out(axis: int) -> Spec:
    """Each device holds its part along an axis."""
    return Spec(*[None] * axis, AXIS)


def choose(asked: int, *, seeds: int, bodies: int, fit_tasks: int) -> Devices:
    """As many devices as asked for; for 0 as many of a CPU's as are fastest, and one of anything else.

    Devices get seeds of their own if that comes out even, and the more the better. Otherwise they share every seed, its
    bodies and its fit_tasks: there are seldom more than two fit_tasks, and with a single one, which is not shared, the
    threads of one device are faster.
    """
    there = len(jax.devices())
    if not asked and jax.default_backend() != "cpu":
        return ALONE
    if not asked:
        by_seed = max(count for count in range(1, there + 1) if seeds % count == 0)
        by_body = 2 if there > 1 and bodies % 2 == 0 and fit_tasks > 1 else 1
        return Devices(by_seed if by_seed > 1 else by_body)
    if seeds % asked and bodies % asked:
        raise UserError(f"seeds ({seeds}) and bodies ({bodies}) cannot be shared out evenly to {asked} devices")
    if asked > there:
        raise UserError(f"there are not {asked} devices here but {there}; choose with --set devices=NUMBER")
    return Devices(asked)


def run_once() -> dict[str, Any]:
    """How to compile what runs only once: on a CPU, quickly."""
    return {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else {}


def see_cores() -> None:
    """Lets jax see a device in every core of this machine, unless it has begun to compute or says otherwise."""
    configured = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if configured or jax.config.jax_num_cpu_devices > 0:  # pyright: ignore[reportAttributeAccessIssue]
        return
    try:
        jax.config.update("jax_num_cpu_devices", cores)
    except RuntimeError:  # it has begun
        return
