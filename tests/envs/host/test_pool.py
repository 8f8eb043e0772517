"""Bodies in worker processes: the same episodes however they are stepped, and exact resuming."""

import pathlib

import jax
import numpy as np
import pytest
from pool_of_toys import (
    CLOCK,
    EPISODE,
    KEYS,
    OTHER_KEYS,
    SPEC,
    X,
    assert_same,
    episodes,
    kill,
    open_pool,
    recv,
    relocate,
    reset,
    send,
    step,
    undisturbed,
    walk,
)
from toy_body import NOOP, RIGHT

from advsurprise.envs.host.body import Maker
from advsurprise.envs.host.pool import BodyHost
from advsurprise.errors import UserError
from advsurprise.types import CONTINUE, RESTART, REWIND

pytestmark = pytest.mark.usefixtures("temporary")


# --- episodes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "groups"), [(0, 2), (0, 4), (1, 1), (2, 2)])
def test_episodes_depend_on_the_seed_alone(workers, groups):
    assert_same(undisturbed(), episodes(KEYS, workers=workers, groups=groups))


def test_a_seed_has_the_same_episodes_alone():
    second = episodes(KEYS[1:], workers=1)
    assert_same(jax.tree.map(lambda array: array[1:], undisturbed()), second)


def test_seeds_and_bodies_differ_and_a_reset_repeats():
    first = undisturbed()[0].obs[..., X]
    assert len(np.unique(first)) == first.size
    with open_pool(workers=0) as host:
        reset(host, KEYS[::-1])
        send(host, 0, NOOP)
        assert_same(reset(host), undisturbed()[0])


def test_a_new_episode_begins_within_the_step_that_ended_the_last():
    before = undisturbed()[0]
    terminations = truncations = 0
    for now in undisturbed()[1:]:
        ended = now.terminated | now.truncated
        assert not (now.terminated & now.truncated).any()
        assert np.array_equal(now.final_obs[..., CLOCK], before.obs[..., CLOCK] + 1)
        assert np.array_equal(now.info["clock"], now.final_obs[..., CLOCK])
        assert np.array_equal(now.reward, now.final_obs[..., X])
        assert np.array_equal(now.final_obs[~ended], now.obs[~ended])
        assert np.array_equal(now.obs[..., EPISODE], now.final_obs[..., EPISODE] + ended)
        assert (now.obs[ended, CLOCK] == 0).all()
        terminations, truncations = terminations + now.terminated.sum(), truncations + now.truncated.sum()
        before = now
    assert terminations > 0
    assert truncations > 0


@pytest.mark.parametrize("workers", [0, 1])
def test_relocation(workers):
    with open_pool(workers=workers, groups=2) as host:
        reset(host, OTHER_KEYS)
        # The other group's step may be under way.
        send(host, 1, RIGHT)
        before = relocate(host, 0, CONTINUE).obs.copy()
        send(host, 0, NOOP)
        stepped = recv(host, 0)
        moved = stepped.obs.copy()
        request = np.array([[REWIND, CONTINUE], [RESTART, CONTINUE]])
        after = relocate(host, 0, request)
        assert np.array_equal(after.obs[0, 0], before[0, 0])
        assert np.array_equal(after.obs[:, 1], moved[:, 1])
        assert after.obs[1, 0, EPISODE] == 1
        assert np.array_equal(after.info["clock"], after.obs[..., CLOCK])
        send(host, 0, NOOP)
        assert recv(host, 0).final_obs[..., CLOCK].tolist() == [[1, 2], [1, 2]]
        assert recv(host, 1).final_obs[..., CLOCK].tolist() == [[1, 1], [1, 1]]
        with pytest.raises(UserError, match="requests must be CONTINUE, REWIND or RESTART"):
            relocate(host, 0, 3)


def test_workers_run_where_the_maker_says(tmp_path):
    maker = Maker("toy_body:Walk", {}, str(tmp_path))
    with BodyHost(SPEC, maker, seeds=1, bodies=1, workers=1):
        assert (tmp_path / "litter").exists()


def test_what_a_killed_worker_left_is_cleaned_up(tmp_path):
    maker = Maker("toy_body:Leaves", {}, clean_up="toy_body:clean_up")
    with BodyHost(SPEC, maker, seeds=1, bodies=1, workers=1) as host:
        reset(host, KEYS[:1])
        kill(host, 0)
        with pytest.warns(RuntimeWarning, match="died"):
            step(host, NOOP)
        assert pathlib.Path("cleaned").read_text() == "temporary\n"


def test_bodies_with_processes_of_their_own_step_at_the_same_time():
    # In this process, which is not confined to a core.
    together = {"fields": {"count": 3}, "own_processes": True}
    with open_pool("Together", seeds=1, bodies=6, groups=2, workers=0, **together) as host:
        reset(host, KEYS[:1])
        assert (step(host, NOOP).final_obs[..., CLOCK] == 1).all()


@pytest.mark.parametrize("action", [np.full(4, 5), np.full(4, -1), np.full(4, 1.7), np.zeros(8, int)])
def test_invalid_actions_are_refused_and_nothing_is_sent(action):
    with open_pool(workers=0, groups=2) as host:
        reset(host)
        with pytest.raises(UserError, match="actions must be 4 whole numbers from 0 to 4"):
            host.send(action, 0)
        assert_same(undisturbed()[1:], walk(host))


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ({"bodies": 3, "groups": 2}, "3 bodies cannot be split into 2 equal groups"),
        ({"seeds": 0}, "must be at least 1"),
        ({"workers": -1}, "workers must be at least 0"),
    ],
)
def test_sizes_that_make_no_host_are_refused(sizes, sentence):
    with pytest.raises(UserError, match=sentence):
        open_pool(**sizes)


# --- saving -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "groups"), [(1, 1), (2, 4)])
def test_a_saved_world_goes_on_exactly(workers, groups):
    with open_pool(workers=2 - workers, groups=2) as host:
        reset(host)
        now = walk(host, 9)[-1]
        state = host.save()
        then = walk(host)
    assert state.dtype == np.uint8
    with open_pool(workers=workers, groups=groups) as host:
        host.load(state)
        seen = [relocate(host, group, CONTINUE).obs for group in range(groups)]
        assert np.array_equal(np.concatenate(seen, axis=1), now.obs)
        assert_same(then, walk(host))
        host.load(state)
        assert_same(then, walk(host))


def test_damaged_states_are_refused_and_change_nothing():
    with open_pool(workers=0) as host, open_pool(workers=0, bodies=2) as smaller:
        reset(host)
        smaller.reset(KEYS)
        state = host.save()
        flipped = state.copy()
        flipped[len(state) // 2] ^= 1
        for damaged in (state[:-1], state[:10], state[:0], flipped):
            with pytest.raises(UserError, match="toy/walk: the saved state of the world is damaged"):
                host.load(damaged)
        with pytest.raises(UserError, match="the world was saved with bodies 2, not 4"):
            host.load(smaller.save())
        assert_same(undisturbed()[1:], walk(host))
