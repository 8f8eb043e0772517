"""Runs in place of ViZDoom's program, and turns into it: `doom_launch.py PARENT FOLDER PROGRAM ARGUMENT...`.

Started by its path and without site packages, so that it costs next to nothing: it imports only what it needs.
"""

import os
import sys

INSTANCE = "instance"
"""File in the folder that holds the instance's id, which names its shared memory."""
PR_SET_PDEATHSIG = 1
SIGKILL = 9


def main(parent: int, folder: str, command: list[str]) -> None:
    """Notes the id, works in the folder, and sees to it that the game ends when the process that plays it does."""
    os.chdir(folder)
    with open(INSTANCE, "w") as file:
        file.write(command[command.index("+viz_instance_id") + 1])
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)
        # The parent may have died before: nobody would send the signal then.
        if os.getppid() != parent:
            sys.exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
