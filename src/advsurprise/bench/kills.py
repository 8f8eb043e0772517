"""Kills runs at random moments, resumes them, and compares every byte of their folders with an uninterrupted run.

Runs are tiny and save after every update. All processes share a compilation cache; occasionally a run gets an empty
one, so that it can be killed while it compiles.
"""

import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from advsurprise import methods as all_methods
from advsurprise.errors import MissingExtra, UserError, nearest
from advsurprise.training.checkpoint import newest_saved
from advsurprise.training.files import is_temporary
from advsurprise.training.folder import CHECKPOINTS, CONFIG, METRICS
from advsurprise.training.metrics import WALL

Log = Callable[[str], None]

SMALL_ROOMS = {"grid": 12, "max_side": 5}
WORLDS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("rooms/four", "rooms/door", "rooms/lock", "rooms/switch"), SMALL_ROOMS),
    "atari/freeway": {"side": 20, "noops": 3, "max_frames": 43},
    "doom/take-cover": {"max_tics": 44},
}
"""Worlds whose runs resume exactly, at their smallest. In games an episode has ten steps and a rollout eight, so that
every checkpoint is in the middle of a game."""
FIELDS: dict[str, dict[str, Any]] = {
    "adversarial-surprise": {"k_explore": 2, "k_control": 4},
    "asp": {"first_stop": 0.3},
    "rnd": {"priming": 16, "width": 16},
}
SETTINGS = ("rollout=8", "save_every=1", "devices=1", "ppo.epochs=1", "ppo.minibatch=8")
SIZES = ("--steps", "640", "--bodies", "2", "--seeds", "3", "--json")
"""Forty updates."""
COMPILING = 0.15
"""Share of runs that start with an empty compilation cache."""
SAVING = 0.5
"""Share of runs that are killed after their first checkpoint, which comes late in so short a run."""
POLL = 0.005
"""Seconds between checks for the first checkpoint."""
TRIES = 6
"""Attempts to kill a run before it ends by itself."""
QUICK = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false"
    " --xla_cpu_parallel_codegen_split_count=1"
)
"""XLA flags for fast compilation: the programs run for a second only."""


class Pair(NamedTuple):
    """A method in a world."""

    method: str
    env: str

    @property
    def words(self) -> list[str]:
        """Arguments of the command that trains it, in the current folder."""
        fields = {f"env.{name}": value for name, value in WORLDS.get(self.env, {}).items()}
        fields |= {f"method.{name}": value for name, value in FIELDS.get(self.method, {}).items()}
        settings = [*SETTINGS, *(f"{name}={value}" for name, value in fields.items())]
        flags = [word for setting in settings for word in ("--set", setting)]
        return ["train", "--env", self.env, "--method", self.method, *SIZES, *flags, "--out", "run"]


class Whole(NamedTuple):
    """An uninterrupted run."""

    folder: pathlib.Path
    """Its folder."""
    seconds: float
    """Its duration, including compilation."""
    saving: float
    """Seconds from its first checkpoint to its end."""


