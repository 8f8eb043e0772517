"""Videos of recorded episodes: each frame shows the world, what the body sees, who acts and the surprise.

Drawn from the same recordings as a replay. What is the same in all frames of an episode is drawn once.
"""

import math
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, UInt8
from PIL import Image

from advsurprise.errors import UserError
from advsurprise.evaluation import encode, lettering
from advsurprise.evaluation.labels import so_far
from advsurprise.evaluation.lettering import MUTED, Chart
from advsurprise.evaluation.pictures import DARK, Panel, panels, role_colour
from advsurprise.evaluation.record import Episode
from advsurprise.evaluation.replay import Replayed, scored
from advsurprise.methods.base import LOG_PROBABILITY
from advsurprise.training import files

FORMATS = (".mp4", ".gif", ".png")
MAX_FILMED = 64
"""Most episodes in one film."""
FRAMES_PER_SECOND = (1, 60)

ROWS, COLUMNS, MARGIN = 720, 960, 16
HEADER = 52
"""Height of the header."""
STAGE = (478, 566, 346)
"""Height of the panels, width of the left one and of the right one."""
MEASURES = 4
"""Most measures of the world that are shown."""
CHART = (108, 866)
"""Height and width of the curve."""
READING = (24, STAGE[2])
"""Height and width of the number above it."""
ENOUGH_STEPS = 8
"""Fewest steps that its scale is computed from."""
CHART_TOP, CHART_LEFT = ROWS - 16 - CHART[0], COLUMNS - MARGIN - CHART[1]

SHEET = (3, 4)
"""Rows and columns of the contact sheet of one episode."""
CELL = (280, 280)
"""Largest height and width of a picture in it."""
CAPTION = 26
"""Height of the caption below a picture."""


class Film(NamedTuple):
    """A film that was written."""

    path: pathlib.Path
    """The file."""
    pictures: int
    """Number of pictures of the world."""
    seconds: float
    """Duration; 0 for a contact sheet."""


def check(path: pathlib.Path, *, episodes: int, fps: int) -> None:
    """Checks the arguments before anything is played."""
    if path.suffix.lower() not in FORMATS:
        raise UserError(
            f"a film is a {', '.join(FORMATS[:-1])} or (contact sheet) {FORMATS[-1]} file, not {path.name!r}"
        )
    if not 1 <= episodes <= MAX_FILMED:
        raise UserError(f"a film has from 1 to {MAX_FILMED} episodes, not {episodes}")
    low, high = FRAMES_PER_SECOND
    if not low <= fps <= high:
        raise UserError(f"a film has from {low} to {high} pictures per second, not {fps}")
    if path.suffix.lower() == ".mp4":
        encode.find_encoder()


def write(path: pathlib.Path, run: Replayed, *, fps: int) -> Film:
    """Writes all recorded episodes as one film, or as a contact sheet if the path ends in .png."""
    kind = path.suffix.lower()
    pictures = sum(len(episode.obs) for episodes in run.seeds.values() for episode in episodes)
    if kind == ".png":
        content = encode.png(sheet(run))
        pictures = sum(len(chosen_states(episode)) for episodes in run.seeds.values() for episode in episodes)
    else:
        content = (encode.mp4 if kind == ".mp4" else encode.gif)(frames(run), fps)
    files.make_folder(path.parent)
    files.write(path, content)
    return Film(path, pictures, 0.0 if kind == ".png" else pictures / fps)


def heading(run: Replayed, seed: int, number: int) -> str:
    """Title of an episode."""
    about = run.about
    return f"{about['method']} in {about['env']}, {about['steps']:,} steps · seed {seed} · episode {number + 1}"


# ------------------------------------------------------------------------------------------------ the curve


