"""Positions in Take Cover: what is measured of distributions that are known, claims, and the drawing."""

import numpy as np
import pytest

from advsurprise.errors import UserError
from advsurprise.experiments import doom_coverage, reproduce
from advsurprise.experiments.doom_coverage import BEGINNING, END, RANDOM, SHARES, THROUGHOUT, Positions
from advsurprise.experiments.figure import Results

BINS, SEEDS, ROWS = 23, 6, 20
EVEN = np.full(BINS, 1 / BINS)
ONE_END = np.repeat([0.0, 1 / 12], [11, 12])
"""Never left of the start."""


def _results(wanted, arms=tuple(doom_coverage.FIGURE.arms)):
    """Rows in which each arm is distributed as `wanted(arm, share of training)` says, but for each seed's noise."""
    rng, rows = np.random.default_rng(0), []
    for arm, seed in ((arm, seed) for arm in arms for seed in range(SEEDS)):
        for row in range(1, ROWS + 1):
            counts = rng.multinomial(20_000, wanted(arm, row / ROWS))
            whose = {"world": doom_coverage.WORLD, "arm": arm, "seed": seed, "step": 1000 * row}
            rows.append(whose | dict(zip(SHARES, counts / counts.sum(), strict=True)))
    return Results(tuple(rows), ())


def test_it_shows_the_runs_of_the_zero_shot_figure():
    figure, other = doom_coverage.FIGURE, reproduce.FIGURES["doom-zero-shot"]
    assert figure.trained_for == other.name
    learning = {name: arm for name, arm in figure.arms.items() if arm.learns}
    assert learning == {name: arm for name, arm in other.arms.items() if arm.learns}
    assert (figure.worlds, figure.steps, figure.seeds) == (other.worlds, other.steps, other.seeds)
    # A folder of its own: random play of the other figure is shorter.
    assert set(figure.arms) - set(learning) == {RANDOM}
    assert RANDOM not in other.arms
    request = reproduce.make_request(figure.name, scale="full")
    assert request.runs == reproduce.make_request(other.name, scale="full").out
    for scale in ("small", "full"):
        cfg = reproduce.config_of(reproduce.make_request(figure.name, scale=scale), doom_coverage.WORLD, RANDOM)
        assert (cfg.steps, cfg.updates * cfg.steps_per_update, cfg.seeds) == (65_536, 65_536, (0,))
    assert set(SHARES) < set(figure.columns)


def test_bins_are_visited_from_a_thousandth_of_the_steps_on():
    shares = np.asarray([EVEN, ONE_END, ONE_END])
    shares[2, :2] = 0.001, 0.0009
    np.testing.assert_allclose(doom_coverage.visited(shares), [1.0, 12 / BINS, 13 / BINS])


def test_evenness_is_the_share_of_the_bins_that_would_be_as_uncertain():
    one = np.eye(BINS)[3]
    np.testing.assert_allclose(doom_coverage.evenness(np.asarray([EVEN, ONE_END, one])), [1.0, 12 / BINS, 1 / BINS])


def test_parts_of_training_weigh_rows_by_their_steps():
    # The second row stands for three times as many steps as the others.
    there = Positions(np.asarray([100.0, 400, 500]), np.eye(BINS)[None, :3])
    np.testing.assert_allclose(there.within(THROUGHOUT)[0, :4], [0.2, 0.6, 0.2, 0.0])
    np.testing.assert_allclose(there.within(BEGINNING)[0, :3], [1, 0, 0])
    np.testing.assert_allclose(there.within(END)[0, :3], [0, 0, 1])


