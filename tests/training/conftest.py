"""What tests of checkpoints share."""

import pytest
from small_checkpoint import small_tree, tensors_of

from advsurprise.training import checkpoint


@pytest.fixture
def saved(tmp_path):
    """Record and tensors of a small checkpoint."""
    record = checkpoint.save(tmp_path, 5, small_tree(), {"lr": 1e-4})
    return record, tensors_of(record)
