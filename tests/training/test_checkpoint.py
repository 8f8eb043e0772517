"""What is saved comes back bit for bit, and a crash leaves what was there before."""

import functools
import os
import pathlib
import subprocess
import tempfile

import equinox as eqx
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from small_checkpoint import newest, small_tree, tensors_of

from advsurprise.training import checkpoint, files, versions
from advsurprise.training.tensors import CheckpointError, Leaf

DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "bfloat16", "float32"]


def bits(leaf):
    """Everything there is to know of a leaf: kind, type, shape and bytes."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return str(leaf.dtype), leaf.shape, np.asarray(jax.random.key_data(leaf)).tobytes()
    return type(leaf) is np.ndarray, str(leaf.dtype), leaf.shape, np.asarray(leaf).tobytes()


def assert_same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    assert [bits(x) for x in jax.tree.leaves(a)] == [bits(x) for x in jax.tree.leaves(b)]


@st.composite
def random_bits(draw):
    """Arrays of any type and small shape, of any bits: NaNs of every payload, infinities, negative zeros."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
    size = int(np.prod(shape)) * dtype.itemsize
    data = bytearray(draw(st.binary(min_size=size, max_size=size)))
    data = bytearray(byte & 1 for byte in data) if dtype == np.bool_ else data
    return np.frombuffer(data, dtype=dtype).reshape(shape)


# --------------------------------------------------------------------------------------------- round trips


@settings(max_examples=60, deadline=None)
@given(arrays=st.lists(random_bits(), max_size=4), on_device=st.booleans())
def test_every_bit_comes_back(arrays, on_device):
    tree = [jnp.asarray(array) if on_device else array for array in arrays]
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree) if on_device else tree
    with tempfile.TemporaryDirectory() as folder:
        assert_same(checkpoint.load(checkpoint.save(pathlib.Path(folder), 0, tree, {}), like), tree)


def test_nan_payloads_survive():
    words = np.array([0x7FC00001, 0xFFC12345, 0x7F800001, 0x80000000], np.uint32)
    with tempfile.TemporaryDirectory() as folder:
        path = checkpoint.save(pathlib.Path(folder), 0, jnp.asarray(words.view(np.float32)), {})
        back = checkpoint.load(path, jax.ShapeDtypeStruct((4,), jnp.float32))
    np.testing.assert_array_equal(np.asarray(back).view(np.uint32), words)


def test_arrays_that_do_not_lie_in_c_order(tmp_path):
    table = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    tree = {"transposed": table.T, "strided": table[:, ::2, ::-1], "wide": np.arange(3, dtype=np.int64)}
    assert_same(checkpoint.load(checkpoint.save(tmp_path, 0, tree, {}), tree), tree)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_typed_random_keys(tmp_path, impl):
    tree = {"one": jax.random.key(1, impl=impl), "many": jax.random.split(jax.random.key(2, impl=impl), (2, 3))}
    like = jax.eval_shape(lambda: tree)
    back = checkpoint.load(checkpoint.save(tmp_path, 0, tree, {}), like)
    assert_same(back, tree)
    np.testing.assert_array_equal(jax.random.uniform(back["one"]), jax.random.uniform(tree["one"]))


def test_a_network_with_its_optimizer(tmp_path, getkey):
    network = eqx.filter(eqx.nn.MLP(3, 2, 8, 2, key=getkey()), eqx.is_array)
    state = (network, optax.adam(1e-3).init(network), {"keys": jax.random.split(getkey(), 4)})
    like = jax.eval_shape(lambda: state)
    assert_same(checkpoint.load(checkpoint.save(tmp_path, 10, state, {}), like), state)


def test_a_bare_array_and_an_empty_tree(tmp_path):
    for step, tree in enumerate([jnp.ones((2,)), {}]):
        assert_same(checkpoint.load(checkpoint.save(tmp_path, step, tree, {}), tree), tree)


