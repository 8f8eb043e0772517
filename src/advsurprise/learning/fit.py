"""Gradient steps on shuffled minibatches: the only such loop, for policies and for whatever else a method trains."""

import dataclasses
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from advsurprise.learning.devices import ONE_DEVICE, Devices

Params = TypeVar("Params")
Loss = Callable[[Any, Int[Array, " M"], Float[Array, " M"]], tuple[Float[Array, ""], dict[str, Array]]]
"""(parameters, rows of the minibatch, their weights) -> (loss, metrics)."""


@dataclasses.dataclass(frozen=True)
class StaticRows:
    """Samples whose rows are known before the program runs."""

    total: int
    """Rows of the batch."""
    chosen: Int[np.ndarray, " M"] | None = None
    """The rows that are samples; None for all of them."""

    @property
    def capacity(self) -> int:
        """Most samples there can be."""
        return self.total if self.chosen is None else len(self.chosen)

    @property
    def expected(self) -> int:
        """Samples to plan for."""
        return self.capacity

    def minibatches(self, size: int) -> int:
        """Minibatches of a pass."""
        return self.capacity // size

    def shuffled(self, *, key: PRNGKeyArray) -> Int[Array, " capacity"]:
        """The samples' rows in random order."""
        order = shuffled(self.capacity, key=key)
        # Looked up here, once: within a step, a CPU would look them up again for every entry it gathers.
        return order if self.chosen is None else jnp.asarray(self.chosen, jnp.int32)[order]

    def weights(self) -> Float[Array, " total"]:
        """1 for every row of the batch that is a sample, 0 for others."""
        ones = np.ones(self.total, np.float32)
        if self.chosen is not None:
            ones = np.zeros_like(ones)
            ones[self.chosen] = 1
        return jnp.asarray(ones)

    def weight(self, begin: Int[Array, ""], size: int) -> Float[Array, " size"]:
        """1 for each of `size` places of a shuffled order."""
        return jnp.ones(size)


