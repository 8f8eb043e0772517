"""Classes in a user's file, written `path/to/file.py:Class`. Loading one runs the whole file."""

import functools
import importlib.util
import inspect
import pathlib
import sys
from types import ModuleType

from advsurprise.errors import UserError, nearest


def is_file_class(name: str) -> bool:
    """Whether a name has the form file.py:Class."""
    return name.rpartition(":")[0].endswith(".py")


def load_class(name: str, base: type) -> type:
    """The class called `name`, which must be a subclass of `base`."""
    place, _, class_name = name.rpartition(":")
    path = pathlib.Path(place)
    if not path.is_file():
        raise UserError(f"{name}: there is no file {place!r}")
    module = _run_file(path.resolve(), path.stat().st_mtime_ns)
    wanted = f"{base.__module__.partition('.')[0]}.{base.__name__}"
    classes = {each: value for each, value in vars(module).items() if inspect.isclass(value)}
    known = {each: value for each, value in classes.items() if issubclass(value, base)}
    if class_name in classes and class_name not in known:
        raise UserError(f"{place}: {class_name} is not a subclass of {wanted}")
    if class_name not in known:
        which = nearest(class_name, known) if known else f"{class_name!r}, nor any other {wanted}"
        raise UserError(f"{place} has no class {which}")
    return known[class_name]


@functools.lru_cache(maxsize=32)
def _run_file(path: pathlib.Path, changed: int) -> ModuleType:
    """Runs a file as a module, again only if it has changed."""
    name = f"advsurprise_user_{path.stem}"
    source = importlib.util.spec_from_file_location(name, path)
    if source is None or source.loader is None:
        raise UserError(f"{path.name} cannot be loaded as Python")
    module = importlib.util.module_from_spec(source)
    # Dataclasses look their module up there, and so do worker processes.
    sys.modules[name] = module
    # Last, so that files next to it can be imported but shadow no installed package.
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    try:
        source.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        reason = " ".join(str(error).split()) or "no reason given"
        raise UserError(f"{path.name} could not be run: {type(error).__name__}: {reason}") from error
    return module
