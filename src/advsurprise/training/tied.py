"""Runs in place of a command, and turns into it: `tied.py PARENT PROGRAM ARGUMENT...`. The command then ends when the
process that started it does, however that ends, so that nothing is trained on behalf of nobody. Linux only: elsewhere
it outlives a parent that is killed.

Started by its path and without site packages, so that it costs next to nothing.
"""

import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Ties itself to its parent, and becomes the command."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # The parent may have died before: nobody would send the signal then.
        if os.getppid() != parent:
            sys.exit(1)
    # Ray's processes have signals blocked, which is inherited.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