def test_loaded_arrays_can_be_donated_and_written(tmp_path):
    path = checkpoint.save(tmp_path, 0, {"a": jnp.ones(1000), "b": np.ones(3)}, {})
    back = checkpoint.load(path, {"a": jnp.ones(1000), "b": np.ones(3)})
    back["b"][0] = 5.0
    np.testing.assert_array_equal(functools.partial(jax.jit, donate_argnums=0)(lambda x: x + 1)(back["a"]), 2.0)


def test_equal_trees_are_equal_files(tmp_path):
    one = checkpoint.save(tmp_path / "one", 5, small_tree(), {"lr": 1e-4})
    two = checkpoint.save(tmp_path / "two", 5, dict(reversed(small_tree().items())), {"lr": 1e-4})
    assert one.read_bytes() == two.read_bytes()
    assert tensors_of(one).name == tensors_of(two).name
    assert tensors_of(one).read_bytes() == tensors_of(two).read_bytes()


def test_the_record_says_where_it_comes_from(saved):
    record = checkpoint.read_record(saved[0])
    assert record["step"] == 5
    assert record["versions"].keys() == {"python", "jax", "jaxlib", "numpy", "advsurprise", "commit"}
    assert record["versions"]["jax"] == jax.__version__
    assert record["leaves"]["['policy']['weight']"] == Leaf((2, 3), "float32", None)
    assert record["leaves"]["['key']"] == Leaf((), "key<fry>", "threefry2x32")
    assert record["meta"] == {"lr": 1e-4}


def test_the_commit_is_that_of_the_checkout():
    root = pathlib.Path(versions.__file__).parents[3]
    head = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True)
    if head.returncode:
        pytest.skip("this is no checkout")
    assert (versions.versions()["commit"] or "").removesuffix("-dirty") == head.stdout.strip()


def test_meta_is_kept_as_json_keeps_it(tmp_path):
    path = checkpoint.save(tmp_path, 0, {}, {"seeds": (0, 1), "by": {10: "a", 9: "b"}, "word": "\ud800 é"})
    assert checkpoint.read_record(path)["meta"] == {"seeds": [0, 1], "by": {"10": "a", "9": "b"}, "word": "\ud800 é"}


@pytest.mark.parametrize("meta", [{"x": object()}, {"x": float("nan")}])
def test_meta_that_is_not_json_writes_nothing(tmp_path, meta):
    with pytest.raises((TypeError, ValueError)):
        checkpoint.save(tmp_path, 0, {}, meta)
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------------------ what cannot be saved


@pytest.mark.parametrize(
    ("leaf", "reason"),
    [
        (1.5, "is a float"),
        (jax.ShapeDtypeStruct((), jnp.float32), "is a ShapeDtypeStruct"),
        (np.array(["word"]), "has dtype"),
        (np.array([None]), "has dtype object"),
        (np.zeros(2, ">f4"), "has dtype >f4"),
    ],
)
def test_leaves_that_are_not_plain_arrays_are_refused(tmp_path, leaf, reason):
    with pytest.raises(CheckpointError, match=reason) as caught:
        checkpoint.save(tmp_path, 0, {"good": jnp.ones(2), "bad": leaf}, {})
    assert "['bad']" in str(caught.value)


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CheckpointError, match="could not write checkpoint"):
        checkpoint.save(tmp_path / "file" / "below", 0, {}, {})


# ------------------------------------------------------------------------------------------------ crash and choice


class Killed(BaseException):
    """The end of the process: nothing catches it."""


