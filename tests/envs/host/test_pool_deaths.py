"""Bodies in worker processes: no harm from a death, and nothing is left."""

import gc
import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest
from pool_of_toys import (
    CLOCK,
    EPISODE,
    KEYS,
    OTHER_KEYS,
    X,
    alive,
    assert_same,
    kill,
    open_pool,
    recv,
    relocate,
    reset,
    send,
    step,
    undisturbed,
    until,
    walk,
)
from toy_body import DIE, NOOP, RAISE, RIGHT, SLOW

from advsurprise.envs.host.workers import WorkerDied
from advsurprise.errors import MissingExtra, UserError
from advsurprise.types import CONTINUE, RESTART, REWIND

pytestmark = pytest.mark.usefixtures("temporary")


# --- deaths -----------------------------------------------------------------------------------------------------------


def test_a_worker_that_was_killed_is_replaced_and_nobody_else_notices():
    with open_pool(workers=2, groups=2) as host:
        reset(host)
        before = walk(host, 3)[-1]
        kill(host, 1)
        with pytest.warns(
            RuntimeWarning, match=r"worker 2 of 2 died \(killed by signal 9\); its 4 bodies started new ep"
        ):
            now = step(host, RIGHT)
        # Rows are dealt out in turn: every second body is the second worker's.
        lost = np.zeros((2, 4), bool)
        lost[:, 1::2] = True
        assert np.array_equal(now.truncated[lost], [True] * 4)
        assert not now.terminated[lost].any()
        assert not now.reward[lost].any()
        assert np.array_equal(now.final_obs[lost], before.obs[lost])
        assert np.array_equal(now.info["clock"][lost], before.obs[lost, CLOCK])
        assert (now.obs[lost, CLOCK] == 0).all()
        assert not np.isin(now.obs[lost, X], undisturbed()[0].obs[..., X]).any()
        assert host.replaced == 1
        assert not step(host, RIGHT).final_obs[lost, EPISODE].any()
    with open_pool(workers=0) as host:
        reset(host)
        walk(host, 3)
        same = step(host, RIGHT)
        assert_same(jax.tree.map(lambda array: array[~lost], same), jax.tree.map(lambda array: array[~lost], now))


def test_a_death_between_steps_ends_the_episodes_of_a_group_that_was_idle():
    with open_pool(workers=1, groups=2) as host:
        first = reset(host).obs
        kill(host, 0)
        send(host, 0, NOOP)
        with pytest.warns(RuntimeWarning, match="its 8 bodies"):
            assert recv(host, 0).truncated.all()
        request = np.array([[RESTART, CONTINUE], [CONTINUE, CONTINUE]])
        shown = relocate(host, 1, request).obs
        assert np.array_equal(shown.reshape(4, 3)[1:], first[:, 2:].reshape(4, 3)[1:])
        state = host.save()
        send(host, 1, NOOP)
        now = recv(host, 1)
        assert np.array_equal(now.truncated, request == CONTINUE)
        assert now.final_obs[0, 0, CLOCK] == 1
        assert np.array_equal(now.final_obs.reshape(4, 3)[1:], first[:, 2:].reshape(4, 3)[1:])
        assert host.replaced == 1
    with open_pool(workers=0, groups=2) as host:
        host.load(state)
        send(host, 1, NOOP)
        assert_same(now, recv(host, 1))


@pytest.mark.slow
def test_a_death_outside_of_a_step():
    request = np.array([[RESTART, CONTINUE], [REWIND, RESTART]])
    with open_pool(workers=2) as host:
        first = reset(host, OTHER_KEYS).obs.copy()
        state = host.save()
        orders = {
            "save": host.save,
            "load": lambda: host.load(state),
            "relocate": lambda: relocate(host, 0, request),
            "reset": lambda: reset(host, OTHER_KEYS),
        }
        for order, give in orders.items():
            reset(host, OTHER_KEYS)
            kill(host, 0)
            with pytest.warns(RuntimeWarning, match=r"worker 1 of 2 died \(killed by signal 9\)"):
                give()
            now = step(host, NOOP)
            ended = np.zeros((2, 4), bool)
            ended[:, ::2] = order != "reset"
            if order == "relocate":
                ended[:, :2] &= request == CONTINUE
            assert np.array_equal(now.final_obs[..., CLOCK] == 0, ended), order
            assert now.truncated[ended].all()
            assert np.array_equal(now.final_obs[ended], first[ended])
            step(host, NOOP)
        assert host.replaced == 4


@pytest.mark.parametrize("workers", [0, 1])
def test_the_error_of_a_body_is_in_the_warning(workers):
    with open_pool(workers=workers, seeds=1, bodies=2, groups=1) as host:
        before = reset(host, KEYS[:1]).obs.copy()
        with pytest.warns(RuntimeWarning, match=r"died \(ArithmeticError: the walk fell over\); its 2 bodies started"):
            now = step(host, [[RIGHT, RAISE]])
        assert now.truncated.all()
        assert np.array_equal(now.final_obs, before)


