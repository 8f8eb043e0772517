"""Resolves configurations from a file or a run, flags and --set."""

import pathlib
from collections.abc import Sequence
from typing import Any

from advsurprise import envs, methods, zoo
from advsurprise.config import RunConfig, changed, read_config, read_count, read_seeds
from advsurprise.evaluation import comparison
from advsurprise.evaluation.comparison import Comparison
from advsurprise.training.folder import read_run
from advsurprise.training.loops import whole_episodes
from advsurprise.trust import allow


def resolve(
    *,
    config: pathlib.Path | None,
    env: str | None,
    method: str | None,
    steps: str | None,
    seeds: str | None,
    bodies: int | None,
    settings: Sequence[str],
) -> RunConfig:
    """One configuration from a settings file or of a run, the flags and --set; later ones override earlier ones."""
    of_run = config is not None and zoo.folder(config).is_dir()
    cfg = RunConfig() if config is None else _read(config)
    given: dict[str, Any] = {
        "env": env,
        "method": method,
        "steps": None if steps is None else read_count("--steps", steps),
        "seeds": None if seeds is None else read_seeds(seeds),
        "bodies": bodies,
    }
    given = {name: value for name, value in given.items() if value is not None}
    # What a settings file names counts as named by the user, who chose the file; what a run names does not.
    by_file = RunConfig() if of_run else cfg
    allow(given.get("env", by_file.env), given.get("method", by_file.method))
    method_type = methods.method_class(given.get("method", cfg.method))
    world_fields = envs.find(given.get("env", cfg.env)).all_fields
    cfg = changed(cfg, settings, world_fields=world_fields, method_type=method_type, **given)
    chosen = config is not None or any(word.startswith("rollout=") for word in settings)
    return cfg if chosen else whole_episodes(cfg)


def _read(source: pathlib.Path) -> RunConfig:
    """The configuration in a settings file, or of a run: its folder, or zoo:NAME."""
    place = zoo.folder(source)
    return read_run(place) if place.is_dir() else read_config(place)


def resolve_comparison(method: str, *, settings: Sequence[str], **flags: Any) -> Comparison:
    """A comparison of comma-separated methods, from a file, the flags and --set."""
    words = comparison.share_out(comparison.read_names(method), settings)
    return comparison.of({name: resolve(method=name, settings=own, **flags) for name, own in words.items()})
