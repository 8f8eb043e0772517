"""How much memory there is, how many bodies fit into it, and the sentence for a run that does not fit."""

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
"""Share of the memory that a run can be expected to fill. What an update needs grows linearly with its bodies."""
SMALL = 16
"""Bodies with which a run is measured if its own number does not even compile."""


class OutOfMemory(UserError):
    """A run that the memory of its device does not hold."""

    exit_code = EXIT_FAILED


def device_bytes() -> int:
    """Memory of the device: what a GPU has to give, or what this machine has."""
    limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit")
    return limit or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def largest_bodies(bodies: int, update_bytes: int) -> int:
    """How many bodies fit if the update of so many needs so many bytes."""
    return int(FILLED * device_bytes() * bodies / update_bytes)


@contextlib.contextmanager
def refuse_overflow(cfg: RunConfig, loop: Any) -> Iterator[None]:
    """Turns what jax raises when memory runs out into a sentence that says how many bodies fit."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise OutOfMemory(_advice(cfg, loop)) from None


def _advice(cfg: RunConfig, loop: Any) -> str:
    device = "the GPU" if jax.default_backend() == "gpu" else "this machine"
    asked = f"{cfg.bodies:,} bodies of {len(cfg.seeds)} seed(s) do not fit into the memory of {device}"
    fit = _measured(cfg) if isinstance(loop, Fused) else None
    return f"{asked}: about {fit:,} would, --bodies {fit}" if fit else f"{asked}: use fewer --bodies"


def _measured(cfg: RunConfig) -> int | None:
    """Bodies that fit, from a program that is compiled and not run; None if that cannot be said either."""
    bodies = min(cfg.bodies, SMALL)
    small = Fused(dataclasses.replace(cfg, bodies=bodies, steps=bodies * cfg.rollout))
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        program = small.trace(small.like()).lower().compile()
        return largest_bodies(bodies, small.program_bytes(program)) or None
    return None
