"""Gradient steps on shuffled minibatches: the only such loop, for policies and for whatever else a method trains."""

import dataclasses
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from advsurprise.learning.devices import ALONE, Devices

Params = TypeVar("Params")
Loss = Callable[[Any, Int[Array, " M"], Float[Array, " M"]], tuple[Float[Array, ""], dict[str, Array]]]
"""(parameters, rows of the minibatch, their weights) -> (loss, what is worth logging)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FitTask(Generic[Params]):
    """What is fitted to what: passes over the samples in minibatches; each pass shuffles anew and leaves out what does
    not fill a minibatch."""

    params: Params
    opt_state: optax.OptState
    loss: Loss
    optimiser: optax.GradientTransformation
    mine: Bool[Array, " N"] | Int[np.ndarray, " M"] | int
    """Which rows are samples: all of the first so many (a plain number), those with the given numbers, or those of a
    mask, of which there may be more or fewer from call to call. No gradient step is spent on the others."""
    epochs: int
    """Passes over the samples."""
    minibatch: int
    """Samples of a minibatch; all of them, if there are fewer."""
    kept: float = 1.0
    """Share of the samples that count, chosen anew in every minibatch; the others have weight 0."""
    key: PRNGKeyArray

    @property
    def rows(self) -> int:
        """Rows that may be samples."""
        return self.mine if isinstance(self.mine, int) else len(self.mine)

    @property
    def size(self) -> int:
        """Rows of a minibatch."""
        return min(self.minibatch, self.rows)

    @property
    def number(self) -> int | Int[Array, ""]:
        """Minibatches of a pass. Fewer samples than one minibatch are one step with weights; none are no step."""
        if not isinstance(self.mine, jax.Array):
            return self.rows // self.size
        count = jnp.sum(self.mine)
        return jnp.where(count < self.size, jnp.minimum(count, 1), count // self.size)

    @property
    def steps(self) -> int | None:
        """Gradient steps of all passes, if that is known beforehand."""
        return self.epochs * self.number if isinstance(self.number, int) else None

    def orders(self) -> Int[Array, " M"]:
        """The rows in the order of every pass, pass after pass."""
        mask = self.mine if isinstance(self.mine, jax.Array) else None
        orders = jax.vmap(lambda key: shuffled(self.rows, mask, key=key))(self._keys[:-1]).reshape(-1)
        # Numbers are looked up here, once: within a step, a CPU would look them up again for every entry it gathers.
        return jnp.asarray(self.mine, jnp.int32)[orders] if isinstance(self.mine, np.ndarray) else orders

    def start(self):
        """Parameters, the optimiser's state and sums of what is logged, before the first step."""
        rows, weight = jnp.zeros(self.size, jnp.int32), jnp.ones(self.size)
        names = jax.eval_shape(self.loss, self.params, rows, weight)[1]
        return self.params, self.opt_state, dict.fromkeys([*names, "loss", "grad_norm"], jnp.float32(0))

    def step(self, orders: Int[Array, " M"], index: Int[Array, ""], carry):
        """The gradient step of one minibatch, counted over all passes."""
        params, opt_state, total = carry
        nth = index % self.number
        chosen = jax.lax.dynamic_slice(orders, (index // self.number * self.rows + nth * self.size,), (self.size,))
        weight = jnp.ones(self.size)
        if isinstance(self.mine, jax.Array):
            weight = (nth * self.size + jnp.arange(self.size) < jnp.sum(self.mine)).astype(jnp.float32)
        if self.kept < 1:
            counts = jax.random.bernoulli(jax.random.fold_in(self._keys[-1], index), self.kept, (self.size,))
            weight = jnp.where(counts, weight, 0.0)
        (value, found), gradient = jax.value_and_grad(self.loss, has_aux=True)(params, chosen, weight)
        with jax.numpy_dtype_promotion("standard"):  # optax raises floats to integer powers
            change, opt_state = self.optimiser.update(gradient, opt_state, params)
        found = found | {"loss": value, "grad_norm": optax.tree.norm(gradient)}
        return jax.tree.map(jnp.add, params, change), opt_state, jax.tree.map(jnp.add, total, found)

    @property
    def _keys(self) -> Key[Array, " n"]:
        """A key to shuffle each pass, and one to choose the samples that count: folding a number into `key` itself
        would give the key of that pass again."""
        return jax.random.split(self.key, self.epochs + 1)


FitResult = tuple[Params, optax.OptState, dict[str, Array]]
"""Parameters, the optimiser's state, and means over all steps of what is worth logging."""


def fit(fit_tasks: dict[str, FitTask], *, devices: Devices = ALONE) -> dict[str, FitResult]:
    """Fits all fit_tasks, independent of each other; devices take turns in choosing one."""
    if devices.count == 1:
        return _fit(fit_tasks)
    shares = [list(fit_tasks)[index :: devices.count] for index in range(devices.count)]
    nothing = {name: jax.tree.map(jnp.zeros_like, fit_task.start()) for name, fit_task in fit_tasks.items()}
    return devices.total([lambda own=own: nothing | _fit({name: fit_tasks[name] for name in own}) for own in shares])


def _fit(fit_tasks: dict[str, FitTask]) -> dict[str, FitResult]:
    """Fits fit_tasks on one device. Those that are known to take equally many steps take them side by side: a machine
    then works on one where it would have to wait within the other."""
    groups: dict[int | str, dict[str, FitTask]] = {}
    for name, fit_task in fit_tasks.items():
        groups.setdefault(name if fit_task.steps is None else fit_task.steps, {})[name] = fit_task
    return {name: result for group in groups.values() for name, result in _side_by_side(group).items()}


def _side_by_side(fit_tasks: dict[str, FitTask]) -> dict[str, FitResult]:
    """One loop over the steps of fit_tasks that take equally many."""
    orders = {name: fit_task.orders() for name, fit_task in fit_tasks.items()}
    first = next(iter(fit_tasks.values()))
    steps = first.epochs * first.number

    def step(index, carries):
        return {name: fit_task.step(orders[name], index, carries[name]) for name, fit_task in fit_tasks.items()}

    ends = jax.lax.fori_loop(0, steps, step, {name: fit_task.start() for name, fit_task in fit_tasks.items()})
    taken = jnp.maximum(steps, 1).astype(jnp.float32)
    return {name: (*end, jax.tree.map(lambda total: total / taken, totals)) for name, (*end, totals) in ends.items()}


def named(fitted: dict[str, FitResult]) -> dict[str, Array]:
    """What is worth logging of all fit_tasks, under their names."""
    return {f"{name}/{metric}": value for name, (_, _, found) in fitted.items() for metric, value in found.items()}


def shuffled(rows: int, mask: Bool[Array, " {rows}"] | None = None, *, key: PRNGKeyArray) -> Int[Array, " {rows}"]:
    """All rows in random order; with a mask, those of the mask first.

    Sorted by random words once, where `jax.random.permutation` sorts twice: words that are equal by chance, one pair in
    four thousand million, keep their order.
    """
    words = jax.random.bits(key, (rows,), jnp.uint32)
    first = words if mask is None else jnp.where(mask, words >> 1, words | jnp.uint32(1 << 31))
    return jnp.argsort(first).astype(jnp.int32)
