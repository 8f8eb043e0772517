"""`advsurprise report`: a comparison, or a single run, as one page."""

import pathlib
import time
import webbrowser
from collections.abc import Callable
from typing import Any

from advsurprise import api
from advsurprise.errors import UserError
from advsurprise.evaluation import provenance, report
from advsurprise.evaluation.curves import table_of
from advsurprise.evaluation.replay import Replayed
from advsurprise.training import files
from advsurprise.training.run import keep_compiled

Log = Callable[[str], None]


def write_report(
    folder: pathlib.Path, *, out: pathlib.Path | None, metric: str | None, episodes: int, show: bool, log: Log
) -> dict[str, Any]:
    """Writes the page, and opens it where that is asked for."""
    api.check_replayed(episodes)
    begun = time.monotonic()
    keep_compiled()
    compared = report.read(folder, metric)
    replays, failed = record_medians(compared, episodes, log)
    path = folder / "report.html" if out is None else out
    files.make_folder(path.parent)
    command = _command(folder, out, metric, episodes)
    files.write(path, report.page(compared, replays, notes=failed, command=command))
    if show:
        webbrowser.open(path.resolve().as_uri())
    return {
        "page": str(path),
        "folder": str(folder),
        "methods": list(compared.configs),
        "metrics": compared.columns,
        "measures": report.measures(compared, table_of(compared.records)),
        "replays": {run.name: list(run.seeds) for run in replays},
        "episodes": episodes,
        "notes": [*compared.notes, *failed],
        "bytes": path.stat().st_size,
        "seconds": round(time.monotonic() - begun, 2),
    }


def record_medians(compared: report.Compared, episodes: int, log: Log) -> tuple[list[Replayed], list[str]]:
    """Episodes of every method's median seed, and a sentence for each method that cannot be played here."""
    replays, failed = [], []
    homes = dict(zip(compared.names, compared.records, strict=True))
    for name, seed in report.median_seeds(compared).items():
        log(f"playing {episodes} episodes of {name}, seed {seed} …")
        try:
            run = api.load(homes[name].folder).only(seed).recorded(episodes)
        except UserError as error:
            failed.append(f"{name} has no replay: {error}.")
            continue
        number = len(homes[name].seeds)
        note = {"note": f"the median of {number} seeds"} if number > 1 else {}
        replays.append(run._replace(name=name, about=run.about | note))
    return replays, failed


def _command(folder: pathlib.Path, out: pathlib.Path | None, metric: str | None, episodes: int) -> str:
    words = ["report", str(folder), "--episodes", str(episodes)]
    words += ["--metric", metric] if metric else []
    return provenance.command([*words, "--out", str(out)] if out else words)


def text(result: dict[str, Any]) -> str:
    """Where the page is."""
    size, seconds = result["bytes"] / 1e6, result["seconds"]
    lines = [f"report of {result['folder']}: {result['page']} ({size:.2f} MB, {seconds:.0f} s)", *result["notes"]]
    return "\n".join([*lines, "Open it in a browser; it needs no server and no network."])