@pytest.mark.parametrize("survived", [0, 1])
@pytest.mark.parametrize("step", [5, 6])
def test_a_kill_before_a_replace_leaves_the_previous_checkpoint(saved, monkeypatch, step, survived):
    replace, calls = os.replace, []

    def dies(source, target):
        calls.append(target)
        if len(calls) > survived:
            raise Killed
        replace(source, target)

    monkeypatch.setattr(os, "replace", dies)
    with pytest.raises(Killed):
        checkpoint.save(saved[0].parent, step, small_tree() | {"count": jnp.array(9)}, {})
    monkeypatch.undo()
    assert checkpoint.newest_good(saved[0].parent) == (saved[0], [])
    assert_same(checkpoint.load(saved[0], small_tree()), small_tree())


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_full_disk_is_one_sentence_and_leaves_no_rubbish(saved, monkeypatch, failing):
    def full(*_):
        raise OSError(28, "No space left on device")

    before = sorted(saved[0].parent.iterdir())
    monkeypatch.setattr(os, failing, full)
    with pytest.raises(CheckpointError, match=r"could not write checkpoint .*: No space left on device"):
        checkpoint.save(saved[0].parent, 6, small_tree() | {"count": jnp.array(9)}, {})
    assert sorted(saved[0].parent.iterdir()) == before


def test_the_last_two_good_ones_are_kept(tmp_path):
    for step in range(5):
        checkpoint.save(tmp_path, step, {"x": jnp.array(step)}, {})
    assert [path.name for path in sorted(tmp_path.glob("*.json"))] == ["step_000000003.json", "step_000000004.json"]
    assert len(list(tmp_path.iterdir())) == 4
    checkpoint.save(tmp_path, 5, {"x": jnp.array(5)}, {}, keep=1)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_bad_one_does_not_count_as_kept(tmp_path):
    paths = [checkpoint.save(tmp_path, step, {"x": jnp.array(step)}, {}) for step in range(2)]
    tensors_of(paths[1]).write_bytes(b"")
    checkpoint.save(tmp_path, 2, {"x": jnp.array(2)}, {})
    checkpoint.verify(paths[0])


def test_nothing_is_removed_if_the_new_one_cannot_be_read_back(tmp_path, monkeypatch):
    paths = [checkpoint.save(tmp_path, step, {"x": jnp.array(step)}, {}) for step in range(2)]
    write_all = files.write_all
    cut = {".safetensors": -1, ".json": None}
    monkeypatch.setattr(
        files,
        "write_all",
        lambda contents: write_all({path: data[: cut[path.suffix]] for path, data in contents.items()}),
    )
    with pytest.raises(CheckpointError):
        checkpoint.save(tmp_path, 2, {"x": jnp.array(2)}, {})
    for path in paths:
        checkpoint.verify(path)


def test_saving_a_step_again_replaces_it(tmp_path):
    checkpoint.save(tmp_path, 3, {"x": jnp.array(1)}, {})
    path = checkpoint.save(tmp_path, 3, {"x": jnp.array(2)}, {})
    assert checkpoint.load(path, {"x": jnp.array(0)})["x"] == 2
    assert len(list(tmp_path.iterdir())) == 2


def test_what_killed_writers_left_is_swept(tmp_path):
    (tmp_path / ".step_000000001.json.99.tmp").write_bytes(b"half")
    (tmp_path / "step_000000001.0123456789abcdef.safetensors").write_bytes(b"no record")
    (tmp_path / "notes.txt").write_text("mine")
    checkpoint.save(tmp_path, 2, {"x": jnp.array(2)}, {})
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".safetensors", ".txt"]


def test_later_steps_are_left_alone(tmp_path):
    later = checkpoint.save(tmp_path, 9, {"x": jnp.array(9)}, {})
    checkpoint.save(tmp_path, 2, {"x": jnp.array(2)}, {}, keep=1)
    checkpoint.verify(later)


def test_the_newest_good_one_is_found_and_bad_ones_are_named(tmp_path):
    assert checkpoint.newest_good(tmp_path / "nowhere") == (None, [])
    paths = [checkpoint.save(tmp_path, step, {}, {}, keep=9) for step in [1, 999_999_999, 10**10]]
    assert newest(tmp_path) == paths[2]
    tensors_of(paths[2]).unlink()
    paths[1].write_text("{}")
    record, sentences = checkpoint.newest_good(tmp_path)
    assert record == paths[0]
    assert len(sentences) == 2
    assert paths[2].stem in sentences[0]
    assert str(paths[1]) in sentences[1]
