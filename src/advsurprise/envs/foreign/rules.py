"""The settings under which code of others runs."""

import contextlib
import warnings
from collections.abc import Iterator

import jax


@contextlib.contextmanager
def their_rules() -> Iterator[None]:
    """What others' programs were written for: numbers of different types may meet, and what jax will refuse some day is
    theirs to mend."""
    with jax.numpy_dtype_promotion("standard"), warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", category)
        warnings.filterwarnings("ignore", message="Explicitly requested dtype")
        yield
