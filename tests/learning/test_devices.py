"""Several devices: what each of them holds, that their number changes no result, and how many are chosen."""

import json
import os
import pathlib
import subprocess
import sys

import eight_devices
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from eight_devices import MESHES, READERS, WRITER, flat
from jax.sharding import PartitionSpec
from sameness import assert_same

from advsurprise.cli import main as cli
from advsurprise.errors import UserError
from advsurprise.learning import devices
from advsurprise.learning.devices import BODIES, ONE_DEVICE, PER_BODY, PER_SEED, Devices
from advsurprise.learning.fit import FitTask, StaticRows, fit
from advsurprise.training import run
from advsurprise.training.metrics import read_rows

ROW = Devices(bodies=2)
"""Two devices that share every seed."""
WHOLE = PartitionSpec()


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_parts_put_together_are_the_whole(axis):
    x = jnp.arange(4 * 6 * 2.0).reshape(4, 6, 2)
    part = ROW.jit(lambda x: ROW.local(x, axis=axis), (WHOLE,), PartitionSpec(*[None] * axis, BODIES))
    assert np.array_equal(part(x), x)
    again = ROW.jit(lambda x: ROW.all_gather(ROW.local(x, axis=axis), axis=axis), (WHOLE,), WHOLE)
    assert np.array_equal(again(x), x)


def test_each_device_has_a_part_of_its_own():
    x = jnp.arange(8.0).reshape(2, 4)
    largest = ROW.jit(lambda x: jnp.max(ROW.local(x, axis=1), axis=1, keepdims=True), (WHOLE,), PER_BODY)
    assert np.array_equal(largest(x), [[1, 3], [5, 7]])


def test_each_device_computes_one_part_of_a_sum():
    total = ROW.jit(
        lambda x: ROW.sum_over([lambda: {"a": x, "b": 0 * x}, lambda: {"a": 0 * x, "b": 2 * x}]), (WHOLE,), WHOLE
    )(jnp.arange(3))
    assert np.array_equal(total["a"], [0, 1, 2])
    assert np.array_equal(total["b"], [0, 2, 4])


def test_arrays_move_to_where_a_program_expects_them():
    x = {"params": jnp.zeros((2, 3)), "worlds": jnp.zeros((2, 4, 5))}
    specs = {"params": PER_SEED, "worlds": PER_BODY}
    for mesh, params, worlds in ((Devices(seeds=2), (1, 3), (1, 4, 5)), (ROW, (2, 3), (2, 2, 5))):
        placed = mesh.shard(x, specs)
        assert placed["params"].sharding.shard_shape((2, 3)) == params
        assert placed["worlds"].sharding.shard_shape((2, 4, 5)) == worlds
        assert len(placed["params"].devices()) == 2
        assert mesh.on_first(placed)["worlds"].devices() == {jax.devices()[0]}


def test_empty_arrays_are_passed_on():
    specs = ({"some": PER_BODY, "none": PER_BODY, "flat": WHOLE},)
    x = {"some": jnp.ones((1, 4)), "none": jnp.zeros((3, 4, 0), jnp.uint8), "flat": jnp.zeros((0,))}

    def check_shapes(x):
        assert {name: leaf.shape for name, leaf in x.items()} == {"some": (1, 2), "none": (3, 2, 0), "flat": (0,)}
        return x

    assert_same(ROW.jit(check_shapes, specs, specs[0])(x), x)


@pytest.mark.parametrize("mesh", [ONE_DEVICE, Devices(seeds=2)])
def test_a_device_with_its_own_seeds_does_not_communicate(mesh):
    x = jnp.arange(6.0)
    assert mesh.local(x, axis=0) is x
    assert mesh.all_gather(x, axis=0) is x
    assert mesh.sum_over([lambda: x]) is x


