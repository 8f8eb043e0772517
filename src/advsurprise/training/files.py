"""The one writer of files: each is replaced whole or not at all, also across a power cut."""

import contextlib
import io
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from advsurprise.errors import EXIT_FAILED, UserError


class WriteError(UserError):
    """A file or folder that could not be written, and why."""

    exit_code = EXIT_FAILED

    def __init__(self, path: pathlib.Path, error: OSError):
        self.reason = error.strerror or str(error)
        super().__init__(f"could not write {path}: {self.reason}")


def make_folder(folder: pathlib.Path) -> None:
    """Makes a folder and those above it, where they do not exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(folder, error) from error


def write(path: pathlib.Path, content: bytes | str) -> None:
    """Replaces one file."""
    write_all({path: content})


def write_all(contents: Mapping[pathlib.Path, bytes | str]) -> None:
    """Replaces the files of one result, in this order; none is replaced before all are on disk under another name."""
    ready: dict[pathlib.Path, pathlib.Path] = {}
    path = next(iter(contents), pathlib.Path())
    try:
        for path, content in contents.items():
            ready[path] = path.with_name(f".{path.name}.{os.getpid()}.tmp")
            _write_through(ready[path], content.encode() if isinstance(content, str) else content)
        for path, temporary in ready.items():
            os.replace(temporary, path)
        # A new name is an entry of its folder, which has to reach the disk as well.
        for folder in {path.parent for path in contents}:
            _sync_folder(folder)
    except OSError as error:
        raise WriteError(path, error) from error
    finally:
        for temporary in ready.values():
            with contextlib.suppress(OSError):  # the first failure is the one to report
                temporary.unlink(missing_ok=True)


def write_figure(path: pathlib.Path, figure: Any, **options: Any) -> None:
    """Replaces the picture of a matplotlib figure, in the format that its name ends in."""
    image = io.BytesIO()
    figure.savefig(image, format=path.suffix.removeprefix(".") or "png", **options)
    write(path, image.getvalue())


def is_temporary(path: pathlib.Path) -> bool:
    """Whether a file is what a killed writer left behind."""
    return path.name.startswith(".") and path.suffix == ".tmp"


def sweep(folder: pathlib.Path) -> None:
    """Removes what killed writers left in a folder that nobody else writes to."""
    for path in filter(is_temporary, folder.iterdir()):
        path.unlink(missing_ok=True)


def _write_through(path: pathlib.Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: pathlib.Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
