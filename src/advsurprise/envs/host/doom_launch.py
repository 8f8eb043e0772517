"""Runs in place of ViZDoom's program, and then executes it: `doom_launch.py PARENT FOLDER PROGRAM ARGUMENT...`.

Started by its path and without site packages, so that it starts fast; it imports only what it needs.
"""

import os
import sys

INSTANCE = "instance"
"""File in the folder that holds the instance's id, which names its shared memory."""
PR_SET_PDEATHSIG = 1
SIGKILL = 9


def main(parent: int, folder: str, command: list[str]) -> None:
    """Writes down the id, works in the folder, and makes the game end with the process that plays it."""
    os.chdir(folder)
    with open(INSTANCE, "w") as file:
        file.write(command[command.index("+viz_instance_id") + 1])
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)
        # The parent may already have died, and then no signal would be sent.
        if os.getppid() != parent:
            sys.exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
