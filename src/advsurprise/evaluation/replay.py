"""A replay: episodes of one or two runs as one HTML file that needs no server and no network.

The data is JSON in the page. Arrays are little-endian bytes, deflated and base64-encoded; image frames are stored as
differences from the previous frame, which compress much better.
"""

import base64
import pathlib
import zlib
from typing import Any, NamedTuple

import numpy as np

from advsurprise import __version__
from advsurprise.envs.base import AbstractEnv
from advsurprise.evaluation import pages
from advsurprise.evaluation.record import Episode
from advsurprise.methods.base import AbstractMethod
from advsurprise.training import files

PIXEL_SPREAD = 0.5
"""Largest possible standard deviation of a number from 0 to 1."""


class Replayed(NamedTuple):
    """A run and its recorded episodes."""

    name: str
    """Display name: its folder."""
    env: AbstractEnv | None
    """The world, if it is pure."""
    method: AbstractMethod
    """The method."""
    about: dict[str, Any]
    """`env`, `method`, `steps` and `settings`, for the heading."""
    seeds: dict[int, list[Episode]]
    """Episodes by training seed."""


def write_page(path: pathlib.Path, runs: list[Replayed]) -> None:
    """Writes the page of one run, or of two next to each other."""
    files.make_folder(path.parent)
    files.write(path, page(runs))


def page(runs: list[Replayed]) -> str:
    """The HTML page."""
    return pages.fill(
        "replay.html",
        title="Replay: " + " and ".join(run.name for run in runs),
        data={"version": __version__, "runs": [run_data(run) for run in runs]},
        styles=["replay.css"],
        scripts=pages.SCRIPTS,
        connect="'none'",
        status="",
        begin="begin();",
    )


def live_page(name: str) -> str:
    """The HTML page of a run that is still being trained; it fetches episodes from its server."""
    return pages.fill(
        "replay.html",
        title=f"Watching {name}",
        data={"version": __version__, "runs": []},
        styles=["replay.css"],
        scripts=[*pages.SCRIPTS, "watch.js"],
        connect="'self'",
        status=pages.asset("status.html"),
        begin="beginWatching();",
    )


# ------------------------------------------------------------------------------------------------ page data


def run_data(run: Replayed) -> dict[str, Any]:
    """All data of a run in the page."""
    spec, method = run.method.spec, run.method
    first = next(iter(run.seeds.values()))[0]
    names = (run.env.action_names if run.env else spec.action_names) or map(str, range(spec.num_actions))
    actions = [*names, *(f"extra {number + 1}" for number in range(first.logits.shape[1] - spec.num_actions))]
    return {
        "name": run.name,
        **run.about,
        "roles": list(method.roles),
        "streams": list(method.streams),
        "actions": actions,
        "traces": list(first.trace),
        "measures": [{"label": each.label, "shown": each.shown} for each in spec.measures],
        "picture": _picture(run, first),
        "seeds": [
            {"seed": seed, "episodes": [episode_data(run, episode) for episode in episodes]}
            for seed, episodes in run.seeds.items()
        ],
    }


def _picture(run: Replayed, episode: Episode) -> dict[str, Any]:
    """How to draw observations, and the world if it has tiles."""
    spec = run.method.spec
    has_belief = episode.features.shape[-1] > 0
    about: dict[str, Any] = {"kind": spec.observation_kind, "shape": list(spec.observation_shape), "tiles": None}
    about |= {"belief": list(spec.modelled_shape) if has_belief else None, "classes": spec.num_classes}
    if run.env is None or episode.scene is None:
        return about | {"names": list(run.env.class_names) if run.env else []}
    used = sorted({tile for episodes in run.seeds.values() for each in episodes for tile in _used(run, each)})
    shapes = run.env.tile_shapes
    return about | {
        "kind": "tiles",
        "own": run.env.own_cell,
        "world": list(episode.scene.tiles.shape[1:]),
        "tiles": {str(tile): {"name": shapes[tile][0], "shapes": shapes[tile][1:]} for tile in used},
    }


def _used(run: Replayed, episode: Episode) -> set[int]:
    """All tiles that appear in an episode."""
    assert episode.scene is not None
    shown = [episode.scene.tiles, episode.scene.held, _tiles_of(run, episode.obs)]
    shown += [_tiles_of(run, episode.features.argmax(axis=-1))] if episode.features.shape[-1] else []
    return {int(tile) for each in shown for tile in np.unique(each)}


