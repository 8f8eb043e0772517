"""Trees of arrays as named tensors: how a checkpoint stores each leaf, and how it is restored."""

import pathlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import safetensors

from advsurprise.errors import UserError

# Keys are dtypes of this machine's byte order, so that a swapped one is refused rather than stored as noise.
_SAFETENSORS_NAME = {
    np.dtype(dtype): name
    for dtype, name in [
        (np.bool_, "BOOL"),
        (np.uint8, "U8"),
        (np.int8, "I8"),
        (np.uint16, "U16"),
        (np.int16, "I16"),
        (np.uint32, "U32"),
        (np.int32, "I32"),
        (np.uint64, "U64"),
        (np.int64, "I64"),
        (np.float16, "F16"),
        (jnp.bfloat16, "BF16"),
        (np.float32, "F32"),
        (np.float64, "F64"),
    ]
}


class CheckpointError(UserError):
    """A checkpoint that cannot be written or must not be used, in one sentence that names the file."""


@dataclass(frozen=True)
class Leaf:
    """Entry of one array in the record."""

    shape: tuple[int, ...]
    """Shape in the tree; for random keys, without the words of the key."""
    dtype: str
    """numpy's name of the type, or jax's name of a type of random keys, for example `key<fry>`."""
    key_impl: str | None
    """Generator that the random keys belong to, for example `threefry2x32`; None for ordinary arrays."""


def flatten(tree: Any, kinds: tuple[type, ...]) -> dict[str, Any]:
    """Leaves by path. A path reads like Python, `.policy['explore'].weight[0]`, which keeps `1` and `'1'` apart."""
    leaves = {}
    for keys, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        path = jax.tree_util.keystr(keys)
        if not isinstance(leaf, kinds):
            raise CheckpointError(f"leaf {path!r} is a {type(leaf).__name__}; a checkpoint holds arrays only")
        if not _is_key(leaf) and leaf.dtype not in _SAFETENSORS_NAME:
            raise CheckpointError(f"leaf {path!r} has dtype {leaf.dtype}, which a checkpoint cannot hold")
        if path in leaves:
            raise CheckpointError(f"two leaves share the path {path!r}, so a checkpoint could not keep them apart")
        leaves[path] = leaf
    return leaves


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def describe(leaf: Any) -> Leaf:
    """Entry of an array in the record."""
    key_impl = str(jax.random.key_impl(leaf)) if _is_key(leaf) else None
    return Leaf(shape=tuple(leaf.shape), dtype=str(leaf.dtype), key_impl=key_impl)


def raw_bits(leaf: Any) -> np.ndarray:
    """The bits as a numpy array in C order (safetensors writes the memory as it is)."""
    return np.array(jax.random.key_data(leaf) if _is_key(leaf) else leaf, order="C")


class Stored(NamedTuple):
    """The tensor that stores a leaf in the file."""

    shape: tuple[int, ...]
    """Shape of the tensor; for random keys, with the words of the key."""
    dtype: np.dtype
    """Type of the tensor; for random keys, of their words."""


def stored(leaf: Any) -> Stored:
    """The tensor that stores a leaf."""
    if _is_key(leaf):
        leaf = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(leaf.shape, leaf.dtype))
    return Stored(tuple(leaf.shape), np.dtype(leaf.dtype))


def restore(path: pathlib.Path, name: str, array: np.ndarray, like: Any, key_impl: str | None) -> Any:
    """A leaf of the kind of `like` from its tensor."""
    if isinstance(like, np.ndarray):
        return array
    if _is_key(like):
        return _restore_key(path, name, array, like, key_impl)
    restored = jnp.array(array, copy=True)
    # jax turns 64-bit numbers into 32-bit ones silently unless x64 is on.
    if restored.dtype != array.dtype:
        raise CheckpointError(f"leaf {name!r} of {path} has dtype {array.dtype}; set jax_enable_x64 to load it")
    return restored


def _restore_key(path: pathlib.Path, name: str, words: np.ndarray, like: Any, key_impl: str | None) -> jax.Array:
    try:
        key = jax.random.wrap_key_data(jnp.array(words, copy=True), impl=key_impl)
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"leaf {name!r} of {path} has random keys of unknown kind {key_impl!r}") from error
    if key.dtype != like.dtype:
        raise CheckpointError(f"leaf {name!r} of {path} has dtype {key.dtype}, but {like.dtype} is needed")
    return key


ANY_LENGTH = (-1,)
"""Shape of a leaf to load that takes the length it was saved with."""


def with_saved_lengths(saved: dict[str, Leaf], wanted: dict[str, Any]) -> dict[str, Any]:
    """The wanted leaves, with the saved length for those of any length."""

    def as_saved(name: str, leaf: Any) -> Any:
        known = name in saved and len(saved[name].shape) == 1
        return jax.ShapeDtypeStruct(saved[name].shape, leaf.dtype) if known and leaf.shape == ANY_LENGTH else leaf

    return {name: as_saved(name, leaf) for name, leaf in wanted.items()}


def check_leaves(path: pathlib.Path, saved: dict[str, Leaf], wanted: dict[str, Any]) -> None:
    """Refuses a checkpoint whose leaves are not the wanted ones."""
    other = "it was saved by another method, setting or version of advsurprise"
    if missing := [name for name in wanted if name not in saved]:
        raise CheckpointError(f"{path} has no leaf {missing[0]!r}, which is needed: {other}")
    if extra := [name for name in saved if name not in wanted]:
        raise CheckpointError(f"{path} has an unexpected leaf {extra[0]!r}: {other}")
    for name, leaf in wanted.items():
        have = saved[name]
        if have.shape != tuple(leaf.shape):
            raise CheckpointError(
                f"leaf {name!r} of {path} has shape {list(have.shape)}, but {list(leaf.shape)} is needed"
            )
        if have.dtype != str(leaf.dtype):
            raise CheckpointError(f"leaf {name!r} of {path} has dtype {have.dtype}, but {leaf.dtype} is needed")


def parse(path: pathlib.Path, data: bytes, expected: dict[str, Stored]) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file, which must be those expected."""
    try:
        tensors = dict(safetensors.deserialize(data))
    except safetensors.SafetensorError as error:
        raise CheckpointError(f"the tensors of {path} are not a safetensors file: {error}") from error
    described = {name: (tuple(tensor["shape"]), tensor["dtype"]) for name, tensor in tensors.items()}
    if described != {name: (leaf.shape, _SAFETENSORS_NAME[leaf.dtype]) for name, leaf in expected.items()}:
        raise CheckpointError(f"the tensors of {path} do not match its list of leaves")
    return {
        name: np.frombuffer(tensors[name]["data"], dtype=leaf.dtype).reshape(leaf.shape).copy()
        for name, leaf in expected.items()
    }
