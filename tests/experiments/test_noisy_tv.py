"""How observations are distinguished, and what is written."""

import csv

import jax.numpy as jnp
import numpy as np
import pytest

from advsurprise.experiments import noisy_tv
from advsurprise.methods.rnd import Signal
from advsurprise.types import Decision, Rollout

WALL, EMPTY, RED, CLASSES = 2, 1, 10, 16


def make_rollout(obs, room):
    nothing = jnp.zeros(obs.shape[:2])
    idle = jnp.zeros(1, jnp.int32)
    decision = Decision(idle, idle, jnp.zeros((1, 2)), jnp.zeros(1), jnp.zeros((1, 1)))
    never = nothing > 0
    return Rollout(
        decision,
        nothing,
        never,
        never,
        {},
        {},
        Signal(jnp.asarray(obs, jnp.uint8)),
        {"room": room},
        never[0].astype(jnp.int32),
    )


def test_every_observation_is_of_one_kind_by_its_room_and_the_lights_in_view():
    quiet, lit = np.full((3, 3), WALL), np.full((3, 3), EMPTY)
    lit[1, 2] = RED
    room = jnp.asarray([[0], [1], [1]])
    # The same three observations in a world whose first room flashes, and in one whose first room is dark.
    obs = np.stack([lit, quiet, lit])[:, None]
    rollout = noisy_tv.together([make_rollout(obs, room), make_rollout(obs, room)])
    found = {name: np.asarray(holds).tolist() for name, holds in noisy_tv.kinds(rollout, CLASSES).items()}
    assert found == {
        "noisy": [[True, False], [False, True], [False, True]],
        "dark": [[False, False], [True, False], [False, False]],
        "mixed": [[False, True], [False, False], [True, False]],
    }
    row = noisy_tv.measured(jnp.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 9.0]]), rollout, CLASSES)
    assert float(row["noisy/error"]) == pytest.approx((1 + 4 + 9) / 3)
    assert float(row["mixed/error"]) == pytest.approx((2 + 5) / 2)
    assert float(row["dark/share"]) == pytest.approx(1 / 6)


def test_numbers_and_figure_are_written(tmp_path):
    names = [f"{kind}/{what}" for kind in noisy_tv.KINDS for what in ("error", "share")]
    rows = [{"update": float(number), **dict.fromkeys(names, 0.5 / (1 + number))} for number in range(3)]
    noisy_tv.write(rows, tmp_path / "rows.csv")
    noisy_tv.draw(rows, tmp_path / "figure.png")
    with (tmp_path / "rows.csv").open() as file:
        assert [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)] == [
            {name: float(f"{value:.6g}") for name, value in row.items()} for row in rows
        ]
    assert (tmp_path / "figure.png").read_bytes()[:4] == b"\x89PNG"
