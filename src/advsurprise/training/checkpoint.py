"""Trees of arrays to and from disk: tensors in safetensors by tree path, a JSON record beside. Nothing is executed.

    step_000000123.json                          the record: schema, checksums, leaves, versions, your own `meta`
    step_000000123.0f3a9c5e12d47b68.safetensors  the tensors, named after their own checksum

The record names its tensors and is written last, so a checkpoint exists from the moment its record does: one
`os.replace`, also where the same step is saved again. Equal tensors have equal file names and equal bytes.
"""

import functools
import hashlib
import importlib.metadata
import json
import math
import os
import pathlib
import platform
import re
import subprocess
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from advsurprise import __version__
from advsurprise.errors import UserError

Tree = TypeVar("Tree")

KIND = "advsurprise checkpoint"
SCHEMA = 1
# Bounds on what is read from a file nobody has vouched for yet; safetensors itself refuses longer headers.
MAX_RECORD_BYTES = 256 * 2**20
MAX_HEADER_BYTES = 100_000_000

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
_RECORD_NAME = re.compile(r"step_\d{9,}\.json")


class CheckpointError(UserError):
    """A checkpoint that cannot be written or must not be used, in one sentence that names the file."""


@dataclass(frozen=True)
class Leaf:
    """What the record says of one array."""

    shape: tuple[int, ...]
    """Shape in the tree; for random keys, without the words of the key."""
    dtype: str
    """numpy's name of the type, or jax's name of a type of random keys, for example `key<fry>`."""
    key_impl: str | None
    """Generator that the random keys belong to, for example `threefry2x32`; None for ordinary arrays."""


# ---------------------------------------------------------------------------------------------------- public


def save(folder: pathlib.Path, step: int, tree: Any, meta: dict[str, Any], *, keep: int = 2) -> pathlib.Path:
    """Writes the tree and returns the path of its record; the `keep` newest good checkpoints up to `step` stay.

    Every leaf must be a jax or numpy array; `meta` must be JSON. Whatever happens on the way (a kill, a full disk),
    earlier checkpoints stay as they were until this one lies complete on disk and has been read back.
    """
    leaves = _flatten(tree, (jax.Array, np.ndarray))
    data = safetensors.numpy.save({path: _raw(leaf) for path, leaf in leaves.items()})
    digest = hashlib.sha256(data).hexdigest()
    name = f"step_{step:09d}"
    record = {
        "kind": KIND,
        "schema": SCHEMA,
        "step": step,
        "tensors": {"file": f"{name}.{digest[:16]}.safetensors", "bytes": len(data), "sha256": digest},
        "leaves": {path: asdict(_leaf(leaf)) for path, leaf in leaves.items()},
        "versions": versions(),
        "meta": meta,
    }
    path, sealed = folder / f"{name}.json", _sealed(record)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_atomically(folder / record["tensors"]["file"], data)
        _write_atomically(path, sealed)
    except OSError as error:
        raise CheckpointError(f"could not write checkpoint {path}: {error.strerror or error}") from error
    verify(path)
    _prune(path, keep)
    return path


def load(path: pathlib.Path, like: Tree) -> Tree:
    """The saved tree in the structure of `like`, bit for bit, or a `CheckpointError`.

    `like` holds arrays or `jax.ShapeDtypeStruct`s; leaves are matched by their path in the tree, never by order.
    numpy leaves come back as numpy, all others as jax arrays on the default device.
    """
    record = read_record(path)
    wanted = _flatten(like, (jax.Array, np.ndarray, jax.ShapeDtypeStruct))
    _check_leaves(path, record["leaves"], wanted)
    expected = {name: _stored(leaf) for name, leaf in wanted.items()}
    payload = sum(math.prod(stored.shape) * stored.dtype.itemsize for stored in expected.values())
    arrays = _parse(path, _read_tensors(path, record, payload=payload), expected)
    impl = {name: leaf.key_impl for name, leaf in record["leaves"].items()}
    restored = [_restore(path, name, arrays[name], leaf, impl[name]) for name, leaf in wanted.items()]
    return jax.tree.unflatten(jax.tree.structure(like), restored)


