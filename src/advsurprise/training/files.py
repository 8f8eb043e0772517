"""Atomic writes: a file is replaced completely or not at all, even across a power cut. All files go through here."""

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
    """Creates a folder and its parents if they do not exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(folder, error) from error


def write(path: pathlib.Path, content: bytes | str) -> None:
    """Replaces one file."""
    write_all({path: content})


def write_all(contents: Mapping[pathlib.Path, bytes | str]) -> None:
    """Replaces several files, in this order, once all are on disk under temporary names."""
    ready: dict[pathlib.Path, pathlib.Path] = {}
    path = next(iter(contents), pathlib.Path())
    try:
        for path, content in contents.items():
            ready[path] = path.with_name(f".{path.name}.{os.getpid()}.tmp")
            _write_through(ready[path], content.encode() if isinstance(content, str) else content)
        for path, temporary in ready.items():
            os.replace(temporary, path)
        # The entries of the new names in their folders have to reach the disk as well.
        for folder in {path.parent for path in contents}:
            _sync_folder(folder)
    except OSError as error:
        raise WriteError(path, error) from error
    finally:
        for temporary in ready.values():
            with contextlib.suppress(OSError):  # the first failure is the one to report
                temporary.unlink(missing_ok=True)


def write_figure(path: pathlib.Path, figure: Any, **options: Any) -> None:
    """Writes a matplotlib figure in the format of the path's extension."""
    image = io.BytesIO()
    figure.savefig(image, format=path.suffix.removeprefix(".") or "png", **options)
    write(path, image.getvalue())


def is_temporary(path: pathlib.Path) -> bool:
    """Whether a file is the temporary file of a killed writer."""
    return path.name.startswith(".") and path.suffix == ".tmp"


def sweep(folder: pathlib.Path) -> None:
    """Removes temporary files of killed writers from a folder that nobody else writes to."""
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