def curve(run: Replayed, episode: Episode) -> Chart:
    """Surprise if the method has a density model; else its first trace; else the rewards."""
    if LOG_PROBABILITY in episode.trace:
        title, values = "surprise of what was seen (nats)", -episode.trace[LOG_PROBABILITY].value
    elif episode.trace:
        title, values = next((name, traced.value) for name, traced in episode.trace.items())
    else:
        title, values = "reward of the role that acts", _rewards(run, episode)
    counts = np.asarray(scored(episode))
    partly = counts & ~counts.all()
    title += "; shaded: scored steps" if partly.any() else ""
    turn = np.cumsum(np.diff(episode.role, prepend=episode.role[:1]) != 0)
    colours = [role_colour(run.method, int(role)) for role in episode.role]
    return Chart(title, np.asarray(values, np.float64), turn, colours, partly, scaled_steps(counts))


def scaled_steps(counts: Bool[np.ndarray, " T"]) -> Bool[np.ndarray, " T"]:
    """Steps that set the scale of the curve: those after the first scored one, if there are enough. Before that the
    model has seen nothing, and its surprise would dwarf everything later."""
    after = np.cumsum(counts) - counts > 0
    return after if after.sum() >= ENOUGH_STEPS else np.ones_like(after)


def _rewards(run: Replayed, episode: Episode) -> np.ndarray:
    """First reward stream of the acting role."""
    each = np.stack([episode.reward[role][:, 0] for role in run.method.roles])
    return np.take_along_axis(each, episode.role[None].astype(int), axis=0)[0]


def _axis(image: Image.Image, chart: Chart, left: int, top: int, rows: int) -> None:
    """Labels the ends of the scale next to a curve."""
    low, high = lettering.span(chart)
    for value, y in ((high, top + 9), (low, top + rows - 9)):
        lettering.write(image, (left - 7, y), lettering.number(value), size=12, colour=MUTED, anchor="rm")


# ------------------------------------------------------------------------------------------------ films


def frames(run: Replayed) -> Iterator[UInt8[np.ndarray, "rows columns 3"]]:
    """Yields the frames of all episodes."""
    for seed, episodes in run.seeds.items():
        for number, episode in enumerate(episodes):
            yield from episode_frames(run, episode, heading(run, seed, number))


def episode_frames(run: Replayed, episode: Episode, title: str) -> Iterator[UInt8[np.ndarray, "rows columns 3"]]:
    """Yields one frame per step, and one of the last state if it was recorded."""
    chart, shown = curve(run, episode), panels(run, episode)
    first = [panel.draw(0, _colour(run, episode, 0), place.room) for panel, place in zip(shown, PLACES, strict=False)]
    places = [place.of(picture) for picture, place in zip(first, PLACES, strict=False)]
    background = lettering.pixels(_background(chart, shown, places))
    for state in range(len(episode.obs)):
        frame, colour = background.copy(), _colour(run, episode, state)
        frame[:HEADER] = lettering.pixels(_header(run, episode, title, state))
        for panel, place in zip(shown, places, strict=True):
            picture = panel.draw(state, colour, place.room)
            frame[place.top : place.top + len(picture), place.left : place.left + picture.shape[1]] = picture
        _put(frame, _measures(run, episode, state), _below(places), PLACES[1].left)
        _put(frame, _reading(chart, state, colour), CHART_TOP - READING[0], COLUMNS - MARGIN - READING[1])
        _cursor(frame, state, len(chart.values))
        yield frame


