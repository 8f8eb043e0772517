"""Bodies in worker processes: the same episodes however they are stepped, and no harm from a death."""

import contextlib
import functools
import gc
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import jax
import numpy as np
import pytest
from toy_body import DIE, NOOP, RAISE, RIGHT, SLOW

from advsurprise.envs.host.body import Maker
from advsurprise.envs.host.pool import BodyHost
from advsurprise.envs.host.workers import WorkerDied
from advsurprise.errors import MissingExtra, UserError
from advsurprise.types import CONTINUE, RESTART, REWIND, EnvSpec, Measure

MEASURES = (Measure("x", "x"), Measure("clock", "clock"))
SPEC = EnvSpec("toy/walk", (3,), "float32", "vector", 0, 5, 0, MEASURES, truncates=True)
KEYS = jax.random.split(jax.random.key(3), 2)
OTHER_KEYS = jax.random.split(jax.random.key(1), 2)
"""Neither of the first two steps of these ends an episode."""
X, CLOCK, EPISODE = range(3)
LENGTH = 7


def _open(name="Walk", *, seeds=2, bodies=4, **kwargs):
    fields = kwargs.pop("fields", {})
    return BodyHost(SPEC, Maker(f"toy_body:{name}", fields), seeds=seeds, bodies=bodies, **kwargs)


def _by_seed(host, timestep):
    return jax.tree.map(lambda array: array.reshape(host.seeds, -1, *array.shape[1:]), timestep)


def _reset(host, keys=KEYS):
    return _by_seed(host, host.reset(keys))


def _send(host, group, action):
    host.send(np.broadcast_to(action, (host.seeds, host.group_bodies)).ravel(), group)


def _recv(host, group):
    return _by_seed(host, host.recv(group))


def _relocate(host, group, request):
    return _by_seed(host, host.relocate(np.broadcast_to(request, (host.seeds, host.group_bodies)).ravel(), group))


def _step(host, action):
    """A step of all bodies with all groups under way at the same time, axes [S, B]."""
    parts = np.split(np.broadcast_to(action, (host.seeds, host.bodies)), host.groups, axis=1)
    for group, part in enumerate(parts):
        _send(host, group, part)
    timesteps = [_recv(host, group) for group in range(host.groups)]
    return jax.tree.map(lambda *arrays: np.concatenate(arrays, axis=1), *timesteps)


def _walk(host, steps=20):
    actions = np.random.default_rng(0).integers(0, 2, (steps, 1, host.bodies))
    return [_step(host, action) for action in actions]


def _episodes(keys, **kwargs):
    with _open(seeds=len(keys), **kwargs) as host:
        return [jax.tree.map(np.copy, _reset(host, keys)), *_walk(host)]


@functools.cache
def _undisturbed():
    return _episodes(KEYS, workers=0, groups=1)


