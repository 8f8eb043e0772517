"""`advsurprise watch` from the command line: it serves until it is interrupted, and leaves the folder as it was."""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import threading
import time

import pytest

from advsurprise.cli import main as cli
from advsurprise.config import RunConfig
from advsurprise.evaluation import comparison
from advsurprise.training.folder import CONFIG, write_config


def get(port: int, path: str, host: str = "localhost") -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path, headers={"Host": host})
    body = connection.getresponse().read()
    connection.close()
    return body


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_this_machine_until_it_is_interrupted(number, tmp_path, monkeypatch, capsys):
    write_config(tmp_path / CONFIG, {"config": RunConfig().as_dict()}, fresh=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    lowered, answers = [], []
    monkeypatch.setattr(os, "nice", lowered.append)  # the tests that follow keep theirs

    def visit():
        end = time.monotonic() + 60
        while not answers and time.monotonic() < end:
            with contextlib.suppress(ConnectionRefusedError):
                answers.extend([get(port, "/status.json"), get(port, "/"), get(port, "/", host="evil.example")])
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    visitor = threading.Thread(target=visit)
    visitor.start()
    cli.main(["watch", str(tmp_path), "--port", str(port), "--json"])  # returns: exit code 0
    visitor.join()
    status, page, refused = answers
    assert json.loads(status)["text"] == "No update yet."
    assert b"beginWatching" in page
    assert refused == b"403 Forbidden\n"
    assert lowered == [10]
    assert json.loads(capsys.readouterr().out) == {"url": f"http://127.0.0.1:{port}/", "run": str(tmp_path)}
    assert [path.name for path in tmp_path.iterdir()] == [CONFIG]
    with pytest.raises(ConnectionRefusedError):
        get(port, "/")


def test_mistakes_are_sentences(tmp_path: pathlib.Path, capsys):
    (tmp_path / "both").mkdir()
    asked = comparison.Comparison(RunConfig(), {"smirl": {}, "random": {}})
    (tmp_path / "both" / comparison.FILE).write_text(json.dumps(asked.as_dict()))
    for words, sentence in (
        (["both"], "both holds a comparison; choose one of its runs, for example "),
        (["none"], "there is no run in "),
        (["none", "--episodes", "0"], "a replay has from 1 to 64 episodes, not 0"),
    ):
        with pytest.raises(SystemExit) as stopped:
            cli.main(["watch", str(tmp_path / words[0]), *words[1:]])
        assert stopped.value.code == 2
        assert sentence in capsys.readouterr().err
