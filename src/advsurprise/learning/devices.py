"""Devices that train together: one mesh with the axes "seeds" and "bodies", of CPU cores or GPUs.

Who holds what, with 2 seeds, 16 bodies and 2 networks on 4 devices, a mesh of 2 x 2:

                        bodies 0 to 7               bodies 8 to 15
                  ┌───────────────────────────┬───────────────────────────┐
                  │ device 0                  │ device 1                  │
        seed 0    │ worlds of bodies 0 to 7   │ worlds of bodies 8 to 15  │    both: all networks of seed 0,
                  │ fits network 0            │ fits network 1            │    their optimisers, the whole rollout
                  ├───────────────────────────┼───────────────────────────┤
                  │ device 2                  │ device 3                  │
        seed 1    │ worlds of bodies 0 to 7   │ worlds of bodies 8 to 15  │    both: the same of seed 1
                  │ fits network 0            │ fits network 1            │
                  └───────────────────────────┴───────────────────────────┘

Rows never communicate. The devices of a row do so twice per update: each steps its own bodies, `all_gather` joins the
rollout; all of them score it; each fits its share of the networks, and `sum_over` gives every device all of them.

All devices run one program, and its results are those of a single device, to rounding. Two devices keep two cores of a
CPU busier than one device with two threads, which splits every matrix product in two.
"""

import functools
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from advsurprise.errors import UserError

Tree = TypeVar("Tree")
SEEDS, BODIES = "seeds", "bodies"
PER_SEED = PartitionSpec(SEEDS)
"""Layout of arrays [S, …]: each device has its seeds, the same for all devices of a row."""
PER_BODY = PartitionSpec(SEEDS, BODIES)
"""Layout of arrays [S, B, …]: each device has its bodies of its seeds."""


@dataclass(frozen=True)
class Devices:
    """A mesh of devices. The collectives are for use within a program made by `jit`, on arrays of a single seed."""

    seeds: int = 1
    """Rows of the mesh, among which seeds are split."""
    bodies: int = 1
    """Devices of a row, among which bodies and networks are split."""

    @property
    def count(self) -> int:
        """Number of devices."""
        return self.seeds * self.bodies

    @property
    def per_memory(self) -> int:
        """How many of the devices share one memory: all cores of a CPU, but no two GPUs."""
        return self.count if jax.default_backend() == "cpu" else 1

    def local(self, tree: Tree, *, axis: int) -> Tree:
        """This device's part of arrays with all bodies of a seed along `axis`."""
        if self.bodies == 1:
            return tree

        def part(leaf):
            size = leaf.shape[axis] // self.bodies
            return jax.lax.dynamic_slice_in_dim(leaf, jax.lax.axis_index(BODIES) * size, size, axis)

        return jax.tree.map(part, tree)

    def all_gather(self, tree: Tree, *, axis: int) -> Tree:
        """All bodies of a seed along `axis`, from the parts of all devices of a row."""
        if self.bodies == 1:
            return tree
        return jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, BODIES, axis=axis, tiled=True), tree)

    def sum_over(self, parts: Sequence[Callable[[], Tree]]) -> Tree:
        """The sum of the results of `parts`, one for each device of a row."""
        if self.bodies == 1:
            return parts[0]()
        return jax.lax.psum(jax.lax.switch(jax.lax.axis_index(BODIES), parts), BODIES)

    def jit(self, function: Callable, in_specs: Any, out_specs: Any) -> Any:
        """Compiles `function` for all devices; each calls it with its part of the arguments. The specs are prefixes of
        the trees of its arguments and results."""
        if self.count == 1:
            return jax.jit(function)
        sharded = functools.partial(self._shard_map, function, in_specs, out_specs)
        return jax.jit(sharded, in_shardings=self._shardings(in_specs), out_shardings=self._shardings(out_specs))

    def shard(self, tree: Tree, specs: Any) -> Tree:
        """Moves arrays to where `jit` with the same specs expects them; otherwise it would compile twice."""
        if self.count == 1:
            return tree
        # Via the host: jax would compile a program for every shape that it splits on a device.
        return jax.device_put(jax.tree.map(_on_host, tree), self._shardings(specs))

    def on_first(self, tree: Tree) -> Tree:
        """Whole arrays on the first device, for programs that need only one."""
        return tree if self.count == 1 else jax.device_put(tree, jax.devices()[0])

    def _shard_map(self, function: Callable, in_specs: Any, out_specs: Any, *args: Any) -> Any:
        leaves, structure = jax.tree.flatten(args)
        shardings = jax.tree.leaves(jax.tree.broadcast(self._shardings(in_specs), args))
        # XLA (jaxlib 0.11.2) crashes on empty arguments of a sharded program, so each device makes them itself.
        empty = {
            index: (sharding.shard_shape(leaf.shape), leaf.dtype)
            for index, (leaf, sharding) in enumerate(zip(leaves, shardings, strict=True))
            if leaf.size == 0
        }
        full = [index for index in range(len(leaves)) if index not in empty]

        def on_each(*own):
            parts = {index: jnp.zeros(*made) for index, made in empty.items()} | dict(zip(full, own, strict=True))
            return function(*jax.tree.unflatten(structure, [parts[index] for index in range(len(leaves))]))

        # Unchecked: jax does not infer that gathered arrays are equal on the devices of a row.
        specs = tuple(shardings[index].spec for index in full)
        mapped = jax.shard_map(on_each, mesh=self._mesh, in_specs=specs, out_specs=out_specs, check_vma=False)
        return mapped(*(leaves[index] for index in full))

    @property
    def _mesh(self) -> Mesh:
        return Mesh(np.asarray(jax.devices()[: self.count]).reshape(self.seeds, self.bodies), (SEEDS, BODIES))

    def _shardings(self, specs: Any) -> Any:
        return jax.tree.map(lambda spec: NamedSharding(self._mesh, spec), specs)


