"""Strict numerics for every test: no silent change of dtype or rank."""

import os

# Tests run two at a time on two cores: more threads only get in each other's way.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import itertools

import jax
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def getkey():
    """A function that returns a new random key at every call, the same sequence in every run."""
    counter = itertools.count()
    return lambda: jax.random.fold_in(jax.random.key(2022), next(counter))
