"""Placing rooms, against MiniGrid's own MultiRoom generator."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from minigrid.envs.multiroom import MultiRoomEnv
from scipy import stats

from advsurprise.errors import UserError
from advsurprise.grid import chain

pytestmark = pytest.mark.slow

LEAST_P = 1e-3
PAPER = {"rooms": 4, "low": 4, "high": 8, "size": 25}


@functools.cache
def _ours(rooms, low, high, size, number=8000):
    keys = jax.random.split(jax.random.key(3), number)
    chains = jax.jit(jax.vmap(lambda k: chain.sample(k, rooms=rooms, low=low, high=high, size=size)))(keys)
    return jax.tree.map(np.asarray, chains)


@functools.cache
def _minigrids(number=8000):
    """Rooms from MiniGrid's own placement, which begins again until all four are there."""
    env = MultiRoomEnv(4, 4, maxRoomSize=8)
    env.reset(seed=1)
    tops, sides, doors = [], [], []
    while len(tops) < number:
        rooms = []
        start = (env._rand_int(0, 23), env._rand_int(0, 23))
        env._placeRoom(4, roomList=rooms, minSz=4, maxSz=8, entryDoorWall=2, entryDoorPos=start)
        if len(rooms) == 4:
            tops.append([room.top for room in rooms])
            sides.append([room.size for room in rooms])
            doors.append([room.entryDoorPos for room in rooms])
    return np.array(tops), np.array(sides), np.array(doors)


def _same_distribution(left, right):
    values = np.union1d(left, right)
    counts = [[np.sum(sample == value) for value in values] for sample in (left, right)]
    kept = np.sum(counts, axis=0) >= 10
    return stats.chi2_contingency(np.array(counts)[:, kept]).pvalue


@pytest.mark.parametrize("room", range(4))
@pytest.mark.parametrize("axis", range(2))
def test_accepted_sides_and_corners_are_distributed_as_minigrids(room, axis):
    ours, (tops, sides, _) = _ours(**PAPER), _minigrids()
    assert _same_distribution(ours.side[:, room, axis], sides[:, room, axis]) > LEAST_P
    assert _same_distribution(ours.top[:, room, axis], tops[:, room, axis]) > LEAST_P


@pytest.mark.parametrize("room", range(1, 4))
def test_doors_are_where_minigrid_puts_them(room):
    ours, (tops, sides, doors) = _ours(**PAPER), _minigrids()

    def side_and_offset(top, side, door):
        right, down = (door - top)[:, room - 1].T
        width, height = side[:, room - 1].T
        wall = np.select([right == width - 1, down == height - 1, right == 0], [0, 1, 2], 3)
        return wall * 100 + np.where(wall % 2 == 0, down, right)

    shifted = np.roll(doors, -1, axis=1), np.roll(ours.door, -1, axis=1)
    theirs = side_and_offset(tops, sides, shifted[0])
    assert _same_distribution(side_and_offset(ours.top, ours.side, shifted[1]), theirs) > LEAST_P


def test_proposed_sides_are_uniform():
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, (20_000, chain.TRIES, chain.DRAWS), dtype=np.uint32)
    corner, sides = np.full((20_000, 2), 10), np.full((20_000, 2), 6)
    entry = np.full(20_000, 2)
    _, sides, _, entries = chain._propose(bits, corner, sides, entry, low=4, high=8, xp=np)
    assert stats.chisquare(np.bincount(sides.ravel())[4:]).pvalue > LEAST_P
    # Never back through the wall one came in by: the exits are the three others, so the entries opposite them.
    assert stats.chisquare(np.bincount(entries.ravel(), minlength=4)[[1, 2, 3]]).pvalue > LEAST_P
    assert not (entries == 0).any()


def _check_rooms(chains, size):
    tops, sides, doors = chains.top, chains.side, chains.door
    assert chains.fits.all()
    assert (tops >= 0).all()
    assert ((tops + sides) <= size).all()
    rooms = tops.shape[1]
    for later in range(1, rooms):
        inner = doors[:, later] - tops[:, later], doors[:, later] - tops[:, later - 1]
        for offset, extent in zip(inner, (sides[:, later], sides[:, later - 1]), strict=True):
            on_edge = (offset == 0) | (offset == extent - 1)
            # On exactly one pair of walls: on the rim, and not in a corner.
            assert (on_edge.sum(axis=1) == 1).all()
            assert ((offset >= 0) & (offset < extent)).all()
        for earlier in range(later):
            meet = np.maximum(tops[:, later], tops[:, earlier])
            until = np.minimum((tops + sides)[:, later], (tops + sides)[:, earlier])
            overlap = np.prod(np.clip(until - meet, 0, None), axis=1)
            if earlier == later - 1:
                # Neighbours share a wall, one cell thick, and nothing else.
                assert (np.clip(until - meet, 0, None).min(axis=1) == 1).all()
            else:
                assert (overlap == 0).all()


@pytest.mark.parametrize(
    ("rooms", "low", "high", "size"),
    [(4, 4, 8, 25), (2, 4, 4, 12), (3, 12, 12, 40), (6, 4, 12, 40), (9, 4, 8, 40), (9, 5, 5, 30)],
)
def test_rooms_share_walls_and_doors_avoid_corners(rooms, low, high, size):
    _check_rooms(_ours(rooms, low, high, size, 400), size)


def test_numpy_and_jax_place_the_same_rooms():
    bits = np.random.default_rng(2).integers(0, 2**32, (300, 5, chain.TRIES, chain.DRAWS), dtype=np.uint32)
    size = {"rooms": 5, "low": 4, "high": 9, "size": 25}
    for ours, theirs in zip(
        chain.attempt(bits, **size, xp=np), chain.attempt(jnp.asarray(bits), **size, xp=jnp), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_rooms_that_cannot_fit_are_refused_with_a_grid_that_can_hold_them():
    with pytest.raises(UserError, match=r"9 rooms with sides from 12 to 12 do not fit a grid of 25x25.*set grid=") as e:
        chain.check(9, 12, 12, 25)
    larger = int(str(e.value).split("set grid=")[1].split()[0])
    chain.check(9, 12, 12, larger)
