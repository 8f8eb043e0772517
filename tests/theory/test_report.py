"""`advsurprise theory`: one JSON object or a table, and a figure."""

import json
import pathlib

import pytest

from advsurprise.cli.main import main
from advsurprise.theory.coverage import semiquasimetric
from advsurprise.theory.report import smallest_horizon, study
from advsurprise.theory.zoo import chain_of_rooms, dim_hall, leap, noisy_tv, one_way_ring, zoo

PUBLISHED = pathlib.Path(__file__).parents[2] / "docs" / "results" / "theory.json"
FLAT = {"moves": {"bed": ["bed", "hall"], "hall": ["hall", "bed", "tv"], "tv": ["tv", "hall"]}}
FLAT |= {"entropies": {"bed": 0, "hall": 0.2, "tv": 3}}


def test_the_whole_command_as_json(capsys, tmp_path):
    figure = tmp_path / "occupancies.png"
    main(["theory", "--json", "--random", "10", "--seed", "3", "--figure", str(figure)])
    result = json.loads(capsys.readouterr().out)
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert result["figure"] == str(figure)
    counts = result["random_worlds"]
    assert (counts["satisfying"], counts["seed"]) == (10, 3)
    assert counts["tried"] >= 10
    assert 0 <= counts["violations"] <= 10
    names = [world["name"] for world in result["worlds"]]
    assert {"noisy TV", "dark room", "chain of rooms", "breaks (a)", "breaks (b)", "breaks (c)"} <= set(names)
    assert any(name.startswith("rooms/") for name in names)
    for world in result["worlds"]:
        assert set(world["assumptions"]) >= {"a", "b", "c"}
        assert set(world["objectives"]) == {"maximiser", "minimiser", "random", "game"}
        for part in world["objectives"].values():
            assert 0 < part["coverage"] <= 1
            assert part["state_entropy"] >= 0
            assert sum(part["marginal"].values()) == pytest.approx(1)
        assert world["covers"] == (not world["uncovered"])
        assert world["covers"] == (world["objectives"]["game"]["coverage"] == 1)


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
        (["--horizon", "0"], "--horizon must be at least 1"),
        (["--random", "-1"], "must not be negative"),
    ],
)
def test_mistakes_are_told_in_a_sentence(capsys, words, sentence):
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


def test_rows_tell_what_the_objectives_do():
    row = study(noisy_tv())
    assert row["objectives"]["maximiser"]["marginal"]["screen"] > 0.999
    assert row["objectives"]["maximiser"]["coverage"] == 0.5
    assert row["objectives"]["game"]["coverage"] == 1
    assert row["game"]["every_solution_covers"] == "yes"
    row = study(chain_of_rooms())
    assert row["objectives"]["minimiser"]["state_entropy"] == pytest.approx(0, abs=1e-9)
    assert row["objectives"]["game"]["state_entropy"] == pytest.approx(1.386, abs=1e-3)


def test_rows_tell_what_fails():
    row = study(one_way_ring())
    assert not row["assumptions"]["c"]
    assert "north" in row["witnesses"]["c"]
    assert len(row["uncovered"]) == 1
    row = study(dim_hall())
    assert row["satisfies"]
    assert not row["covers"]
    assert row["uncovered"] == ["vault"]
    assert row["game"]["turn_covers"]
    assert not row["game"]["control_commits"]["covers"]
    assert study(leap())["game"]["every_solution_covers"] == "not searched"


def test_the_horizon_of_a_world_without_one():
    world = chain_of_rooms()
    assert smallest_horizon(world, semiquasimetric(world)) == 1
    assert smallest_horizon(one_way_ring(), semiquasimetric(one_way_ring())) == 2


def test_the_published_rows_are_what_the_code_says():
    published = {row["name"]: row for row in json.loads(PUBLISHED.read_text())["worlds"]}
    for world in zoo():
        row, kept = study(world), published[world.name]
        assert row["assumptions"] == kept["assumptions"]
        assert row["game"]["every_solution_covers"] == kept["game"]["every_solution_covers"]
        for name, part in row["objectives"].items():
            assert part["coverage"] == pytest.approx(kept["objectives"][name]["coverage"])
            assert part["state_entropy"] == pytest.approx(kept["objectives"][name]["state_entropy"], abs=1e-3)
