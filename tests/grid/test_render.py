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


FACING = [
    pytest.param(name, facing, marks=() if facing in (None, number % 4) else pytest.mark.long)
    for number, name in enumerate(PAIRS)
    for facing in (None, 0, 1, 2, 3)
]
"""`make test` draws a body on every tile, facing each way on two or more: MiniGrid takes long to draw it."""


@pytest.mark.parametrize(("name", "facing"), FACING)
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
    # Colours of shapes are whole numbers.
    for lighter in (False, True):
        drawn = render.tile_of(render.shapes(code), 32, lighter).astype(int)
        np.testing.assert_allclose(drawn, render.tile(code, None, lighter, 32), atol=2)


def test_the_body_is_drawn_in_the_colour_of_its_role_edged_with_white():
    drawn = render.tile_of((), 32, False, 1, "#0069a6")
    assert drawn[12, 16].tolist() == [0x00, 0x69, 0xA6]
    assert drawn[2, 2].tolist() == [0, 0, 0]
    is_white = (drawn == 255).all(axis=-1)
    assert 10 < is_white.sum() < 200
    # It points down: the tip is narrow.
    is_body = is_white | (drawn == (0x00, 0x69, 0xA6)).all(axis=-1)
    assert is_body[8].sum() > 2 * is_body[22].sum() > 0