def _task(seed: int, width: int, epochs: int) -> FitTask:
    """Least squares of some width, so that tasks differ in shape and in number of steps."""
    x = jnp.asarray(np.random.default_rng(seed).normal(size=(24, width)), jnp.float32)

    def loss(slope, data, rows, weight):
        return jnp.mean((x[rows] @ slope - 1) ** 2 * weight), {f"end {width}": slope[0]}

    optimiser, slope = optax.adam(0.1), jnp.zeros(width)
    return FitTask(
        params=slope,
        opt_state=optimiser.init(slope),
        data=None,
        loss=loss,
        optimiser=optimiser,
        rows=StaticRows(24),
        epochs=epochs,
        minibatch=4,
        key=jax.random.key(seed),
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2, 3])
def test_networks_are_fitted_alike_on_whichever_device(number):
    def tasks():
        return {f"task {index}": _task(index, 2 + index, 1 + index) for index in range(number)}

    results = ROW.jit(lambda: fit(tasks(), devices=ROW), (), WHOLE)()
    assert_same(results, fit(tasks()))
    assert all(np.any(np.asarray(params) != 0) for params, _, _ in results.values())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder into which eight_devices.py has written the results of all meshes."""
    folder = tmp_path_factory.mktemp("meshes")
    settings = {"JAX_NUM_CPU_DEVICES": "8", "JAX_NUMPY_DTYPE_PROMOTION": "strict"}
    script = pathlib.Path(eight_devices.__file__)
    subprocess.run([sys.executable, script, folder], env=os.environ | settings, check=True)
    return folder


def _facts(folder, name):
    return json.loads((folder / "facts.json").read_text())[name]


def _assert_same_run(folder, name, other, seeds):
    """The first seeds of both runs ended alike."""
    left, right = (np.load(folder / f"{each}.npz") for each in (name, other))
    assert_same(*({path: leaf[:seeds] for path, leaf in each.items()} for each in (left, right)))


@pytest.mark.slow
@pytest.mark.parametrize("name", MESHES)
def test_each_device_holds_its_seeds_and_bodies(trained, name):
    seeds, count, (rows, columns) = MESHES[name]
    facts = _facts(trained, name)
    assert facts["mesh"] == [rows, columns]
    assert facts["devices"] == count
    assert facts["seeds per device"] == seeds // rows
    assert facts["bodies per device"] == [seeds // rows, eight_devices.TINY.bodies // columns]
    assert facts["devices of agents"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", MESHES)
def test_an_update_is_compiled_once(trained, name):
    """The first state comes from a program of one device, the second from one of all."""
    assert _facts(trained, name)["compiled"] == [1, 0]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MESHES if name != "reference"])
def test_any_mesh_trains_as_one_device(trained, name):
    _assert_same_run(trained, name, "reference", min(MESHES[name][0], 2))


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_a_run_is_resumed_on_another_number_of_devices(trained, name):
    assert MESHES[name][1] != MESHES[WRITER][1]
    _assert_same_run(trained, f"{name}, resumed", WRITER, 2)


@pytest.mark.slow
def test_a_run_is_loaded_where_there_are_fewer_devices(trained):
    assert len(jax.devices()) < MESHES[WRITER][1]
    cfg, agents, updates = run.load_agents(trained / "run")
    assert (cfg.devices, updates) == (MESHES[WRITER][1], 1)
    assert_same(flat(agents), dict(np.load(trained / "agents.npz")))


CHOICES = [
    # cores, seeds, bodies, networks, mesh
    (2, 1, 16, 2, (1, 2)),
    (2, 1, 15, 2, (1, 1)),
    (2, 1, 16, 1, (1, 1)),
    (1, 1, 16, 2, (1, 1)),
    (16, 1, 16, 2, (1, 2)),
    (2, 2, 15, 1, (2, 1)),
    (2, 3, 16, 2, (1, 2)),
    (2, 3, 16, 1, (1, 1)),
    (16, 3, 16, 1, (3, 1)),
    (4, 6, 16, 2, (3, 1)),
    (4, 8, 16, 2, (4, 1)),
]


@pytest.mark.parametrize(("cores", "seeds", "bodies", "networks", "mesh"), CHOICES)
def test_as_many_cores_are_chosen_as_have_enough_to_do(monkeypatch, cores, seeds, bodies, networks, mesh):
    monkeypatch.setattr(jax, "devices", lambda: [None] * cores)
    assert devices.choose(0, seeds=seeds, bodies=bodies, networks=networks) == Devices(*mesh)


def test_one_gpu_is_chosen(monkeypatch):
    monkeypatch.setattr(jax, "devices", lambda: [None] * 8)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert devices.choose(0, seeds=8, bodies=16, networks=2) == ONE_DEVICE


@pytest.mark.parametrize(
    ("count", "seeds", "bodies", "mesh"),
    [(8, 8, 15, (8, 1)), (8, 2, 16, (2, 4)), (8, 3, 16, (1, 8)), (6, 4, 3, (2, 3)), (4, 6, 16, (2, 2))],
)
def test_seeds_are_split_first(monkeypatch, count, seeds, bodies, mesh):
    monkeypatch.setattr(jax, "devices", lambda: [None] * 8)
    assert devices.choose(count, seeds=seeds, bodies=bodies, networks=2) == Devices(*mesh)


def test_impossible_meshes_are_refused():
    with pytest.raises(UserError, match=r"2 devices cannot evenly split seeds \(3\) and bodies \(5\)"):
        devices.choose(2, seeds=3, bodies=5, networks=2)
    with pytest.raises(UserError, match="4 devices were requested, but jax sees only 2"):
        devices.choose(4, seeds=1, bodies=16, networks=2)


def test_the_command_line_refuses_devices_that_are_not_there(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["train", "--steps", "8192", "--set", "devices=4"])
    assert stopped.value.code == 2
    assert "4 devices were requested, but jax sees only 2" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize("seeds", ["0..7", "0"])
def test_the_command_line_trains_on_eight_devices_and_goes_on_with_one(tmp_path, seeds):
    """Eight devices with a seed each, or with a body each."""
    words = ["train", "--env", "ladder/game", "--method", "task", "--bodies", "8", "--seeds", seeds, "--json"]
    words += ["--set", "rollout=10", "--set", "ppo.epochs=1", "--set", "ppo.minibatch=8"]
    settings = os.environ | {"JAX_NUM_CPU_DEVICES": "8"}

    def train(name, steps, count):
        asked = [*words, "--steps", str(80 * steps), "--set", f"devices={count}", "--out", str(tmp_path / name)]
        subprocess.run([sys.executable, "-m", "advsurprise", *asked], env=settings, check=True)

    train("moved", 2, 8)
    train("moved", 4, 1)
    train("alone", 4, 1)
    moved, alone = (run.load_agents(tmp_path / name) for name in ("moved", "alone"))
    assert moved[2] == alone[2] == 4
    assert_same(flat(moved[1]), flat(alone[1]))
    moved, alone = (read_rows(tmp_path / name / "metrics.jsonl") for name in ("moved", "alone"))
    assert [(row["update"], row["seed"]) for row in moved] == [(row["update"], row["seed"]) for row in alone]
