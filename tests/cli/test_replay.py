"""`advsurprise replay` and `advsurprise film` from the command line."""

import json
import sys

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
        (["replay", str(run), "--episodes", "0"], "a replay has from 1 to 64 episodes, not 0"),
        (["replay", *[str(run)] * 3], "a replay shows one run, or two side by side, not 3"),
        (["film", str(run), "--out", "film.avi"], "not 'film.avi'"),
        (["film", str(run), "--seed", "7"], f"{run} was not trained with seed 7; it has 0"),
    ):
        with pytest.raises(SystemExit) as stopped:
            cli.main(words)
        assert stopped.value.code == 2
        assert sentence in capsys.readouterr().err


def test_a_run_on_disk_becomes_a_film_and_a_contact_sheet(run, capsys):
    cli.main(["film", str(run), "--episodes", "2", "--fps", "5", "--json"])
    result = json.loads(capsys.readouterr().out)
    made = run / "film.mp4"
    assert (result["film"], result["bytes"], result["seed"]) == (str(made), made.stat().st_size, 0)
    # Episodes of five steps, and the state after each.
    assert (result["pictures"], result["film_seconds"]) == (12, 2.4)
    sheet = run / "sheet.png"
    cli.main(["film", str(run), "--episodes", "2", "--world-seed", "1", "--out", str(sheet)])
    captured = capsys.readouterr()
    assert captured.err.splitlines() == ["playing 2 episodes …", "drawing 10 steps …"]
    assert captured.out.startswith(f"2 episodes of seed 0: {sheet} (12 pictures, ")
    assert captured.out.endswith(f"advsurprise replay {run}\n")
    assert sheet.read_bytes().startswith(b"\x89PNG")
    assert api.load(run).film(run / "again.png", episodes=2, world_seed=1).read_bytes() == sheet.read_bytes()


def test_a_film_without_the_extra_exits_3_before_anything_is_played(run, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["film", str(run), "--out", str(run / "none.mp4")])
    assert stopped.value.code == 3
    assert capsys.readouterr().err.endswith('pip install "advsurprise[video]"\n')


def test_texts_cannot_end_the_element_they_are_in():
    text = pages.as_json({"name": "</script><!-- & --> \u2028"})
    assert not set(text) & set("<>&\u2028")
    assert json.loads(text) == {"name": "</script><!-- & --> \u2028"}
