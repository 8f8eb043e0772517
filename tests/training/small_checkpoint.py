"""A small checkpoint, and ways to spoil it."""

import json
import pathlib

import jax
import jax.numpy as jnp
import pytest

from advsurprise.training import checkpoint
from advsurprise.training.tensors import CheckpointError


def small_tree():
    return {
        "policy": {"weight": jnp.arange(6, dtype=jnp.float32).reshape(2, 3), "bias": jnp.ones((3,), jnp.float32)},
        "count": jnp.array(7, jnp.int32),
        "key": jax.random.key(3),
    }


def tensors_of(record):
    return record.with_name(json.loads(record.read_text())["tensors"]["file"])


def newest(folder):
    return checkpoint.newest_good(folder)[0]


def refusal(path, like=None, error=CheckpointError):
    """The sentence with which loading is refused; it is one sentence, and the file is not taken for a good one."""
    with pytest.raises(error) as caught:
        checkpoint.load(path, small_tree() if like is None else like)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert not sentence.endswith(".")
    return sentence


def reseal(record: pathlib.Path, change):
    """Changes a record and gives it a matching checksum, as a forger or another version would."""
    content = json.loads(record.read_text())
    del content["record_sha256"]
    change(content)
    record.write_bytes(checkpoint._sealed(content))