ONE_DEVICE = Devices()
"""A mesh of one device, on which nothing is split."""


def _on_host(leaf: Any) -> Any:
    return leaf if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else np.asarray(leaf)


def choose(requested: int, *, seeds: int, bodies: int, networks: int) -> Devices:
    """A mesh of the requested number of devices: as many rows as split the seeds evenly; the devices of each row split
    its bodies. 0 requests the default: see `default_count`."""
    available = len(jax.devices())
    if requested > available:
        raise UserError(
            f"{requested} devices were requested, but jax sees only {available}; choose with --set devices=NUMBER"
        )
    count = requested or default_count(available, seeds=seeds, bodies=bodies, networks=networks)
    rows = math.gcd(count, seeds)
    if bodies % (count // rows):
        raise UserError(f"{count} devices cannot evenly split seeds ({seeds}) and bodies ({bodies})")
    return Devices(rows, count // rows)


def default_count(available: int, *, seeds: int, bodies: int, networks: int) -> int:
    """One GPU; on a CPU, the most cores that split the seeds evenly. If that is only one, two cores share each seed's
    bodies and networks, unless there is a single network: a second device would wait while the first fits it."""
    if jax.default_backend() != "cpu":
        return 1
    with_own_seeds = max(count for count in range(1, available + 1) if seeds % count == 0)
    if with_own_seeds > 1:
        return with_own_seeds
    return 2 if available > 1 and bodies % 2 == 0 and networks > 1 else 1


def quick_compile() -> dict[str, Any]:
    """Compiler options for a program that runs only once: on a CPU, no optimisation."""
    return {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else {}


def quickest_compile() -> dict[str, Any]:
    """The same for a program whose speed does not matter at all: it compiles in a quarter of the time on a CPU."""
    if jax.default_backend() != "cpu":
        return {}
    return quick_compile() | {
        "xla_cpu_use_fusion_emitters": False,
        "xla_llvm_disable_expensive_passes": True,
        "xla_cpu_parallel_codegen_split_count": 1,
    }


def see_cores() -> None:
    """Makes every core of this machine a jax device, unless the user has set their number or jax is already running."""
    configured = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if configured or jax.config.jax_num_cpu_devices > 0:  # pyright: ignore[reportAttributeAccessIssue]
        return
    try:
        jax.config.update("jax_num_cpu_devices", cores)
    except RuntimeError:  # jax is already running
        return
