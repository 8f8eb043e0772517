"""Convolutions as matrix products. `convolve` is the entry point: it chooses an implementation by shape.

XLA's own convolution is never chosen: its gradient is ten times slower than patches and a matrix product on a CPU, and
on a GPU, where seeds and roles become groups of one convolution, eight times slower than blocks. Where the input is
wide and the output narrow, cutting patches costs more than the product. Kernels are [outputs, kernel, kernel,
channels].
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

SAME_KERNEL, SAME_STRIDE = 3, 2
"""The kernel and the stride of `halved`."""
FEW_CELLS, FEW_CHANNELS, MANY_SAMPLES = 16, 16, 64
"""`by_rows` is used up to this many cells (for data: channels) and from this many samples on: with more cells, zeros in
its matrices cost more than they save; with fewer samples, making the matrices does."""

FEW_OUTPUTS = 8
"""Up to this many outputs, `by_blocks` adds shifted products; with more, it concatenates shifted blocks."""

Backend = Literal["patches", "rows", "parity", "blocks"]


def convolve(
    x: Any,
    weight: Float[Array, "outputs kernel kernel channels"],
    *,
    stride: int,
    same: bool,
    is_data: bool = False,
    encode: Callable[[Any], Float[Array, "n rows columns channels"]] = lambda x: x,
    backend: Backend | None = None,
) -> Float[Array, "n new_rows new_columns outputs"]:
    """The convolution of x with a kernel; `is_data` says that x needs no gradient.

    x is [n, rows, columns, channels], or any tree of arrays [n, rows, columns, …] that `encode` turns into it cell by
    cell: where cells are rearranged, that happens before they are encoded, which is a fifth faster on a CPU.
    """
    shape = jax.eval_shape(encode, x).shape
    chosen = backend or choose(shape, weight.shape, stride=stride, same=same, is_data=is_data)
    if chosen == "parity":
        return halved(weight, [encode(part) for part in by_parity(x)])
    if chosen == "blocks":
        return by_blocks(encode(blocks(x, kernel=weight.shape[1], stride=stride)), weight)
    x = encode(x)
    if chosen == "rows":
        return by_rows(x, weight, stride=stride, same=same)
    return by_patches(x, weight, stride=stride, same=same)


def choose(shape: tuple[int, ...], weight: tuple[int, ...], *, stride: int, same: bool, is_data: bool) -> Backend:
    """The fastest way to compute a convolution, as measured (docs/performance.md)."""
    samples, rows, columns, channels = shape
    if is_data and (weight[1], stride, same) == (SAME_KERNEL, SAME_STRIDE, True):
        return "rows" if channels <= FEW_CHANNELS and samples >= MANY_SAMPLES else "parity"
    if not same and stride > 1 and weight[1] % stride == 0:
        return "blocks"
    few = rows * columns <= FEW_CELLS and samples >= MANY_SAMPLES
    return "rows" if few else "patches"


def by_patches(
    x: Float[Array, "n rows columns channels"],
    weight: Float[Array, "outputs kernel kernel channels"],
    *,
    stride: int,
    same: bool,
) -> Float[Array, "n new_rows new_columns outputs"]:
    """One matrix product with every patch of the input."""
    cut = patches(x, kernel=weight.shape[1], stride=stride, same=same)
    return jax.lax.dot_general(cut, weight.reshape(len(weight), -1), (((cut.ndim - 1,), (1,)), ((), ())))


def padding(size: int, *, kernel: int, stride: int, same: bool) -> tuple[int, int, int]:
    """Zeros before and after an axis, and the size of the result; `same` pads as TensorFlow does."""
    if not same:
        return 0, 0, (size - kernel) // stride + 1
    out = -(-size // stride)
    pad = max((out - 1) * stride + kernel - size, 0)
    return pad // 2, pad - pad // 2, out


def patches(
    x: Float[Array, "*n rows columns channels"], *, kernel: int, stride: int, same: bool
) -> Float[Array, "*n new_rows new_columns patch"]:
    """Every kernel x kernel patch, flattened as [row, column, channel]."""
    (top, bottom, rows), (left, right, columns) = (
        padding(size, kernel=kernel, stride=stride, same=same) for size in x.shape[-3:-1]
    )
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 3) + [(top, bottom), (left, right), (0, 0)])
    parts = [
        x[..., i : i + (rows - 1) * stride + 1 : stride, j : j + (columns - 1) * stride + 1 : stride, :]
        for i in range(kernel)
        for j in range(kernel)
    ]
    return jnp.concatenate(parts, axis=-1)


def blocks(x: Any, *, kernel: int, stride: int) -> Any:
    """Cells in blocks of stride x stride, axes [n, block row, block column, row, column, …], in every leaf; cells that
    a convolution without padding does not reach are left out."""

    def cut(leaf: Array) -> Array:
        rows, columns = ((size - kernel) // stride + kernel // stride for size in leaf.shape[1:3])
        leaf = leaf[:, : rows * stride, : columns * stride]
        split = leaf.reshape(len(leaf), rows, stride, columns, stride, *leaf.shape[3:])
        return jnp.swapaxes(split, 2, 3)

    return jax.tree.map(cut, x)


def by_blocks(
    cells: Float[Array, "n rows columns stride stride channels"],
    weight: Float[Array, "outputs kernel kernel channels"],
) -> Float[Array, "n new_rows new_columns outputs"]:
    """A convolution without padding whose kernel is a multiple of the stride, as one of stride 1 over blocks.

    Cells are copied only when transposed into blocks, as bytes if they are encoded later. With few outputs one product
    computes what every block adds to each of its neighbours; with more, neighbours are concatenated.
    """
    outputs, stride = len(weight), cells.shape[3]
    side = weight.shape[1] // stride
    kernel = weight.reshape(outputs, side, stride, side, stride, -1)
    rows, columns = (size - side + 1 for size in cells.shape[1:3])
    places = [(i, j) for i in range(side) for j in range(side)]
    if outputs > FEW_OUTPUTS:
        x = cells.reshape(*cells.shape[:3], -1)
        together = jnp.concatenate([x[:, i : i + rows, j : j + columns] for i, j in places], axis=-1)
        flat = jnp.swapaxes(kernel, 2, 3).reshape(outputs, -1)
        return jax.lax.dot_general(together, flat, (((3,), (1,)), ((), ())))
    # Columns last: frames are channels that lie apart in memory, and a CPU copies runs of columns much faster.
    x = jnp.swapaxes(cells, 4, 5).reshape(*cells.shape[:3], -1)
    flat = jnp.transpose(kernel, (1, 3, 0, 2, 5, 4)).reshape(side * side * outputs, -1)
    product: Array = narrow(x, flat).reshape(*x.shape[:3], side * side, outputs)
    return sum((product[:, i : i + rows, j : j + columns, i * side + j] for i, j in places), jnp.float32(0))


@jax.custom_vjp
def narrow(x: Float[Array, "*n inputs"], weight: Float[Array, "outputs inputs"]) -> Float[Array, "*n outputs"]:
    """x Wᵀ, for few outputs: the gradient of W is computed as (xᵀ g)ᵀ, so that g is not transposed in memory."""
    return jax.lax.dot_general(x, weight, (((x.ndim - 1,), (1,)), ((), ())))


def _narrow_forward(x, weight):
    return narrow(x, weight), (x, weight)


def _narrow_backward(saved, gradient):
    x, weight = saved
    rows, flat = x.reshape(-1, x.shape[-1]), gradient.reshape(-1, len(weight))
    of_weight = jax.lax.dot_general(rows, flat, (((0,), (0,)), ((), ()))).T
    return jax.lax.dot_general(gradient, weight, (((gradient.ndim - 1,), (0,)), ((), ()))), of_weight


narrow.defvjp(_narrow_forward, _narrow_backward)


def by_rows(
    x: Float[Array, "*n rows columns channels"],
    weight: Float[Array, "outputs kernel kernel channels"],
    *,
    stride: int,
    same: bool,
) -> Float[Array, "*n new_rows new_columns outputs"]:
    """The convolution as one product for each row of its result, with the rows of the input that it depends on.

    The matrices are half zeros. For a few cells that is cheaper than cutting patches, and so is the gradient.
    """
    outputs, kernel = weight.shape[:2]
    rows, columns = x.shape[-3:-1]
    (top, _, new_rows), (left, _, new_columns) = (
        padding(size, kernel=kernel, stride=stride, same=same) for size in (rows, columns)
    )
    result = []
    for row in range(-top, new_rows * stride - top, stride):
        begin, end = max(row, 0), min(row + kernel, rows)
        kept = weight[:, begin - row : end - row]
        blocks = [_placed(kept, column, columns) for column in range(-left, new_columns * stride - left, stride)]
        matrix = jnp.concatenate(blocks).reshape(new_columns * outputs, -1)
        band = x[..., begin:end, :, :].reshape(*x.shape[:-3], -1)
        result.append(jax.lax.dot_general(band, matrix, (((band.ndim - 1,), (1,)), ((), ()))))
    return jnp.stack(result, axis=-2).reshape(*x.shape[:-3], new_rows, new_columns, outputs)


def _placed(
    weight: Float[Array, "outputs rows kernel channels"], begin: int, columns: int
) -> Float[Array, "outputs rows columns channels"]:
    """The kernel placed in a row, cropped at the edges."""
    after = columns - weight.shape[2] - begin
    return jax.lax.pad(weight, jnp.float32(0), [(0, 0, 0), (0, 0, 0), (begin, after, 0), (0, 0, 0)])


@jax.custom_vjp
def halved(
    weight: Float[Array, "outputs 3 3 channels"], cells: Sequence[Float[Array, "n _ _ channels"]]
) -> Float[Array, "n new_rows new_columns outputs"]:
    """The convolution of kernel 3 and stride 2 with `same` padding, of an input that is data and has no gradient.

    `cells` are the input's cells by parity, from `by_parity`: all cells of one parity meet the same entries of the
    kernel, so that four products are enough and no patches are cut.
    """
    sizes = [cells[0].shape[axis] + cells[3].shape[axis] for axis in (1, 2)]
    total = jnp.float32(0)
    for part, offsets, shifts in zip(cells, *_meetings(sizes), strict=True):
        kernels = jnp.stack([weight[:, p, q] for p, q in offsets])
        product = jax.lax.dot_general(part, kernels.reshape(-1, weight.shape[-1]), (((3,), (1,)), ((), ())))
        product = product.reshape(*part.shape[:3], len(offsets), weight.shape[0])
        for index, (down, right) in enumerate(shifts):
            total += _moved(product[..., index, :], [down, right], [-(-size // 2) for size in sizes])
    return total


def _halved_forward(weight, cells):
    return halved(weight, cells), cells


def _halved_backward(cells, gradient):
    sizes = [cells[0].shape[axis] + cells[3].shape[axis] for axis in (1, 2)]
    blocks = {}
    for part, offsets, shifts in zip(cells, *_meetings(sizes), strict=True):
        moved = [_moved(gradient, [-down, -right], list(part.shape[1:3])) for down, right in shifts]
        both = jnp.concatenate(moved, axis=-1).reshape(-1, len(offsets) * gradient.shape[-1])
        product = jax.lax.dot_general(part.reshape(-1, part.shape[-1]), both, (((0,), (0,)), ((), ())))
        for offset, block in zip(offsets, jnp.split(product, len(offsets), axis=1), strict=True):
            blocks[offset] = block
    # Channels first up to here: CPUs are up to twice as slow at the same product the other way round.
    rows = [jnp.stack([blocks[p, q] for q in range(SAME_KERNEL)]) for p in range(SAME_KERNEL)]
    return jnp.transpose(jnp.stack(rows), (3, 0, 1, 2)), [jnp.zeros_like(part) for part in cells]


halved.defvjp(_halved_forward, _halved_backward)


def by_parity(x: Any) -> list[Any]:
    """Cells of even row and even column, even and odd, odd and even, odd and odd, in every leaf."""
    return [jax.tree.map(lambda leaf, a=a, b=b: leaf[:, a::2, b::2], x) for a in (0, 1) for b in (0, 1)]


def _meetings(sizes: list[int]):
    """For each parity of cells: the entries of the kernel they meet, and by how many rows and columns each result is
    shifted from the cell's index within its parity."""
    along = [_axis_meetings(size) for size in sizes]
    pairs = [[(r, c) for r in along[0][a] for c in along[1][b]] for a in (0, 1) for b in (0, 1)]
    offsets = [[(r[0], c[0]) for r, c in each] for each in pairs]
    shifts = [[(r[1], c[1]) for r, c in each] for each in pairs]
    return offsets, shifts


def _axis_meetings(size: int) -> list[list[tuple[int, int]]]:
    """Along one axis, for even and for odd places: (entry of the kernel, shift of the result)."""
    before, _, _ = padding(size, kernel=SAME_KERNEL, stride=SAME_STRIDE, same=True)
    entries = range(SAME_KERNEL)
    return [[(o, (parity + before - o) // 2) for o in entries if (parity + before - o) % 2 == 0] for parity in (0, 1)]


def _moved(x: Float[Array, "n rows columns channels"], shifts: list[int], sizes: list[int]) -> Array:
    """The cells shifted along rows and columns within an array of other sizes, cropped at its edges."""
    ends = [size - old - shift for size, old, shift in zip(sizes, x.shape[1:3], shifts, strict=True)]
    return jax.lax.pad(x, jnp.float32(0), [(0, 0, 0), (shifts[0], ends[0], 0), (shifts[1], ends[1], 0), (0, 0, 0)])
