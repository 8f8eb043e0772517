"""Software versions that a result was made with."""

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
    """What results depend on: interpreter, libraries, this package and its commit, if it has one."""
    return {
        "python": platform.python_version(),
        "jax": jax.__version__,
        "jaxlib": importlib.metadata.version("jaxlib"),
        "numpy": np.__version__,
        "advsurprise": __version__,
        "commit": _commit(),
    }


def _commit() -> str | None:
    """Commit of this package's checkout; None if it was installed, even inside a repository of the user."""
    root = pathlib.Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        # No optional locks: this must never block a git command of the user.
        environment = os.environ | {"GIT_OPTIONAL_LOCKS": "0"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True, env=environment)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
