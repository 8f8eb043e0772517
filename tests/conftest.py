"""Strict numerics for every test: no silent change of dtype."""

import atexit
import os
import shutil
import tempfile

# Tests compile much and run little: XLA compiles quickly (the loops it makes by itself take half the time of its fusion
# emitters to compile, and what it looks for in loops and branches a fifth of the rest), and each program once for all
# tests and workers, which inherit the folder's name.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    " --xla_disable_hlo_passes=simplify-while-loops,while-loop-invariant-code-motion,"
    "while-loop-constant-sinking,conditional_simplifier",
)
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "2")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="advsurprise-tests-")
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)

import functools
import gc
import importlib
import itertools
import pathlib
import zlib

import jax
import pytest
from jax._src import compilation_cache
from jax._src.interpreters import mlir

jax.config.update("jax_numpy_dtype_promotion", "strict")
# Tracing makes many objects that live on: looked through after every 700, they took a twentieth of the time of tests.
gc.freeze()
gc.set_threshold(50_000, 20, 20)
# All programs are written in one context: it takes longer to make one than to write most programs of tests.
mlir.make_ir_context = functools.cache(mlir.make_ir_context)
# Few of the programs kept are read again: they are compressed quickly.
if compilation_cache.zstd is None and compilation_cache.zstandard is None:
    compilation_cache.compress_executable = functools.partial(zlib.compress, level=1)
# Imported before the first module whose types are checked: what such a module imports is compiled from source again.
for name in ("beartype.vale", "equinox", "gymnasium.vector", "hypothesis", "matplotlib.pyplot", "optax", "scipy.stats"):
    importlib.import_module(name)
MANY_MAPS = 40_000
"""Memory maps above which compiled programs are dropped."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Runs files with slow tests first; one worker runs a file (`--dist loadfile`), and compiles for all its tests."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="module", autouse=True)
def _programs():
    """Drops compiled programs before there are too many: each takes several of the 65,530 memory maps that Linux grants
    a process, and XLA aborts when they run out."""
    yield
    maps = pathlib.Path("/proc/self/maps")
    if maps.exists() and maps.read_text().count("\n") > MANY_MAPS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture
def getkey():
    """A function that returns a new random key at every call, the same sequence in every run."""
    counter = itertools.count()
    return lambda: jax.random.fold_in(jax.random.key(2022), next(counter))
