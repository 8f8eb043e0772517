"""Farama MiniGrid plays along: the four worlds in both views, and further settings."""

import dataclasses

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from advsurprise.bench import oracle, record
from advsurprise.envs import make, rooms
from advsurprise.grid import actions

pytestmark = pytest.mark.slow

STEPS_EACH = 8000
"""Enough for everything in NEEDED to happen; `advsurprise bench oracle` compares as many as it is asked to."""
NEEDED = {
    "rooms/four": {"door opened", "door closed", "box opened", "box taken", "box dropped"},
    "rooms/door": {"door opened", "door closed"},
    "rooms/lock": {"door opened", "door closed", "door locked", "key taken", "key dropped"},
    "rooms/switch": {"door opened", "door closed", "switch used"},
}
FURTHER = {
    "balls": {"noise": "balls"},
    "nine rooms up to 12": {"rooms": 9, "grid": 60, "max_side": 12},
    "fixed boxes": {"fixed_boxes": True, "kinds": ("noisy",) * 4},
    "everything": {"rooms": 3, "noise": "balls", "control": "switch", "restart": True, "key_room": 1},
    "wide view": {"view": 11},
}


@pytest.fixture(autouse=True)
def _unchecked():
    """Shapes are not checked here, but by the worlds' own tests: the mirror calls small functions too often."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


# Views take turns from world to world; the other half of the pairs is for `make long`.
PAIRS = [
    pytest.param(world, view, marks=pytest.mark.long if (number + place) % 2 else ())
    for number, world in enumerate(rooms.WORLDS)
    for place, view in enumerate(oracle.VIEWS)
]


@pytest.mark.parametrize(("world", "view"), PAIRS)
def test_the_worlds_are_minigrid(world, view):
    row = oracle.compare(oracle.Task(world, {"view": view}, STEPS_EACH, seed=7))
    assert row["steps"] == STEPS_EACH
    assert row["mismatches"] == 0
    assert NEEDED[world] <= set(row["events"]), "the comparison did not cover what the world is about"


@pytest.mark.long
@pytest.mark.parametrize("name", FURTHER)
def test_further_settings_are_minigrid(name):
    row = oracle.compare(oracle.Task("rooms/four", FURTHER[name], 3000, seed=8))
    assert row["mismatches"] == 0
    assert row["events"]["moved"] > 300


@pytest.mark.parametrize("flaw", ["turn", *(pytest.param(each, marks=pytest.mark.long) for each in ("door", "word"))])
def test_the_oracle_notices_a_flaw(flaw, monkeypatch):
    """A comparison that cannot fail would be worth nothing: break the physics in three ways."""
    if flaw == "word":
        stir = rooms.RoomWorld.stir

        def never_still(self, state, *, key):
            return stir(self, dataclasses.replace(state, stilled=jnp.zeros_like(state.stilled)), key=key)

        def restless(self, state, *, key):
            return dataclasses.replace(never_still(self, state, key=key), stilled=state.stilled)

        monkeypatch.setattr(rooms.RoomWorld, "stir", restless)
    else:
        act = actions.act

        def flawed(action, front, carried, *, fixed_boxes):
            effect = act(action, front, carried, fixed_boxes=fixed_boxes)
            if flaw == "turn":
                return dataclasses.replace(effect, turn=(4 - effect.turn) % 4)
            return dataclasses.replace(effect, front=jnp.where(action == actions.Action.TOGGLE, front, effect.front))

        monkeypatch.setattr(actions, "act", flawed)
    record._record.clear_cache()
    # A view of its own, so that no compiled program of another test is found.
    row = oracle.compare(oracle.Task("rooms/four", {"view": 9, "rooms": 2, "kinds": ("noisy",) * 2}, 2000, seed=9))
    record._record.clear_cache()
    assert row["mismatches"] > 0


def test_what_is_compared_is_what_step_does(getkey):
    """The recording plays `stir` and `act`; `transition`, on which `step` is built, is just these two."""
    env = make("rooms/four")

    @jax.jit
    def both(state_key, key):
        state = env.initial(key=state_key)
        return env.transition(state, jnp.int32(2), key=key)[0], env.act(env.stir(state, key=key), jnp.int32(2))

    moved, by_hand = both(getkey(), getkey())
    assert all(
        np.array_equal(getattr(moved, field.name), getattr(by_hand, field.name)) for field in dataclasses.fields(moved)
    )
