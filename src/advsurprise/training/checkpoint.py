"""Saves and loads trees of arrays: tensors in safetensors, named by tree path, and a JSON record. Loading runs no code.

    step_000000123.json                          the record: schema, checksums, leaves, versions, your own `meta`
    step_000000123.0f3a9c5e12d47b68.safetensors  the tensors, named after their own checksum

The record names its tensor file and is written last, by one `os.replace`: a checkpoint exists once its record does,
also when the same step is saved again. Equal tensors have equal file names and equal bytes.
"""

import contextlib
import hashlib
import json
import math
import os
import pathlib
import re
from dataclasses import asdict
from typing import Any, TypeVar

import jax
import numpy as np
import safetensors.numpy

from advsurprise.training import files
from advsurprise.training.tensors import (
    CheckpointError,
    Leaf,
    check_leaves,
    describe,
    flatten,
    parse,
    raw_bits,
    restore,
    stored,
    with_saved_lengths,
)
from advsurprise.training.versions import versions

Tree = TypeVar("Tree")

KIND = "advsurprise checkpoint"
SCHEMA = 1
# Bounds on what is read from a file that has not been checked yet; safetensors itself refuses longer headers.
MAX_RECORD_BYTES = 256 * 2**20
MAX_HEADER_BYTES = 100_000_000

_RECORD_NAME = re.compile(r"step_\d{9,}\.json")


# ---------------------------------------------------------------------------------------------------- public


def save(folder: pathlib.Path, step: int, tree: Any, meta: dict[str, Any], *, keep: int = 2) -> pathlib.Path:
    """Writes the tree and returns the path of its record; keeps the `keep` newest good checkpoints up to `step`.

    Every leaf must be a jax or numpy array; `meta` must be JSON. Earlier checkpoints are untouched until this
    one is complete on disk and has been read back, so a kill or a full disk loses nothing.
    """
    leaves = flatten(tree, (jax.Array, np.ndarray))
    data = safetensors.numpy.save({path: raw_bits(leaf) for path, leaf in leaves.items()})
    digest = hashlib.sha256(data).hexdigest()
    name = f"step_{step:09d}"
    record = {
        "kind": KIND,
        "schema": SCHEMA,
        "step": step,
        "tensors": {"file": f"{name}.{digest[:16]}.safetensors", "bytes": len(data), "sha256": digest},
        "leaves": {path: asdict(describe(leaf)) for path, leaf in leaves.items()},
        "versions": versions(),
        "meta": meta,
    }
    path = folder / f"{name}.json"
    try:
        files.make_folder(folder)
        files.write_all({folder / record["tensors"]["file"]: data, path: _sealed(record)})
    except files.WriteError as error:
        raise CheckpointError(f"could not write checkpoint {path}: {error.reason}") from error
    verify(path)
    _prune(path, keep)
    return path


def load(path: pathlib.Path, like: Tree) -> Tree:
    """The saved tree in the structure of `like`, bit for bit, or a `CheckpointError`.

    `like` holds arrays or `jax.ShapeDtypeStruct`s, of shape `ANY_LENGTH` where a list may have any length; leaves are
    matched by their path in the tree, never by order. numpy leaves come back as numpy, all others as jax arrays on the
    default device.
    """
    record = read_record(path)
    wanted = with_saved_lengths(record["leaves"], flatten(like, (jax.Array, np.ndarray, jax.ShapeDtypeStruct)))
    check_leaves(path, record["leaves"], wanted)
    expected = {name: stored(leaf) for name, leaf in wanted.items()}
    payload = sum(math.prod(each.shape) * each.dtype.itemsize for each in expected.values())
    arrays = parse(path, _read_tensors(path, record, payload=payload), expected)
    impl = {name: leaf.key_impl for name, leaf in record["leaves"].items()}
    restored = [restore(path, name, arrays[name], leaf, impl[name]) for name, leaf in wanted.items()]
    return jax.tree.unflatten(jax.tree.structure(like), restored)


def newest_good(folder: pathlib.Path) -> tuple[pathlib.Path | None, list[str]]:
    """Record of the newest intact checkpoint, and a sentence for each newer one that is damaged."""
    sentences = []
    for path in _records(folder):
        try:
            verify(path)
        except CheckpointError as error:
            sentences.append(f"skipped a checkpoint: {error}")
            continue
        return path, sentences
    return None, sentences


