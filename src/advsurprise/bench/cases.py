"""Random commands, and random damage to the files that they read. Each ends quickly: it has an error in it, or little
to do."""

import hashlib
import json
import random
from collections.abc import Callable
from typing import NamedTuple

from advsurprise.bench.mutate import damage_bytes, damage_json, damage_tree, forge_header, forge_record, seal
from advsurprise.bench.scene import COMPARISON, CONFIGURATION, NOTE, RUN, WORLD, Scene


class Case(NamedTuple):
    """One command, and the files that are replaced while it runs."""

    kind: str
    """What is random about it."""
    words: list[str]
    """The command line."""
    planted: dict[str, bytes | None]
    """New contents by path in the scene; None for a missing file."""


JUNK = (
    *(
        "",
        " ",
        "-",
        "--",
        "-1",
        "0",
        "1",
        "1e9",
        "1e400",
        "nan",
        "None",
        "x",
        "é",
        "a=b",
        "=",
        "../x",
        "/",
        "/dev/null",
    ),
    *("x" * 300, "--json", "-h", "rooms/four", "zoo:rooms-four", "zoo:", "zoo:x", ":", "x.py:", "x.py:Y", "os:getcwd"),
    *(
        "rooms/fuor",
        "CartPole-v1",
        "gymnax:x",
        "pgx:x",
        "package:Name-v0",
        "300k",
        "2M",
        "0..4",
        "4..0",
        "1,2",
        "\n",
        "\t",
    ),
    *("\udcff", "'", '"', "$(true)", "%s", "{}", "[]", "null", "--no", "--set", "1.5", "-0", "999999999999999999999"),
)
SETTINGS = (
    *("rollout=8", "rollout=0", "rollout=x", "ppo.lr=nan", "ppo.lr=-1", "ppo.=1", ".=", "env.rooms=99", "env.grid=-5"),
    *("env.grid=1000000", "env.x=1", "method.k_explore=0", "method.x=", "seeds=3", "ppo.epochs=1e3", "save_every=0"),
    *("env.kinds=dark,,noisy", "env.view=4", "devices=99", "devices=-1", "bodies=", "=", "env.doors=opne", "steps=1"),
)
PLACES = (RUN, COMPARISON, NOTE, WORLD, CONFIGURATION, "nowhere", "", ".", f"{RUN}/config.json", f"{COMPARISON}/random")
VERBS: dict[str, tuple[int, tuple[str, ...], tuple[str, ...]]] = {
    "train": (0, ("env", "method", "steps", "seeds", "bodies", "config", "set", "track", "fresh"), ("--out", NOTE)),
    "sweep": (1, ("grid", "env", "method", "steps", "seeds", "bodies", "set", "on", "workers"), ("--dry-run",)),
    "resume": (1, ("allow",), ("--steps", "1")),
    "eval": (1, ("env", "set", "cross", "allow"), ("--episodes", "3")),
    "plot": (2, ("metric", "out", "allow"), ("--smooth", "0")),
    "replay": (2, ("out", "allow"), ("--episodes", "0")),
    "film": (1, ("seed", "world-seed", "out", "allow"), ("--fps", "0")),
    "watch": (1, ("port", "allow"), ("--episodes", "0")),
    "report": (1, ("metric", "out", "allow"), ("--episodes", "0")),
    "zoo": (0, (), ()),
    "methods": (0, (), ()),
    "envs": (1, ("set", "seed"), ("--png", f"{NOTE}/x.png")),
    "check-env": (1, ("set",), ()),
    "theory": (1, ("horizon", "figure"), ("--random", "0", "--seed", "-1")),
    "reproduce": (1, ("scale", "steps", "out", "results"), ("--seeds", "0")),
    "doctor": (0, (), ()),
    "bench worlds": (1, ("set", "seconds"), ("--bodies", "0")),
    "bench train": (0, ("env", "method", "set"), ("--bodies", "0")),
    "bench foreign": (0, ("method", "set"), ("--env", "rooms/four")),
    "bench oracle": (0, ("seed",), ("--steps", "0")),
    "bench drill": (0, ("methods", "envs", "seed"), ("--kills", "-1")),
}
"""For every verb: its number of positional arguments, its flags, and arguments that end it early."""


def command(scene: Scene, rng: random.Random) -> Case:
    """A verb, or sometimes none, with random arguments."""
    if rng.random() < 0.1:
        return Case("command", [_word(rng) for _ in range(rng.randrange(4))], {})
    verb = rng.choice(sorted(VERBS))
    places, flags, end = VERBS[verb]
    words = verb.split()
    words += [rng.choice((*PLACES, _word(rng))) for _ in range(places + rng.choice((-1, 0, 0, 0, 0, 0, 1)))]
    for _ in range(rng.randrange(4)):
        words += _flag(rng, flags)
    if rng.random() < 0.1:
        words.insert(rng.randrange(len(words) + 1), _word(rng))
    return Case("command", [*words, *end, *(["--json"] if rng.random() < 0.3 else [])], {})


def _flag(rng: random.Random, flags: tuple[str, ...]) -> list[str]:
    if not flags or rng.random() < 0.05:
        return [f"--{rng.choice(('x', 'env', 'help', 'jsn', '', 'allow', 'set'))}"]
    name = rng.choice(flags)
    value = rng.choice(SETTINGS) if name == "set" and rng.random() < 0.8 else rng.choice((*PLACES, _word(rng)))
    return [f"--{name}"] if rng.random() < 0.05 else [f"--{name}", value]


