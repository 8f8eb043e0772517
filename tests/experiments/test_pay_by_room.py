"""What Explore earns, by where the body is."""

import pathlib

import numpy as np
import pytest

from advsurprise.errors import UserError
from advsurprise.experiments import pay_by_room


def test_pay_is_averaged_by_room_where_it_is_known_whether_the_room_is_stilled():
    pay = np.array([[1.0, 2.0, 3.0, 4.0, 100.0]])
    counts = np.array([[True, True, True, True, False]])
    in_dark = np.array([[True, False, False, False, True]])
    stilled = np.array([[0.0, 0.0, 1.0, 0.5, 1.0]])
    assert pay_by_room.by_room(pay, counts, in_dark, stilled) == {
        "dark": {"pay": 1.0, "steps": 1},
        "noisy, lights on": {"pay": 2.0, "steps": 1},
        "noisy, stilled": {"pay": 3.0, "steps": 1},
    }


@pytest.mark.parametrize(("each_turn", "left"), [(False, [5, 6, 9, 10]), (True, [6, 10])])
def test_steps_under_an_empty_model_are_left_out(each_turn, left):
    counts = np.isin(np.arange(11), [1, 2, 5, 6, 9, 10])[:, None]
    assert pay_by_room.after_empty(counts, each_turn=each_turn).nonzero()[0].tolist() == left


@pytest.mark.slow
def test_an_agent_of_the_zoo_is_played():
    (row,) = pay_by_room.measure(pay_by_room.PayByRoom(pathlib.Path("zoo:rooms-four-two-models"), episodes=16))
    assert row["seed"] == 0
    places = [row[name] for name in ("dark", "noisy, lights on", "noisy, stilled")]
    # Turns of 8, of which four steps are scored: at most 16 in the second half of an episode.
    assert 0 < sum(place["steps"] for place in places) <= 16 * 16
    assert all(place["pay"] > 0 for place in places if place["steps"])


def test_other_methods_and_no_episodes_are_refused():
    with pytest.raises(UserError, match="not a run of adversarial-surprise in a room world"):
        pay_by_room.measure(pay_by_room.PayByRoom(pathlib.Path("zoo:rooms-four-rnd")))
    with pytest.raises(UserError, match="at least 1, not 0"):
        pay_by_room.measure(pay_by_room.PayByRoom(pathlib.Path("zoo:rooms-four"), episodes=0))
