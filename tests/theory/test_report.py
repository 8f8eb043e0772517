"""`advsurprise theory`: one JSON object or a table, and a figure."""

import contextlib
import io
import json
import pathlib
import re

import pytest
from theory_worlds import shapes_unchecked

from advsurprise.cli.main import main
from advsurprise.theory.coverage import semiquasimetric
from advsurprise.theory.report import smallest_horizon
from advsurprise.theory.zoo import chain_of_rooms, one_way_ring, zoo

pytestmark = pytest.mark.slow

PUBLISHED = pathlib.Path(__file__).parents[2] / "docs" / "results" / "theory.json"
PAGE = PUBLISHED.parents[1] / "theory.md"
FLAT = {"moves": {"bed": ["bed", "hall"], "hall": ["hall", "bed", "tv"], "tv": ["tv", "hall"]}}
FLAT |= {"entropies": {"bed": 0, "hall": 0.2, "tv": 3}}


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """What the whole command prints as JSON; it takes seconds, so it runs once."""
    figure, printed = tmp_path_factory.mktemp("theory") / "occupancies.png", io.StringIO()
    with shapes_unchecked(), contextlib.redirect_stdout(printed):
        main(["theory", "--json", "--random", "500", "--seed", "1", "--figure", str(figure)])
    return json.loads(printed.getvalue()), figure


@pytest.fixture(scope="module")
def rows(command):
    """The rows of the built-in worlds by name."""
    return {row["name"]: row for row in command[0]["worlds"]}


@pytest.mark.slow
def test_the_whole_command_as_json(command, rows):
    result, figure = command
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert result["figure"] == str(figure)
    assert {world.name for world in zoo()} < set(rows)
    assert any(name.startswith("rooms/") for name in rows)
    for row in rows.values():
        assert set(row["assumptions"]) >= {"a", "b", "c"}
        assert set(row["objectives"]) == {"maximiser", "minimiser", "random", "game"}
        for part in row["objectives"].values():
            assert 0 < part["coverage"] <= 1
            assert part["state_entropy"] >= 0
            assert sum(part["marginal"].values()) == pytest.approx(1)
            split = part["state_entropy"] + part["emission_entropy"]
            assert part["observation_entropy"] == pytest.approx(split, abs=1e-9)
        assert row["covers"] == (not row["uncovered"])
        assert row["covers"] == (row["objectives"]["game"]["coverage"] == 1)


@pytest.mark.slow
def test_random_worlds_fail_as_stated_and_never_as_repaired(command):
    counts = command[0]["random_worlds"]
    by_name = {row["name"]: row for row in counts["readings"]}
    assert (counts["satisfying"], counts["seed"]) == (500, 1)
    assert counts["tried"] > 500
    assert counts["violations"] == by_name["every_solution"]["violations"] > 0
    for name in ("proof", "control_commits_c_star", "some_answer_c_star"):
        assert by_name[name]["violations"] == 0
        assert by_name[name]["worlds"] > 450
    assert counts["largest_gap"] <= 1e-6
    assert counts["smallest_violation"]["world"]["states"] == ["s0", "s1", "s2"]
    assert max(command[0]["lemmas"][name] for name in ("lemma_1", "lemma_1_at_the_fit", "lemma_2")) < 1e-10


def test_a_world_of_one_s_own(capsys, tmp_path):
    path = tmp_path / "flat.json"
    path.write_text(json.dumps(FLAT))
    main(["theory", str(path), "--figure", str(tmp_path / "flat.png")])
    table = capsys.readouterr().out
    # The fewest steps that meet the assumptions: from the television the bed is two away.
    assert "flat                      2   y  y  y" in table
    assert "random worlds" not in table
    main(["theory", str(path), "--horizon", "1", "--figure", "None"])
    assert "flat: (a) fails: from 'tv' no dark room s' has d(s, s') ≤ 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["missing.json"], "cannot read missing.json"),
        (["--horizon", "0"], "--horizon must be from 1 to 10,000"),
        (["--random", "-1"], "must be at least 0"),
    ],
)
def test_mistakes_are_reported_in_a_sentence(capsys, words, sentence):
    with pytest.raises(SystemExit) as stop:
        main(["theory", *words])
    assert stop.value.code == 2
    said = capsys.readouterr()
    assert sentence in said.err
    assert said.out == ""


