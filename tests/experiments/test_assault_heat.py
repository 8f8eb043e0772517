"""How lives end in Assault, in the real game."""

import pathlib

import pytest

from advsurprise.errors import UserError
from advsurprise.experiments import assault_heat
from advsurprise.experiments.assault_heat import Heat, Life, row, scripted

pytest.importorskip("ale_py")


def test_shots_fill_the_bar():
    (life,) = scripted(("UP",), 1)
    assert life.ended
    assert life.overheated


def test_the_bar_stays_empty_without_shots():
    lives = scripted(("LEFT", "RIGHT"), 4)
    assert all(life.ended and not life.overheated for life in lives)


def test_a_life_that_is_not_followed_to_its_end_counts_as_neither():
    assert scripted(("UP",), 1, longest=20) == [Life(20, ended=False, overheated=False)]


def test_a_row_counts_lives():
    lives = [Life(10, True, True), Life(20, True, False), Life(30, False, False)]
    assert row("someone", lives) == {"player": "someone", "lives": 3, "ended": 2, "overheated": 1, "steps": 20.0}


def test_runs_in_other_worlds_and_no_lives_are_refused():
    with pytest.raises(UserError, match="is a run in rooms/four, not in atari/assault"):
        assault_heat.measure(Heat((pathlib.Path("zoo:rooms-four"),)))
    with pytest.raises(UserError, match="at least 1, not 0"):
        assault_heat.measure(Heat(lives=0))