def drill(
    kills: int,
    *,
    methods: Sequence[str] = (),
    envs: Sequence[str] = (),
    seed: int = 0,
    workers: int = 1,
    log: Log = lambda line: None,
) -> list[dict[str, Any]]:
    """One row per kill, spread evenly over all methods and worlds, and one per world whose extra is missing."""
    pairs = _pairs(methods, envs)
    random.Random(seed).shuffle(pairs)
    shares = [kills // len(pairs) + (number < kills % len(pairs)) for number in range(len(pairs))]
    with tempfile.TemporaryDirectory(prefix="advsurprise-drill-") as place:

        def drill_pair(pair: Pair, share: int) -> list[dict[str, Any]]:
            rng, rows = random.Random(f"{seed} {pair}"), []
            for row in _drill_pair(pair, share, pathlib.Path(place), rng):
                rows.append(row)
                log(_line(row))
            return rows

        with ThreadPoolExecutor(workers) as pool:
            waiting = [pool.submit(drill_pair, pair, share) for pair, share in zip(pairs, shares, strict=True)]
            try:
                return [row for each in waiting for row in each.result()]
            except BaseException:
                # Running pairs finish, which takes a minute; the others are cancelled.
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def _pairs(methods: Sequence[str], envs: Sequence[str]) -> list[Pair]:
    for name in methods:
        if name not in all_methods.names():
            raise UserError(f"unknown method {nearest(name, all_methods.names())}")
    for name in envs:
        if name not in WORLDS:
            raise UserError(f"the drill has no world {nearest(name, WORLDS)}")
    return [Pair(method, env) for method in methods or all_methods.names() for env in envs or WORLDS]


def _drill_pair(pair: Pair, kills: int, place: pathlib.Path, rng: random.Random) -> Iterator[dict[str, Any]]:
    if not kills:
        return
    try:
        whole = _whole(pair, place)
    except MissingExtra as error:
        yield {"method": pair.method, "world": pair.env, "skipped": str(error)}
        return
    longest = whole.seconds
    for _ in range(kills):
        row = _kill_once(pair, whole, longest, place, rng)
        longest = row.pop("longest")
        yield row
    shutil.rmtree(whole.folder.parent)


def _whole(pair: Pair, place: pathlib.Path) -> Whole:
    """Trains the uninterrupted run."""
    work = pathlib.Path(tempfile.mkdtemp(prefix="whole-", dir=place))
    start = time.monotonic()
    done = _start(pair.words, work, place)
    _wait_for_checkpoint(done, work)
    saved = time.monotonic()
    errors = done.communicate()[1]
    if done.returncode == MissingExtra.exit_code:
        raise MissingExtra(_last(errors))
    if done.returncode:
        raise UserError(f"{pair.method} in {pair.env} cannot be trained: {_last(errors)}")
    ended = time.monotonic()
    return Whole(work / "run", ended - start, ended - saved)


def _wait_for_checkpoint(process: subprocess.Popen, work: pathlib.Path) -> None:
    while process.poll() is None and newest_saved(work / "run" / CHECKPOINTS) is None:
        time.sleep(POLL)


def _kill_once(pair: Pair, whole: Whole, longest: float, place: pathlib.Path, rng: random.Random) -> dict[str, Any]:
    """Kills a run at a random moment, resumes it and compares it."""
    late, compiles = rng.random() < SAVING, rng.random() < COMPILING
    programs = pathlib.Path(tempfile.mkdtemp(prefix="programs-", dir=place)) if compiles else None
    for _ in range(TRIES):
        work = pathlib.Path(tempfile.mkdtemp(prefix="killed-", dir=place))
        moment = rng.uniform(0, whole.saving if late else whole.seconds if compiles else longest)
        killed, taken = _run_until(pair, moment, work, place, programs, late=late)
        if killed:
            break
        # It ended before the kill: its programs were cached.
        longest = min(taken, longest)
        shutil.rmtree(work)
    else:
        raise UserError(f"{pair.method} in {pair.env} always finished before it could be killed")
    left = _left(work / "run")
    error = _resume(pair, work, place)
    different = [f"it could not be resumed: {error}"] if error else differences(whole.folder, work / "run")
    shutil.rmtree(work)
    row = {"method": pair.method, "world": pair.env, "second": round(taken, 2), "compiled": compiles, **left}
    return {**row, "differences": different, "longest": longest}


def _run_until(
    pair: Pair, moment: float, work: pathlib.Path, place: pathlib.Path, programs: pathlib.Path | None, *, late: bool
) -> tuple[bool, float]:
    """Kills a run `moment` seconds after its start or, if `late`, after its first checkpoint. Returns whether it was
    killed before it ended, and after how many seconds."""
    start = time.monotonic()
    process = _start(pair.words, work, place, programs)
    if late:
        _wait_for_checkpoint(process, work)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(moment)
    taken = time.monotonic() - start
    process.kill()
    process.communicate()
    return process.returncode == -signal.SIGKILL, taken


def _left(run: pathlib.Path) -> dict[str, Any]:
    """The state of a killed run's folder."""
    rows, saved = run / METRICS, newest_saved(run / CHECKPOINTS)
    return {
        "has_config": (run / CONFIG).exists(),
        "updates": rows.read_bytes().count(b"\n") if rows.exists() else 0,
        "saved": int(saved[0].removeprefix("step_").removesuffix(".json")) if saved else 0,
        "half_written": sum(map(is_temporary, run.rglob("*"))),
    }


def _resume(pair: Pair, work: pathlib.Path, place: pathlib.Path) -> str | None:
    """Continues a run to its end, or starts it again if it has no configuration yet; returns the error, if any."""
    words = ["resume", "run", "--json"] if (work / "run" / CONFIG).exists() else pair.words
    process = _start(words, work, place)
    errors = process.communicate()[1]
    return None if process.returncode == 0 else _last(errors)


def _start(words: Sequence[str], work: pathlib.Path, place: pathlib.Path, programs: pathlib.Path | None = None):
    """Starts a command as a new process in a folder."""
    keep = {
        "JAX_COMPILATION_CACHE_DIR": str(programs or place / "programs"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "advsurprise", *words],
        cwd=work,
        env={"XLA_FLAGS": QUICK, "JAX_PLATFORMS": "cpu", **os.environ, **keep},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for the drill, not for its runs
    )


def differences(whole: pathlib.Path, other: pathlib.Path) -> list[str]:
    """Files that differ between two runs or are missing in one. Timings in the metrics are ignored."""
    mine, theirs = _contents(whole), _contents(other)
    return sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))


def _contents(run: pathlib.Path) -> dict[str, bytes]:
    files = {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}
    return files | {METRICS: _without_clock(files.get(METRICS, b""))}


def _without_clock(rows: bytes) -> bytes:
    """Metrics rows without timings; the raw bytes if a row is incomplete."""
    try:
        parsed = [json.loads(line) for line in rows.splitlines()]
    except ValueError:
        return rows
    clock = ("steps_per_s", WALL)
    return json.dumps([{k: v for k, v in row.items() if not k.startswith(clock)} for row in parsed]).encode()


def _last(errors: str) -> str:
    lines = errors.strip().splitlines()
    return lines[-1].removeprefix("advsurprise: ") if lines else "no error message"


def _line(row: dict[str, Any]) -> str:
    if "skipped" in row:
        return f"{row['method']} in {row['world']}: {row['skipped']}"
    end = f"differs: {', '.join(row['differences'])}" if row["differences"] else "the same bytes"
    when = f"after {row['second']:.1f} s, with {row['saved']} of {row['updates']} updates saved"
    return f"{row['method']} in {row['world']} killed {when}: {end}"
