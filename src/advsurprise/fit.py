"""Gradient steps on shuffled minibatches: the only such loop, for policies and for whatever else a method trains."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

Params = TypeVar("Params")
Loss = Callable[[Any, Int[Array, " M"], Float[Array, " M"]], tuple[Float[Array, ""], dict[str, Array]]]
"""(parameters, rows of the minibatch, their weights) -> (loss, what is worth logging)."""


def fit(
    params: Params,
    opt_state: optax.OptState,
    loss: Loss,
    optimiser: optax.GradientTransformation,
    mine: Bool[Array, " N"] | int,
    *,
    epochs: int,
    minibatch: int,
    key: PRNGKeyArray,
) -> tuple[Params, optax.OptState, dict[str, Array]]:
    """Passes over the samples in minibatches; each pass shuffles anew and leaves out what does not fill a minibatch.

    `mine` says which rows are samples: all of the first so many (a plain number), or those of a mask, of which there
    may be more or fewer from call to call. No gradient step is spent on the others.
    """
    rows = mine if isinstance(mine, int) else mine.shape[0]
    size = min(minibatch, rows)
    count = mine if isinstance(mine, int) else jnp.sum(mine)
    # Fewer samples than one minibatch are one step with weights; none at all are no step.
    number = rows // size if isinstance(mine, int) else jnp.where(count < size, jnp.minimum(count, 1), count // size)

    def step(index, carry):
        params, opt_state, total = carry
        begin = (index // number) * rows + (index % number) * size
        chosen = jax.lax.dynamic_slice(orders, (begin,), (size,))
        weight = jnp.ones(size)
        if not isinstance(mine, int):
            weight = (index % number * size + jnp.arange(size) < count).astype(jnp.float32)
        (value, found), gradient = jax.value_and_grad(loss, has_aux=True)(params, chosen, weight)
        with jax.numpy_dtype_promotion("standard"):  # optax raises floats to integer powers
            change, opt_state = optimiser.update(gradient, opt_state, params)
        found = found | {"loss": value, "grad_norm": optax.tree.norm(gradient)}
        return jax.tree.map(jnp.add, params, change), opt_state, jax.tree.map(jnp.add, total, found)

    orders = jax.vmap(lambda k: shuffled(rows, mine, key=k))(jax.random.split(key, epochs)).reshape(-1)
    names = jax.eval_shape(loss, params, orders[:size], jnp.ones(size))[1]
    total = dict.fromkeys([*names, "loss", "grad_norm"], jnp.float32(0))
    params, opt_state, total = jax.lax.fori_loop(0, epochs * number, step, (params, opt_state, total))
    steps = jnp.maximum(epochs * number, 1).astype(jnp.float32)
    return params, opt_state, {name: value / steps for name, value in total.items()}


def shuffled(rows: int, mine: Bool[Array, " N"] | int, *, key: PRNGKeyArray) -> Int[Array, " {rows}"]:
    """All rows in random order; with a mask, those of the mask first.

    Sorted by random words once, where `jax.random.permutation` sorts twice: words that are equal by chance, one pair in
    four thousand million, keep their order.
    """
    words = jax.random.bits(key, (rows,), jnp.uint32)
    first = words if isinstance(mine, int) else jnp.where(mine, words >> 1, words | jnp.uint32(1 << 31))
    return jnp.argsort(first).astype(jnp.int32)