def newest_saved(folder: pathlib.Path) -> tuple[str, int] | None:
    """Name and modification time of the newest record, intact or not; they change with every checkpoint."""
    with contextlib.suppress(FileNotFoundError):  # the training process may have removed it
        for path in _records(folder):
            return path.name, path.stat().st_mtime_ns
    return None


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
    """Raises `CheckpointError` unless record and tensors both exist and match their checksums."""
    record = read_record(path)
    tensors = _tensor_file(path, record)
    with _opened(tensors) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != record["tensors"]["sha256"]:
        raise CheckpointError(f"{tensors} is damaged: its checksum is not the one in {path.name}")


# ------------------------------------------------------------------------------------------------ the record


def _record_digest(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _sealed(record: dict[str, Any]) -> bytes:
    """The record as JSON with its own checksum, so that a damaged setting in `meta` is noticed too."""
    # Through JSON once: the checksum is of what a reader will see (tuples are lists, keys are strings).
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
        raise CheckpointError(f"{path} is damaged or not an {KIND}: it is not valid JSON") from error


def _typed(path: pathlib.Path, record: dict[str, Any]) -> dict[str, Any]:
    """The record with its leaves as `Leaf`s; a forged record can lack fields although its checksum matches."""
    try:
        leaves = {
            name: Leaf(tuple(leaf["shape"]), leaf["dtype"], leaf["key_impl"]) for name, leaf in record["leaves"].items()
        }
        tensors = record["tensors"]
        complete = (
            type(record["step"]) is int
            and type(tensors["bytes"]) is int
            and type(tensors["sha256"]) is str
            # A plain file name: a record must not point outside its folder.
            and re.fullmatch(r"\w+\.\w+\.safetensors", tensors["file"]) is not None
            and isinstance(record["meta"], dict)
            and isinstance(record["versions"], dict)
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is not an {KIND}: its record is not complete") from error
    if not complete:
        raise CheckpointError(f"{path} is not an {KIND}: its record is not complete")
    return record | {"leaves": leaves}


# ----------------------------------------------------------------------------------------------- the tensors


def _tensor_file(path: pathlib.Path, record: dict[str, Any]) -> pathlib.Path:
    """The tensor file, after a check of its size only."""
    tensors, size = path.with_name(record["tensors"]["file"]), record["tensors"]["bytes"]
    with _opened(tensors) as file:
        have = os.fstat(file.fileno()).st_size
    if have != size:
        raise CheckpointError(f"{tensors} is damaged: it has {have} bytes, but {path.name} says {size}")
    return tensors


def _read_tensors(path: pathlib.Path, record: dict[str, Any], *, payload: int) -> bytes:
    """Content of the tensor file, checked. `payload`, the bytes of the wanted tensors, bounds what is read."""
    tensors, size = _tensor_file(path, record), record["tensors"]["bytes"]
    if not payload + 8 <= size <= payload + 8 + MAX_HEADER_BYTES:
        raise CheckpointError(
            f"{tensors} is damaged: it has {size} bytes, which do not fit its {payload} bytes of tensors"
        )
    with _opened(tensors) as file:
        data = file.read(size)
    if hashlib.sha256(data).hexdigest() != record["tensors"]["sha256"]:
        raise CheckpointError(f"{tensors} is damaged: its checksum is not the one in {path.name}")
    return data


# ------------------------------------------------------------------------------------------------- the files


def _opened(path: pathlib.Path):
    try:
        return open(path, "rb")
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} does not exist") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error


def _records(folder: pathlib.Path) -> list[pathlib.Path]:
    """Records in a folder, intact or not, newest step first."""
    paths = folder.iterdir() if folder.is_dir() else ()
    return sorted((path for path in paths if _RECORD_NAME.fullmatch(path.name)), key=_step, reverse=True)


def _step(record: pathlib.Path) -> int:
    return int(record.stem.removeprefix("step_"))


def _prune(newest: pathlib.Path, keep: int) -> None:
    """Removes checkpoints that `newest` supersedes. Those of later steps stay."""
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
    """Removes tensor files without a record, and temporary files of killed writers."""
    mine = read_record(newest)["tensors"]["file"]
    for path in newest.parent.glob("step_*.safetensors"):
        record = path.with_name(path.name.split(".")[0] + ".json")
        superseded = record == newest and path.name != mine
        if superseded or not record.exists():
            path.unlink(missing_ok=True)
    files.sweep(newest.parent)
