"""The table of runs of a sweep, from a file, flags and --grid: name and configuration of every run.

Values are kept as command-line strings until all are known, so that a file, --set and --grid mean the same. A key is
env, method, steps, seeds or bodies, or any field that --set accepts.
"""

import dataclasses
import itertools
import pathlib
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from advsurprise.cli import resolve
from advsurprise.config import RunConfig, read_count
from advsurprise.errors import UserError, nearest
from advsurprise.evaluation import comparison, provenance

FLAGS = ("env", "method", "steps", "seeds", "bodies")
"""Keys that have their own flag."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.,=+_-]{0,199}")
"""Valid names of a run's folder."""

Words = dict[str, str]


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of runs."""

    base: Words
    """Settings shared by all runs."""
    grid: dict[str, list[str]]
    """Values of each key: every run is trained with every combination."""
    runs: list[Words]
    """Settings of each run, optionally with a name; a single empty one by default."""


def read(
    path: pathlib.Path | None, *, flags: Mapping[str, str | None], settings: Sequence[str], grid: Sequence[str]
) -> Table:
    """The table of a file, if given; flags override its base, and --grid its grid."""
    table = Table({}, {}, [{}]) if path is None else _read_file(path)
    base = table.base | {name: value for name, value in flags.items() if value is not None}
    base |= dict(_split(word, "--set FIELD=VALUE") for word in settings)
    varied = {key: text.split(",") for key, text in (_split(word, "--grid FIELD=VALUE,VALUE") for word in grid)}
    return Table(base, table.grid | varied, table.runs)


def _split(word: str, form: str) -> tuple[str, str]:
    key, equals, text = word.partition("=")
    if not equals:
        raise UserError(f"write {form}, not {word!r}")
    return key, text


# --------------------------------------------------------------------------------------------------------- the file


def _read_file(path: pathlib.Path) -> Table:
    try:
        values = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"could not read {path}: {str(error).splitlines()[0]}") from None
    for key in values:
        if key not in ("base", "grid", "runs"):
            raise UserError(f"{path}: unknown table {nearest(key, ('base', 'grid', 'runs'))}")
    base, grid, runs = values.get("base", {}), values.get("grid", {}), values.get("runs", [{}])
    if not isinstance(runs, list) or not all(isinstance(each, dict) for each in (base, grid, *runs)):
        raise UserError(f"{path}: base and grid must be tables ([base], [grid]), and runs a list of them ([[runs]])")
    return Table(_words(base, path), _choices(grid, path), [_words(run, path) for run in runs])


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys: in TOML, `ppo.lr = 1e-4` is a nested table."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _words(values: Mapping[str, Any], path: pathlib.Path) -> Words:
    return {key: provenance.setting(value) for key, value in _flat(values).items()}


def _choices(values: Mapping[str, Any], path: pathlib.Path) -> dict[str, list[str]]:
    flat = _flat(values)
    for key, value in flat.items():
        if not isinstance(value, list) or not value:
            raise UserError(f"{path}: {key} in the grid must be a list of values, not {value!r}")
    return {key: [provenance.setting(each) for each in value] for key, value in flat.items()}


# --------------------------------------------------------------------------------------------------------- the runs


def configs(table: Table) -> dict[str, RunConfig]:
    """Configurations of all runs, by name."""
    rows = _rows(table)
    methods = list(dict.fromkeys(_method(table, own) for own in rows.values()))
    made = {name: _config(table, own, methods) for name, own in rows.items()}
    first: dict[str, str] = {}
    for name, cfg in made.items():
        same = first.setdefault(repr(cfg), name)
        if same != name:
            raise UserError(f"{same} and {name} are the same run")
    return made


def _rows(table: Table) -> dict[str, Words]:
    """Settings of each run that are not shared, by name."""
    _refuse_overlap(table)
    varied = {key for run in table.runs for key in run if key != "name"} | set(table.grid)
    ends = Counter(key.rpartition(".")[2] for key in varied)
    short = {key: key if ends[key.rpartition(".")[2]] > 1 else key.rpartition(".")[2] for key in varied}
    rows: dict[str, Words] = {}
    for run in table.runs:
        for values in itertools.product(*table.grid.values()):
            own = {key: value for key, value in run.items() if key != "name"}
            chosen = dict(zip(table.grid, values, strict=True))
            name = _name(run.get("name"), chosen if "name" in run else own | chosen, short)
            name = name or _plain(f"{table.base.get('env', RunConfig.env)}-{_method(table, own)}")
            if name in rows:
                raise UserError(f"two runs would be called {name}; give each its own name in the file")
            rows[name] = own | chosen
    return rows


def _refuse_overlap(table: Table) -> None:
    for key, values in table.grid.items():
        if key in table.base:
            raise UserError(f"{key} is both in the grid and set for all runs")
        if any(key in run for run in table.runs):
            raise UserError(f"{key} is both in the grid and set for a run")
        twice = [value for value, number in Counter(values).items() if number > 1]
        if twice:
            raise UserError(f"{key} has the value {twice[0]} twice in the grid")


def _name(given: str | None, own: Words, short: Mapping[str, str]) -> str:
    """A given name and the run's own settings, as in `lr=1e-4,scope=round`; env and method without their key."""
    parts = [
        _plain(value) if key in ("env", "method") else f"{short[key]}={_plain(value)}" for key, value in own.items()
    ]
    name = ",".join([given, *parts] if given is not None else parts)
    if name and not NAME.fullmatch(name):
        raise UserError(
            f"a run cannot be called {name!r}: use at most 200 letters, digits and . , = + _ -, starting with a letter "
            "or a digit; set another name in the file"
        )
    return name


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.+_-]+", "-", text).strip("-") or "none"


def _method(table: Table, own: Words) -> str:
    return own.get("method", table.base.get("method", RunConfig.method))


def _config(table: Table, own: Words, methods: Sequence[str]) -> RunConfig:
    """The configuration of a run. A shared method.FIELD goes only to methods that have the field."""
    shared = [f"{key}={value}" for key, value in table.base.items() if key not in FLAGS]
    words = comparison.share_out(methods, shared)[_method(table, own)]
    words += [f"{key}={value}" for key, value in own.items() if key not in FLAGS]
    flags: dict[str, Any] = {name: (table.base | own).get(name) for name in FLAGS}
    if flags["bodies"] is not None:
        flags["bodies"] = read_count("bodies", flags["bodies"])
    return resolve.resolve(config=None, settings=words, **flags)
