"""What tests of worker processes share."""

import tempfile

import pytest


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Folders of workers, which must all be gone in the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.chdir(tmp_path)
    yield folder
    assert not list(folder.iterdir())