def test_claims_of_coverage_in_doom():
    def wanted(arm, share):
        # RND reaches the other end late, SMiRL is at the end that Adversarial Surprise leaves out late.
        return {"rnd": EVEN if share > 0.2 else ONE_END, "smirl": EVEN, "agac": ONE_END}.get(
            arm, ONE_END if arm == "as" and share > 0.5 else EVEN
        )

    found = doom_coverage.judge(_results(wanted))
    verdicts = {claim.claim: claim.verdict for claim in found}
    assert len(verdicts) == len(found) == 14
    assert verdicts["Adversarial Surprise visits the whole corridor, first tenth of training"] == "holds"
    assert verdicts["Adversarial Surprise visits the whole corridor, last tenth of training"] == "does not hold"
    assert verdicts["RND does not visit the whole corridor, first tenth of training"] == "holds"
    assert verdicts["SMiRL does not visit the whole corridor, first tenth of training"] == "does not hold"
    more = "Adversarial Surprise covers more of the corridor than"
    assert verdicts[f"{more} RND, first tenth of training"] == "holds"
    assert verdicts[f"{more} RND, all of training"] == "does not hold"
    assert verdicts[f"{more} AGAC, all of training"] == "holds"
    # Random play is everywhere: as even as the beginning of Adversarial Surprise, and more so than all of it.
    assert verdicts[f"{more} random play, all of training"] == "does not hold"
    assert {claim.seeds for claim in found} == {SEEDS}
    assert all(claim.low <= claim.ours <= claim.high for claim in found)
    assert "random play 1.00" in found[0].measure


def test_random_play_needs_one_seed_and_is_a_fixed_level():
    both = (_results(lambda arm, share: EVEN if arm == "as" else ONE_END, (arm,)).rows for arm in ("as", RANDOM))
    ours, random = both
    [_, _, early, whole] = doom_coverage.judge(Results((*ours, *random[:ROWS]), ()))
    assert (early.verdict, whole.verdict, whole.seeds) == ("holds", "holds", SEEDS)
    assert whole.ours == pytest.approx(11 / BINS, abs=0.01)
    # Another run of random play may differ by as much.
    assert whole.ours - whole.low > doom_coverage.RANDOM_ERROR < whole.high - whole.ours


def test_claims_about_arms_that_are_not_there_are_left_out():
    assert len(doom_coverage.judge(_results(lambda arm, share: EVEN, ("as", "smirl")))) == 5
    only = doom_coverage.judge(_results(lambda arm, share: EVEN, ("rnd", "asp")))
    assert [claim.verdict for claim in only] == ["does not hold"]
    assert doom_coverage.judge(Results((), ())) == []


@pytest.mark.parametrize("arms", [("as",), tuple(doom_coverage.FIGURE.arms)])
def test_there_is_a_panel_for_every_arm_on_one_scale(arms):
    results = _results(lambda arm, share: EVEN if arm == "as" else ONE_END, arms)
    made = doom_coverage.drawing(results)
    heat = [axis.collections[0] for axis in made.axes if "visits" in axis.get_title()]
    assert len(heat) == len(arms)
    assert {each.get_clim() for each in heat} == {(doom_coverage.FAINTEST, 0)}
    # Bins follow each other from right to left, and none is below the scale.
    first = heat[0].get_array()
    assert first.shape == (ROWS, BINS)
    np.testing.assert_allclose(10**first, 1 / BINS, rtol=0.1)
    assert {axis.get_ylim() for axis in made.axes if "visits" in axis.get_title()} == {(1000 * ROWS, 0)}
    # What does not learn is one row from the beginning to the end.
    assert [each.get_array().shape for each in heat[len(arms) - 1 :]] == [(1 if len(arms) > 1 else ROWS, BINS)]
    titles = [axis.get_title() for axis in made.axes if axis.get_title()]
    assert titles[0] == "Adversarial Surprise\nvisits 100%, covers 100%"


def test_it_is_drawn_as_files_if_there_is_something_to_draw():
    with pytest.raises(UserError, match="older than these columns"):
        doom_coverage.draw(Results((), ()))
    files = doom_coverage.draw(_results(lambda arm, share: EVEN, ("as", RANDOM)))
    assert files[".png"].startswith(b"\x89PNG")
    assert files[".pdf"].startswith(b"%PDF")
