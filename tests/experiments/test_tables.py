"""The documentation's tables are those that its rows give."""

import pathlib

import numpy as np
import pytest
from scipy import stats

from advsurprise.errors import UserError
from advsurprise.experiments import tables

DOCS = pathlib.Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("path", tables.pages(DOCS), ids=lambda path: path.name)
@pytest.mark.slow
def test_the_pages_hold_what_the_rows_give(path):
    assert tables.remade(path.read_text(), DOCS / "results") == path.read_text()


def test_every_table_is_on_a_page():
    on_pages = [match["name"] for path in tables.pages(DOCS) for match in tables.BLOCK.finditer(path.read_text())]
    assert sorted(on_pages) == sorted(tables.TABLES)


def test_training_seeds_are_averaged_first():
    rows = [{"seed": seed, "step": step, "x": seed * 10.0 + step} for seed in (1, 2, 4) for step in (1, 2, 3, 4)]
    means = tables.seed_means(rows, "x", 1.0, 3.0)
    assert means == [12.5, 22.5, 42.5]
    low, high = stats.t.interval(0.95, 2, loc=np.mean(means), scale=stats.sem(means))
    assert tables.over_seeds(means, 1) == f"{np.mean(means):.1f} [{low:.1f}, {high:.1f}]"


def test_a_stale_page_is_reported_and_written(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(tables.TABLES, "tiny", lambda results: "| a |\n")
    page = tmp_path / "page.md"
    page.write_text("Before.\n<!-- table: tiny -->\nold\n<!-- end -->\nAfter.\n")
    with pytest.raises(SystemExit) as stopped:
        tables.main(tables.Settings(docs=tmp_path, check=True))
    assert stopped.value.code == 1
    assert "page.md: differs from its rows" in capsys.readouterr().out
    assert "old" in page.read_text()
    tables.main(tables.Settings(docs=tmp_path))
    assert page.read_text() == "Before.\n<!-- table: tiny -->\n| a |\n<!-- end -->\nAfter.\n"
    tables.main(tables.Settings(docs=tmp_path, check=True))
    page.write_text("<!-- table: tinny -->\n<!-- end -->\n")
    with pytest.raises(UserError, match="did you mean 'tiny'"):
        tables.main(tables.Settings(docs=tmp_path))
