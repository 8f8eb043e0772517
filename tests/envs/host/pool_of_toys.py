"""A pool of toy bodies, and what is done to it."""

import contextlib
import functools
import os
import pathlib
import signal
import time

import jax
import numpy as np

from advsurprise.envs.host.body import Maker
from advsurprise.envs.host.pool import BodyHost
from advsurprise.types import EnvSpec, Measure

MEASURES = (Measure("x", "x"), Measure("clock", "clock"))
SPEC = EnvSpec("toy/walk", (3,), "float32", "vector", 0, 5, 0, MEASURES, truncates=True)
KEYS = jax.random.split(jax.random.key(3), 2)
OTHER_KEYS = jax.random.split(jax.random.key(1), 2)
"""Neither of the first two steps of these ends an episode."""
X, CLOCK, EPISODE = range(3)
LENGTH = 7


def open_pool(name="Walk", *, seeds=2, bodies=4, **kwargs):
    maker = Maker(f"toy_body:{name}", kwargs.pop("fields", {}), own_processes=kwargs.pop("own_processes", False))
    return BodyHost(SPEC, maker, seeds=seeds, bodies=bodies, **kwargs)


def by_seed(host, timestep):
    return jax.tree.map(lambda array: array.reshape(host.seeds, -1, *array.shape[1:]), timestep)


def reset(host, keys=KEYS):
    return by_seed(host, host.reset(keys))


def send(host, group, action):
    host.send(np.broadcast_to(action, (host.seeds, host.group_bodies)).ravel(), group)


def recv(host, group):
    return by_seed(host, host.recv(group))


def relocate(host, group, request):
    return by_seed(host, host.relocate(np.broadcast_to(request, (host.seeds, host.group_bodies)).ravel(), group))


def step(host, action):
    """A step of all bodies with all groups under way at the same time, axes [S, B]."""
    parts = np.split(np.broadcast_to(action, (host.seeds, host.bodies)), host.groups, axis=1)
    for group, part in enumerate(parts):
        send(host, group, part)
    timesteps = [recv(host, group) for group in range(host.groups)]
    return jax.tree.map(lambda *arrays: np.concatenate(arrays, axis=1), *timesteps)


def walk(host, steps=20):
    actions = np.random.default_rng(0).integers(0, 2, (steps, 1, host.bodies))
    return [step(host, action) for action in actions]


def episodes(keys, **kwargs):
    with open_pool(seeds=len(keys), **kwargs) as host:
        return [jax.tree.map(np.copy, reset(host, keys)), *walk(host)]


@functools.cache
def undisturbed():
    return episodes(KEYS, workers=0, groups=1)


def assert_same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def alive(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return "Z" not in pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return False


def until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def kill(host, index):
    pid = host.worker_pids[index]
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), 5)