def test_three_deaths_in_a_row_are_too_many():
    with open_pool(workers=1, seeds=1, bodies=1) as host:
        reset(host, KEYS[:1])
        with pytest.warns(RuntimeWarning, match=r"died \(exit code 7\); its 1 body started"):
            step(host, DIE)
        step(host, NOOP)
        for _ in range(2):
            with pytest.warns(RuntimeWarning, match="died"):
                step(host, DIE)
        with pytest.raises(
            WorkerDied, match=r"toy/walk: worker 1 of 1 died 3 times in a row \(exit code 7\)"
        ) as caught:
            step(host, DIE)
        assert caught.value.exit_code == 4
        assert host.replaced == 3
        with pytest.raises(RuntimeError, match="closed"):
            reset(host, KEYS[:1])


def test_a_body_that_cannot_begin_is_given_up():
    with open_pool("broken_reset", workers=1, seeds=1) as host:
        with pytest.raises(WorkerDied, match=r"3 times in a row \(ArithmeticError: no ground\)"):
            reset(host, KEYS[:1])
        assert not host.worker_pids


def test_what_a_body_has_started_dies_with_its_worker(tmp_path):
    pids = tmp_path / "pids"
    with open_pool("Parent", workers=1, seeds=1, bodies=1, fields={"pids": str(pids)}) as host:
        reset(host, KEYS[:1])
        kill(host, 0)
        with pytest.warns(RuntimeWarning, match="died"):
            step(host, NOOP)
        first, second = (int(pid) for pid in pids.read_text().split())
        until(lambda: not alive(first), 2)
        assert alive(second)
    until(lambda: not alive(second), 2)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("reason", "error", "sentence"),
    [
        ("user", UserError, "^no such game: 'pong2'$"),
        ("extra", MissingExtra, "^install it$"),
        ("other", UserError, "^toy/walk could not be made: OSError: gone$"),
    ],
)
def test_errors_at_the_start_are_sentences(workers, reason, error, sentence):
    with pytest.raises(UserError, match=sentence) as caught:
        open_pool("refuse", workers=workers, fields={"reason": reason})
    assert type(caught.value) is error


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("how", ["close", "forget"])
def test_nothing_is_left(how, temporary):
    host = open_pool(workers=2)
    reset(host)
    pids = host.worker_pids
    assert len(pids) == len(list(temporary.iterdir())) == 2
    # Neither Ctrl-C nor anything else that is sent to the program's group reaches a worker.
    assert [os.getsid(pid) for pid in pids] == pids
    files = os.listdir("/proc/self/fd")
    send(host, 0, NOOP)
    if how == "close":
        host.close()
        host.close()
    del host
    gc.collect()
    assert not any(alive(pid) for pid in pids)
    assert not list(temporary.iterdir())
    assert len(os.listdir("/proc/self/fd")) <= len(files) - 3


SCRIPT = """
import sys, time
import jax, numpy as np
from test_pool import KEYS, open_pool
host = open_pool(workers=2, seeds=1, bodies=4, groups=4)
host.reset(KEYS[:1])
host.send(np.array([int(sys.argv[1])]), 0)
time.sleep(0.5)
print(*host.worker_pids, flush=True)
time.sleep(float(sys.argv[2]))
"""


def _run_script(action, seconds, temporary):
    paths = {"PYTHONPATH": os.pathsep.join([str(pathlib.Path(__file__).parent), *sys.path]), "TMPDIR": str(temporary)}
    words = [str(action), str(seconds)]
    return subprocess.Popen([sys.executable, "-c", SCRIPT, *words], env=os.environ | paths, stdout=subprocess.PIPE)


@pytest.mark.slow
def test_workers_of_a_program_that_was_killed_end_even_within_a_step(temporary):
    program = _run_script(SLOW, 60, temporary)
    stepping, *idle = (int(pid) for pid in program.stdout.readline().split())
    assert len(list(temporary.iterdir())) == 2
    program.kill()
    program.communicate()
    until(lambda: not any(alive(pid) for pid in idle), 3)
    assert alive(stepping)
    until(lambda: not alive(stepping), 10)
    assert not list(temporary.iterdir())


@pytest.mark.slow
def test_a_program_that_forgets_its_host_leaves_nothing(temporary):
    program = _run_script(NOOP, 0, temporary)
    out, _ = program.communicate(timeout=30)
    assert program.returncode == 0
    pids = [int(pid) for pid in out.split()]
    assert len(pids) == 2
    assert not any(alive(pid) for pid in pids)


def test_a_worker_imports_no_jax():
    code = "import sys, advsurprise.envs.host.worker; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
