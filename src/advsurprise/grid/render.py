"""Pictures of a grid in MiniGrid's style: numpy only, with cached tiles."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, UInt8

from advsurprise.grid import tiles

RGB = np.array(
    [(255, 0, 0), (0, 255, 0), (0, 0, 255), (112, 39, 195), (255, 255, 0), (100, 100, 100)], dtype=np.float64
)
"""MiniGrid's colours, by number."""
LINE = (100, 100, 100)
BLACK, WHITE = (0, 0, 0), (255, 255, 255)
OVERSAMPLING = 3
HIGHLIGHT = 0.3
"""How far visible cells are mixed with white."""

NAME_OF_TYPE = {number: name for name, number in tiles.TYPE_NUMBER.items()}


def draw(
    codes: UInt8[np.ndarray, "width height"],
    position: tuple[int, int],
    direction: int,
    seen: Bool[np.ndarray, "width height"],
    *,
    tile_size: int = 32,
) -> UInt8[np.ndarray, "pixel_rows pixel_columns 3"]:
    """The whole grid, axes of `codes` and `seen` [x, y]; `seen` cells are highlighted."""

    def cell(x: int, y: int) -> np.ndarray:
        facing = direction if (x, y) == tuple(position) else None
        return tile(int(codes[x, y]), facing, bool(seen[x, y]), tile_size)

    return mosaic(codes.shape, cell, tile_size)


def mosaic(
    shape: tuple[int, ...], cell: Callable[[int, int], np.ndarray], size: int
) -> UInt8[np.ndarray, "pixel_rows pixel_columns 3"]:
    """Assembles pictures of cells, each given by column and row; `shape` is (columns, rows)."""
    width, height = shape
    image = np.zeros((height * size, width * size, 3), np.uint8)
    for x, y in np.ndindex(width, height):
        image[y * size : (y + 1) * size, x * size : (x + 1) * size] = cell(x, y)
    return image


@functools.lru_cache(maxsize=4096)
def tile(code: int, facing: int | None, highlighted: bool, size: int) -> UInt8[np.ndarray, "size size 3"]:
    """Picture of one cell; `facing` draws the body in it."""
    canvas = _empty_cell(size)
    kind, colour, state = (int(i) for i in tiles.SYMBOL_OF[code])
    painter = PAINTERS.get(NAME_OF_TYPE[kind])
    if painter is not None:
        painter(canvas, RGB[colour], state)
    if facing is not None:
        canvas.arrow(facing, RGB[0])
    if highlighted:
        canvas.lighten(HIGHLIGHT)
    return _shrunk(canvas, size)


@functools.lru_cache(maxsize=4096)
def tile_of(
    drawn: tuple[tuple[Any, ...], ...], size: int, highlighted: bool = False, facing: int | None = None, body: str = ""
) -> UInt8[np.ndarray, "size size 3"]:
    """Picture of a cell of any world from its shapes (see `shapes`); `facing` draws the body in the colour `body`,
    outlined in white."""
    canvas = _empty_cell(size)
    for kind, *shape, colour in drawn:
        paint: Callable[..., None] = canvas.rectangle if kind == "r" else canvas.circle
        paint(*shape, rgb(colour))
    if highlighted:
        canvas.lighten(HIGHLIGHT)
    if facing is not None:
        canvas.arrow(facing, WHITE, scale=1.1)
        canvas.arrow(facing, rgb(body), scale=0.8)
    return _shrunk(canvas, size)


def _empty_cell(size: int) -> "Canvas":
    canvas = Canvas(size * OVERSAMPLING)
    canvas.rectangle(0, 0.031, 0, 1, LINE)
    canvas.rectangle(0, 1, 0, 0.031, LINE)
    return canvas


def _shrunk(canvas: "Canvas", size: int) -> UInt8[np.ndarray, "size size 3"]:
    pixels = canvas.pixels.reshape(size, OVERSAMPLING, size, OVERSAMPLING, 3).mean(axis=(1, 3))
    return pixels.clip(0, 255).astype(np.uint8)


def shapes(code: int) -> tuple[tuple[Any, ...], ...]:
    """Shapes of a cell in drawing order, for other renderers: rectangles ("r", left, right, top, bottom,
    colour) and discs ("c", x, y, radius, colour), in fractions of the cell's side."""
    kind, colour, state = (int(i) for i in tiles.SYMBOL_OF[code])
    painter, sketch = PAINTERS.get(NAME_OF_TYPE[kind]), Sketch()
    if painter is not None:
        painter(sketch, RGB[colour], state)
    return tuple(sketch.shapes)


