"""Which software a result was made with."""

import functools
import importlib.metadata
import os
import pathlib
import platform
import subprocess

import jax
import numpy as np

from advsurprise import __version__

Versions = dict[str, str | None]


@functools.cache
def versions() -> Versions:
    """What the result of a run depends on: interpreter, libraries, this package and its commit where it has one."""
    return {
        "python": platform.python_version(),
        "jax": jax.__version__,
        "jaxlib": importlib.metadata.version("jaxlib"),
        "numpy": np.__version__,
        "advsurprise": __version__,
        "commit": _commit(),
    }


def _commit() -> str | None:
    """Commit of this package's own checkout; None where it was installed (a user's repository around it is not it)."""
    root = pathlib.Path(__file__).parents[3]
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
