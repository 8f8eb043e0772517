"""Strict numerics for every test: no silent change of dtype."""

import os

# Tests compile much and run little: let XLA compile quickly.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import itertools

import jax
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture
def getkey():
    """A function that returns a new random key at every call, the same sequence in every run."""
    counter = itertools.count()
    return lambda: jax.random.fold_in(jax.random.key(2022), next(counter))
