"""Frozen runs: agents without what only training needs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from advsurprise import api, envs, methods
from advsurprise.cli import main as cli
from advsurprise.config import RunConfig
from advsurprise.errors import UserError
from advsurprise.learning.interaction import make_agent
from advsurprise.training import checkpoint, run
from advsurprise.training.frozen import freeze

CONFIG = RunConfig(
    env="ladder/game", method="rnd", method_fields={"width": 8, "stack": 1}, seeds=(3, 5), bodies=4, rollout=16
)
UPDATES = 7


@pytest.fixture(scope="module")
def agents():
    """Two agents without a 0 in them, as if they were trained."""
    method = methods.make(CONFIG.method, envs.make(CONFIG.env).spec, **CONFIG.method_fields)
    shapes = jax.eval_shape(lambda: make_agent(method, CONFIG.bodies, key=jax.random.key(0)))
    draw = np.random.default_rng(0)
    return [
        jax.tree.map(lambda leaf: jnp.asarray(draw.integers(1, 9, leaf.shape), leaf.dtype), shapes)
        for _ in CONFIG.seeds
    ]


@pytest.fixture
def folder(agents, tmp_path):
    freeze(CONFIG, agents, UPDATES, tmp_path / "frozen", made_with={"python": "3"})
    return tmp_path / "frozen"


@pytest.mark.slow
def test_everything_but_optimisers_comes_back_bit_for_bit(agents, folder):
    loaded = api.load(folder)
    assert (loaded.config, loaded.updates, loaded.name) == (CONFIG, UPDATES, str(folder))
    for mine, theirs in zip(agents, loaded.agents, strict=True):
        assert jax.tree.structure(mine) == jax.tree.structure(theirs)
        kept = [jax.tree.leaves((each.policies, each.learnt.predictor, each.learnt.inputs)) for each in (mine, theirs)]
        for before, after in zip(*kept, strict=True):
            np.testing.assert_array_equal(before, after)
        assert not any(np.any(leaf) for leaf in jax.tree.leaves(theirs.learnt.opt_state))


def test_neither_worlds_nor_optimisers_are_on_disk(folder):
    record, _ = checkpoint.newest_good(folder / "checkpoints")
    leaves = checkpoint.read_record(record)["leaves"]
    assert {name.split("]")[0] for name in leaves} == {"['agent'", "['update'"}
    assert not [name for name in leaves if "opt_state" in name]


def test_it_cannot_be_trained_further(folder, capsys):
    with pytest.raises(UserError, match="not trained further"):
        run.train(CONFIG, folder)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["resume", str(folder)])
    assert stopped.value.code == 2
    assert "they can be evaluated and replayed, but not trained further" in capsys.readouterr().err


def test_damage_is_noticed(folder):
    (tensors,) = (folder / "checkpoints").glob("*.safetensors")
    data = bytearray(tensors.read_bytes())
    data[-1] ^= 1
    tensors.write_bytes(data)
    with pytest.raises(UserError, match="checksum"):
        api.load(folder)
