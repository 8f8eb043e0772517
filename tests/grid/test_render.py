"""Tiles against MiniGrid's own drawing."""

import numpy as np
import pytest
from minigrid.core.grid import Grid
from minigrid.core.world_object import Ball, Box, Door, Floor, Key, Wall

from advsurprise.grid import render, tiles

pytestmark = pytest.mark.slow

BLUE, YELLOW = 2, 4
PAIRS = {
    "empty": (tiles.EMPTY, None),
    "wall": (tiles.WALL, Wall()),
    "floor": (tiles.FLOOR + BLUE, Floor("blue")),
    "open door": (tiles.door(tiles.OPEN, YELLOW), Door("yellow", is_open=True)),
    "closed door": (tiles.door(tiles.CLOSED, YELLOW), Door("yellow")),
    "locked door": (tiles.door(tiles.LOCKED, YELLOW), Door("yellow", is_locked=True)),
    "key": (tiles.KEY + BLUE, Key("blue")),
    "ball": (tiles.ball(3, BLUE), Ball("blue")),
    "box": (tiles.box(1, YELLOW), Box("yellow")),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("facing", [None, 0, 1, 2, 3])
@pytest.mark.parametrize("highlighted", [False, True])
def test_tiles_look_like_minigrids(name, facing, highlighted):
    code, thing = PAIRS[name]
    ours = render.tile(code, facing, highlighted, 32).astype(int)
    theirs = Grid.render_tile(thing, agent_dir=facing, highlight=highlighted, tile_size=32).astype(int)
    # The arrow's rim may fall on the other side of a pixel's centre; a few pixels of 1024 may differ.
    assert (np.abs(ours - theirs).max(axis=-1) > 8).mean() < 0.01


def test_switches_that_stop_and_start_look_different():
    stop, start = (
        render.tile(tiles.STOP_SWITCH, None, False, 32),
        render.tile(tiles.START_SWITCH, None, False, 32),
    )
    assert not np.array_equal(stop, start)


@pytest.mark.parametrize("code", range(tiles.NUM_CODES))
def test_shapes_make_the_same_picture_as_the_painters(code):
    side = 32 * render.OVERSAMPLING
    canvas = render.Canvas(side)
    canvas.rectangle(0, 0.031, 0, 1, render.LINE)
    canvas.rectangle(0, 1, 0, 0.031, render.LINE)
    for kind, *numbers, colour in render.shapes(code):
        rgb = [int(colour[part : part + 2], 16) for part in (1, 3, 5)]
        (canvas.rectangle if kind == "r" else canvas.circle)(*numbers, rgb)
    pixels = canvas.pixels.reshape(32, render.OVERSAMPLING, 32, render.OVERSAMPLING, 3).mean(axis=(1, 3))
    # Colours of shapes are whole numbers.
    np.testing.assert_allclose(pixels, render.tile(code, None, False, 32), atol=1.5)
