"""Methods by name: every module of this package except `base`, or a class in a user's file, written
`path/to/file.py:Class`."""

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any, get_type_hints

from advsurprise.config import check_value
from advsurprise.errors import UserError, nearest
from advsurprise.trust import check_named
from advsurprise.userfile import is_file_class, load_class

if TYPE_CHECKING:
    from advsurprise.methods.base import AbstractMethod
    from advsurprise.types import EnvSpec


def names() -> list[str]:
    """Names of all methods, with hyphens as they are written on the command line."""
    modules = (module.name for module in pkgutil.iter_modules(__path__) if module.name != "base")
    return sorted(name.replace("_", "-") for name in modules)


def method_class(name: str) -> type:
    """The class of a method: `METHOD` of its module, or the class in a user's file."""
    if is_file_class(name):
        from advsurprise.methods.base import AbstractMethod

        check_named(name)
        return load_class(name, AbstractMethod)
    if name not in names():
        raise UserError(f"unknown method {nearest(name, names())}")
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}").METHOD


def list_methods() -> dict[str, str]:
    """Each method's name and its one-line description."""
    return {name: (method_class(name).__doc__ or "").strip().split("\n")[0] for name in names()}


def make(name: str, spec: "EnvSpec", **fields: Any) -> "AbstractMethod":
    """Makes the method called `name` for a world; `fields` override its defaults."""
    cls = method_class(name)
    known = {field: hint for field, hint in get_type_hints(cls).items() if field in cls.__dataclass_fields__}
    del known["spec"]
    for field, value in fields.items():
        if field not in known:
            raise UserError(f"{name} has no field {nearest(field, known)}")
        check_value(name, field, known[field], value)
    return cls(spec=spec, **fields)