def _word(rng: random.Random) -> str:
    if rng.random() < 0.8:
        return rng.choice(JUNK)
    return "".join(
        chr(rng.choice((rng.randrange(32, 127), rng.randrange(1, 0xD7FF)))) for _ in range(rng.randrange(12))
    )


def configuration(scene: Scene, rng: random.Random) -> Case:
    """A damaged configuration of a run or a comparison, or a damaged settings file."""
    reader = rng.choice(("film", "resume", "plot", "plot", "comparison", "comparison", "settings", "settings"))
    if reader == "comparison":
        path = f"{COMPARISON}/comparison.json"
        words = rng.choice((["resume", COMPARISON, "--steps", "1"], ["plot", COMPARISON, "--metric", "x"]))
    elif reader == "settings":
        path, words = CONFIGURATION, ["train", "--config", CONFIGURATION, "--out", NOTE]
    else:
        path, words = f"{RUN}/config.json", _reading(reader)
    return Case("configuration", words, {path: damage_json(scene.files[path], rng)})


def _reading(verb: str) -> list[str]:
    """A command that reads a run and then ends."""
    ends = {
        "film": ["--seed", "99", "--out", "out/film.png"],
        "resume": ["--steps", "1"],
        "plot": ["--metric", "x"],
    }
    return [verb, RUN, *ends[verb]]


def checkpoint(scene: Scene, rng: random.Random) -> Case:
    """A checkpoint with one of its two files cut, corrupted, forged, missing or replaced."""
    path = rng.choice((scene.record, scene.tensors))
    data = scene.files[path]
    kinds: tuple[Callable[[], dict[str, bytes | None]], ...] = (
        lambda: {path: damage_bytes(data, rng)},
        lambda: {path: damage_bytes(data, rng)},
        lambda: {scene.record: forge_record(scene.files[scene.record], rng)},
        lambda: {scene.record: forge_record(scene.files[scene.record], rng)},
        lambda: _with_tensors(scene, forge_header(scene.files[scene.tensors], rng)),
        lambda: {path: None},
        lambda: {path: scene.files[scene.tensors if path == scene.record else scene.record]},
        lambda: {scene.record.replace("step_", "step_9"): damage_json(scene.files[scene.record], rng)},
    )
    return Case("checkpoint", _reading("film"), rng.choice(kinds)())


def _with_tensors(scene: Scene, tensors: bytes) -> dict[str, bytes | None]:
    """Replaced tensors, with a record whose checksums match them."""
    record = json.loads(scene.files[scene.record])
    del record["record_sha256"]
    record["tensors"] |= {"bytes": len(tensors), "sha256": hashlib.sha256(tensors).hexdigest()}
    return {scene.tensors: tensors, scene.record: seal(record)}


def theory_world(scene: Scene, rng: random.Random) -> Case:
    """A small theory world, damaged."""
    worlds = (scene.files[WORLD], scene.files[WORLD.replace(".json", "_tables.json")])
    words = ["theory", WORLD, "--figure", "None", *(["--horizon", "2"] if rng.random() < 0.2 else [])]
    return Case("theory world", words, {WORLD: damage_json(rng.choice(worlds), rng)})


def metrics(scene: Scene, rng: random.Random) -> Case:
    """The metrics of a run with some lines damaged; occasionally they are plotted."""
    path = f"{RUN}/metrics.jsonl"
    lines = scene.files[path].splitlines()
    if rng.random() < 0.3:
        rows = damage_bytes(scene.files[path], rng)
    else:
        for _ in range(rng.randrange(1, 4)):
            number = rng.randrange(len(lines))
            lines[number] = json.dumps(damage_tree(json.loads(lines[number]), rng)).encode()
        rows = b"\n".join(lines) + b"\n"
    planted: dict[str, bytes | None] = {path: rows}
    reader = rng.random()
    if reader < 0.05:
        # Without a checkpoint a report has no episodes to play.
        return Case("metrics", ["report", RUN, "--out", "out/report.html"], {**planted, scene.record: None})
    metric = "common_surprise" if reader < 0.15 else rng.choice(("x", "rooms,x", "common_surprise,x", "end/rooms,x"))
    return Case("metrics", ["plot", RUN, "--metric", metric, "--out", "out/plot"], planted)


def folder(scene: Scene, rng: random.Random) -> Case:
    """A run or comparison with a missing or an extra file."""
    planted: dict[str, bytes | None] = {}
    for _ in range(rng.randrange(1, 4)):
        path = rng.choice(sorted(scene.files.keys() - {NOTE}))  # its presence keeps `train` from starting
        other = (
            f"{rng.choice((RUN, COMPARISON, f'{RUN}/checkpoints'))}/{rng.choice(('extra', '.x.tmp', 'step_1.json'))}"
        )
        planted |= {path: None} if rng.random() < 0.6 else {other: rng.randbytes(20)}
    words = rng.choice(
        (
            *(_reading(verb) for verb in ("film", "resume", "plot")),
            ["resume", COMPARISON, "--steps", "1"],
            ["plot", COMPARISON, "--metric", "x"],
            ["theory", WORLD, "--figure", "None"],
            ["train", "--config", CONFIGURATION, "--out", NOTE],
        )
    )
    return Case("folder", words, planted)


KINDS: dict[Callable[[Scene, random.Random], Case], float] = {
    command: 0.35,
    configuration: 0.2,
    checkpoint: 0.15,
    theory_world: 0.1,
    metrics: 0.12,
    folder: 0.08,
}
"""Kinds of cases, with the share of each."""


def draw(scene: Scene, rng: random.Random) -> Case:
    """Draws a case of a random kind."""
    return rng.choices(list(KINDS), list(KINDS.values()))[0](scene, rng)
