"""What every layer above knows of a world: its kind, its fields, and how a person asks for it."""

import json

import numpy as np
import pytest

import advsurprise
from advsurprise import envs
from advsurprise.cli import main as cli
from advsurprise.cli.resolve import resolve
from advsurprise.config import RunConfig, changed
from advsurprise.envs import describe, ladder, rooms
from advsurprise.envs.base import AbstractEnv
from advsurprise.envs.host.base import Host
from advsurprise.errors import UserError


@pytest.mark.parametrize("id", [*rooms.WORLDS, *ladder.WORLDS])
def test_a_pure_world_can_be_made_and_opened(id):
    world = envs.find(id)
    assert (world.id, world.kind) == (id, "pure")
    env, host = world.make(), world.open(2)
    assert isinstance(env, AbstractEnv)
    assert isinstance(host, Host)
    assert host.spec == env.spec
    assert host.bodies == 2
    # Every field is one of the world's own, and has a sentence about it.
    assert set(world.fields) <= set(describe.field_docs(type(env)))
    assert not {"id", "places"} & set(world.fields)


@pytest.mark.parametrize("name", ["CartPole-v1", "package:Name-v0", "a/file.py:Class", "Unknown-v3"])
def test_gymnasiums_names_are_host_worlds_that_accept_any_field(name):
    world = envs.find(name)
    assert (world.id, world.kind, world.fields) == (name, "host", None)
    assert world.parse(["size=9", "render=no", "shape=[2, 3]"]) == {"size": 9, "render": "no", "shape": [2, 3]}
    with pytest.raises(UserError, match="runs on the host"):
        world.make()


def test_a_host_world_is_opened_with_its_fields():
    host = envs.find("CartPole-v1").open(3, max_episode_steps=4)
    try:
        host.reset(0)
        for _ in range(4):
            host.send(np.zeros(3, np.int64))
            timestep = host.recv()
    finally:
        host.close()
    assert timestep.truncated.all()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("rooms/fuor", "unknown world 'rooms/fuor'; did you mean 'rooms/four'?"),
        ("ladder/valeu", "did you mean 'ladder/value'?"),
        ("romos/door", "did you mean 'rooms/door'?"),
        ("base/four", "unknown world 'base/four'"),
        ("", "unknown world ''; `advsurprise envs` lists all"),
        ("../four", "unknown world"),
    ],
)
def test_a_name_that_no_world_has_gets_the_nearest(name, sentence):
    with pytest.raises(UserError) as refused:
        envs.find(name)
    assert sentence in str(refused.value)


FAMILY = """
from advsurprise.envs.world import World

def _open(bodies, **fields):
    return bodies, fields

WORLDS = {"{name}/one": World("{name}/one", "a world of its own", "{kind}", _open, {"size": int})}
"""


@pytest.mark.parametrize(("kind", "package"), [("pure", "advsurprise.envs"), ("host", "advsurprise.envs.host")])
def test_a_new_family_is_one_file(tmp_path, monkeypatch, kind, package):
    family = f"family_{kind}"
    (tmp_path / f"{family}.py").write_text(FAMILY.replace("{name}", family).replace("{kind}", kind))
    folder = __import__(package, fromlist=["__path__"])
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
    assert envs.list_envs()[f"{family}/one"] == "a world of its own"
    world = envs.find(f"{family}/one")
    assert (world.kind, world.parse(["size=3"])) == (kind, {"size": 3})
    with pytest.raises(UserError, match="has no field 'sizes'; did you mean 'size'"):
        world.open(2, sizes=4)
    if kind == "host":
        assert world.open(2, size=4) == (2, {"seeds": 1, "size": 4})


def _resolve(env, *settings):
    given = {"config": None, "method": "task", "steps": "1M", "seeds": None, "bodies": None}
    return resolve(env=env, settings=settings, **given)


