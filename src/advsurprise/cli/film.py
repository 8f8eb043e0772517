"""`advsurprise film`: episodes of a run as a video or a contact sheet."""

import pathlib
import time
from collections.abc import Callable
from typing import Any

from advsurprise.cli.evaluate import load
from advsurprise.evaluation import film as films
from advsurprise.training.run import keep_compiled


def film(
    folder: pathlib.Path,
    *,
    episodes: int,
    seed: int | None,
    world_seed: int,
    out: pathlib.Path | None,
    fps: int,
    log: Callable[[str], None],
) -> dict[str, Any]:
    """Plays episodes, draws them and writes the file."""
    # Before anything is loaded or played; the default path, not known yet, ends in film.mp4 too.
    films.check(out or pathlib.Path("film.mp4"), episodes=episodes, fps=fps)
    keep_compiled()
    start = time.monotonic()
    trained = load(folder).only(seed)
    path = out or trained.default_path("film.mp4")
    [seed] = trained.config.seeds
    log(f"playing {_episodes(episodes)} …")
    recorded = trained.recorded(episodes, world_seed=world_seed)
    steps = sum(len(episode.role) for episode in recorded.seeds[seed])
    log(f"drawing {steps:,} steps …")
    made = films.write(path, recorded, fps=fps)
    return {
        "film": str(made.path),
        "run": trained.name,
        "episodes": episodes,
        "seed": seed,
        "world_seed": world_seed,
        "pictures": made.pictures,
        "film_seconds": round(made.seconds, 2),
        "bytes": made.path.stat().st_size,
        "seconds": round(time.monotonic() - start, 2),
    }


def text(result: dict[str, Any]) -> str:
    """The path of the film, and the next command."""
    length = f"{result['film_seconds']:g} s of video" if result["film_seconds"] else f"{result['pictures']} pictures"
    return (
        f"{_episodes(result['episodes'])} of seed {result['seed']}: {result['film']} "
        f"({length}, {result['bytes'] / 1e6:.2f} MB)\n"
        f"Step through it in a browser: advsurprise replay {result['run']}"
    )


def _episodes(number: int) -> str:
    return f"{number} episode{'s' * (number != 1)}"
