"""HTML pages from the templates, styles and scripts in `page/`: each is one self-contained file."""

import html
import importlib.resources
import json
import re
from collections.abc import Sequence
from typing import Any

SCRIPTS = ("pictures.js", "charts.js", "replay.js")
"""Scripts for replays, in every page."""


def fill(template: str, *, title: str, data: Any, styles: Sequence[str], scripts: Sequence[str], **parts: str) -> str:
    """Fills a template. Title and data are escaped; `parts` are trusted and inserted unchanged."""
    parts |= {
        "title": html.escape(title),
        "data": as_json(data),
        "css": "\n".join(map(asset, styles)),
        "js": "\n".join(map(asset, scripts)),
        "help": asset("help.html"),
        "transport": asset("transport.html"),
    }
    # In one pass, so that inserted text is not expanded again.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], asset(template))


def as_json(data: Any) -> str:
    """JSON that is safe inside a script element, whatever text it holds."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def asset(name: str) -> str:
    """The text of a file in `page/`."""
    return importlib.resources.files("advsurprise.evaluation").joinpath("page", name).read_text("utf-8")
