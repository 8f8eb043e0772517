"""Spaces of Gymnasium environments: what is understood, what is refused, and names that lead nowhere."""

import inspect

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium_worlds import HEADER, Counting, Grid, play

from advsurprise.envs.host.gymnasium import open_host
from advsurprise.envs.host.load import make_env
from advsurprise.envs.host.spaces import read_actions, read_observations
from advsurprise.errors import UserError

pytestmark = pytest.mark.slow


FLOATS = (-np.inf, np.inf)


@pytest.mark.parametrize(
    ("space", "kind", "shape", "dtype", "classes"),
    [
        (spaces.Box(*FLOATS, (6,), np.float64), "vector", (6,), "float32", 0),
        (spaces.Box(*FLOATS, (), np.float32), "vector", (1,), "float32", 0),
        (spaces.Box(0, 255, (128,), np.uint8), "vector", (128,), "float32", 0),
        (spaces.Box(0, 255, (84, 84), np.uint8), "image", (84, 84, 1), "uint8", 0),
        (spaces.Box(0, 255, (20, 30, 3), np.uint8), "image", (20, 30, 3), "uint8", 0),
        (spaces.Box(0, 200, (20, 30, 3), np.uint8), "image", (20, 30, 3), "float32", 0),
        (spaces.Box(-1, 1, (20, 20, 3), np.float32), "image", (20, 20, 3), "float32", 0),
        (spaces.Box(*FLOATS, (4, 4), np.float32), "image", (4, 4, 1), "float32", 0),
        (spaces.Box(0, 5, (7, 7), np.uint8), "classes", (7, 7), "uint8", 6),
        (spaces.Box(-2, 2, (3,), np.int32), "classes", (3,), "uint8", 5),
        (spaces.Box(0, 1, (10, 10, 4), np.bool_), "classes", (10, 10, 4), "uint8", 2),
        (spaces.Discrete(500, start=-3), "classes", (1,), "int32", 500),
        (spaces.MultiDiscrete([[2, 5], [3, 4]]), "classes", (2, 2), "uint8", 5),
        (spaces.MultiDiscrete([3, 4], start=[5, -1]), "classes", (2,), "uint8", 4),
        (spaces.MultiBinary([3, 3]), "classes", (3, 3), "uint8", 2),
    ],
)
def test_observation_spaces(space, kind, shape, dtype, classes):
    reading = read_observations(space, "X")
    assert (reading.kind, reading.shape, reading.dtype, reading.num_classes) == (kind, shape, dtype, classes)
    space.seed(0)
    shown = reading.encode(np.stack([np.asarray(space.sample()) for _ in range(50)]))
    assert (shown.shape, str(shown.dtype)) == ((50, *shape), dtype)
    if kind == "classes":
        assert 0 <= shown.min() <= shown.max() < classes
    if kind == "image" and np.isfinite(space.low).all():
        shown = shown / 255 if dtype == "uint8" else shown
        assert -1e-6 <= shown.min() < 0.1 < 0.9 < shown.max() <= 1


@pytest.mark.parametrize(
    ("space", "sentence"),
    [
        (spaces.Dict(a=spaces.Discrete(2)), r"observation_space Dict\('a': Discrete\(2\)\).*FlattenObservation"),
        (spaces.Tuple([spaces.Discrete(2)]), r"observation_space Tuple.*use Box"),
        (spaces.Graph(spaces.Discrete(2), None), r"observation_space Graph.*use Box"),
        (spaces.Box(0, 255, (3, 84, 84), np.uint8), r"shape \(3, 84, 84\), which looks like channels first"),
        (spaces.Box(0, 1, (2, 2, 2, 2), np.float32), r"shape \(2, 2, 2, 2\); shapes of 1 to 3 axes"),
        (spaces.Box(0, 1, (0,), np.float32), r"shape \(0,\)"),
        (spaces.Box(0, 1000, (5, 5), np.int32), "1001 values per entry"),
        (spaces.Discrete(10**6), "1000000 numbers as one-hot"),
    ],
)
def test_observation_spaces_that_are_refused(space, sentence):
    with pytest.raises(UserError, match=f"^X: .*{sentence}"):
        read_observations(space, "X")


@pytest.mark.parametrize(
    ("space", "sentence"),
    [
        (spaces.Box(-1, 1, (2,), np.float32), "and continuous actions are not supported"),
        (spaces.MultiBinary(3), "only Discrete actions are accepted"),
        (spaces.MultiDiscrete([2, 2]), "only Discrete actions are accepted"),
    ],
)
def test_action_spaces_that_are_refused(space, sentence):
    with pytest.raises(UserError, match=rf"^X: action_space is .*{sentence}"):
        read_actions(space, "X")


@pytest.mark.parametrize("seen", [[[13]], [[9]]])
def test_a_class_that_was_not_declared_is_named(seen):
    reading = read_observations(spaces.Box(10, 12, (1,), np.int64), "X")
    with pytest.raises(ValueError, match="outside the 3"):
        reading.encode(np.array(seen))


def test_a_number_that_is_not_finite_is_named(tmp_path):
    path = tmp_path / "nan.py"
    source = inspect.getsource(Grid).replace("np.int64", "np.float32")
    path.write_text(
        HEADER + source.replace("self.np_random.integers(10, 13, (5, 5)), 0.0", "np.full((5, 5), np.nan), 0")
    )
    host = open_host(f"{path}:Grid", 1)
    host.reset(0)
    with pytest.raises(UserError, match=r"nan\.py:Grid: an observation contains a number that is not finite"):
        list(play(host, [[0]]))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("CartPol-v1", "Did you mean: `CartPole`"),
        ("no_such_package:X-v0", "No module named 'no_such_package'"),
        ("missing.py:X", "there is no file 'missing.py'"),
        ("{path}:Countin", "has no class 'Countin'; did you mean 'Counting'"),
        ("{path}:Other", "Other is not a subclass of gymnasium.Env"),
        ("{broken}:X", r"broken.py could not be run: ZeroDivisionError"),
        ("{empty}:X", "has no class 'X', nor any other gymnasium.Env"),
    ],
)
def test_names_that_lead_nowhere(tmp_path, name, sentence):
    files = {"path": tmp_path / "env.py", "broken": tmp_path / "broken.py", "empty": tmp_path / "empty.py"}
    files["path"].write_text(HEADER + inspect.getsource(Counting) + "\n\nclass Other:\n    pass\n")
    files["broken"].write_text("1 / 0\n")
    files["empty"].write_text("")
    with pytest.raises(UserError, match=sentence):
        open_host(name.format(**files), 1)


def test_a_file_that_changed_is_run_again_and_finds_files_beside_it(tmp_path):
    path = tmp_path / "changing.py"
    (tmp_path / "beside_changing.py").write_text("ACTIONS = 3\n")
    source = inspect.getsource(Grid)
    path.write_text(HEADER + source)
    assert make_env(f"{path}:Grid").action_space == spaces.Discrete(4)
    changed = source.replace("spaces.Discrete(4)", "spaces.Discrete(beside_changing.ACTIONS)")
    path.write_text(f"import beside_changing\n{HEADER}{changed}")
    assert make_env(f"{path}:Grid").action_space == spaces.Discrete(3)
