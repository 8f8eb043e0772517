"""Cores for worker processes that wait for processes of their own. Imports no jax."""

import os
import socket

NAME = "\0advsurprise-core-{}"
"""Abstract socket that stands for a core: one process at a time can bind it, and it is free again when that process
ends, however it ends."""


def claim_core() -> socket.socket | None:
    """Confines this thread, and the processes that it starts from now on, to a core that no other worker has claimed.

    A worker and its game take turns. On two cores each turn wakes an idle core, which can take longer than a step of
    the game. The claim holds until the socket is closed. Returns None, and changes nothing, if all cores are claimed or
    the system cannot confine processes.
    """
    if not hasattr(os, "sched_setaffinity"):
        return None
    for core in sorted(os.sched_getaffinity(0)):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(NAME.format(core))
        except OSError:
            claim.close()
            continue
        os.sched_setaffinity(0, {core})
        return claim
    return None
