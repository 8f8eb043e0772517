"""`advsurprise report`: a comparison, or a single run, as one HTML page."""

import pathlib
import time
import webbrowser
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from advsurprise import api, envs
from advsurprise.errors import UserError
from advsurprise.evaluation import provenance, report
from advsurprise.evaluation.curves import Record, table_of
from advsurprise.evaluation.replay import Replayed
from advsurprise.training import files
from advsurprise.training.run import keep_compiled

Log = Callable[[str], None]


def write_report(
    folder: pathlib.Path, *, out: pathlib.Path | None, metric: str | None, episodes: int, show: bool, log: Log
) -> dict[str, Any]:
    """Writes the page, and opens it in a browser if `show`."""
    api.check_replayed(episodes)
    start = time.monotonic()
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
        "seconds": round(time.monotonic() - start, 2),
    }


def record_medians(compared: report.Compared, episodes: int, log: Log) -> tuple[list[Replayed], list[str]]:
    """Episodes of every method's median seed, and a sentence for each method that cannot be played here."""
    records = dict(zip(compared.names, compared.records, strict=True))
    medians = report.median_seeds(compared)

    def record(name: str) -> Replayed | str:
        log(f"playing {episodes} episodes of {name}, seed {medians[name]} …")
        return record_seed(name, records[name], medians[name], episodes)

    # Nearly all the time is compiling, which two threads do in parallel. Host worlds use worker processes already.
    with ThreadPoolExecutor(2 if _is_pure(compared.records[0].config.env) else 1) as pool:
        results = list(pool.map(record, medians))
    return [each for each in results if isinstance(each, Replayed)], [each for each in results if isinstance(each, str)]


def _is_pure(env: str) -> bool:
    try:
        return envs.find(env).kind == "pure"
    except UserError:
        return False


def record_seed(name: str, record: Record, seed: int, episodes: int) -> Replayed | str:
    """Episodes of one seed of a run, under the run's name; a sentence if it cannot be played here."""
    try:
        run = api.load(record.folder).only(seed).recorded(episodes)
    except UserError as error:
        return f"{name} has no replay: {error}."
    number = len(record.seeds)
    note = {"note": f"the median of {number} seeds"} if number > 1 else {}
    return run._replace(name=name, about=run.about | note)


def _command(folder: pathlib.Path, out: pathlib.Path | None, metric: str | None, episodes: int) -> str:
    words = ["report", str(folder), "--episodes", str(episodes)]
    words += ["--metric", metric] if metric else []
    return provenance.command([*words, "--out", str(out)] if out else words)


def text(result: dict[str, Any]) -> str:
    """The path of the page, and notes on what is missing from it."""
    size, seconds = result["bytes"] / 1e6, result["seconds"]
    lines = [f"report of {result['folder']}: {result['page']} ({size:.2f} MB, {seconds:.0f} s)", *result["notes"]]
    return "\n".join([*lines, "Open it in a browser; it needs no server and no network."])