def newest_good(folder: pathlib.Path) -> tuple[pathlib.Path | None, list[str]]:
    """Record of the newest checkpoint that is whole, and a sentence for each newer one that is not."""
    sentences = []
    for path in _records(folder):
        try:
            verify(path)
        except CheckpointError as error:
            sentences.append(f"skipped a checkpoint: {error}")
            continue
        return path, sentences
    return None, sentences


def latest(folder: pathlib.Path) -> pathlib.Path | None:
    """Record of the newest checkpoint that is whole; `newest_good` also says what was skipped."""
    return newest_good(folder)[0]


def read_meta(path: pathlib.Path) -> dict[str, Any]:
    """What was given to `save` as `meta`, as JSON keeps it (tuples are lists, keys are strings)."""
    return read_record(path)["meta"]


def read_record(path: pathlib.Path) -> dict[str, Any]:
    """The checked record: `step`, `versions`, `meta`, `tensors` (file, bytes, sha256), `leaves` (path to `Leaf`)."""
    record = _parse_json(path)
    if not isinstance(record, dict) or record.get("kind") != KIND:
        raise CheckpointError(f"{path} is not an {KIND}")
    if record.get("schema") != SCHEMA:
        raise CheckpointError(
            f"{path} has checkpoint schema {record.get('schema')!r}, but this version of advsurprise reads {SCHEMA}"
        )
    if record.pop("record_sha256", None) != _record_digest(record):
        raise CheckpointError(f"{path} is damaged: its checksum does not match its content")
    return _typed(path, record)


def verify(path: pathlib.Path) -> None:
    """Raises `CheckpointError` unless record and tensors are both there and match their checksums."""
    record = read_record(path)
    tensors = _tensor_file(path, record)
    with _opened(tensors) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != record["tensors"]["sha256"]:
        raise CheckpointError(f"{tensors} is damaged: its checksum is not the one in {path.name}")


@functools.cache
def versions() -> dict[str, str | None]:
    """What the result of a run depends on: interpreter, libraries, this package and its commit where it has one."""
    return {
        "python": platform.python_version(),
        "jax": jax.__version__,
        "jaxlib": importlib.metadata.version("jaxlib"),
        "numpy": np.__version__,
        "advsurprise": __version__,
        "commit": _commit(),
    }


# ------------------------------------------------------------------------------------------- trees to arrays


def _flatten(tree: Any, kinds: tuple[type, ...]) -> dict[str, Any]:
    """Leaves by path. A path reads like Python, `.policy['explore'].weight[0]`, which keeps `1` and `'1'` apart."""
    leaves = {}
    for keys, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        path = jax.tree_util.keystr(keys)
        if not isinstance(leaf, kinds):
            raise CheckpointError(f"leaf {path!r} is a {type(leaf).__name__}; a checkpoint holds arrays only")
        if not _is_key(leaf) and leaf.dtype not in _SAFETENSORS_NAME:
            raise CheckpointError(f"leaf {path!r} has dtype {leaf.dtype}, which a checkpoint cannot hold")
        if path in leaves:
            raise CheckpointError(f"two leaves share the path {path!r}, so a checkpoint could not tell them apart")
        leaves[path] = leaf
    return leaves


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _leaf(leaf: Any) -> Leaf:
    key_impl = str(jax.random.key_impl(leaf)) if _is_key(leaf) else None
    return Leaf(shape=tuple(leaf.shape), dtype=str(leaf.dtype), key_impl=key_impl)


def _raw(leaf: Any) -> np.ndarray:
    """The bits as a numpy array in C order (the writer of safetensors takes the memory as it lies)."""
    return np.array(jax.random.key_data(leaf) if _is_key(leaf) else leaf, order="C")