def test_a_figure_that_cannot_be_written_is_a_mistake_too(capsys, tmp_path):
    path = tmp_path / "flat.json"
    path.write_text(json.dumps(FLAT))
    with pytest.raises(SystemExit):
        main(["theory", str(path), "--figure", str(tmp_path / "nowhere" / "flat.png")])
    assert "cannot write the figure" in capsys.readouterr().err


def test_rows_say_what_the_objectives_do(rows):
    row = rows["noisy TV"]
    assert row["objectives"]["maximiser"]["marginal"]["screen"] > 0.999
    assert row["objectives"]["maximiser"]["coverage"] == 0.5
    assert row["objectives"]["game"]["coverage"] == 1
    assert row["game"]["every_solution_covers"] == "yes"
    row = rows["chain of rooms"]
    assert row["objectives"]["minimiser"]["state_entropy"] == pytest.approx(0, abs=1e-9)
    assert row["objectives"]["game"]["state_entropy"] == pytest.approx(1.386, abs=1e-3)


def test_rows_say_what_fails(rows):
    row = rows["breaks (c)"]
    assert not row["assumptions"]["c"]
    assert "north" in row["witnesses"]["c"]
    assert len(row["uncovered"]) == 1
    row = rows["dim hall"]
    assert row["satisfies"]
    assert not row["covers"]
    assert row["uncovered"] == ["vault"]
    assert row["game"]["turn_covers"]
    assert not row["game"]["control_commits"]["covers"]
    assert rows["leap (coin flips)"]["game"]["every_solution_covers"] == "not searched"


def test_the_horizon_of_a_world_without_one():
    world = chain_of_rooms()
    assert smallest_horizon(world, semiquasimetric(world)) == 1
    assert smallest_horizon(one_way_ring(), semiquasimetric(one_way_ring())) == 2


def test_the_published_rows_are_what_the_code_says(command, rows):
    published = json.loads(PUBLISHED.read_text())
    assert [row["name"] for row in published["worlds"]] == list(rows)
    for kept in published["worlds"]:
        row = rows[kept["name"]]
        assert row["assumptions"] == kept["assumptions"]
        assert row["holds_from"] == kept["holds_from"]
        assert row["game"]["every_solution_covers"] == kept["game"]["every_solution_covers"]
        for name, part in row["objectives"].items():
            assert part["coverage"] == pytest.approx(kept["objectives"][name]["coverage"])
            assert part["state_entropy"] == pytest.approx(kept["objectives"][name]["state_entropy"], abs=1e-3)
    for name, values in command[0]["examples"].items():
        assert values == pytest.approx(published["examples"][name], abs=1e-6)
    failed = {row["name"]: row["violations"] for row in published["random_worlds"]["readings"]}
    assert published["random_worlds"]["satisfying"] == 5000
    assert failed["proof"] == failed["control_commits_c_star"] == failed["some_answer_c_star"] == 0


def test_the_page_quotes_the_published_numbers():
    published, page = json.loads(PUBLISHED.read_text()), PAGE.read_text()
    table = [line.split("|")[1:-1] for line in page.splitlines() if re.match(r"\| .* \| \d+ \| [*yn]", line)]
    assert [cells[0].strip() for cells in table] == [row["name"] for row in published["worlds"]]
    for cells, row in zip(table, published["worlds"], strict=True):
        holds, *objectives = [cell.replace("*", "").split() for cell in cells[2:7]]
        assert holds == ["yes" if row["assumptions"][name] else "no" for name in "abc"]
        for (share, nats), name in zip(objectives, ("maximiser", "minimiser", "random", "game"), strict=True):
            part = row["objectives"][name]
            assert (share, nats) == (f"{part['coverage']:.0%}", f"{part['state_entropy']:.3f}")
        assert cells[7].replace("*", "").strip() == row["game"]["every_solution_covers"]
    counts = published["random_worlds"]
    assert f"Of {counts['tried']:,} tried (seed {counts['seed']}), {counts['satisfying']:,} satisfy" in page
    assert f"({counts['undecided']} undecided)" in page
    fails = re.findall(r"^\| .* \| (?:\*\*)?(\d+)(?:\*\*)? of ([\d,]+)", page, flags=re.MULTILINE)
    assert fails == [(str(row["violations"]), f"{row['worlds']:,}") for row in counts["readings"]]
