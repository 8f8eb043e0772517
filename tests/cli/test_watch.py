"""`advsurprise watch` from the command line: it serves until it is interrupted, and leaves the folder as it was."""

import http.client
import json
import os
import pathlib
import signal
import subprocess
import sys
import urllib.parse

import pytest

from advsurprise.cli import main as cli
from advsurprise.config import RunConfig
from advsurprise.evaluation import comparison
from advsurprise.training.folder import CONFIG, write_config


@pytest.mark.slow
def test_it_serves_this_machine_until_it_is_interrupted(tmp_path):
    write_config(tmp_path / CONFIG, {"config": RunConfig().as_dict()}, fresh=True)
    (tmp_path / CONFIG).chmod(0o400)
    tmp_path.chmod(0o500)
    words = [sys.executable, "-m", "advsurprise", "watch", str(tmp_path), "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        try:
            assert watching.stdout is not None
            address = urllib.parse.urlsplit(json.loads(watching.stdout.readline())["url"])
            assert address.hostname == "127.0.0.1"
            assert os.getpriority(os.PRIO_PROCESS, watching.pid) >= 10
            status = json.loads(get(address.netloc, "/status.json"))
            assert (status["episodes"], status["text"]) == (0, "No update yet.")
            assert b"beginWatching" in get(address.netloc, "/")
            assert get(address.netloc, "/", host="evil.example") == b"403 Forbidden\n"
        finally:
            watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == 0
        assert watching.stderr is not None
        assert watching.stderr.read() == ""
    assert [path.name for path in tmp_path.iterdir()] == [CONFIG]


def get(place: str, path: str, host: str | None = None) -> bytes:
    connection = http.client.HTTPConnection(place, timeout=10)
    connection.request("GET", path, headers={"Host": host or place})
    body = connection.getresponse().read()
    connection.close()
    return body


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
