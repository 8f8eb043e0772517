"""Text and curves on frames, drawn with Pillow: matplotlib takes as long for one frame as Pillow for a film."""

import functools
import math
import pathlib
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, UInt8
from PIL import Image, ImageDraw, ImageFont

PAGE, CARD, INK, MUTED, SHADE = "#ffffff", "#eef1f5", "#1a1e24", "#59626e", "#d5dae1"
SMOOTH = 3
"""Supersampling factor of curves."""


@functools.lru_cache(maxsize=32)
def font(size: int, *, bold: bool = False) -> ImageFont.FreeTypeFont:
    """The font that ships with matplotlib, so that text looks the same on every machine."""
    import matplotlib

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(pathlib.Path(matplotlib.get_data_path(), "fonts", "ttf", name), size)


def blank(rows: int, columns: int, colour: str = PAGE) -> Image.Image:
    """An empty picture."""
    return Image.new("RGB", (columns, rows), colour)


def pixels(image: Image.Image) -> UInt8[np.ndarray, "rows columns 3"]:
    """A picture as an array."""
    return np.array(image)


def write(
    image: Image.Image,
    place: tuple[float | int, float | int],
    text: str,
    *,
    size: int = 15,
    bold: bool = False,
    colour: str = INK,
    anchor: str = "lm",
    room: float | int = math.inf,
) -> float:
    """Writes a line of text at (x, y), cut to fit `room` pixels, and returns its width. `anchor` is a Pillow text
    anchor: left, middle or right, then top, middle or baseline."""
    letters = font(size, bold=bold)
    text = cut(text, letters, room)
    ImageDraw.Draw(image).text(place, text, fill=colour, font=letters, anchor=anchor)
    return letters.getlength(text)


def cut(text: str, letters: ImageFont.FreeTypeFont, room: float | int) -> str:
    """The text, cut to fit and ended with … if it is too long."""
    text = " ".join(text.split())
    if letters.getlength(text) <= room:
        return text
    while text and letters.getlength(text + "…") > room:
        text = text[:-1]
    return text + "…"


def badge(image: Image.Image, place: tuple[int, int], text: str, colour: str, *, size: int = 17) -> float:
    """Writes white text on a coloured pill with its left end at `place`, and returns its width."""
    width, (x, y) = font(size, bold=True).getlength(text) + 1.4 * size, place
    high = 0.85 * size
    # Pillow does not antialias filled shapes.
    large = Image.new("L", (SMOOTH * round(width), SMOOTH * round(2 * high)))
    ImageDraw.Draw(large).rounded_rectangle((0, 0, large.width - 1, large.height - 1), SMOOTH * high, fill=255)
    pill = large.resize((round(width), round(2 * high)), Image.Resampling.BOX)
    image.paste(colour, (round(x), round(y - high)), pill)
    write(image, (x + width / 2, y), text, size=size, bold=True, colour="#ffffff", anchor="mm")
    return width


def number(value: float | np.floating) -> str:
    """Formats a number compactly; a dash if it is not finite."""
    if not np.isfinite(value):
        return "–"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


# ------------------------------------------------------------------------------------------------ curves


class Chart(NamedTuple):
    """A curve over the steps of an episode."""

    title: str
    """What it shows."""
    values: Float[np.ndarray, " T"]
    """Its values, nan where there is nothing to show."""
    group: np.ndarray
    """Segment that each step belongs to, [T]: lines do not connect segments."""
    colours: list[str]
    """Colour of each step."""
    shaded: Bool[np.ndarray, " T"]
    """Steps with a darker background."""
    scaled: Bool[np.ndarray, " T"]
    """Steps that set the scale; values beyond it are clipped."""


def draw_chart(chart: Chart, rows: int, columns: int) -> Image.Image:
    """Draws the curve without text; `column_of` gives the position of a step."""
    image = blank(SMOOTH * rows, SMOOTH * columns, CARD)
    pen, steps = ImageDraw.Draw(image), len(chart.values)
    for step in np.flatnonzero(chart.shaded):
        pen.rectangle((image.width * step / steps, 0, image.width * (step + 1) / steps, image.height), fill=SHADE)
    low, high = span(chart)
    y = image.height - (0.06 + 0.88 * (np.clip(chart.values, low, high) - low) / (high - low)) * image.height
    x = [SMOOTH * column_of(step, steps, columns) for step in range(steps)]
    for step in np.flatnonzero(np.isfinite(y)):
        follows = step > 0 and np.isfinite(y[step - 1]) and chart.group[step] == chart.group[step - 1]
        start = (x[step - 1], y[step - 1]) if follows else (x[step] - 3 * SMOOTH, y[step])
        pen.line((*start, x[step], y[step]), fill=chart.colours[step], width=2 * SMOOTH, joint="curve")
    return image.resize((columns, rows), Image.Resampling.BOX)


def span(chart: Chart) -> tuple[float, float]:
    """The ends of the scale, widened if they are equal."""
    known = chart.values[chart.scaled & np.isfinite(chart.values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def column_of(step: int, steps: int, columns: int) -> float:
    """Horizontal position of the middle of a step."""
    return columns * (step + 0.5) / steps
