"""What is not whole, or not what was asked for, is refused by name and in one sentence."""

import hashlib
import json
import os
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_checkpoint import newest, refusal, reseal, small_tree, tensors_of

from advsurprise.training import checkpoint
from advsurprise.training.tensors import CheckpointError

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
    assert "an unexpected leaf \"['count']\"" in refusal(saved[0], fewer)
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
