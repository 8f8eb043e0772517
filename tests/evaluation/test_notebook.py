"""What notebooks show of a run."""

import dataclasses
import xml.etree.ElementTree

import pytest

from advsurprise.api import Trained
from advsurprise.config import RunConfig
from advsurprise.training import folder, metrics

CONFIG = RunConfig(env="rooms/door", steps=8192 * 4, seeds=(0, 5))


@pytest.fixture
def trained(tmp_path):
    """Four updates; no episode ended in the second."""
    folder.prepare_folder(CONFIG, tmp_path, fresh=False)
    sink = metrics.JsonLines(tmp_path / "metrics.jsonl", None)
    for update in range(1, 5):
        for seed in CONFIG.seeds:
            row = {"step": 8192 * update, "update": update, "seed": seed, "episodes": float(update != 2)}
            sink.write(row | {"end/rooms_episode": 0.5 * update + seed, "common_surprise": 30.0})
    sink.close()
    return Trained(tmp_path, CONFIG, [], 4)


def parsed(trained):
    return xml.etree.ElementTree.fromstring(trained._repr_html_())


def cells(trained):
    return {row[0].text: row[1].text for row in parsed(trained).iter("tr")}


def test_the_table_says_what_it_is_and_how_it_went(trained, tmp_path):
    shown = cells(trained)
    assert shown["method"] == "adversarial-surprise"
    assert (shown["world"], shown["trained"], shown["seeds"]) == ("rooms/door", "32,768 steps", "0, 5")
    assert shown["folder"] == str(tmp_path)
    # Four updates: 2 and 7, the mean of which is 4.5.
    assert shown["rooms visited per episode"] == "4.5"


def test_curves_have_a_line_for_every_seed_and_their_mean(trained):
    figures = list(parsed(trained).iter("svg"))
    assert next(figure.attrib["aria-label"] for figure in figures) == "rooms visited per episode"
    assert len(figures) == 2
    *seeds, mean = [path.attrib["d"] for path in figures[0].iter("path")][1:]
    # From 0.5 to 7, with a gap where no episode ended.
    assert seeds[0] == "M0.0 120.0M213.3 101.5L320.0 92.3"
    assert len(seeds) == 2
    assert mean == "M0.0 73.8M213.3 55.4L320.0 46.2"


def test_everything_is_escaped(trained):
    config = dataclasses.replace(CONFIG, method="a.py:<script>&", seeds=(0,))
    shown = Trained(trained.folder, config, [], 2)
    assert "<script" not in shown._repr_html_()
    assert cells(shown)["method"] == "a.py:<script>&"
    assert cells(shown)["trained"] == "16,384 of 32,768 steps"


def test_without_metrics_the_table_stays(trained):
    path = trained.folder / "metrics.jsonl"
    for damage in (lambda: path.write_text("no\nrows\n"), path.unlink):
        damage()
        assert list(cells(trained)) == ["method", "world", "trained", "seeds", "folder"]
        assert not list(parsed(trained).iter("svg"))


def test_one_line_where_there_is_no_notebook(trained, tmp_path):
    line = f"<Trained: adversarial-surprise in rooms/door, 32,768 steps, seeds 0, 5, {tmp_path}>"
    assert repr(trained) == line