def _tiles_of(run: Replayed, obs: np.ndarray) -> np.ndarray:
    assert run.env is not None
    tiles = run.env.tiles_of(obs)
    assert tiles is not None
    return tiles


def episode_data(run: Replayed, episode: Episode) -> dict[str, Any]:
    """All data of an episode: its length, its end and its arrays."""
    probability = _probability(episode.logits)
    arrays = {
        "role": episode.role.astype(np.uint8),
        "action": episode.action.astype(np.uint8),
        "probability": probability,
        "entropy": -np.sum(np.where(probability > 0, probability * np.log(np.maximum(probability, 1e-30)), 0), axis=-1),
        "value": episode.value,
        "reward": np.stack([episode.reward[role] for role in run.method.roles], axis=1),
        "trace": np.stack([each.value for each in episode.trace.values()]) if episode.trace else np.zeros((0, 0)),
        "scored": scored(episode).astype(np.uint8),
        "measures": np.stack([episode.measures[name] for name in run.method.spec.info], axis=1),
        **views(run, episode),
    }
    ends = [episode.at_end[name] for name in run.method.spec.info]
    return {
        "steps": len(episode.role),
        "states": len(episode.obs),
        "end": episode.end,
        "measures": [value if np.isfinite(value) else None for value in ends],
        "arrays": {name: pack(array) for name, array in arrays.items()},
    }


def _probability(logits: np.ndarray) -> np.ndarray:
    weight = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return weight / weight.sum(axis=-1, keepdims=True)


def scored(episode: Episode) -> np.ndarray:
    """Scored steps, as counted by the method's traces."""
    counts = [each.counts for each in episode.trace.values()]
    return np.any(counts, axis=0) if counts else np.zeros(len(episode.role), bool)


def views(run: Replayed, episode: Episode) -> dict[str, Any]:
    """Arrays to draw: the world, what the body sees, and what the density model expects."""
    kind, scene = run.method.spec.observation_kind, episode.scene
    tiled = scene is not None
    arrays: dict[str, Any] = {"obs": _tiles_of(run, episode.obs) if tiled else _plain(kind, episode.obs)}
    if tiled:
        body = [getattr(scene, name) for name in ("column", "row", "direction", "held")]
        arrays |= {"tiles": scene.tiles, "seen": np.packbits(scene.seen.reshape(len(episode.obs), -1), axis=1)}
        arrays["body"] = np.stack([part.astype(np.uint8) for part in body], axis=1)
    if episode.features.shape[-1] == 0:
        return arrays
    if kind == "classes":
        likeliest, probability = episode.features.argmax(axis=-1), episode.features.max(axis=-1)
        arrays["likeliest"] = _tiles_of(run, likeliest) if tiled else likeliest.astype(np.uint8)
        # For a cell with several entries, the probability that all are as expected.
        probability = probability.prod(axis=-1) if tiled and probability.ndim > 3 else probability
        return arrays | {"certainty": np.rint(255 * probability).astype(np.uint8)}
    mean, std = np.moveaxis(episode.features.astype(np.float32), -1, 0)
    if kind == "vector":
        return arrays | {"mean": mean, "std": std}
    # The newest image of a stack. The square root of std, since most pixels hardly change.
    mean, std = (part[..., -1] if part.ndim == 4 else part for part in (mean, std))
    return arrays | {"mean": _bytes(mean), "std": _bytes(np.sqrt(std / PIXEL_SPREAD))}


def _plain(kind: str, obs: np.ndarray) -> np.ndarray:
    if kind == "classes" or obs.dtype == np.uint8:
        return obs.astype(np.uint8)
    return _bytes(obs) if kind == "image" else obs.astype(np.float32)


def _bytes(numbers: np.ndarray) -> np.ndarray:
    return np.rint(255 * np.clip(numbers, 0, 1)).astype(np.uint8)


FRAME = 1024
"""Bytes per step from which an array is stored as differences from the previous step."""


def pack(array: np.ndarray) -> dict[str, Any]:
    """An array as JSON: type (`u1` or `f4`), shape and bytes."""
    array = array if array.dtype == np.uint8 else array.astype("<f4")
    is_frames = array.dtype == np.uint8 and array.ndim > 2 and array[0].size >= FRAME
    stored = np.diff(array, axis=0, prepend=np.zeros_like(array[:1])) if is_frames else array
    data = base64.b64encode(zlib.compress(np.ascontiguousarray(stored).tobytes(), 9)).decode()
    return {
        "type": "u1" if array.dtype == np.uint8 else "f4",
        "shape": list(array.shape),
        "diff": is_frames,
        "data": data,
    }