class _Stored(NamedTuple):
    """What lies in the file for a leaf."""

    shape: tuple[int, ...]
    """Shape of the tensor; for random keys, with the words of the key."""
    dtype: np.dtype
    """Type of the tensor; for random keys, of their words."""


def _stored(leaf: Any) -> _Stored:
    if _is_key(leaf):
        leaf = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(leaf.shape, leaf.dtype))
    return _Stored(tuple(leaf.shape), np.dtype(leaf.dtype))


def _restore(path: pathlib.Path, name: str, array: np.ndarray, like: Any, key_impl: str | None) -> Any:
    if isinstance(like, np.ndarray):
        return array
    if _is_key(like):
        return _restore_key(path, name, array, like, key_impl)
    restored = jnp.array(array, copy=True)
    # jax turns 64-bit numbers into 32-bit ones without a word unless x64 is on.
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


# ------------------------------------------------------------------------------------------------ the record


def _record_digest(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _sealed(record: dict[str, Any]) -> bytes:
    """The record as JSON with its own checksum, so that a damaged setting in `meta` is noticed too."""
    # Once through JSON first: the checksum is of what a reader will see (tuples are lists, keys are strings).
    plain = json.loads(json.dumps(record, allow_nan=False))
    return json.dumps(plain | {"record_sha256": _record_digest(plain)}, indent=1).encode()


def _parse_json(path: pathlib.Path) -> Any:
    with _opened(path) as file:
        data = file.read(MAX_RECORD_BYTES + 1)
    if len(data) > MAX_RECORD_BYTES:
        raise CheckpointError(f"{path} is not an {KIND}")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged or not an {KIND}: it is not whole JSON") from error


def _typed(path: pathlib.Path, record: dict[str, Any]) -> dict[str, Any]:
    """The record with its leaves as `Leaf`s; a forged one, whose checksum matches, may still lack anything."""
    try:
        leaves = {
            name: Leaf(tuple(leaf["shape"]), leaf["dtype"], leaf["key_impl"]) for name, leaf in record["leaves"].items()
        }
        tensors = record["tensors"]
        whole = (
            type(record["step"]) is int
            and type(tensors["bytes"]) is int
            and type(tensors["sha256"]) is str
            # A plain name: a record must not lead out of its own folder.
            and re.fullmatch(r"\w+\.\w+\.safetensors", tensors["file"]) is not None
            and isinstance(record["meta"], dict)
            and isinstance(record["versions"], dict)
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is not an {KIND}: its record is not complete") from error
    if not whole:
        raise CheckpointError(f"{path} is not an {KIND}: its record is not complete")
    return record | {"leaves": leaves}


def _check_leaves(path: pathlib.Path, saved: dict[str, Leaf], wanted: dict[str, Any]) -> None:
    if missing := [name for name in wanted if name not in saved]:
        raise CheckpointError(f"{path} has no leaf {missing[0]!r}, which is needed: it is of another method or setting")
    if extra := [name for name in saved if name not in wanted]:
        raise CheckpointError(f"{path} has a leaf {extra[0]!r} too many: it is of another method or setting")
    for name, leaf in wanted.items():
        have = saved[name]
        if have.shape != tuple(leaf.shape):
            raise CheckpointError(
                f"leaf {name!r} of {path} has shape {list(have.shape)}, but {list(leaf.shape)} is needed"
            )
        if have.dtype != str(leaf.dtype):
            raise CheckpointError(f"leaf {name!r} of {path} has dtype {have.dtype}, but {leaf.dtype} is needed")


# ----------------------------------------------------------------------------------------------- the tensors


def _tensor_file(path: pathlib.Path, record: dict[str, Any]) -> pathlib.Path:
    """Where the tensors lie, after a look at their size alone."""
    tensors, size = path.with_name(record["tensors"]["file"]), record["tensors"]["bytes"]
    with _opened(tensors) as file:
        have = os.fstat(file.fileno()).st_size
    if have != size:
        raise CheckpointError(f"{tensors} is damaged: it has {have} bytes, but {path.name} says {size}")
    return tensors


def _read_tensors(path: pathlib.Path, record: dict[str, Any], *, payload: int) -> bytes:
    """The whole file, checked. `payload` bounds what is read: the tensors wanted, and a header."""
    tensors, size = _tensor_file(path, record), record["tensors"]["bytes"]
    if not payload + 8 <= size <= payload + 8 + MAX_HEADER_BYTES:
        raise CheckpointError(
            f"{tensors} is damaged: it has {size} bytes, which its {payload} bytes of tensors do not fit"
        )
    with _opened(tensors) as file:
        data = file.read(size)
    if hashlib.sha256(data).hexdigest() != record["tensors"]["sha256"]:
        raise CheckpointError(f"{tensors} is damaged: its checksum is not the one in {path.name}")
    return data


def _parse(path: pathlib.Path, data: bytes, expected: dict[str, _Stored]) -> dict[str, np.ndarray]:
    try:
        found = dict(safetensors.deserialize(data))
    except safetensors.SafetensorError as error:
        raise CheckpointError(f"the tensors of {path} are not a safetensors file: {error}") from error
    described = {name: (tuple(tensor["shape"]), tensor["dtype"]) for name, tensor in found.items()}
    if described != {name: (leaf.shape, _SAFETENSORS_NAME[leaf.dtype]) for name, leaf in expected.items()}:
        raise CheckpointError(f"the tensors of {path} are not those that it lists")
    return {
        name: np.frombuffer(found[name]["data"], dtype=leaf.dtype).reshape(leaf.shape).copy()
        for name, leaf in expected.items()
    }


# ------------------------------------------------------------------------------------------------- the files


def _opened(path: pathlib.Path):
    try:
        return open(path, "rb")
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} does not exist") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error


def _write_atomically(path: pathlib.Path, data: bytes) -> None:
    """All of the file or none of it, also across a power cut."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    # The new name is an entry of the folder, which has to reach the disk as well.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _records(folder: pathlib.Path) -> list[pathlib.Path]:
    """Records in a folder, whole or not, newest step first."""
    paths = folder.iterdir() if folder.is_dir() else ()
    return sorted((path for path in paths if _RECORD_NAME.fullmatch(path.name)), key=_step, reverse=True)


def _step(record: pathlib.Path) -> int:
    return int(record.stem.removeprefix("step_"))


def _prune(newest: pathlib.Path, keep: int) -> None:
    """Removes what `newest` makes superfluous. Checkpoints of later steps are left to whoever wrote them."""
    good = 1
    for path in [path for path in _records(newest.parent) if _step(path) < _step(newest)]:
        if good >= keep:
            path.unlink(missing_ok=True)
        elif _is_good(path):
            good += 1
    _sweep(newest)


def _is_good(path: pathlib.Path) -> bool:
    try:
        verify(path)
    except CheckpointError:
        return False
    return True


def _sweep(newest: pathlib.Path) -> None:
    """Removes tensors that no record names any more, and what killed writers left behind."""
    mine = read_record(newest)["tensors"]["file"]
    for path in newest.parent.glob("step_*.safetensors"):
        record = path.with_name(path.name.split(".")[0] + ".json")
        superseded = record == newest and path.name != mine
        if superseded or not record.exists():
            path.unlink(missing_ok=True)
    for path in newest.parent.glob(".step_*.tmp"):
        path.unlink(missing_ok=True)


def _commit() -> str | None:
    """Commit of this package's own checkout; None where it was installed (a user's repository around it is not it)."""
    root = pathlib.Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        # Optional locks off: looking at the tree must never get in the way of somebody's git command.
        environment = os.environ | {"GIT_OPTIONAL_LOCKS": "0"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True, env=environment)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
