"""What is saved comes back bit for bit, and what is not whole is refused by name and in one sentence."""

import functools
import hashlib
import json
import os
import pathlib
import pickle
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


def small_tree():
    return {
        "policy": {"weight": jnp.arange(6, dtype=jnp.float32).reshape(2, 3), "bias": jnp.ones((3,), jnp.float32)},
        "count": jnp.array(7, jnp.int32),
        "key": jax.random.key(3),
    }


@pytest.fixture
def saved(tmp_path):
    """Record and tensors of a small checkpoint."""
    record = checkpoint.save(tmp_path, 5, small_tree(), {"lr": 1e-4})
    return record, tensors_of(record)


def tensors_of(record):
    return record.with_name(json.loads(record.read_text())["tensors"]["file"])


def newest(folder):
    return checkpoint.newest_good(folder)[0]


def refusal(path, like=None, error=CheckpointError):
    """The sentence with which loading is refused; it is one sentence, and the file is not taken for a good one."""
    with pytest.raises(error) as caught:
        checkpoint.load(path, small_tree() if like is None else like)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert not sentence.endswith(".")
    return sentence


def reseal(record: pathlib.Path, change):
    """Changes a record and gives it a matching checksum, as a forger or another version would."""
    content = json.loads(record.read_text())
    del content["record_sha256"]
    change(content)
    record.write_bytes(checkpoint._sealed(content))


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


# --------------------------------------------------------------------------------------------------- refusals


def test_missing_files(saved):
    record, tensors = saved
    tensors.unlink()
    assert refusal(record) == f"{tensors} does not exist"
    record.unlink()
    assert refusal(record) == f"{record} does not exist"
    assert "cannot be read" in refusal(record.parent)


@pytest.mark.parametrize("fraction", [0.0, 0.01, 0.3, 0.7, 0.999])
@pytest.mark.parametrize("which", [0, 1])
def test_truncated_files(saved, which, fraction):
    path = saved[which]
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * fraction)])
    sentence = refusal(saved[0])
    assert str(path) in sentence
    assert "damaged" in sentence
    assert newest(path.parent) is None


def test_one_more_byte(saved):
    with open(saved[1], "ab") as file:
        file.write(b"\0")
    assert "bytes" in refusal(saved[0])


@pytest.mark.parametrize("where", [0, 9, 40, -1, -20])
def test_a_flipped_bit_in_the_tensors(saved, where):
    data = bytearray(saved[1].read_bytes())
    data[where] ^= 4
    saved[1].write_bytes(data)
    assert "checksum" in refusal(saved[0])
    assert newest(saved[0].parent) is None


def test_a_flipped_bit_anywhere_in_the_record(saved):
    record, _ = saved
    data = record.read_bytes()
    meaning = json.loads(data)
    for where in range(0, len(data), 7):
        flipped = bytearray(data)
        flipped[where] ^= 1
        record.write_bytes(flipped)
        if _json_or_none(flipped) != meaning:  # a space that became another kind of space changes nothing
            refusal(record)
    record.write_bytes(data)
    checkpoint.load(record, small_tree())


def _json_or_none(data):
    try:
        return json.loads(data)
    except ValueError:
        return None


def test_a_setting_changed_by_hand(saved):
    saved[0].write_text(saved[0].read_text().replace("0.0001", "0.0002"))
    assert "checksum" in refusal(saved[0])


def test_tensors_of_another_checkpoint(saved, tmp_path):
    other = checkpoint.save(tmp_path, 6, jax.tree.map(lambda x: x, small_tree() | {"count": jnp.array(8)}), {})
    first, second = saved[1].read_bytes(), tensors_of(other).read_bytes()
    assert len(first) == len(second)
    saved[1].write_bytes(second)
    tensors_of(other).write_bytes(first)
    assert "checksum" in refusal(saved[0])
    assert "checksum" in refusal(other)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[1, 2]",
        b'{"lr": 1}',
        b'{"kind": "other", "schema": 1}',
        b"\xff\xfe",
        b"[" * 100_000,
        b"1" * 9999,
    ],
)
def test_foreign_records(saved, content):
    saved[0].write_bytes(content)
    assert "not an advsurprise checkpoint" in refusal(saved[0])