def test_set_reads_every_worlds_own_fields():
    assert _resolve("rooms/door", "env.kinds=dark,noisy").env_fields == {"kinds": ("dark", "noisy")}
    cfg = _resolve("ladder/observation", "env.max_steps=3", "env.timeout=truncated")
    assert cfg.env_fields == {"max_steps": 3, "timeout": "truncated"}
    assert _resolve("CartPole-v1", "env.max_episode_steps=7", "env.x=word").env_fields == {
        "max_episode_steps": 7,
        "x": "word",
    }


@pytest.mark.parametrize(
    ("env", "setting", "sentence"),
    [
        ("ladder/value", "env.rooms=3", "unknown field 'env.rooms'"),
        ("ladder/value", "env.max_step=3", "did you mean 'env.max_steps'"),
        ("ladder/value", "env.places=3", "unknown field 'env.places'"),
        ("ladder/value", "env.id=x", "unknown field 'env.id'"),
        ("ladder/value", "env.starts=many", "env.starts must be a whole number"),
        ("rooms/four", "env.id=x", "unknown field 'env.id'"),
        ("rooms/four", "env.starts=1", "unknown field 'env.starts'"),
    ],
)
def test_set_refuses_what_the_world_has_not(env, setting, sentence):
    with pytest.raises(UserError, match=sentence):
        _resolve(env, setting)


def test_changed_takes_the_worlds_fields():
    for fields, value in (({"size": int}, 9), ({"size": float}, 9.0), ({"size": str}, "9"), (None, 9)):
        cfg = changed(RunConfig(), ["env.size=9"], world_fields=fields, method_type=object)
        assert cfg.env_fields == {"size": value}
        assert type(cfg.env_fields["size"]) is type(value)


def _card(capsys, *words):
    cli.main(["envs", *words, "--json"])
    return json.loads(capsys.readouterr().out)


def test_the_card_of_a_rung(capsys):
    card = _card(capsys, "ladder/value", "--set", "max_steps=4")
    assert card["fields"] == {"starts": 1, "max_steps": 4, "timeout": "terminated"}
    assert card["field_help"]["starts"] == "Number of places an episode can start in."
    assert card["measures"] == {"place": "place of the body", "total": "reward per episode"}
    assert (card["kind"], card["actions"], card["noop"], card["first_role"]) == ("pure", ["0", "1"], None, None)
    cli.main(["envs", "ladder/value"])
    text = capsys.readouterr().out
    assert all(word in text for word in ("max_steps = 1", "Number of places", "reward per episode"))


def test_the_card_of_a_room_world(capsys):
    card = _card(capsys, "rooms/door")
    assert (card["kind"], card["first_role"], card["actions"][card["noop"]]) == ("pure", "control", "done")
    assert card["measures"]["shut_in"] == "in a dark room with every door closed"
    assert list(card["measures"]) == card["info"]
    assert set(card["fields"]) == set(card["field_help"])


def test_the_card_of_a_gymnasium_world(capsys):
    card = _card(capsys, "CartPole-v1", "--set", "max_episode_steps=9")
    assert (card["kind"], card["noop"], card["max_steps"]) == ("host", None, 0)
    assert card["fields"] == {"max_episode_steps": 9}
    assert card["measures"]["episode_length"] == "steps per episode"
    with pytest.raises(SystemExit):
        cli.main(["envs", "CartPole-v1", "--png", "x.png"])
    assert "CartPole-v1 has no picture" in capsys.readouterr().err


def test_a_rung_has_no_picture(tmp_path, capsys):
    with pytest.raises(SystemExit):
        cli.main(["envs", "ladder/value", "--png", str(tmp_path / "x.png")])
    assert "ladder/value has no picture" in capsys.readouterr().err


@pytest.mark.parametrize("id", ["rooms/four", "rooms/lock", "ladder/game"])
def test_the_leading_entries_of_a_place_are_the_cell(id):
    spec = advsurprise.make(id).spec
    assert spec.cell_entries == 2
    assert len(spec.places) >= spec.cell_entries
