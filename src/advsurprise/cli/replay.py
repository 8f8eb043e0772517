"""`advsurprise replay`: episodes of one or two runs as an HTML page."""

import pathlib
import time
import webbrowser
from collections.abc import Callable, Sequence
from typing import Any

from advsurprise.cli.evaluate import load
from advsurprise.errors import UserError
from advsurprise.training.run import keep_compiled


def replay(
    folders: Sequence[pathlib.Path],
    *,
    episodes: int,
    out: pathlib.Path | None,
    show: bool,
    log: Callable[[str], None],
) -> dict[str, Any]:
    """Writes the page, and opens it in a browser if `show`."""
    if not 1 <= len(folders) <= 2:
        raise UserError(f"a replay shows one run, or two side by side, not {len(folders)}")
    keep_compiled()
    start = time.monotonic()
    trained = [load(folder) for folder in folders]
    log(f"playing {episodes} episodes …")
    path = trained[0].replay(out, beside=trained[1] if len(trained) > 1 else None, episodes=episodes)
    if show:
        webbrowser.open(path.resolve().as_uri())
    return {
        "page": str(path),
        "runs": [str(folder) for folder in folders],
        "episodes": episodes,
        "bytes": path.stat().st_size,
        "seconds": round(time.monotonic() - start, 2),
    }


def text(result: dict[str, Any]) -> str:
    """The path of the page."""
    runs = " and ".join(result["runs"])
    return (
        f"{result['episodes']} episodes of {runs}: {result['page']} ({result['bytes'] / 1e6:.2f} MB)\n"
        "Open it in a browser; it needs no server and no network."
    )
