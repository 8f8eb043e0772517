"""Renders recorded states as pixel arrays: the world, what the body sees, what the model expects."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Shaped, UInt8

from advsurprise.evaluation.record import Episode
from advsurprise.evaluation.replay import Replayed, views
from advsurprise.grid import render
from advsurprise.methods.base import AbstractMethod

Picture = UInt8[np.ndarray, "pixel_rows pixel_columns 3"]

ROLE_COLOURS = ("#b84e00", "#0069a6", "#00705a")
"""Colours of roles, as in a replay; the last is used when there is only one role."""
CLASS_COLOURS = ("#3a3f47", "#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7", "#8c564b")
"""Colours of classes in worlds without tiles."""
DARK, BAR = "#2a2f37", "#56b4e9"
"""Background colour, also of cells that are not seen, and the colour of bars."""
LARGEST_TILE = 64
"""Largest side of a tile in pixels."""
BARS = (210, 420)
"""Height and width of a bar chart of real numbers."""


class Panel(NamedTuple):
    """One of the pictures drawn for every state."""

    caption: str
    """What it shows."""
    draw: Callable[[int, str, tuple[int, int]], Picture]
    """Draws a state, given its index, the colour of the body and the height and width to fit in."""


def role_colour(method: AbstractMethod, role: int) -> str:
    """Colour of a role, as in a replay."""
    return ROLE_COLOURS[-1] if len(method.roles) == 1 else ROLE_COLOURS[role % len(ROLE_COLOURS)]


def panels(run: Replayed, episode: Episode) -> list[Panel]:
    """Panels for an episode: the world and what the body sees of it; in a world without tiles, what the body sees and,
    if there is a density model, what the model expects."""
    arrays = views(run, episode)
    if episode.scene is not None:
        return [_world(run, episode), _tile_view(run, arrays["obs"])]
    kind = run.method.spec.observation_kind
    span = _span(arrays["obs"])
    shown = [Panel("what the body sees", _plain(kind, arrays["obs"], span))]
    expected = arrays.get("mean", arrays.get("likeliest"))
    return shown if expected is None else [*shown, Panel("what the model expects", _plain(kind, expected, span))]


# ------------------------------------------------------------------------------------------------ worlds of tiles


def _world(run: Replayed, episode: Episode) -> Panel:
    scene, shapes = episode.scene, _shapes(run)
    assert scene is not None
    tiles, seen = np.asarray(scene.tiles), np.asarray(scene.seen)
    (left, right), (top, bottom) = _bounds(tiles, [bool(each) and name != "unseen" for name, *each in _named(run)])

    def draw(state: int, body: str, room: tuple[int, int]) -> Picture:
        part = (state, slice(left, right), slice(top, bottom))
        at = int(scene.column[state]) - left, int(scene.row[state]) - top
        facing = int(scene.direction[state])
        return _tiled(tiles[part], shapes, room, seen=seen[part], at=at, facing=facing, body=body)

    return Panel("the world; lighter: what the body sees", draw)


def _tile_view(run: Replayed, obs: UInt8[np.ndarray, "states columns rows"]) -> Panel:
    shapes = _shapes(run)
    assert run.env is not None
    own = run.env.own_cell

    def draw(state: int, body: str, room: tuple[int, int]) -> Picture:
        return _tiled(obs[state], shapes, room, at=own, facing=3, body=body)

    return Panel("what the body sees", draw)


def _named(run: Replayed) -> tuple[tuple[Any, ...], ...]:
    assert run.env is not None
    return run.env.tile_shapes


def _shapes(run: Replayed) -> list[tuple[Any, ...]]:
    return [tuple(shapes) for _, *shapes in _named(run)]


def _bounds(tiles: UInt8[np.ndarray, "states columns rows"], shown: list[bool]) -> list[tuple[int, int]]:
    """Ranges of columns and rows that are non-empty in some state; everything if all are empty."""
    used = np.any(np.asarray(shown)[tiles], axis=0)
    used = used if used.any() else np.ones_like(used)
    lines = [np.flatnonzero(np.any(used, axis=axis)) for axis in (1, 0)]
    return [(int(each[0]), int(each[-1]) + 1) for each in lines]


def _tiled(
    tiles: UInt8[np.ndarray, "columns rows"],
    shapes: list[tuple[Any, ...]],
    room: tuple[int, int],
    *,
    seen: np.ndarray | None = None,
    at: tuple[int, int] | None,
    facing: int,
    body: str,
) -> Picture:
    columns, rows = tiles.shape
    size = max(1, min(room[0] // rows, room[1] // columns, LARGEST_TILE))

    def cell(x: int, y: int) -> np.ndarray:
        lighter = seen is not None and bool(seen[x, y])
        return render.tile_of(shapes[tiles[x, y]], size, lighter, facing if (x, y) == at else None, body)

    return render.mosaic(tiles.shape, cell, size)


# ------------------------------------------------------------------------------------------------ other worlds


def _plain(kind: str, arrays: Shaped[np.ndarray, "states ..."], span: tuple[float, float]) -> Callable[..., Picture]:
    def draw(state: int, body: str, room: tuple[int, int]) -> Picture:
        # The model's expectation is recorded before each step, so there is none after the last.
        array = arrays[min(state, len(arrays) - 1)]
        if kind == "vector":
            return fitted(_bars(array.ravel(), span), room)
        return fitted(_image(array) if kind == "image" else _classes(array), room)

    return draw


def _image(image: UInt8[np.ndarray, "..."]) -> Picture:
    """An image as RGB, from grey levels or colours; the newest image of a stack."""
    image = image if image.ndim == 3 else image[..., None]
    return image[..., :3] if image.shape[-1] >= 3 else np.repeat(image[..., -1:], 3, axis=-1)


def _classes(classes: UInt8[np.ndarray, "..."]) -> Picture:
    """One pixel per entry, in the colour of its class."""
    colours = np.asarray([render.rgb(colour) for colour in CLASS_COLOURS], np.uint8)
    rows = classes.reshape(-1, classes.shape[-1]) if classes.ndim else classes.reshape(1, 1)
    return colours[rows % len(colours)]


def _span(numbers: np.ndarray) -> tuple[float, float]:
    """Range of the bars: of the values in all states, and 0."""
    known = numbers[np.isfinite(numbers)]
    return float(min(known.min(initial=0), 0)), float(max(known.max(initial=0), 0))


def _bars(numbers: Shaped[np.ndarray, " n"], span: tuple[float, float]) -> Picture:
    """A bar chart, with bars up or down from 0."""
    (low, high), (rows, columns) = span, BARS
    picture = np.full((rows, columns, 3), render.rgb(DARK), np.uint8)
    scale = (rows - 16) / ((high - low) or 1.0)
    for entry, number in enumerate(np.clip(np.nan_to_num(numbers), low, high)):
        ends = sorted(round(8 + (high - value) * scale) for value in (0.0, float(number)))
        left, right = (round(columns * (entry + share) / len(numbers)) for share in (0.15, 0.85))
        picture[ends[0] : ends[1] + 2, left:right] = render.rgb(BAR)
    return picture


def fitted(picture: Picture, room: tuple[int, int]) -> UInt8[np.ndarray, "fitted_rows fitted_columns 3"]:
    """The picture, enlarged by the largest whole factor that fits, or subsampled if it is too large."""
    (rows, columns), (high, wide) = picture.shape[:2], room
    if rows > high or columns > wide:
        every = max(-(-rows // high), -(-columns // wide))
        return picture[::every, ::every]
    times = min(high // rows, wide // columns)
    return picture.repeat(times, axis=0).repeat(times, axis=1)
