"""Worlds are checked when they are made, and what is wrong is said in a sentence."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from theory_worlds import random_block_mdp

from advsurprise.errors import UserError
from advsurprise.theory.block_mdp import from_arrays, from_dict, from_moves, load

STAY = np.eye(2)[:, None, :]


@pytest.mark.parametrize(
    ("transition", "emission", "start", "sentence"),
    [
        (STAY * 0.9, np.eye(2), 0, "transition: the row of state 'a' under action 0 sums to 0.9, not 1"),
        (STAY, [[1.0, 0.0], [0.5, 0.4]], 0, "emission: the row of state 'b' sums to 0.9"),
        (STAY, [[1.0, 0.0], [0.5, 0.5]], 0, "states 'a' and 'b' both emit observation 0"),
        (STAY, [[1.5, -0.5, 0.0], [0.0, 0.0, 1.0]], 0, "state 'a' has the negative entry -0.5"),
        (STAY, [[np.nan, 0.0], [0.0, 1.0]], 0, "state 'a' has an entry that is not a finite number"),
        (STAY, np.eye(3), 0, "emission must have shape [2, O] for 2 states, but has [3, 3]"),
        (np.eye(2), np.eye(2), [1.0, 0.0], "transition must have shape [S, A, S], but has [2, 2]"),
        (STAY, np.eye(2), 2, "start is state 2, but there are 2 states"),
        (STAY, np.eye(2), [0.5, 0.2], "start sums to 0.7, not 1"),
        (STAY, np.eye(2), [1.0], "start must have 2 entries"),
        ([[[1, 0], [1]]], np.eye(2), 0, "transition must be a table of numbers with rows of equal length"),
    ],
)
def test_what_is_wrong_is_named(transition, emission, start, sentence):
    with pytest.raises(UserError) as error:
        from_arrays(transition, emission, start, states=("a", "b"))
    assert sentence in str(error.value)


def test_names_and_copies_are_checked():
    with pytest.raises(UserError, match="2 different names"):
        from_arrays(STAY, np.eye(2), states=("a", "a"))
    with pytest.raises(UserError, match="copies must be 2 numbers, each at least 1"):
        from_arrays(STAY, np.eye(2), copies=[1.0, 0.5])


def test_a_world_cannot_be_changed():
    world = from_arrays(STAY, np.eye(2))
    with pytest.raises(ValueError, match="read-only"):
        world.transition[0, 0, 0] = 0.5
    with pytest.raises(AttributeError):
        world.start = np.array([0.5, 0.5])


def test_a_file_gives_the_same_world(tmp_path):
    world = random_block_mdp(3)
    path = tmp_path / "three.json"
    path.write_text(json.dumps(world.to_dict()))
    again = load(path)
    assert np.array_equal(again.transition, world.transition)
    assert np.array_equal(again.entropies, world.entropies)
    assert (again.states, again.name) == (world.states, "world")


def test_moves_by_name():
    raw = {"moves": {"bed": ["bed", "hall"], "hall": ["bed"]}, "entropies": {"bed": 0, "hall": 1.5}, "start": "hall"}
    world = from_dict(raw | {"horizon": 3}, name="flat")
    assert world.deterministic
    assert world.entropies == pytest.approx([0, 1.5])
    assert world.transition.argmax(axis=2).tolist() == [[0, 1], [0, 0]]
    assert (world.start.tolist(), world.horizon, world.name) == ([0, 1], 3, "flat")


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ([], "a world is a JSON object"),
        ({"transitions": []}, "unknown key 'transitions'"),
        ({"transition": []}, "the key 'emission' is missing"),
        ({"moves": {"a": ["b"]}, "entropies": {"a": 0}}, "state 'a' has a move to 'b', which is not a state"),
        ({"moves": {"a": []}, "entropies": {"a": 0}}, "state 'a' has no move at all"),
        ({"moves": {"a": ["a"]}, "entropies": {"b": 0}}, "that have moves; check a, b"),
        ({"moves": {"a": ["a"]}, "entropies": {"a": -1}}, "entropies must be from 0 to 700 nats"),
        ({"moves": {"a": ["a"]}, "entropies": {"a": 0}, "start": "c"}, "start is 'c', which is not a state"),
        ({"moves": {"a": ["a"]}, "entropies": {"a": 0}, "horizon": 0}, "horizon must be a whole number"),
        ({"moves": ["a"], "entropies": {}}, "moves must map each state's name"),
    ],
)
def test_bad_files_are_refused_in_a_sentence(raw, sentence):
    with pytest.raises(UserError) as error:
        from_dict(raw)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b'{"moves": {"a"', "is not valid JSON"), (b"\xff\xfe\x00", "is not text"), (b"", "is not valid JSON")],
)
def test_truncated_and_foreign_files_are_refused(tmp_path, content, sentence):
    path = tmp_path / "world.json"
    path.write_bytes(content)
    with pytest.raises(UserError) as error:
        load(path)
    assert sentence in str(error.value)
    with pytest.raises(UserError, match="cannot read"):
        load(tmp_path / "missing.json")


# Named by what it leaves out: hypothesis takes seconds to find which characters UTF-8 has.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
JUNK = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-3, 3) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=8,
)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(
    raw=st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(
            ["transition", "emission", "start", "states", "moves", "entropies", "copies", "name"], JUNK
        ),
    )
)
def test_junk_never_ends_in_a_traceback(raw):
    refused = None
    try:
        assert from_dict(raw).num_states >= 1
    except UserError as error:
        refused = str(error)
    assert refused is None or "\n" not in refused


def test_too_few_states_for_moves():
    with pytest.raises(UserError, match="exactly the states that have moves; check a"):
        from_moves({"a": ["a"]}, {})
