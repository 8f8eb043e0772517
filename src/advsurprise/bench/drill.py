"""The reliability drill: kills runs at random moments and tries random commands and files (docs/reliability.md)."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from advsurprise.bench import fuzz as fuzzing
from advsurprise.bench import kills as killing
from advsurprise.errors import UserError

Log = Callable[[str], None]


def run(
    *,
    kills: int,
    fuzz: int,
    main: Callable[[list[str]], None],
    methods: Sequence[str] = (),
    envs: Sequence[str] = (),
    seed: int = 0,
    workers: int = 1,
    log: Log = lambda line: None,
) -> dict[str, Any]:
    """Kills and resumes `kills` runs, and tries `fuzz` random commands on `main`, the command line.

    `differences` counts resumed runs that differ in any byte from an uninterrupted run; `tracebacks` counts commands
    that did not end as the command line promises.
    """
    if kills < 0 or fuzz < 0:
        raise UserError("--kills and --fuzz must be at least 0")
    if workers < 1:
        raise UserError(f"--workers must be at least 1, not {workers}")
    start = time.perf_counter()
    rows = killing.drill(kills, methods=methods, envs=envs, seed=seed, workers=workers, log=log) if kills else []
    killed = [row for row in rows if "skipped" not in row]
    killed_by = time.perf_counter()
    tried, faults = fuzzing.drill(fuzz, main=main, seed=seed, workers=workers, log=log) if fuzz else (Counter(), [])
    return {
        "kills": len(killed),
        "differences": sum(bool(row["differences"]) for row in killed),
        "fuzzed": sum(tried.values()),
        "tracebacks": len(faults),
        "seed": seed,
        "moments": rows,
        "tried": dict(sorted(tried.items())),
        "faults": faults,
        "kill_s": round(killed_by - start, 1),
        "fuzz_s": round(time.perf_counter() - killed_by, 1),
    }


def failed(result: dict[str, Any]) -> bool:
    """Whether a promise was broken."""
    return bool(result["differences"] or result["tracebacks"])


def text(result: dict[str, Any]) -> str:
    """The result as text."""
    lines = [
        f"{result['kills']} runs killed and resumed, {result['differences']} of them with differences "
        f"({result['kill_s']:.0f} s)",
        *(f"  {_where(row)}: {', '.join(row['differences'])}" for row in result["moments"] if row.get("differences")),
        *sorted({f"  {row['world']} was skipped: {row['skipped']}" for row in result["moments"] if "skipped" in row}),
        f"{result['fuzzed']} commands tried, {result['tracebacks']} of them ended badly ({result['fuzz_s']:.0f} s)",
        *(f"  case {fault['case']} ({fault['kind']}): {fault['fault']}" for fault in result["faults"]),
    ]
    return "\n".join(lines)


def _where(row: dict[str, Any]) -> str:
    return f"{row['method']} in {row['world']} after {row['second']} s"
