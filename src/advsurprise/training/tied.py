"""Wrapper that ties a command to its parent process: `tied.py PARENT PROGRAM ARGUMENT...`. The command is killed when
the parent ends, however that happens, so that no orphan keeps training. Linux only: elsewhere it outlives a parent that
is killed.

Run by its path and without site packages, so that it costs next to nothing.
"""

import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Ties this process to its parent, and replaces it with the command."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # If the parent has died already, the signal never comes.
        if os.getppid() != parent:
            sys.exit(1)
    # Ray blocks signals in its processes, and children inherit that.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
