"""A small world for worker processes: a walk whose steps and episode lengths are random."""

import os
import pathlib
import pickle
import subprocess
import tempfile
import threading
import time
from typing import ClassVar

import numpy as np

from advsurprise.envs.host.body import Body, Stepped
from advsurprise.errors import MissingExtra, UserError

NOOP, RIGHT, SLOW, RAISE, DIE = range(5)


def clean_up(folder):
    """Notes what a worker has left in its folder for temporary files."""
    with open("cleaned", "a") as file:
        file.writelines(path.read_text() for path in pathlib.Path(folder).glob("walk-*"))


class Walk(Body):
    """Sees where it is, its clock and its episode; writes every observation over the last."""

    rewinds = True
    resumes = True

    def __init__(self, length: int = 7, busy: float = 0.0):
        self.obs = np.zeros(3, np.float32)
        self.length, self.busy = length, busy
        pathlib.Path("litter").touch()

    def reset(self, seed):
        self.rng = np.random.default_rng(seed)
        self.episode = -1
        return self.begin()

    def begin(self):
        self.x, self.clock, self.episode = float(self.rng.normal()), 0, self.episode + 1
        self.first = self.x
        return self._see()

    def rewind(self):
        self.x, self.clock = self.first, 0
        return self._see()

    def step(self, action):
        if action == SLOW:
            time.sleep(60)
        if action == RAISE:
            raise ArithmeticError("the walk\nfell over")
        if action == DIE:
            os._exit(7)
        self.x += float(action == RIGHT) + float(self.rng.normal())
        self.clock += 1
        terminated = bool(self.rng.random() < 0.1)
        until = time.perf_counter() + self.busy
        while time.perf_counter() < until:
            pass
        return Stepped(self._see(), self.x, terminated, self.clock >= self.length, self.info())

    def info(self):
        return {"x": self.x, "clock": float(self.clock)}

    def save(self):
        return pickle.dumps((self.rng, self.x, self.clock, self.episode, self.first))

    def load(self, state):
        self.rng, self.x, self.clock, self.episode, self.first = pickle.loads(state)

    def _see(self):
        self.obs[:] = self.x, self.clock, self.episode
        return self.obs


class Leaves(Walk):
    """Leaves a file among the temporary ones."""

    def __init__(self):
        super().__init__()
        descriptor, _ = tempfile.mkstemp(prefix="walk-")
        with open(descriptor, "w") as file:
            file.write("temporary\n")


class Together(Walk):
    """A walk whose step waits until some bodies of the process are in theirs."""

    barriers: ClassVar[dict[int, threading.Barrier]] = {}

    def __init__(self, count: int):
        super().__init__()
        self.barrier = self.barriers.setdefault(count, threading.Barrier(count, timeout=5))

    def step(self, action):
        self.barrier.wait()
        return super().step(action)


class Parent(Walk):
    """A walk that starts a process of its own, and never ends it."""

    def __init__(self, pids: str):
        super().__init__()
        child = subprocess.Popen(["sleep", "600"])
        with open(pids, "a") as file:
            print(child.pid, file=file)


def refuse(reason: str):
    """Fails as a maker does."""
    errors = {"user": UserError("no such game: 'pong2'"), "extra": MissingExtra("install it"), "other": OSError("gone")}
    raise errors[reason]


def broken_reset():
    """A body that cannot even begin."""

    class Broken(Walk):
        def reset(self, seed):
            raise ArithmeticError("no ground")

    return Broken()
