"""What verbs print: the result on standard output, progress on standard error."""

import json
import math
import sys
from collections.abc import Callable
from typing import Any


def log(line: str) -> None:
    """Prints progress to standard error, so that standard output holds only the result."""
    print(line, file=sys.stderr, flush=True)


def show(result: dict[str, Any], text: Callable[[dict[str, Any]], str], *, as_json: bool) -> None:
    """Prints a result as text, or as one JSON object."""
    print(json.dumps(finite(result), allow_nan=False) if as_json else text(result))


def finite(value: Any) -> Any:
    """The value with None for numbers that JSON cannot hold, such as the mean of no values."""
    if isinstance(value, dict):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
