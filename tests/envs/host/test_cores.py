"""Cores of workers whose bodies have processes of their own."""

import concurrent.futures
import os
import socket
import subprocess
import sys

import pytest
from pool_of_toys import KEYS, open_pool, reset

from advsurprise.envs.host import cores

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen here")
ALLOWED = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


@pytest.fixture
def in_a_thread(monkeypatch):
    """Runs a function in a thread of its own, which alone is confined, with claims of its own."""
    monkeypatch.setattr(cores, "NAME", f"\0advsurprise-test-{os.getpid()}-{{}}")

    def run(function):
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            return thread.submit(function).result()

    return run


def claimed():
    """A claim, the thread's cores, and those of a process that it starts."""
    claim = cores.claim_core()
    command = "import os; print(*os.sched_getaffinity(0))"
    child = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True).stdout
    return claim, os.sched_getaffinity(0), set(map(int, child.split()))


def is_claimed(core):
    with socket.socket(socket.AF_UNIX) as claim:
        try:
            claim.bind(cores.NAME.format(core))
        except OSError:
            return True
    return False


def test_every_worker_gets_a_core_of_its_own_until_none_is_free(in_a_thread):
    claims, taken = [], []
    for _ in ALLOWED:
        claim, mine, childs = in_a_thread(claimed)
        assert len(mine) == 1
        assert childs == mine
        claims.append(claim)
        taken += mine
    assert sorted(taken) == sorted(ALLOWED)
    none, mine, _ = in_a_thread(claimed)
    assert none is None
    assert mine == ALLOWED
    claims[0].close()
    again, mine, _ = in_a_thread(claimed)
    assert mine == {taken[0]}
    for claim in (again, *claims[1:]):
        claim.close()


def test_only_workers_of_bodies_with_own_processes_are_confined():
    with open_pool(workers=1) as host:
        reset(host, KEYS)
        (worker,) = host.worker_pids
        assert os.sched_getaffinity(worker) == ALLOWED
    with open_pool(workers=1, own_processes=True) as host:
        reset(host, KEYS)
        (worker,) = host.worker_pids
        # Other tests may have claimed every core.
        assert len(os.sched_getaffinity(worker)) == 1 or all(map(is_claimed, ALLOWED))
