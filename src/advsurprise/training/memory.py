"""Available memory, how many bodies fit into it, and the error for a run that does not fit."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from typing import Any

import jax

from advsurprise.config import RunConfig
from advsurprise.errors import EXIT_FAILED, UserError
from advsurprise.training.fused import Fused

FILLED = 0.9
"""Fraction of the memory that a run can fill. The memory of an update grows linearly with its bodies."""
SMALL = 16
"""Most bodies with which the memory of a run that does not fit is measured."""


class OutOfMemory(UserError):
    """A run does not fit into the memory of its device."""

    exit_code = EXIT_FAILED


def device_bytes() -> int:
    """Memory available on the GPU, or else the memory of this machine."""
    limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit")
    return limit or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def largest_bodies(bodies: int, update_bytes: int) -> int:
    """Number of bodies that fit if an update of `bodies` needs `update_bytes`."""
    return int(FILLED * device_bytes() * bodies / update_bytes)


@contextlib.contextmanager
def refuse_overflow(cfg: RunConfig, loop: Any) -> Iterator[None]:
    """Turns an out-of-memory error of jax into one that says how many bodies fit."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise OutOfMemory(_advice(cfg, loop)) from None


def _advice(cfg: RunConfig, loop: Any) -> str:
    device = "the GPU" if jax.default_backend() == "gpu" else "this machine"
    problem = f"{cfg.bodies:,} bodies of {len(cfg.seeds)} seed(s) do not fit into the memory of {device}"
    fit = _measured(cfg) if isinstance(loop, Fused) else None
    return f"{problem}; about {fit:,} would: use --bodies {fit}" if fit else f"{problem}; use fewer --bodies"


def _measured(cfg: RunConfig) -> int | None:
    """Number of bodies that fit, from a program that is compiled but not run; None if that fails too."""
    bodies = min(cfg.bodies, SMALL)
    small = Fused(dataclasses.replace(cfg, bodies=bodies, steps=bodies * cfg.rollout))
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        program = small.trace(small.like()).lower().compile()
        return largest_bodies(bodies, small.program_bytes(program)) or None
    return None
