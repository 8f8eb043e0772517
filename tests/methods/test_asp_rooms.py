"""Asymmetric self-play in rooms: rewinding is exact, noise is not replayed, and both collectors agree."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import advsurprise
from advsurprise import methods
from advsurprise.envs.host.pure import as_host
from advsurprise.envs.room_state import COUNTED
from advsurprise.learning.collect import ScanCollector
from advsurprise.learning.host_collect import HostCollector
from advsurprise.learning.interaction import Agent
from advsurprise.methods.asp import ASP

pytestmark = pytest.mark.slow


SMALL = {"max_steps": 24, "max_side": 4, "view": 5, "grid": 10, "timeout": "truncated"}
CROWD, HAND_OVER, WALKED = 128, 12, 50


class Walker(eqx.Module):
    """Goes forward, toggles and turns depending on its view; Alice hands over at the twelfth step."""

    alice: bool = eqx.field(static=True)

    def __call__(self, view):
        time = jnp.round(view.time * SMALL["max_steps"]).astype(jnp.int32)
        mixed = jnp.sum(view.frames[..., -1, :, :].astype(jnp.int32), axis=(-2, -1)) + time
        action = jnp.array([2, 2, 5, 0, 2, 2, 1])[mixed % 7] + jnp.where(self.alice & (time == HAND_OVER - 1), 7, 0)
        return 1e6 * jax.nn.one_hot(action, 14), view.time[..., None]


@pytest.fixture(scope="module")
def rooms():
    """Where bodies in rooms stood after every step, with the rollout of that step, and the same by a host."""
    env = advsurprise.make("rooms/door", **SMALL)
    method = ASP(env.spec)
    agent = Agent(method, {role: Walker(role == "alice") for role in method.roles}, methods.base.Empty())
    collector, host = ScanCollector(env, CROWD, 1), HostCollector(as_host(env, CROWD), 1)
    collect = jax.jit(lambda carry, key: collector.collect(agent, carry, key=key))
    start_key, *keys = jax.random.split(jax.random.key(6), 1 + WALKED)
    carries = [jax.jit(collector.start)(agent, key=start_key)]
    seeds, memory = _with_seed_axis(agent), host.start(_with_seed_axis(agent), key=start_key[None])
    memories = [memory]
    scanned, hosted = [], []
    for key in keys:
        carry, rollout = collect(carries[-1], key)
        memory, host_rollout = host.collect(seeds, memory, key=key[None])
        carries.append(carry)
        memories.append(memory)
        scanned.append(rollout)
        hosted.append(jax.tree.map(np.asarray, host_rollout))
    memories, hosted = (jax.tree.map(lambda leaf: leaf[0], each) for each in (memories, hosted))
    return carries, scanned, memories, hosted


def _with_seed_axis(agent):
    return jax.tree.map(lambda leaf: leaf[None], agent)


def test_the_collectors_collect_the_same(rooms):
    carries, scanned, memories, hosted = rooms
    _assert_same(_stack(scanned), _stack(hosted))
    _assert_same(_stack([carry.memory for carry in carries]), _stack(memories))
    # Hand-overs, successes and ends by the clock were among what was compared.
    both = _stack(scanned)
    over = np.asarray(both.terminated | both.truncated)
    assert np.asarray(both.signal.stopped).sum() >= 2 * CROWD
    assert np.asarray(both.signal.solved).sum() > 5
    assert (over & ~np.asarray(both.signal.solved)).sum() > 5


def _stack(trees):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def _assert_same(left, right):
    """Integers and flags to the bit, floats to rounding."""
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(left), jax.tree.leaves(right), strict=True):
        name = jax.tree_util.keystr(path)
        assert (a.shape, a.dtype) == (b.shape, b.dtype), name
        np.testing.assert_allclose(a, b, rtol=1e-4 if a.dtype.kind == "f" else 0, atol=0, err_msg=name)


def test_bob_begins_in_the_first_state_but_for_what_was_counted(rooms):
    carries, scanned, _, _ = rooms
    states = [carry.env_state for carry in carries]
    assert bool(scanned[HAND_OVER - 1].signal.stopped.all())
    first, last, rewound = states[0], states[HAND_OVER - 1], states[HAND_OVER]
    for name in vars(first):
        if name not in COUNTED:
            assert np.array_equal(getattr(rewound, name), getattr(first, name)), name
    # Alice did change things, and the rooms she was in count in Bob's turn too.
    for name in ("grid", "position", "visited", "words", "time"):
        assert not np.array_equal(getattr(last, name), getattr(first, name)), name
    for name in ("visited", "visited_life", "dark_steps"):
        assert bool((getattr(rewound, name) >= getattr(last, name)).all()), name
    # Bob sees what Alice saw first, over and over, and before it what she saw last.
    memory = carries[HAND_OVER].memory
    first_seen = np.asarray(carries[0].memory.frames.stack[:, -1])
    assert all(np.array_equal(memory.frames.stack[:, index], first_seen) for index in range(4))
    assert not np.array_equal(memory.goal, first_seen)
    assert np.asarray(memory.time).tolist() == np.asarray(memory.set_at).tolist() == [HAND_OVER] * CROWD


def test_noise_is_not_replayed(rooms):
    states = [carry.env_state for carry in rooms[0]]
    assert np.array_equal(states[HAND_OVER].words, states[0].words)
    assert not np.any(np.asarray(states[HAND_OVER + 1].words == states[1].words))


def test_a_game_that_is_over_is_followed_by_a_new_layout(rooms):
    carries, scanned, _, _ = rooms
    found = 0
    for before, after, rollout in zip(carries, carries[1:], scanned, strict=False):
        over = np.asarray(rollout.terminated | rollout.truncated)[0]
        same = np.all(np.asarray(before.first.grid == after.first.grid), axis=1)
        assert (same | over).all()
        assert not (same & over).any()
        assert not np.asarray(after.env_state.time)[over].any()
        assert not np.asarray(after.memory.time)[over].any()
        found += over.sum()
    assert found > CROWD
