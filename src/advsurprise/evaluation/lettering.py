"""Text and curves on pictures, drawn with Pillow: matplotlib would take as long for one picture as this for a film."""

import functools
import math
import pathlib
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, UInt8
from PIL import Image, ImageDraw, ImageFont

PAGE, CARD, INK, MUTED, SHADE = "#ffffff", "#eef1f5", "#1a1e24", "#59626e", "#d5dae1"
SMOOTH = 3
"""Curves are drawn so many times as large, and then averaged down."""


@functools.lru_cache(maxsize=32)
def font(size: int, *, bold: bool = False) -> ImageFont.FreeTypeFont:
    """The font that matplotlib brings along, so that every machine writes alike."""
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
    """Writes a line at a place (x, y), cut to fit the room, and returns how wide it is. The letters of the anchor say
    what of the text is at the place: its left, middle or right; its top, middle or baseline."""
    letters = font(size, bold=bold)
    text = cut(text, letters, room)
    ImageDraw.Draw(image).text(place, text, fill=colour, font=letters, anchor=anchor)
    return letters.getlength(text)


def cut(text: str, letters: ImageFont.FreeTypeFont, room: float | int) -> str:
    """As much of the text as fits, with … where something is missing."""
    text = " ".join(text.split())
    if letters.getlength(text) <= room:
        return text
    while text and letters.getlength(text + "…") > room:
        text = text[:-1]
    return text + "…"


def badge(image: Image.Image, place: tuple[int, int], text: str, colour: str, *, size: int = 17) -> float:
    """Writes white on a coloured pill whose left end is at the place, and returns how wide it is."""
    width, (x, y) = font(size, bold=True).getlength(text) + 1.4 * size, place
    high = 0.85 * size
    # Pillow does not smooth what it fills.
    large = Image.new("L", (SMOOTH * round(width), SMOOTH * round(2 * high)))
    ImageDraw.Draw(large).rounded_rectangle((0, 0, large.width - 1, large.height - 1), SMOOTH * high, fill=255)
    pill = large.resize((round(width), round(2 * high)), Image.Resampling.BOX)
    image.paste(colour, (round(x), round(y - high)), pill)
    write(image, (x + width / 2, y), text, size=size, bold=True, colour="#ffffff", anchor="mm")
    return width


def number(value: float | np.floating) -> str:
    """A number in few letters; a dash where there is none."""
    if not np.isfinite(value):
        return "–"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


# ------------------------------------------------------------------------------------------------ curves


class Chart(NamedTuple):
    """A curve over the steps of an episode."""

    title: str
    """What it shows."""
    values: Float[np.ndarray, " T"]
    """nan where there is nothing to show."""
    group: np.ndarray
    """Number of the stretch that each step belongs to, [T]: lines do not run from one into another."""
    colours: list[str]
    """Colour of each step."""
    shaded: Bool[np.ndarray, " T"]
    """Steps on a darker ground."""
    scaled: Bool[np.ndarray, " T"]
    """Steps that the scale is made for; what is beyond it on others is drawn at its end."""


def draw_chart(chart: Chart, rows: int, columns: int) -> Image.Image:
    """The curve alone, without letters; `column_of` says where a step is."""
    image = blank(SMOOTH * rows, SMOOTH * columns, CARD)
    pen, steps = ImageDraw.Draw(image), len(chart.values)
    for step in np.flatnonzero(chart.shaded):
        pen.rectangle((image.width * step / steps, 0, image.width * (step + 1) / steps, image.height), fill=SHADE)
    low, high = span(chart)
    y = image.height - (0.06 + 0.88 * (np.clip(chart.values, low, high) - low) / (high - low)) * image.height
    x = [SMOOTH * column_of(step, steps, columns) for step in range(steps)]
    for step in np.flatnonzero(np.isfinite(y)):
        follows = step > 0 and np.isfinite(y[step - 1]) and chart.group[step] == chart.group[step - 1]
        begin = (x[step - 1], y[step - 1]) if follows else (x[step] - 3 * SMOOTH, y[step])
        pen.line((*begin, x[step], y[step]), fill=chart.colours[step], width=2 * SMOOTH, joint="curve")
    return image.resize((columns, rows), Image.Resampling.BOX)


def span(chart: Chart) -> tuple[float, float]:
    """The ends of the scale, a little apart where they are the same."""
    known = chart.values[chart.scaled & np.isfinite(chart.values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def column_of(step: int, steps: int, columns: int) -> float:
    """The middle of a step."""
    return columns * (step + 0.5) / steps
