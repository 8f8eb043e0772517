"""A sweep on a real Ray cluster of two nodes, one of which is killed in the middle."""

import json
import pathlib
import tempfile
import threading

import pytest

from advsurprise.cli import main as cli
from advsurprise.evaluation import sweep
from advsurprise.training import run
from advsurprise.training.fused import Fused
from advsurprise.training.metrics import read_rows
from advsurprise.training.ray_jobs import MARK

pytestmark = pytest.mark.ray
UPDATES = 1000
"""Enough that a run is far from its end when its node is dead, which takes a second or so."""
WORDS = [
    *("sweep", "--env", "ladder/game", "--method", "task", "--steps", str(20 * UPDATES), "--bodies", "2"),
    *("--set", "rollout=10", "--set", "ppo.epochs=1", "--set", "ppo.minibatch=8", "--set", "save_every=5"),
    # Seeds are data: all runs share one compiled program.
    *("--grid", "seeds=0,1,2", "--on", "ray", "--cpus", "1", "--json"),
]


@pytest.fixture
def short_folder(tmp_path_factory):
    """For Ray's sockets, whose paths have at most 107 characters, 70 of them Ray's own."""
    folder = tmp_path_factory.mktemp("r")
    if len(str(folder)) <= 35:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="r") as other:
        yield pathlib.Path(other)


@pytest.fixture
def nodes(short_folder, monkeypatch):
    """A cluster and its second node; commands find it by RAY_ADDRESS."""
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    monkeypatch.setenv("RAY_TMPDIR", str(short_folder))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        second = cluster.add_node(num_cpus=1)
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        yield cluster, second
    finally:
        cluster.shutdown()


def _begun_on(folder: pathlib.Path, node: str) -> str | None:
    """The run that a node trains and has a fiftieth of."""
    for log in folder.glob("*.log"):
        if node in log.read_text() and len(read_rows(folder / log.stem / "metrics.jsonl")) > UPDATES // 50:
            return log.stem
    return None


def _kill_in_the_middle(cluster, node, folder: pathlib.Path, killed: list[str], over: threading.Event) -> None:
    while not (name := _begun_on(folder, node.node_id)) and not over.wait(0.05):
        pass
    if name:
        cluster.remove_node(node, allow_graceful=False)
        killed.append(name)


def _last_tensors(folder: pathlib.Path) -> pathlib.Path:
    return max((folder / "checkpoints").glob("*.safetensors"))


@pytest.mark.filterwarnings("ignore")  # Ray's own, of files and processes that it leaves to the garbage collector
def test_every_run_finishes_once_although_a_node_is_killed(nodes, tmp_path, capsys):
    folder, killed, over = tmp_path / "sweep", [], threading.Event()
    killer = threading.Thread(target=_kill_in_the_middle, args=(*nodes, folder, killed, over), daemon=True)
    killer.start()
    cli.main([*WORDS, "--out", str(folder)])
    over.set()
    killer.join()
    assert len(killed) == 1
    (result,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert {name: entry["status"] for name, entry in result["runs"].items()} == dict.fromkeys(
        ("seeds=0", "seeds=1", "seeds=2"), "done"
    )
    assert {name: entry["retries"] for name, entry in result["runs"].items() if entry["retries"]} == {killed[0]: 1}
    log = (folder / f"{killed[0]}.log").read_text()
    assert log.count(MARK) == 2
    assert "continuing from update" in log

    for name, cfg in sweep.read(folder).configs.items():
        rows = read_rows(folder / name / "metrics.jsonl")
        assert [row["update"] for row in rows] == list(range(1, UPDATES + 1)), name
        alone = run.train(cfg, tmp_path / "alone" / name, loop=Fused(cfg))
        assert alone.finished
        written = [_last_tensors(each) for each in (folder / name, alone.folder)]
        assert written[0].name == written[1].name
        assert written[0].read_bytes() == written[1].read_bytes()
