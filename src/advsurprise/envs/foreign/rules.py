"""JAX settings under which third-party code runs."""

import contextlib
import warnings
from collections.abc import Iterator

import jax


@contextlib.contextmanager
def their_rules() -> Iterator[None]:
    """JAX's standard type promotion, without deprecation warnings, which are for the other library to fix."""
    with jax.numpy_dtype_promotion("standard"), warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", category)
        warnings.filterwarnings("ignore", message="Explicitly requested dtype")
        yield