class Sketch:
    """Records the shapes that a painter draws, instead of painting them."""

    def __init__(self):
        self.shapes: list[tuple[Any, ...]] = []

    def rectangle(self, left, right, top, bottom, colour) -> None:
        """Records a rectangle."""
        self.shapes.append(("r", left, right, top, bottom, _hex(colour)))

    def circle(self, x, y, radius, colour) -> None:
        """Records a disc."""
        self.shapes.append(("c", x, y, radius, _hex(colour)))


def _hex(colour) -> str:
    return "#" + "".join(f"{int(part):02x}" for part in colour)


def rgb(colour: str) -> tuple[int, int, int]:
    """Red, green and blue of a colour written #rrggbb."""
    red, green, blue = bytes.fromhex(colour.removeprefix("#"))
    return red, green, blue


class Canvas:
    """A square picture addressed in fractions of its side."""

    def __init__(self, side: int):
        self.pixels = np.zeros((side, side, 3))
        centres = (np.arange(side) + 0.5) / side
        self.x, self.y = np.meshgrid(centres, centres)

    def rectangle(self, left, right, top, bottom, colour) -> None:
        """Fills a rectangle, edges included."""
        self.pixels[(self.x >= left) & (self.x <= right) & (self.y >= top) & (self.y <= bottom)] = colour

    def circle(self, x, y, radius, colour) -> None:
        """Fills a disc."""
        self.pixels[(self.x - x) ** 2 + (self.y - y) ** 2 <= radius**2] = colour

    def lighten(self, share: float) -> None:
        """Mixes the whole picture with white."""
        self.pixels += share * (255 - self.pixels)

    def arrow(self, facing: int, colour, *, scale: float = 1.0) -> None:
        """Fills the triangle that shows the body, pointing in its direction, scaled about its centroid."""
        angle = -np.pi / 2 * facing
        right, down = self.x - 0.5, self.y - 0.5
        along = np.cos(angle) * right - np.sin(angle) * down + 0.5
        across = np.sin(angle) * right + np.cos(angle) * down
        # From a base of half-width 0.31 at 0.12 to the tip at 0.87, the centroid being at 0.37.
        base, tip = 0.37 - 0.25 * scale, 0.37 + 0.5 * scale
        self.pixels[(along >= base) & (np.abs(across) <= 0.31 * (tip - along) / 0.75)] = colour


def _wall(canvas: Canvas | Sketch, colour, state: int) -> None:
    canvas.rectangle(0, 1, 0, 1, colour)


def _floor(canvas: Canvas | Sketch, colour, state: int) -> None:
    canvas.rectangle(0.031, 1, 0.031, 1, colour / 2)


def _door(canvas: Canvas | Sketch, colour, state: int) -> None:
    if state == tiles.OPEN:
        canvas.rectangle(0.88, 1, 0, 1, colour)
        canvas.rectangle(0.92, 0.96, 0.04, 0.96, BLACK)
        return
    canvas.rectangle(0, 1, 0, 1, colour)
    if state == tiles.LOCKED:
        canvas.rectangle(0.06, 0.94, 0.06, 0.94, 0.45 * colour)
        canvas.rectangle(0.52, 0.75, 0.50, 0.56, colour)
        return
    canvas.rectangle(0.04, 0.96, 0.04, 0.96, BLACK)
    canvas.rectangle(0.08, 0.92, 0.08, 0.92, colour)
    canvas.rectangle(0.12, 0.88, 0.12, 0.88, BLACK)
    canvas.circle(0.75, 0.5, 0.08, colour)


def _key(canvas: Canvas | Sketch, colour, state: int) -> None:
    canvas.rectangle(0.50, 0.63, 0.31, 0.88, colour)
    canvas.rectangle(0.38, 0.50, 0.59, 0.66, colour)
    canvas.rectangle(0.38, 0.50, 0.81, 0.88, colour)
    canvas.circle(0.56, 0.28, 0.190, colour)
    canvas.circle(0.56, 0.28, 0.064, BLACK)


def _ball(canvas: Canvas | Sketch, colour, state: int) -> None:
    canvas.circle(0.5, 0.5, 0.31, colour)


def _box(canvas: Canvas | Sketch, colour, state: int) -> None:
    canvas.rectangle(0.12, 0.88, 0.12, 0.88, colour)
    canvas.rectangle(0.18, 0.82, 0.18, 0.82, BLACK)
    canvas.rectangle(0.16, 0.84, 0.47, 0.53, colour)


def _switch(canvas: Canvas | Sketch, colour, state: int) -> None:
    canvas.rectangle(0.2, 0.8, 0.2, 0.8, LINE)
    canvas.circle(0.5, 0.5, 0.2, colour)


PAINTERS = {
    "wall": _wall,
    "floor": _floor,
    "door": _door,
    "key": _key,
    "ball": _ball,
    "box": _box,
    "switch": _switch,
}