def _assert_same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def _alive(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return "Z" not in pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return False


def _until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def _kill(host, index):
    pid = host.worker_pids[index]
    os.kill(pid, signal.SIGKILL)
    _until(lambda: not _alive(pid), 5)


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """Folders of workers, which must all be gone in the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.chdir(tmp_path)
    yield folder
    assert not list(folder.iterdir())


# --- episodes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "groups"), [(0, 2), (0, 4), (1, 1), (2, 2)])
def test_episodes_depend_on_the_seed_alone(workers, groups):
    _assert_same(_undisturbed(), _episodes(KEYS, workers=workers, groups=groups))


def test_a_seed_has_the_same_episodes_alone():
    second = _episodes(KEYS[1:], workers=1)
    _assert_same(jax.tree.map(lambda array: array[1:], _undisturbed()), second)


def test_seeds_and_bodies_differ_and_a_reset_repeats():
    first = _undisturbed()[0].obs[..., X]
    assert len(np.unique(first)) == first.size
    with _open(workers=0) as host:
        _reset(host, KEYS[::-1])
        _send(host, 0, NOOP)
        _assert_same(_reset(host), _undisturbed()[0])


def test_a_new_episode_begins_within_the_step_that_ended_the_last():
    before = _undisturbed()[0]
    terminations = truncations = 0
    for now in _undisturbed()[1:]:
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
    with _open(workers=workers, groups=2) as host:
        _reset(host, OTHER_KEYS)
        # The other group's step may be under way.
        _send(host, 1, RIGHT)
        before = _relocate(host, 0, CONTINUE).obs.copy()
        _send(host, 0, NOOP)
        stepped = _recv(host, 0)
        moved = stepped.obs.copy()
        request = np.array([[REWIND, CONTINUE], [RESTART, CONTINUE]])
        after = _relocate(host, 0, request)
        assert np.array_equal(after.obs[0, 0], before[0, 0])
        assert np.array_equal(after.obs[:, 1], moved[:, 1])
        assert after.obs[1, 0, EPISODE] == 1
        assert np.array_equal(after.info["clock"], after.obs[..., CLOCK])
        _send(host, 0, NOOP)
        assert _recv(host, 0).final_obs[..., CLOCK].tolist() == [[1, 2], [1, 2]]
        assert _recv(host, 1).final_obs[..., CLOCK].tolist() == [[1, 1], [1, 1]]
        with pytest.raises(UserError, match="requests must be CONTINUE, REWIND or RESTART"):
            _relocate(host, 0, 3)


def test_workers_run_where_the_maker_says(tmp_path):
    maker = Maker("toy_body:Walk", {}, str(tmp_path))
    with BodyHost(SPEC, maker, seeds=1, bodies=1, workers=1):
        assert (tmp_path / "litter").exists()


def test_what_a_killed_worker_left_is_cleaned_up(tmp_path):
    maker = Maker("toy_body:Leaves", {}, clean_up="toy_body:clean_up")
    with BodyHost(SPEC, maker, seeds=1, bodies=1, workers=1) as host:
        _reset(host, KEYS[:1])
        _kill(host, 0)
        with pytest.warns(RuntimeWarning, match="died"):
            _step(host, NOOP)
        assert pathlib.Path("cleaned").read_text() == "temporary\n"


def test_bodies_that_leave_python_step_at_the_same_time():
    with _open("Together", seeds=1, bodies=6, groups=2, workers=1, fields={"count": 3}) as host:
        _reset(host, KEYS[:1])
        assert (_step(host, NOOP).final_obs[..., CLOCK] == 1).all()


@pytest.mark.parametrize("action", [np.full(4, 5), np.full(4, -1), np.zeros(8, int)])
def test_invalid_actions_are_refused_and_nothing_is_sent(action):
    with _open(workers=0, groups=2) as host:
        _reset(host)
        with pytest.raises(UserError, match="actions must be 4 whole numbers from 0 to 4"):
            host.send(action, 0)
        _assert_same(_undisturbed()[1:], _walk(host))


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
        _open(**sizes)


# --- saving -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "groups"), [(1, 1), (2, 4)])
def test_a_saved_world_goes_on_exactly(workers, groups):
    with _open(workers=2 - workers, groups=2) as host:
        _reset(host)
        now = _walk(host, 9)[-1]
        state = host.save()
        then = _walk(host)
    assert state.dtype == np.uint8
    with _open(workers=workers, groups=groups) as host:
        host.load(state)
        seen = [_relocate(host, group, CONTINUE).obs for group in range(groups)]
        assert np.array_equal(np.concatenate(seen, axis=1), now.obs)
        _assert_same(then, _walk(host))
        host.load(state)
        _assert_same(then, _walk(host))


def test_damaged_states_are_refused_and_change_nothing():
    with _open(workers=0) as host, _open(workers=0, bodies=2) as smaller:
        _reset(host)
        smaller.reset(KEYS)
        state = host.save()
        flipped = state.copy()
        flipped[len(state) // 2] ^= 1
        for damaged in (state[:-1], state[:10], state[:0], flipped):
            with pytest.raises(UserError, match="toy/walk: the saved state of the world is damaged"):
                host.load(damaged)
        with pytest.raises(UserError, match="the world was saved with bodies 2, not 4"):
            host.load(smaller.save())
        _assert_same(_undisturbed()[1:], _walk(host))


# --- deaths -----------------------------------------------------------------------------------------------------------


def test_a_worker_that_was_killed_is_replaced_and_nobody_else_notices():
    with _open(workers=2, groups=2) as host:
        _reset(host)
        before = _walk(host, 3)[-1]
        _kill(host, 1)
        with pytest.warns(
            RuntimeWarning, match=r"worker 2 of 2 died \(killed by signal 9\); its 4 bodies began new ep"
        ):
            now = _step(host, RIGHT)
        # Rows are dealt out in turn: every second body is the second worker's.
        lost = np.zeros((2, 4), bool)
        lost[:, 1::2] = True
        assert np.array_equal(now.truncated[lost], [True] * 4)
        assert not now.terminated[lost].any()
        assert not now.reward[lost].any()
        assert np.array_equal(now.final_obs[lost], before.obs[lost])
        assert np.array_equal(now.info["clock"][lost], before.obs[lost, CLOCK])
        assert (now.obs[lost, CLOCK] == 0).all()
        assert not np.isin(now.obs[lost, X], _undisturbed()[0].obs[..., X]).any()
        assert host.replaced == 1
        assert not _step(host, RIGHT).final_obs[lost, EPISODE].any()
    with _open(workers=0) as host:
        _reset(host)
        _walk(host, 3)
        same = _step(host, RIGHT)
        _assert_same(jax.tree.map(lambda array: array[~lost], same), jax.tree.map(lambda array: array[~lost], now))


def test_a_death_between_steps_ends_the_episodes_of_a_group_that_was_idle():
    with _open(workers=1, groups=2) as host:
        first = _reset(host).obs
        _kill(host, 0)
        _send(host, 0, NOOP)
        with pytest.warns(RuntimeWarning, match="its 8 bodies"):
            assert _recv(host, 0).truncated.all()
        request = np.array([[RESTART, CONTINUE], [CONTINUE, CONTINUE]])
        shown = _relocate(host, 1, request).obs
        assert np.array_equal(shown.reshape(4, 3)[1:], first[:, 2:].reshape(4, 3)[1:])
        state = host.save()
        _send(host, 1, NOOP)
        now = _recv(host, 1)
        assert np.array_equal(now.truncated, request == CONTINUE)
        assert now.final_obs[0, 0, CLOCK] == 1
        assert np.array_equal(now.final_obs.reshape(4, 3)[1:], first[:, 2:].reshape(4, 3)[1:])
        assert host.replaced == 1
    with _open(workers=0, groups=2) as host:
        host.load(state)
        _send(host, 1, NOOP)
        _assert_same(now, _recv(host, 1))


@pytest.mark.slow
def test_a_death_outside_of_a_step():
    request = np.array([[RESTART, CONTINUE], [REWIND, RESTART]])
    with _open(workers=2) as host:
        first = _reset(host, OTHER_KEYS).obs.copy()
        state = host.save()
        orders = {
            "save": host.save,
            "load": lambda: host.load(state),
            "relocate": lambda: _relocate(host, 0, request),
            "reset": lambda: _reset(host, OTHER_KEYS),
        }
        for order, give in orders.items():
            _reset(host, OTHER_KEYS)
            _kill(host, 0)
            with pytest.warns(RuntimeWarning, match=r"worker 1 of 2 died \(killed by signal 9\)"):
                give()
            now = _step(host, NOOP)
            ended = np.zeros((2, 4), bool)
            ended[:, ::2] = order != "reset"
            if order == "relocate":
                ended[:, :2] &= request == CONTINUE
            assert np.array_equal(now.final_obs[..., CLOCK] == 0, ended), order
            assert now.truncated[ended].all()
            assert np.array_equal(now.final_obs[ended], first[ended])
            _step(host, NOOP)
        assert host.replaced == 4


@pytest.mark.parametrize("workers", [0, 1])
def test_the_error_of_a_body_is_in_the_warning(workers):
    with _open(workers=workers, seeds=1, bodies=2, groups=1) as host:
        before = _reset(host, KEYS[:1]).obs.copy()
        with pytest.warns(RuntimeWarning, match=r"died \(ArithmeticError: the walk fell over\); its 2 bodies began"):
            now = _step(host, [[RIGHT, RAISE]])
        assert now.truncated.all()
        assert np.array_equal(now.final_obs, before)


def test_three_deaths_in_a_row_are_too_many():
    with _open(workers=1, seeds=1, bodies=1) as host:
        _reset(host, KEYS[:1])
        with pytest.warns(RuntimeWarning, match=r"died \(exit code 7\); its 1 body began"):
            _step(host, DIE)
        _step(host, NOOP)
        for _ in range(2):
            with pytest.warns(RuntimeWarning, match="died"):
                _step(host, DIE)
        with pytest.raises(
            WorkerDied, match=r"toy/walk: worker 1 of 1 died 3 times in a row \(exit code 7\)"
        ) as caught:
            _step(host, DIE)
        assert caught.value.exit_code == 4
        assert host.replaced == 3
        with pytest.raises(RuntimeError, match="closed"):
            _reset(host, KEYS[:1])


def test_a_body_that_cannot_begin_is_given_up():
    with _open("broken_reset", workers=1, seeds=1) as host:
        with pytest.raises(WorkerDied, match=r"3 times in a row \(ArithmeticError: no ground\)"):
            _reset(host, KEYS[:1])
        assert not host.worker_pids


def test_what_a_body_has_started_dies_with_its_worker(tmp_path):
    pids = tmp_path / "pids"
    with _open("Parent", workers=1, seeds=1, bodies=1, fields={"pids": str(pids)}) as host:
        _reset(host, KEYS[:1])
        _kill(host, 0)
        with pytest.warns(RuntimeWarning, match="died"):
            _step(host, NOOP)
        first, second = (int(pid) for pid in pids.read_text().split())
        _until(lambda: not _alive(first), 2)
        assert _alive(second)
    _until(lambda: not _alive(second), 2)


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
        _open("refuse", workers=workers, fields={"reason": reason})
    assert type(caught.value) is error


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("how", ["close", "forget"])
def test_nothing_is_left(how, temporary):
    host = _open(workers=2)
    _reset(host)
    pids = host.worker_pids
    assert len(pids) == len(list(temporary.iterdir())) == 2
    # Neither Ctrl-C nor anything else that is sent to the program's group reaches a worker.
    assert [os.getsid(pid) for pid in pids] == pids
    files = os.listdir("/proc/self/fd")
    _send(host, 0, NOOP)
    if how == "close":
        host.close()
        host.close()
    del host
    gc.collect()
    assert not any(_alive(pid) for pid in pids)
    assert not list(temporary.iterdir())
    assert len(os.listdir("/proc/self/fd")) <= len(files) - 3


SCRIPT = """
import sys, time
import jax, numpy as np
from test_pool import KEYS, _open
host = _open(workers=2, seeds=1, bodies=4, groups=4)
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
    _until(lambda: not any(_alive(pid) for pid in idle), 3)
    assert _alive(stepping)
    _until(lambda: not _alive(stepping), 10)
    assert not list(temporary.iterdir())


@pytest.mark.slow
def test_a_program_that_forgets_its_host_leaves_nothing(temporary):
    program = _run_script(NOOP, 0, temporary)
    out, _ = program.communicate(timeout=30)
    assert program.returncode == 0
    pids = [int(pid) for pid in out.split()]
    assert len(pids) == 2
    assert not any(_alive(pid) for pid in pids)


def test_a_worker_imports_no_jax():
    code = "import sys, advsurprise.envs.host.worker; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
