"""Files are replaced whole or not at all, and those of one result together."""

import io
import os
import stat

import pytest
from matplotlib.figure import Figure

from advsurprise.training import files


class Killed(BaseException):
    """The end of the process: nothing catches it."""


def test_bytes_and_text_are_written_in_one_or_several_folders(tmp_path):
    with pytest.raises(files.WriteError, match="No such file or directory"):
        files.write(tmp_path / "new" / "a", "")
    files.make_folder(tmp_path / "new")
    files.write_all({tmp_path / "new" / "a": b"\x00\xff", tmp_path / "b": "é"})
    assert (tmp_path / "new" / "a").read_bytes() == b"\x00\xff"
    assert (tmp_path / "b").read_bytes() == "é".encode()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b", "new"]


def test_nothing_is_replaced_before_everything_is_ready(tmp_path):
    old = {tmp_path / "a": "old a", tmp_path / "b": "old b"}
    files.write_all(old)
    with pytest.raises(files.WriteError, match="could not write"):
        files.write_all({tmp_path / "a": "new a", tmp_path / "b" / "below": "no folder"})
    assert {path: path.read_text() for path in old} == old
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}
    with pytest.raises(files.WriteError, match=r"could not write .*below: Not a directory"):
        files.make_folder(tmp_path / "b" / "below")


def test_data_reach_the_disk_before_the_name_and_the_folder_after_it(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor):
        events.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "data")
        fsync(descriptor)

    def replaced(source, target):
        events.append(os.path.basename(target))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    files.write_all({tmp_path / "a": "1", tmp_path / "b": "2"})
    assert events == ["data", "data", "a", "b", "folder"]


def test_what_a_killed_writer_leaves_is_known_as_such(tmp_path, monkeypatch):
    path = tmp_path / "a"
    files.write(path, "old")

    def dies(*_):
        raise Killed

    monkeypatch.setattr(os, "replace", dies)
    # A real kill would not run this either.
    monkeypatch.setattr(type(path), "unlink", lambda *_, **__: None)
    with pytest.raises(Killed):
        files.write(path, "new")
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir() if not files.is_temporary(each)] == ["a"]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_full_disk_is_one_sentence(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(files.WriteError) as caught:
        files.write(tmp_path / "a", "1")
    assert str(caught.value) == f"could not write {tmp_path / 'a'}: No space left on device"
    assert caught.value.exit_code == 4
    assert not list(tmp_path.iterdir())


def test_figures_have_the_format_of_their_name(tmp_path):
    figure, image = Figure(), io.BytesIO()
    figure.savefig(image, format="pdf", metadata={"CreationDate": None})
    files.write_figure(tmp_path / "a.pdf", figure, metadata={"CreationDate": None})
    files.write_figure(tmp_path / "a.png", figure)
    assert (tmp_path / "a.pdf").read_bytes() == image.getvalue()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
