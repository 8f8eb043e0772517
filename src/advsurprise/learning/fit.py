"""Gradient steps on shuffled minibatches: the only such loop, for policies and a method's other networks."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from advsurprise.learning.devices import ONE_DEVICE, Devices

Params = TypeVar("Params")
Loss = Callable[[Any, Any, Int[Array, " M"], Float[Array, " M"]], tuple[Float[Array, ""], dict[str, Array]]]
"""(parameters, data, rows of the minibatch, their weights) -> (loss, metrics)."""


@dataclasses.dataclass(frozen=True)
class StaticRows:
    """Samples whose rows are known before the program runs."""

    total: int
    """Rows of the batch."""
    chosen: Int[np.ndarray, " M"] | None = None
    """The rows that are samples; None for all of them."""

    @property
    def capacity(self) -> int:
        """Maximum number of samples."""
        return self.total if self.chosen is None else len(self.chosen)

    @property
    def expected(self) -> int:
        """Expected number of samples."""
        return self.capacity

    def minibatches(self, size: int) -> int:
        """Minibatches per epoch."""
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
        """Weights of `size` rows of a shuffled order: all 1."""
        return jnp.ones(size)


@dataclasses.dataclass(frozen=True)
class MaskedRows:
    """Samples selected by a mask, in varying number. No gradient step is spent on the other rows."""

    mask: Bool[Array, " N"]
    """Rows that are samples."""
    share: float = 1.0
    """Approximate fraction of the batch that the mask selects."""

    @property
    def capacity(self) -> int:
        """Maximum number of samples."""
        return self.mask.shape[0]

    @property
    def expected(self) -> int:
        """Expected number of samples."""
        return round(self.share * self.capacity)

    def minibatches(self, size: int) -> Int[Array, ""]:
        """Minibatches per epoch: one, with weights, if samples do not fill it, and none without samples."""
        count = jnp.sum(self.mask)
        return jnp.where(count < size, jnp.minimum(count, 1), count // size)

    def shuffled(self, *, key: PRNGKeyArray) -> Int[Array, " capacity"]:
        """All rows in random order, samples first."""
        return shuffled(self.capacity, self.mask, key=key)

    def weights(self) -> Float[Array, " total"]:
        """1 for every row of the batch that is a sample, 0 for others."""
        return self.mask.astype(jnp.float32)

    def weight(self, begin: Int[Array, ""], size: int) -> Float[Array, " size"]:
        """Weights of `size` rows of a shuffled order, from `begin` on: 1 for samples, 0 for others."""
        return (begin + jnp.arange(size) < jnp.sum(self.mask)).astype(jnp.float32)


Rows = StaticRows | MaskedRows


@dataclasses.dataclass(frozen=True, kw_only=True)
class FitTask(Generic[Params]):
    """A network and the samples to fit it to, in epochs of minibatches; each epoch reshuffles and drops samples that do
    not fill a minibatch."""

    params: Params
    opt_state: optax.OptState
    data: Any
    """The batch that the loss takes its rows from."""
    loss: Loss
    optimiser: optax.GradientTransformation
    rows: Rows
    """Which rows of the batch are samples."""
    epochs: int
    """Number of passes over the samples."""
    minibatch: int
    """Samples per minibatch; all of them if there are fewer."""
    kept: float = 1.0
    """Fraction of the samples that count, drawn again in every minibatch; the others have weight 0."""
    rate: Float[Array, ""] | None = None
    """Factor on every step, for learning rates that change between updates; None for 1."""
    key: PRNGKeyArray

    @property
    def size(self) -> int:
        """Rows per minibatch."""
        return min(self.minibatch, self.rows.capacity)

    @property
    def steps(self) -> int | Int[Array, ""]:
        """Gradient steps in all epochs; an int if known beforehand."""
        return self.epochs * self.rows.minibatches(self.size)

    def orders(self) -> Int[Array, " M"]:
        """The shuffled rows of every epoch, one after another."""
        return jax.vmap(lambda key: self.rows.shuffled(key=key))(self._keys[:-1]).reshape(-1)

    def start(self):
        """Parameters, the optimiser's state and sums of metrics, before the first step."""
        rows, weight = jnp.zeros(self.size, jnp.int32), jnp.ones(self.size)
        names = jax.eval_shape(self.loss, self.params, self.data, rows, weight)[1]
        return self.params, self.opt_state, dict.fromkeys([*names, "loss", "grad_norm"], jnp.float32(0))

    def step(self, data: Any, orders: Int[Array, " M"], index: Int[Array, ""], carry):
        """The gradient step of minibatch `index`, counted over all epochs."""
        params, opt_state, total = carry
        minibatches = self.rows.minibatches(self.size)
        begin = index % minibatches * self.size
        rows = jax.lax.dynamic_slice(orders, (index // minibatches * self.rows.capacity + begin,), (self.size,))
        weight = self.rows.weight(begin, self.size)
        if self.kept < 1:
            counts = jax.random.bernoulli(jax.random.fold_in(self._keys[-1], index), self.kept, (self.size,))
            weight = jnp.where(counts, weight, 0.0)
        (value, metrics), gradient = jax.value_and_grad(self.loss, has_aux=True)(params, data, rows, weight)
        with jax.numpy_dtype_promotion("standard"):  # optax raises floats to integer powers
            change, opt_state = self.optimiser.update(gradient, opt_state, params)
        if self.rate is not None:
            change = jax.tree.map(lambda leaf: self.rate * leaf, change)
        metrics = metrics | {"loss": value, "grad_norm": optax.tree.norm(gradient)}
        return jax.tree.map(jnp.add, params, change), opt_state, jax.tree.map(jnp.add, total, metrics)

    @property
    def _keys(self) -> Key[Array, " n"]:
        """A key to shuffle each epoch, and one to choose the samples that count: folding a number into `key` itself
        would give an epoch's key again."""
        return jax.random.split(self.key, self.epochs + 1)


FitResult = tuple[Params, optax.OptState, dict[str, Array]]
"""Parameters, the optimiser's state, and metrics averaged over all steps; nan if there are none."""


def fit(tasks: dict[str, FitTask], *, devices: Devices = ONE_DEVICE) -> dict[str, FitResult]:
    """Fits all networks independently; several devices divide them in turn."""
    if devices.bodies == 1:
        return _fit(tasks)
    shares = [list(tasks)[index :: devices.bodies] for index in range(devices.bodies)]
    zeros = {name: jax.tree.map(jnp.zeros_like, task.start()) for name, task in tasks.items()}
    return devices.sum_over([lambda own=own: zeros | _fit({name: tasks[name] for name in own}) for own in shares])


def _fit(tasks: dict[str, FitTask]) -> dict[str, FitResult]:
    """Fits networks on one device. Those known to take equally many steps share one loop: the machine then works on one
    while it would wait within another."""
    groups: dict[int | str, dict[str, FitTask]] = {}
    for name, task in tasks.items():
        groups.setdefault(task.steps if isinstance(task.steps, int) else name, {})[name] = task
    return {name: result for group in groups.values() for name, result in _in_one_loop(group).items()}


def _in_one_loop(tasks: dict[str, FitTask]) -> dict[str, FitResult]:
    """Fits networks that take equally many steps."""
    groups: dict[Any, list[str]] = {}
    for name, task in tasks.items():
        groups.setdefault(_kind(task) if stacks() else name, []).append(name)
    stacked = [_Stack([tasks[name] for name in names]) for names in groups.values()]
    steps = next(iter(tasks.values())).steps

    def step(index, carries):
        return [each.step(index, carry) for each, carry in zip(stacked, carries, strict=True)]

    carries = jax.lax.fori_loop(0, steps, step, [each.start() for each in stacked])
    taken = jnp.asarray(steps, jnp.float32)
    ends = {}
    for names, each, carry in zip(groups.values(), stacked, carries, strict=True):
        ends |= dict(zip(names, each.apart(carry), strict=True))
    return {name: (*ends[name][:2], jax.tree.map(lambda total: total / taken, ends[name][2])) for name in tasks}


def stacks() -> bool:
    """Whether tasks of one kind are computed as one. At the sizes of room worlds kernels are too small to fill a GPU,
    and fewer, larger ones take less time; on a CPU each network has its own device."""
    return jax.default_backend() != "cpu"


def _kind(task: FitTask) -> Any:
    """A key that is equal for tasks that can be computed as one."""
    leaves, structure = jax.tree.flatten((task.params, task.opt_state, task.data))
    numbers = (task.rows.capacity, task.size, task.epochs, id(task.rate))
    # A task that draws which samples count does so with its own key, so it is never stacked.
    own = id(task) if task.kept < 1 else None
    return task.loss, task.optimiser, numbers, own, structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves)


class _Stack:
    """Tasks of one kind, their arrays stacked on a first axis; a single task as it is."""

    def __init__(self, tasks: Sequence[FitTask]):
        self._tasks, self._orders = tasks, [task.orders() for task in tasks]
        leaves, structures = zip(*(jax.tree.flatten(task.data) for task in tasks), strict=True)
        leaves, self._structure = list(zip(*leaves, strict=True)), structures[0]
        # Arrays that tasks share, as roles share observations, are not copied.
        shared = [all(leaf is every[0] for leaf in every) for every in leaves]
        self._data = [every[0] if same else jnp.stack(every) for every, same in zip(leaves, shared, strict=True)]
        self._axes = [None if same else 0 for same in shared]

    def start(self) -> Any:
        """The carry before the first step."""
        starts = [task.start() for task in self._tasks]
        return starts[0] if len(starts) == 1 else jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts)

    def step(self, index: Int[Array, ""], carry: Any) -> Any:
        """One gradient step of all tasks."""

        def one(data, orders, carry):
            return self._tasks[0].step(jax.tree.unflatten(self._structure, data), orders, index, carry)

        if len(self._tasks) == 1:
            return one(self._data, self._orders[0], carry)
        return jax.vmap(one, in_axes=(self._axes, 0, 0))(self._data, jnp.stack(self._orders), carry)

    def apart(self, carry: Any) -> list[Any]:
        """The carry of each task."""
        if len(self._tasks) == 1:
            return [carry]
        return [jax.tree.map(lambda leaf, i=i: leaf[i], carry) for i in range(len(self._tasks))]


def named(fitted: dict[str, FitResult]) -> dict[str, Array]:
    """Metrics of all networks, prefixed with their names."""
    return {f"{name}/{metric}": value for name, (_, _, metrics) in fitted.items() for metric, value in metrics.items()}


def shuffled(rows: int, mask: Bool[Array, " {rows}"] | None = None, *, key: PRNGKeyArray) -> Int[Array, " {rows}"]:
    """All rows in random order; with a mask, those of the mask first.

    Sorts by random words once, where `jax.random.permutation` sorts twice: words that are equal by chance, one pair in
    four billion, keep their order.
    """
    words = jax.random.bits(key, (rows,), jnp.uint32)
    first = words if mask is None else jnp.where(mask, words >> 1, words | jnp.uint32(1 << 31))
    return jnp.argsort(first).astype(jnp.int32)