@dataclasses.dataclass(frozen=True)
class MaskedRows:
    """Samples that a mask picks, more or fewer from call to call. No gradient step is spent on the other rows."""

    mask: Bool[Array, " N"]
    """Rows that are samples."""
    share: float = 1.0
    """About how much of the batch the mask covers."""

    @property
    def capacity(self) -> int:
        """Most samples there can be."""
        return self.mask.shape[0]

    @property
    def expected(self) -> int:
        """Samples to plan for."""
        return round(self.share * self.capacity)

    def minibatches(self, size: int) -> Int[Array, ""]:
        """Minibatches of a pass. Fewer samples than one minibatch are one step with weights; none are no step."""
        count = jnp.sum(self.mask)
        return jnp.where(count < size, jnp.minimum(count, 1), count // size)

    def shuffled(self, *, key: PRNGKeyArray) -> Int[Array, " capacity"]:
        """All rows in random order, samples first."""
        return shuffled(self.capacity, self.mask, key=key)

    def weights(self) -> Float[Array, " total"]:
        """1 for every row of the batch that is a sample, 0 for others."""
        return self.mask.astype(jnp.float32)

    def weight(self, begin: Int[Array, ""], size: int) -> Float[Array, " size"]:
        """Which of `size` places of a shuffled order, from `begin` on, hold samples."""
        return (begin + jnp.arange(size) < jnp.sum(self.mask)).astype(jnp.float32)


Rows = StaticRows | MaskedRows


@dataclasses.dataclass(frozen=True, kw_only=True)
class FitTask(Generic[Params]):
    """What is fitted to what: passes over the samples in minibatches; each pass shuffles anew and leaves out what does
    not fill a minibatch."""

    params: Params
    opt_state: optax.OptState
    loss: Loss
    optimiser: optax.GradientTransformation
    rows: Rows
    """Which rows of the batch are samples."""
    epochs: int
    """Passes over the samples."""
    minibatch: int
    """Samples of a minibatch; all of them, if there are fewer."""
    kept: float = 1.0
    """Share of the samples that count, chosen anew in every minibatch; the others have weight 0."""
    rate: Float[Array, ""] | None = None
    """Factor on every step, for learning rates that change between updates; None for 1."""
    key: PRNGKeyArray

    @property
    def size(self) -> int:
        """Rows of a minibatch."""
        return min(self.minibatch, self.rows.capacity)

    @property
    def steps(self) -> int | Int[Array, ""]:
        """Gradient steps of all passes; an int if that is known beforehand."""
        return self.epochs * self.rows.minibatches(self.size)

    def orders(self) -> Int[Array, " M"]:
        """The rows in the order of every pass, pass after pass."""
        return jax.vmap(lambda key: self.rows.shuffled(key=key))(self._keys[:-1]).reshape(-1)

    def start(self):
        """Parameters, the optimiser's state and sums of metrics, before the first step."""
        rows, weight = jnp.zeros(self.size, jnp.int32), jnp.ones(self.size)
        names = jax.eval_shape(self.loss, self.params, rows, weight)[1]
        return self.params, self.opt_state, dict.fromkeys([*names, "loss", "grad_norm"], jnp.float32(0))

    def step(self, orders: Int[Array, " M"], index: Int[Array, ""], carry):
        """The gradient step of one minibatch, counted over all passes."""
        params, opt_state, total = carry
        minibatches = self.rows.minibatches(self.size)
        begin = index % minibatches * self.size
        rows = jax.lax.dynamic_slice(orders, (index // minibatches * self.rows.capacity + begin,), (self.size,))
        weight = self.rows.weight(begin, self.size)
        if self.kept < 1:
            counts = jax.random.bernoulli(jax.random.fold_in(self._keys[-1], index), self.kept, (self.size,))
            weight = jnp.where(counts, weight, 0.0)
        (value, metrics), gradient = jax.value_and_grad(self.loss, has_aux=True)(params, rows, weight)
        with jax.numpy_dtype_promotion("standard"):  # optax raises floats to integer powers
            change, opt_state = self.optimiser.update(gradient, opt_state, params)
        if self.rate is not None:
            change = jax.tree.map(lambda leaf: self.rate * leaf, change)
        metrics = metrics | {"loss": value, "grad_norm": optax.tree.norm(gradient)}
        return jax.tree.map(jnp.add, params, change), opt_state, jax.tree.map(jnp.add, total, metrics)

    @property
    def _keys(self) -> Key[Array, " n"]:
        """A key to shuffle each pass, and one to choose the samples that count: folding a number into `key` itself
        would give the key of that pass again."""
        return jax.random.split(self.key, self.epochs + 1)


FitResult = tuple[Params, optax.OptState, dict[str, Array]]
"""Parameters, the optimiser's state, and metrics averaged over all steps."""


def fit(tasks: dict[str, FitTask], *, devices: Devices = ONE_DEVICE) -> dict[str, FitResult]:
    """Fits all networks, independent of each other; several devices take turns in choosing one."""
    if devices.bodies == 1:
        return _fit(tasks)
    shares = [list(tasks)[index :: devices.bodies] for index in range(devices.bodies)]
    zeros = {name: jax.tree.map(jnp.zeros_like, task.start()) for name, task in tasks.items()}
    return devices.sum_over([lambda own=own: zeros | _fit({name: tasks[name] for name in own}) for own in shares])


def _fit(tasks: dict[str, FitTask]) -> dict[str, FitResult]:
    """Fits networks on one device. Those that are known to take equally many steps take them side by side: a machine
    then works on one where it would have to wait within the other."""
    groups: dict[int | str, dict[str, FitTask]] = {}
    for name, task in tasks.items():
        groups.setdefault(task.steps if isinstance(task.steps, int) else name, {})[name] = task
    return {name: result for group in groups.values() for name, result in _side_by_side(group).items()}


def _side_by_side(tasks: dict[str, FitTask]) -> dict[str, FitResult]:
    """One loop over the steps of networks that take equally many."""
    orders = {name: task.orders() for name, task in tasks.items()}
    steps = next(iter(tasks.values())).steps

    def step(index, carries):
        return {name: task.step(orders[name], index, carries[name]) for name, task in tasks.items()}

    ends = jax.lax.fori_loop(0, steps, step, {name: task.start() for name, task in tasks.items()})
    taken = jnp.maximum(steps, 1).astype(jnp.float32)
    return {name: (*end, jax.tree.map(lambda total: total / taken, totals)) for name, (*end, totals) in ends.items()}


def named(fitted: dict[str, FitResult]) -> dict[str, Array]:
    """Metrics of all networks, under their names."""
    return {f"{name}/{metric}": value for name, (_, _, metrics) in fitted.items() for metric, value in metrics.items()}


def shuffled(rows: int, mask: Bool[Array, " {rows}"] | None = None, *, key: PRNGKeyArray) -> Int[Array, " {rows}"]:
    """All rows in random order; with a mask, those of the mask first.

    Sorted by random words once, where `jax.random.permutation` sorts twice: words that are equal by chance, one pair in
    four thousand million, keep their order.
    """
    words = jax.random.bits(key, (rows,), jnp.uint32)
    first = words if mask is None else jnp.where(mask, words >> 1, words | jnp.uint32(1 << 31))
    return jnp.argsort(first).astype(jnp.int32)
