"""What tests of checkpoints and of runs share."""

from contextlib import nullcontext

import pytest
from small_checkpoint import small_tree, tensors_of
from tiny_run import TINY

from advsurprise.training import checkpoint, loops
from advsurprise.training.fused import Fused


@pytest.fixture
def saved(tmp_path):
    """Record and tensors of a small checkpoint."""
    record = checkpoint.save(tmp_path, 5, small_tree(), {"lr": 1e-4})
    return record, tensors_of(record)


@pytest.fixture(scope="module")
def loop():
    """The one loop of a module's own process."""
    return Fused(TINY)


@pytest.fixture
def shared(loop, monkeypatch):
    """Whoever trains TINY, however long, does it with the loop that is compiled already."""
    monkeypatch.setattr(loops, "open_loop", lambda cfg: nullcontext(loop))
    return loop
