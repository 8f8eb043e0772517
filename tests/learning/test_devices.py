"""Several devices: what they share, that it changes nothing, and how many are chosen."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sameness import assert_same

from advsurprise.cli import main as cli
from advsurprise.config import PPOConfig, RunConfig
from advsurprise.errors import UserError
from advsurprise.learning import devices
from advsurprise.learning.devices import ALONE, WHOLE, Devices, shared_out
from advsurprise.learning.fit import FitTask, StaticRows, fit
from advsurprise.training import run
from advsurprise.training.fused import Fused

TWO = Devices(2)
TINY = RunConfig(
    env="ladder/game",
    method_fields={"k_explore": 1, "k_control": 4, "stack": 1},
    ppo=PPOConfig(epochs=1, minibatch=8),
    steps=20 * 4,
    bodies=2,
    rollout=10,
)


# All tests that train run where their programs have been compiled.
pytestmark = pytest.mark.xdist_group("devices")


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_parts_put_together_are_the_whole(axis):
    x = jnp.arange(4 * 6 * 2.0).reshape(4, 6, 2)
    part = TWO.program(lambda x: TWO.mine(x, axis=axis), (WHOLE,), shared_out(axis))
    assert np.array_equal(part(x), x)
    again = TWO.program(lambda x: TWO.gathered(TWO.mine(x, axis=axis), axis=axis), (WHOLE,), WHOLE)
    assert np.array_equal(again(x), x)


def test_each_device_has_a_part_of_its_own():
    x = jnp.arange(8.0).reshape(2, 4)
    first = TWO.program(lambda x: jnp.max(TWO.mine(x, axis=1), axis=1, keepdims=True), (WHOLE,), shared_out(1))
    assert np.array_equal(first(x), [[1, 3], [5, 7]])


def test_each_device_does_one_part_of_a_total():
    done = TWO.program(
        lambda x: TWO.total([lambda: {"a": x, "b": 0 * x}, lambda: {"a": 0 * x, "b": 2 * x}]), (WHOLE,), WHOLE
    )
    found = done(jnp.arange(3))
    assert np.array_equal(found["a"], [0, 1, 2])
    assert np.array_equal(found["b"], [0, 2, 4])


def test_empty_arrays_are_handed_on():
    held = ({"some": shared_out(0), "none": shared_out(1), "flat": WHOLE},)
    given = {"some": jnp.arange(4.0), "none": jnp.zeros((3, 4, 0), jnp.uint8), "flat": jnp.zeros((0,))}

    def shapes_within(x):
        assert jax.tree.map(jnp.shape, x, is_leaf=lambda leaf: hasattr(leaf, "shape")) == {
            "some": (2,),
            "none": (3, 2, 0),
            "flat": (0,),
        }
        return x

    assert_same(TWO.program(shapes_within, held, held[0])(given), given)


def test_a_single_device_does_as_it_would_without_any():
    x = jnp.arange(6.0)
    assert ALONE.mine(x, axis=0) is x
    assert ALONE.gathered(x, axis=0) is x
    assert ALONE.total([lambda: x]) is x


def _lesson(seed: int, width: int, epochs: int) -> FitTask:
    """Least squares of some width, so that fit_tasks differ in shape and in number of steps."""
    x = jnp.asarray(np.random.default_rng(seed).normal(size=(24, width)), jnp.float32)

    def loss(slope, rows, weight):
        return jnp.mean((x[rows] @ slope - 1) ** 2 * weight), {f"end {width}": slope[0]}

    optimiser, slope = optax.adam(0.1), jnp.zeros(width)
    return FitTask(
        params=slope,
        opt_state=optimiser.init(slope),
        loss=loss,
        optimiser=optimiser,
        rows=StaticRows(24),
        epochs=epochs,
        minibatch=4,
        key=jax.random.key(seed),
    )


@pytest.mark.parametrize("number", [1, 2, 3])
def test_lessons_end_alike_whoever_fits_them(number):
    def fit_tasks():
        return {f"fit_task {index}": _lesson(index, 2 + index, 1 + index) for index in range(number)}

    found = TWO.program(lambda: fit(fit_tasks(), devices=TWO), (), WHOLE)()
    assert_same(found, fit(fit_tasks()))
    assert all(np.any(np.asarray(params) != 0) for params, _, _ in found.values())


@functools.cache
def _trained(seeds: tuple[int, ...], count: int):
    """A loop, what comes of two updates, and how many programs were compiled for each of them."""
    compiled = []

    def note(event, duration, **about):
        if event == "/jax/core/compile/jaxpr_to_mlir_module_duration":
            compiled.append(about.get("fun_name"))

    loop = Fused(dataclasses.replace(TINY, seeds=seeds, devices=count))
    state = loop.init()
    jax.monitoring.register_event_duration_secs_listener(note)
    state, _ = loop.update(state)
    at_first = len(compiled)
    end = loop.update(state)
    jax.monitoring.unregister_event_duration_listener(note)
    return loop, end, (at_first, len(compiled) - at_first)


SEEDS = [(0, 1), (0, 1, 2)]
"""Two are dealt out, three are shared body by body; one alone is trained by every method in test_all_methods."""


@pytest.mark.parametrize("seeds", SEEDS)
def test_two_devices_train_as_one(seeds):
    (_, (one, one_metrics), _), (_, (two, two_metrics), _) = (_trained(seeds, count) for count in (1, 2))
    assert_same(one.learner, two.learner)
    assert_same(one.carry.env_state, two.carry.env_state)
    assert_same(one.carry.memory, two.carry.memory)
    assert_same(one_metrics, two_metrics)
    place = two.carry.memory.time.sharding
    assert len(place.device_set) == 2
    assert not place.is_fully_replicated


@pytest.mark.parametrize("seeds", SEEDS)
def test_an_update_is_compiled_once(seeds):
    """The first state comes from a program of one device, the second from one of two."""
    loop, (state, _), compiled = _trained(seeds, 2)
    assert compiled == (1, 0)
    assert all(len(leaf.devices()) == 1 for leaf in jax.tree.leaves(loop.agents(state)))


def test_a_run_is_loaded_where_there_are_fewer_devices(tmp_path, monkeypatch):
    loop, (state, _), _ = _trained(SEEDS[0], 2)
    cfg = loop.cfg
    run.prepare_folder(cfg, tmp_path, fresh=False)
    run.save(tmp_path, cfg, 2, state)
    monkeypatch.setattr(jax, "devices", lambda: jax.local_devices()[:1])
    found, agents, updates = run.load_agents(tmp_path)
    assert (found, updates) == (cfg, 2)
    assert_same(agents[1].policies, jax.tree.map(lambda leaf: np.asarray(leaf[1]), state.learner.agent.policies))


def test_a_run_goes_on_with_another_number_of_devices(tmp_path):
    run.train(dataclasses.replace(TINY, devices=2, steps=20), tmp_path / "mixed")
    mixed = run.train(dataclasses.replace(TINY, devices=1), tmp_path / "mixed")
    alone = run.train(dataclasses.replace(TINY, devices=1), tmp_path / "alone")
    assert_same(mixed.state.learner, alone.state.learner)


CHOICES = [
    # cores, seeds, bodies, fit_tasks, devices
    (2, 1, 16, 2, 2),
    (2, 1, 15, 2, 1),
    (2, 1, 16, 1, 1),
    (1, 1, 16, 2, 1),
    (16, 1, 16, 2, 2),
    (2, 2, 15, 1, 2),
    (2, 3, 16, 2, 2),
    (2, 3, 16, 1, 1),
    (16, 3, 16, 1, 3),
    (4, 6, 16, 2, 3),
    (4, 8, 16, 2, 4),
]


@pytest.mark.parametrize(("cores", "seeds", "bodies", "fit_tasks", "count"), CHOICES)
def test_as_many_of_a_cpu_are_chosen_as_have_enough_to_do(monkeypatch, cores, seeds, bodies, fit_tasks, count):
    monkeypatch.setattr(jax, "devices", lambda: [None] * cores)
    assert devices.choose(0, seeds=seeds, bodies=bodies, fit_tasks=fit_tasks) == Devices(count)


def test_one_of_anything_else_is_chosen(monkeypatch):
    monkeypatch.setattr(jax, "devices", lambda: [None] * 8)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert devices.choose(0, seeds=8, bodies=16, fit_tasks=2) == ALONE
    assert devices.choose(8, seeds=8, bodies=16, fit_tasks=2) == Devices(8)


def test_what_cannot_be_shared_out_is_refused():
    with pytest.raises(UserError, match=r"seeds \(3\) and bodies \(5\) cannot be shared out evenly to 2 devices"):
        devices.choose(2, seeds=3, bodies=5, fit_tasks=2)
    with pytest.raises(UserError, match="there are not 4 devices here but 2"):
        devices.choose(4, seeds=1, bodies=16, fit_tasks=2)


def test_the_command_line_refuses_devices_that_are_not_there(capsys):
    with pytest.raises(SystemExit) as left:
        cli.main(["train", "--steps", "8192", "--set", "devices=4"])
    assert left.value.code == 2
    assert "there are not 4 devices here" in capsys.readouterr().err