def test_a_pickle_is_not_opened(saved, tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    for path in saved:
        path.write_bytes(pickle.dumps(Trap()))
    refusal(saved[0])
    assert not (tmp_path / "sprung").exists()


def test_the_tensors_given_in_place_of_the_record(saved):
    assert "not an advsurprise checkpoint" in refusal(saved[1])


@pytest.mark.parametrize("schema", [0, 2, None, "1"])
def test_other_schemas(saved, schema):
    reseal(saved[0], lambda record: record.update(schema=schema))
    sentence = refusal(saved[0])
    assert f"schema {schema!r}" in sentence
    assert "reads 1" in sentence


@pytest.mark.parametrize("field", ["step", "tensors", "leaves", "versions", "meta"])
def test_forged_records_that_lack_a_field(saved, field):
    reseal(saved[0], lambda record: record.pop(field))
    assert "not complete" in refusal(saved[0])


@pytest.mark.parametrize("name", ["/etc/passwd", "../other/step_1.ab.safetensors", "", 3])
def test_a_record_cannot_point_out_of_its_folder(saved, name):
    reseal(saved[0], lambda record: record["tensors"].update(file=name))
    assert "not complete" in refusal(saved[0])


def test_a_file_far_too_long_is_not_read(saved):
    record, tensors = saved
    size = 2**40
    os.truncate(tensors, size)
    reseal(record, lambda content: content["tensors"].update(bytes=size))
    assert "do not fit" in refusal(record)


@pytest.mark.parametrize("forge", [b"\xff", b"\x02\0\0\0\0\0\0\0{}", "other leaves"])
def test_forged_tensors_with_a_matching_checksum(saved, forge):
    record, tensors = saved
    if forge == "other leaves":
        forge = tensors.read_bytes().replace(b"['count']", b"['tnuoc']")
    forge = forge.ljust(len(tensors.read_bytes()), forge[:1])
    tensors.write_bytes(forge)
    digest = hashlib.sha256(forge).hexdigest()
    reseal(record, lambda content: content["tensors"].update(sha256=digest))
    assert "the tensors of" in refusal(record)


def test_random_keys_of_an_unknown_kind(saved):
    reseal(saved[0], lambda record: record["leaves"]["['key']"].update(key_impl="dice"))
    assert "unknown kind 'dice'" in refusal(saved[0])


# --------------------------------------------------------------------------------------------- another structure


def test_missing_and_extra_and_renamed_leaves(saved):
    sentence = refusal(saved[0], small_tree() | {"more": jnp.ones(())})
    assert "no leaf \"['more']\"" in sentence
    assert sentence.endswith("it was saved by another method, setting or version of advsurprise")
    fewer = small_tree()
    del fewer["count"]
    assert "a leaf \"['count']\" too many" in refusal(saved[0], fewer)
    assert "no leaf \"['total']\"" in refusal(saved[0], fewer | {"total": jnp.array(7, jnp.int32)})


def test_wrong_shapes_and_types(saved):
    policy = small_tree()["policy"]
    wrong = small_tree() | {"policy": policy | {"weight": policy["weight"].T}}
    assert refusal(saved[0], wrong).endswith("has shape [2, 3], but [3, 2] is needed")
    wrong = small_tree() | {"count": jnp.array(7, jnp.uint32)}
    sentence = refusal(saved[0], wrong)
    assert "['count']" in sentence
    assert sentence.endswith("has dtype int32, but uint32 is needed")
    assert "dtype key<fry>" in refusal(saved[0], small_tree() | {"key": jax.random.key(0, impl="rbg")})


def test_leaves_of_equal_shape_are_matched_by_path(tmp_path):
    path = checkpoint.save(tmp_path, 0, {"a": {"x": jnp.zeros(3)}, "b": {"x": jnp.ones(3)}}, {})
    swapped = checkpoint.load(path, {"b": {"x": jnp.zeros(3)}, "a": {"x": jnp.zeros(3)}})
    np.testing.assert_array_equal(swapped["a"]["x"], 0.0)
    np.testing.assert_array_equal(swapped["b"]["x"], 1.0)
    # Lists, tuples and strings that look like numbers are different paths, not the same order.
    assert "no leaf" in refusal(checkpoint.save(tmp_path, 1, {"0": jnp.ones(3)}, {}), [jnp.ones(3)])


def test_64_bit_numbers_are_not_shortened(tmp_path):
    path = checkpoint.save(tmp_path, 0, {"x": np.ones(2)}, {})
    with pytest.raises(CheckpointError, match="jax_enable_x64"):
        checkpoint.load(path, {"x": jax.ShapeDtypeStruct((2,), np.dtype("float64"))})


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