class Place(NamedTuple):
    """Position of a panel in the frame."""

    top: int
    """Its first row."""
    left: int
    """Its first column."""
    room: tuple[int, int]
    """Height and width available to it."""
    middle: bool
    """Whether it is centred in them, on a dark background; else it is at the top."""

    def of(self, picture: UInt8[np.ndarray, "rows columns 3"]) -> "Place":
        """The area that the picture itself covers."""
        size = (picture.shape[0], picture.shape[1])
        spare = [(room - taken) // 2 for room, taken in zip(self.room, size, strict=True)]
        return Place(self.top + spare[0] * self.middle, self.left + spare[1] * self.middle, size, self.middle)


PLACES = (
    Place(HEADER, MARGIN, STAGE[:2], True),
    Place(HEADER, COLUMNS - MARGIN - STAGE[2], (STAGE[0], STAGE[2]), False),
)


def _background(chart: Chart, shown: list[Panel], places: list[Place]) -> Image.Image:
    """What all frames of an episode have in common."""
    image = lettering.blank(ROWS, COLUMNS)
    left = PLACES[0].left
    image.paste(DARK, (left, HEADER, left + STAGE[1], HEADER + STAGE[0]))
    for panel, place in zip(shown, places, strict=True):
        under = (left, HEADER + STAGE[0]) if place.middle else (place.left, place.top + place.room[0])
        lettering.write(image, (under[0], under[1] + 14), panel.caption, size=13, colour=MUTED)
    image.paste(lettering.draw_chart(chart, *CHART), (CHART_LEFT, CHART_TOP))
    lettering.write(image, (CHART_LEFT, CHART_TOP - 13), chart.title, size=14)
    _axis(image, chart, CHART_LEFT, CHART_TOP, CHART[0])
    return image


def _below(places: list[Place]) -> int:
    """The row below the right picture and its caption."""
    return HEADER if len(places) == 1 else places[1].top + places[1].room[0] + 36


def _put(frame: np.ndarray, image: Image.Image, top: int, left: int) -> None:
    """Pastes an image into a frame, cropped where the curve starts."""
    rows = max(0, min(image.height, CHART_TOP - top))
    frame[top : top + rows, left : left + image.width] = lettering.pixels(image)[:rows]


def _measures(run: Replayed, episode: Episode, state: int) -> Image.Image:
    """The world's measures in a state."""
    shown = [measure for measure in run.method.spec.measures if measure.shown and not measure.of_game][:MEASURES]
    image = lettering.blank(22 * max(1, len(shown)), STAGE[2])
    for line, measure in enumerate(shown):
        value = lettering.number(float(episode.measures[measure.name][state]))
        wide = lettering.write(image, (STAGE[2], 22 * line + 11), value, size=14, bold=True, anchor="rm")
        lettering.write(image, (0, 22 * line + 11), so_far(measure.label), size=13, room=STAGE[2] - wide - 10)
    return image


def _reading(chart: Chart, state: int, colour: str) -> Image.Image:
    """The value of the curve at the step."""
    image = lettering.blank(*READING)
    value = chart.values[state] if state < len(chart.values) else np.nan
    lettering.write(image, (READING[1], 13), lettering.number(value), size=15, bold=True, colour=colour, anchor="rm")
    return image


def _header(run: Replayed, episode: Episode, title: str, state: int) -> Image.Image:
    """The acting role, the step and the action."""
    image, steps = lettering.blank(HEADER, COLUMNS), len(episode.role)
    x = MARGIN + lettering.badge(
        image, (MARGIN, HEADER // 2), _acting(run, episode, state), _colour(run, episode, state)
    )
    step = f"step {min(state + 1, steps)} of {steps}"
    x += 14 + lettering.write(image, (x + 14, HEADER / 2), step, size=17, bold=True)
    if state < steps:
        x += 14 + lettering.write(image, (x + 14, HEADER / 2), _action(run, int(episode.action[state])), size=17)
    room = COLUMNS - MARGIN - x - 24
    lettering.write(image, (COLUMNS - MARGIN, HEADER / 2), title, size=13, colour=MUTED, anchor="rm", room=room)
    return image


def _acting(run: Replayed, episode: Episode, state: int) -> str:
    over = state >= len(episode.role)
    return "end" if over else run.method.roles[int(episode.role[state])]


def _colour(run: Replayed, episode: Episode, state: int) -> str:
    """Colour of the acting role; after the end, of the one that acted last."""
    return role_colour(run.method, int(episode.role[min(state, len(episode.role) - 1)]))


def _action(run: Replayed, action: int) -> str:
    names = run.env.action_names if run.env else run.method.spec.action_names
    return names[action] if action < len(names) else f"action {action}"


def _cursor(frame: np.ndarray, state: int, steps: int) -> None:
    """Draws a vertical line at the step; after the last step, at the right end."""
    at = CHART_LEFT + min(round(lettering.column_of(state, steps, CHART[1])), CHART[1] - 1)
    frame[CHART_TOP : CHART_TOP + CHART[0], at - 1 : at + 1] = 0


# ------------------------------------------------------------------------------------------------ contact sheets


def sheet(run: Replayed) -> UInt8[np.ndarray, "rows columns 3"]:
    """Pictures of every episode at equal intervals, with its curve below them."""
    blocks = [
        _block(run, episode, heading(run, seed, number))
        for seed, episodes in run.seeds.items()
        for number, episode in enumerate(episodes)
    ]
    width = max(block.shape[1] for block in blocks)
    return np.concatenate([_widened(block, width) for block in blocks])


def _widened(block: UInt8[np.ndarray, "rows columns 3"], width: int) -> UInt8[np.ndarray, "rows width 3"]:
    """Pads with white on the right: worlds of different shapes give blocks of different widths."""
    return np.pad(block, ((0, 0), (0, width - block.shape[1]), (0, 0)), constant_values=255)


def chosen_states(episode: Episode) -> list[int]:
    """Evenly spaced states, the first and the last included, as many as fit on a contact sheet."""
    return np.unique(np.linspace(0, len(episode.obs) - 1, math.prod(SHEET)).round()).astype(int).tolist()


def _block(run: Replayed, episode: Episode, title: str) -> UInt8[np.ndarray, "rows columns 3"]:
    chosen, world, chart = chosen_states(episode), panels(run, episode)[0], curve(run, episode)
    drawn = [world.draw(state, _colour(run, episode, state), CELL) for state in chosen]
    rows, columns = (max(picture.shape[axis] for picture in drawn) for axis in (0, 1))
    lines, (_, across) = -(-len(drawn) // SHEET[1]), SHEET
    width = max(across * (columns + MARGIN) + MARGIN, 640)
    # Centred, since the title may be wider than the pictures.
    first = (width - across * (columns + MARGIN) + MARGIN) // 2
    below = HEADER + lines * (rows + CAPTION + 10)
    image = lettering.blank(below + 30 + CHART[0] + MARGIN, width)
    lettering.write(image, (first, HEADER / 2), title, size=15, bold=True, room=width - 2 * first)
    for place, (state, picture) in enumerate(zip(chosen, drawn, strict=True)):
        x, y = first + (place % across) * (columns + MARGIN), HEADER + (place // across) * (rows + CAPTION + 10)
        image.paste(_colour(run, episode, state), (x - 3, y - 3, x + columns + 3, y + rows + 3))
        image.paste(Image.fromarray(picture), (x, y))
        _caption(image, run, episode, state, (x, y + rows + 15))
    _sheet_chart(image, chart, chosen, below)
    return lettering.pixels(image)


def _caption(image: Image.Image, run: Replayed, episode: Episode, state: int, place: tuple[int, int]) -> None:
    """Writes the acting role and the step below a picture."""
    step = min(state + 1, len(episode.role))
    who = lettering.write(
        image, place, _acting(run, episode, state), size=13, bold=True, colour=_colour(run, episode, state)
    )
    lettering.write(image, (place[0] + who + 8, place[1]), f"step {step}", size=13, colour=MUTED)


def _sheet_chart(image: Image.Image, chart: Chart, chosen: list[int], top: int) -> None:
    left = MARGIN + 62
    rows, columns = CHART[0], image.width - left - MARGIN
    lettering.write(image, (left, top + 13), chart.title, size=14, room=columns)
    image.paste(lettering.draw_chart(chart, rows, columns), (left, top + 30))
    _axis(image, chart, left, top + 30, rows)
    for state in chosen:
        at = left + min(round(lettering.column_of(state, len(chart.values), columns)), columns - 1)
        image.paste("#000000", (at, top + 30, at + 1, top + 30 + rows))
