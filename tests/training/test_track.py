"""Trackers get what metrics.jsonl gets, and never stop a run."""

import json
import math
import struct
import sys
import warnings

import numpy as np
import pytest
from event_files import scalars

from advsurprise.config import RunConfig
from advsurprise.errors import MissingExtra, TrackWarning, UserError
from advsurprise.training import track

CONFIG = RunConfig(env="ladder/game", steps=60, bodies=2, rollout=10)
ROWS = [
    {
        "step": 20 * update,
        "update": update,
        "seed": seed,
        "loss": 1 / (update + seed),
        "end/total": -3.5,
        "odd": math.nan,
        # Metrics have them; a chart of every bin would bury the others.
        "share/place/16": 0.5,
    }
    for update in (1, 2, 3)
    for seed in (0, 1)
]
NUMBERS = ("update", "loss", "end/total")


def open_one(folder, names, resume_step=0):
    (tracker,) = track.open_trackers(CONFIG, folder, names, resume_step=resume_step, log=lambda line: None)
    return tracker


def expected(rows):
    values = {(f"seed_{row['seed']}/{name}", row["step"]): row[name] for row in rows for name in NUMBERS}
    return {key: np.float32(value) for key, value in values.items()}


def test_event_files_hold_the_numbers_of_the_rows(tmp_path):
    tracker = open_one(tmp_path, ["tensorboard"])
    for row in ROWS:
        tracker.write(row)
    # On disk before it is closed: a run may be killed.
    assert scalars(tmp_path / "track" / "tensorboard") == expected(ROWS)
    tracker.close()
    assert scalars(tmp_path / "track" / "tensorboard") == expected(ROWS)


def test_a_resumed_run_has_the_same_trackers_and_goes_on_where_the_rows_end(tmp_path):
    """The last rows were written after the checkpoint that it is resumed from; their numbers may differ then."""
    first = open_one(tmp_path, ["tensorboard"])
    for row in ROWS[:4]:
        first.write({**row, "loss": -1.0} if row["step"] > 20 else row)
    first.close()
    second = open_one(tmp_path, None, resume_step=20)
    for row in ROWS[2:]:
        second.write(row)
    second.close()
    assert scalars(tmp_path / "track" / "tensorboard") == expected(ROWS)
    assert track.open_trackers(CONFIG, tmp_path, (), resume_step=20, log=print) == []
    assert track.remembered(tmp_path) == ()


class Fails:
    """A tracker that takes two rows."""

    def __init__(self, rows=2):
        self.left, self.closed = rows, False
        if rows < 0:
            raise OSError("no such\nplace")

    def write(self, row):
        if not self.left:
            raise ConnectionError("gone")
        self.left -= 1

    def close(self):
        self.closed = True
        raise OSError("gone")


@pytest.mark.parametrize(("rows", "sentence"), [(-1, "OSError: no such place"), (2, "ConnectionError: gone")])
def test_one_that_fails_gives_one_warning_and_is_left_alone(rows, sentence):
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        tracker = track.Guarded("mine", lambda: Fails(rows))
        for row in ROWS:
            tracker.write(row)
        tracker.close()
    assert [str(each.message) for each in given] == [f"mine gets no more rows, training continues: {sentence}"]
    assert given[0].category is TrackWarning


def test_one_that_fails_when_it_is_closed_does_not_raise():
    with pytest.warns(TrackWarning, match="OSError: gone"):
        track.Guarded("mine", Fails).close()


def test_a_folder_that_cannot_be_written_does_not_stop_a_run(tmp_path):
    (tmp_path / "track").mkdir()
    (tmp_path / "track" / "tensorboard").write_text("in the way")
    with pytest.warns(TrackWarning, match="tensorboard gets no more rows"):
        open_one(tmp_path, ["tensorboard"]).write(ROWS[0])


def test_names(monkeypatch):
    assert track.read_names("tensorboard, tensorboard") == ("tensorboard",)
    assert track.read_names("none") == ()
    with pytest.raises(UserError, match="unknown tracker 'tensorbord'; did you mean 'tensorboard'"):
        track.read_names("tensorbord")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtra, match=r"advsurprise\[track\]"):
        track.read_names("tensorboard,wandb")


def test_a_resumed_run_does_without_a_tracker_that_is_not_there_any_more(tmp_path, monkeypatch):
    track.remember(tmp_path, ["wandb"])
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.warns(TrackWarning, match="wandb is not installed"):
        open_one(tmp_path, None).write(ROWS[0])


def test_a_damaged_record_is_no_tracker(tmp_path):
    path = tmp_path / "track" / "trackers.json"
    path.parent.mkdir()
    for content in ("{", "[]", '{"trackers": 3}', '{"trackers": ["other", 4]}'):
        path.write_text(content)
        assert track.remembered(tmp_path) == ()


def test_wandb_offline_holds_the_numbers_of_the_rows(tmp_path, monkeypatch):
    wandb = pytest.importorskip(
        "wandb", reason="wandb is not installed: it is large, and only the extra `track` brings it"
    )
    from wandb.proto import wandb_internal_pb2

    monkeypatch.delenv("WANDB_MODE", raising=False)
    tracker = open_one(tmp_path, ["wandb"])
    for row in ROWS:
        tracker.write(row)
    tracker.close()
    wandb.teardown()  # its process writes the file; at the end of ours it is waited for
    (path,) = (tmp_path / "track" / "wandb").glob("offline-run-*/*.wandb")
    logged = {}
    for data in leveldb_records(path.read_bytes()[7:], skipped=7):
        record = wandb_internal_pb2.Record.FromString(data)
        items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        logged |= {(name, items["_step"]): value for name, value in items.items() if name.startswith("seed_")}
    assert {key: np.float32(value) for key, value in logged.items()} == expected(ROWS)


def leveldb_records(data, *, skipped):
    """Records of a file in LevelDB's log format, after a header of so many bytes: each is cut into pieces that fit into
    blocks of 32 KiB, with a checksum, a length and a kind (1 whole, 2 first, 3 middle, 4 last) before each piece."""
    at, record = 0, b""
    while at + 7 <= len(data):
        left = 32768 - (at + skipped) % 32768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield record
            record = b""
