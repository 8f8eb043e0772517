"""Starts ViZDoom games that leave nothing behind, however their process ends. Imports no jax."""

import contextlib
import os
import pathlib
import shlex
import signal
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from advsurprise.envs.host import doom_launch
from advsurprise.errors import UserError, require

if TYPE_CHECKING:
    from vizdoom import DoomGame

SCREEN = (120, 160)
"""Rows and columns of the screen that is rendered."""
SEGMENTS = ("SM", "MQCtr", "MQDoom")
"""Shared memory of an instance: `ViZDoom` + one of these + its id."""
SHARED = pathlib.Path("/dev/shm")
FOLDER = "advsurprise-doom-"
"""Prefix of the folders in which games start."""

_starting = threading.Lock()


def configure(config: str, *, skill: int = 0) -> "DoomGame":
    """A game with one of ViZDoom's configurations, not started; skill 0 is the configuration's own."""
    vizdoom = require("vizdoom", extra="doom")
    game = vizdoom.DoomGame()
    game.load_config(os.path.join(vizdoom.scenarios_path, config))
    # Set explicitly: ViZDoom prefers a doom2.wad if it finds one, and its textures differ.
    game.set_doom_game_path(_installed("freedoom2.wad"))
    game.set_window_visible(False)
    game.set_mode(vizdoom.Mode.PLAYER)
    game.set_screen_format(vizdoom.ScreenFormat.GRAY8)
    game.set_screen_resolution(vizdoom.ScreenResolution.RES_160X120)
    if skill:
        game.set_doom_skill(skill)
    return game


def _installed(name: str) -> str:
    """Path of a file in the vizdoom package."""
    return os.path.join(os.path.dirname(require("vizdoom", extra="doom").scenarios_path), name)


def start(game: "DoomGame") -> None:
    """Starts a game that dies with this process and leaves neither files nor shared memory behind.

    One at a time: threads that start several at once crash the process. Segments are unlinked as soon as both sides
    have them open, so that the system frees them with the last process, however it ends.
    """
    with _starting, tempfile.TemporaryDirectory(prefix=FOLDER, ignore_cleanup_errors=True) as folder:
        game.set_vizdoom_path(_launcher(folder))
        # The game reads and writes this file, by default in its working directory.
        game.set_doom_config_path(os.devnull)
        game.init()
        _unlink_segments(game.get_instance_id())


def _launcher(folder: str) -> str:
    """Writes the script that ViZDoom starts in place of its own program."""
    command = [sys.executable, "-IS", doom_launch.__file__, str(os.getpid()), folder, _installed("vizdoom")]
    script = pathlib.Path(folder, "start")
    script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    script.chmod(0o700)
    if not os.access(script, os.X_OK):
        raise UserError(f"programs cannot be run from {tempfile.gettempdir()}; set TMPDIR to a folder where they can")
    return str(script)


def remove_leftovers(instance_ids: Iterable[str]) -> None:
    """Kills games by their instance id and frees their shared memory; ignores those already gone."""
    ids = set(instance_ids)
    for pid in _engines(ids):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    for instance_id in ids:
        _unlink_segments(instance_id)


def clean_up(folder: str) -> None:
    """Removes what a killed process, with temporary folder `folder`, left of games that it was starting."""
    notes = pathlib.Path(folder).rglob(f"{FOLDER}*/{doom_launch.INSTANCE}")
    remove_leftovers(note.read_text() for note in notes)


def _unlink_segments(instance_id: str) -> None:
    # The id becomes part of a path.
    if not instance_id.isalnum():
        raise ValueError(f"{instance_id!r} is not an instance id")
    for segment in SEGMENTS:
        (SHARED / f"ViZDoom{segment}{instance_id}").unlink(missing_ok=True)


def _engines(ids: set[str]) -> Iterator[int]:
    """Ids of the processes that run one of these instances."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            arguments = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if "+viz_instance_id" in arguments and ids & set(arguments):
                yield int(process.name)
