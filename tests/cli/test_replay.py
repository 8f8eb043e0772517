"""`advsurprise replay` from the command line."""

import json

import pytest

from advsurprise import api
from advsurprise.cli import main as cli
from advsurprise.evaluation import pages

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "game"
    fields = {"k_explore": 1, "k_control": 2, "stack": 1}
    api.train("ladder/game", steps=64, bodies=4, rollout=16, out=folder, method_fields=fields)
    return folder


def test_a_run_on_disk_becomes_a_page(run, capsys):
    cli.main(["replay", str(run), "--episodes", "2", "--json"])
    result = json.loads(capsys.readouterr().out)
    page = run / "replay.html"
    assert (result["page"], result["bytes"], result["episodes"]) == (str(page), page.stat().st_size, 2)
    text = page.read_text()
    assert text.count("<script") == text.count("</script>") == 2
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    (shown,) = data["runs"]
    assert (shown["roles"], shown["steps"], len(shown["seeds"][0]["episodes"])) == (["explore", "control"], 64, 2)


def test_mistakes_are_sentences(run, capsys):
    for words, sentence in (
        ([str(run), "--episodes", "0"], "a replay has from 1 to 64 episodes, not 0"),
        ([str(run)] * 3, "a replay shows one run, or two side by side, not 3"),
    ):
        with pytest.raises(SystemExit) as stopped:
            cli.main(["replay", *words])
        assert stopped.value.code == 2
        assert sentence in capsys.readouterr().err


def test_texts_cannot_end_the_element_they_are_in():
    text = pages.as_json({"name": "</script><!-- & --> \u2028"})
    assert not set(text) & set("<>&\u2028")
    assert json.loads(text) == {"name": "</script><!-- & --> \u2028"}
