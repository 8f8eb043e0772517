"""The smallest run that is worth saving, and what is left of it on disk."""

import pathlib
import signal

from advsurprise.config import PPOConfig, RunConfig
from advsurprise.training import checkpoint
from advsurprise.training.metrics import read_rows

TINY = RunConfig(
    env="ladder/game",
    method_fields={"k_explore": 1, "k_control": 4, "stack": 2},
    ppo=PPOConfig(epochs=1, minibatch=8),
    steps=20 * 12,
    seeds=(3, 4),
    bodies=2,
    rollout=10,
    network_width=2,
    save_every=5,
)
FIELDS = {name: getattr(TINY, name) for name in ("method_fields", "ppo", "seeds", "bodies", "rollout", "network_width")}
"""The same for `advsurprise.train`."""
WORDS = [
    *("--env", "ladder/game", "--bodies", "2", "--seeds", "3..4"),
    *("--set", "method.k_explore=1", "--set", "method.k_control=4", "--set", "method.stack=2"),
    *("--set", "ppo.epochs=1", "--set", "ppo.minibatch=8", "--set", "rollout=10", "--set", "network_width=2"),
]


def newest_record(run_folder: pathlib.Path) -> pathlib.Path:
    """Record of the newest checkpoint."""
    record, _ = checkpoint.newest_good(run_folder / "checkpoints")
    assert record is not None
    return record


def saved_tensors(run_folder: pathlib.Path) -> bytes:
    """Bytes of its tensors."""
    record = newest_record(run_folder)
    return (record.parent / checkpoint.read_record(record)["tensors"]["file"]).read_bytes()


def metric_rows(run_folder: pathlib.Path) -> list[dict]:
    """Metrics, without those of the clock."""
    return [{k: v for k, v in row.items() if k != "steps_per_s"} for row in read_rows(run_folder / "metrics.jsonl")]


class Signals:
    """A loop during one of whose updates a signal comes."""

    def __init__(self, loop, update: int, number: int):
        self.loop, self.at, self.number = loop, update, number
        self.init, self.like, self.resumed, self.agents = loop.init, loop.like, loop.resumed, loop.agents
        self.saved, self.notes, self.method = loop.saved, loop.notes, loop.method

    def update(self, state):
        state, metrics = self.loop.update(state)
        if int(state.update[0]) == self.at:
            signal.raise_signal(self.number)
        return state, metrics
