"""Random damage: to bytes, to JSON, and to checkpoints whose checksums still match."""

import copy
import hashlib
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

DEEP = 100_000
"""Nesting depth that no parser follows."""
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 0.5, -0.0, 1e-300, 1e308, 10**12, 2**31, 2**63, -(2**63), 10**30),
    *(float("nan"), float("inf"), "", " ", "x", "nan", "1e5", "true", "é☃", "x" * 5000, "../..", "/", "/dev/zero"),
    *([], [[]], [0], [1, "a", None], {}, {"": {}}, {"a": [1]}, [0] * 300),
    *("rooms/four", "rooms/door", "ladder/game", "CartPole-v1", "gymnax:Nothing", "pgx:nothing", "zoo:rooms-four"),
    *("os:getcwd", "nowhere.py:Class", "package:Name-v0", "smirl", "random", "task", "adversarial-surprise"),
)
"""Replacements for JSON values."""


def damage_bytes(data: bytes, rng: random.Random) -> bytes:
    """The bytes truncated, flipped, extended, repeated or replaced."""
    place = rng.randrange(len(data) + 1)
    kinds: Sequence[Callable[[], bytes]] = (
        lambda: data[:place],
        lambda: data[place:],
        lambda: data[:place] + bytes([rng.randrange(256)]) + data[place + 1 :],
        lambda: (
            data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]
            if place < len(data)
            else b""
        ),
        lambda: data[:place] + rng.randbytes(rng.randrange(1, 40)) + data[place:],
        lambda: data + data,
        lambda: data + b"\0" * rng.randrange(1, 600),
        lambda: b"\xef\xbb\xbf" + data,
        lambda: data.decode(errors="replace").encode("utf-16"),
        lambda: b"[" * DEEP,
        lambda: b'{"a":' * DEEP,
        lambda: rng.randbytes(rng.randrange(200)),
        lambda: b"1" * 5000,
        lambda: b"",
    )
    return rng.choice(kinds)()


def damage_json(data: bytes, rng: random.Random, *, values: Sequence[Any] = VALUES) -> bytes:
    """The JSON with some values replaced, removed, added or copied; sometimes with its bytes damaged."""
    if rng.random() < 0.2:
        return damage_bytes(data, rng)
    tree = json.loads(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        tree = damage_tree(tree, rng, values)
    return json.dumps(tree).encode()


def damage_tree(tree: Any, rng: random.Random, values: Sequence[Any] = VALUES) -> Any:
    """A JSON tree with one random change."""
    tree = copy.deepcopy(tree)
    places = list(_places(tree))
    if not places or rng.random() < 0.02:
        return copy.deepcopy(rng.choice(values))
    parent, key = rng.choice(places)
    what = rng.random()
    if what < 0.7:
        parent[key] = copy.deepcopy(rng.choice(values))
    elif what < 0.8:
        del parent[key]
    elif what < 0.9:
        other_parent, other = rng.choice(places)
        parent[key] = copy.deepcopy(other_parent[other])
    elif isinstance(parent, dict):
        parent[rng.choice(("extra", "", "config", "spec", "é", str(key) + "x"))] = copy.deepcopy(rng.choice(values))
    else:
        parent.append(copy.deepcopy(rng.choice(values)))
    return tree


def _places(tree: Any):
    """Yields every entry of a tree as its container and key."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in keys:
        yield tree, key
        yield from _places(tree[key])


def forge_record(record: bytes, rng: random.Random) -> bytes:
    """A checkpoint's record with absurd shapes or values and a matching checksum."""
    tree = json.loads(record)
    del tree["record_sha256"]
    leaf = tree["leaves"][rng.choice(sorted(tree["leaves"]))]
    kinds: Sequence[Callable[[], Any]] = (
        lambda: leaf.update(shape=[rng.choice((10**12, 2**62, -1, 0, 3))]),
        lambda: leaf.update(shape=[10**6] * rng.randrange(1, 6)),
        lambda: leaf.update(shape=rng.choice(VALUES)),
        lambda: leaf.update(dtype=rng.choice(("float64", "int64", "object", "O", "V8", "", "key<fry>"))),
        lambda: leaf.update(key_impl=rng.choice(("threefry2x32", "rbg", "x", 3))),
        lambda: tree["tensors"].update(bytes=rng.choice((0, -1, 2**40, 2**62))),
        lambda: tree["tensors"].update(file=rng.choice(("../config.json", "/dev/zero", "a.b.safetensors", 5))),
        lambda: tree.update(step=rng.choice(VALUES)),
        lambda: tree.update(meta=rng.choice(VALUES)),
        lambda: damage_tree(tree, rng),
    )
    changed = rng.choice(kinds)()
    tree = changed if isinstance(changed, dict) else tree
    return seal(tree)


def seal(tree: dict[str, Any]) -> bytes:
    """A record with the checksum of its content."""
    content = hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()
    return json.dumps({**tree, "record_sha256": content}).encode()


def forge_header(tensors: bytes, rng: random.Random) -> bytes:
    """A safetensors file with a damaged header of the same length."""
    length = int.from_bytes(tensors[:8], "little")
    header, rest = tensors[8 : 8 + length], tensors[8 + length :]
    kinds: Sequence[Callable[[], bytes]] = (
        lambda: rng.choice((0, 1, length + 1, 2**31, 2**63, 2**64 - 1)).to_bytes(8, "little") + header + rest,
        lambda: tensors[:8] + header.replace(b'"F32"', rng.choice((b'"I32"', b'"F99"', b'"BOOL"'))) + rest,
        lambda: tensors[:8] + header.replace(b"[", b"[9", 1) + rest,
        lambda: tensors[:8] + damage_bytes(header, rng)[:length].ljust(length) + rest,
        lambda: tensors[:8] + header + rest[: rng.randrange(len(rest) + 1)],
    )
    return rng.choice(kinds)()
