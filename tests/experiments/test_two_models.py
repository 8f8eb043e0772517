"""The figures of our own variants, on made-up results whose verdicts are known."""

import numpy as np
import pytest

from advsurprise.experiments import coverage, two_models, whole_turn
from advsurprise.experiments.figure import Results
from advsurprise.experiments.reproduce import config_of, make_request

VARIANTS = pytest.mark.parametrize("variant", [two_models, whole_turn])
STILLED = {"as-round": 0.5}


def made_up(variant, rooms: float, stilled: float) -> Results:
    """Ten seeds of each arm; all but ours visit two rooms."""
    spread = np.linspace(-0.05, 0.05, 10)
    rows = []
    for arm in variant.ARMS:
        mine = (rooms, stilled) if arm == variant.OURS else (2.0, STILLED.get(arm, 0.3))
        names = (two_models.EPISODE, two_models.STILLED)
        rows += [
            {"world": two_models.WORLD, "arm": arm, "seed": seed} | dict(zip(names, np.add(mine, off), strict=True))
            for seed, off in enumerate(spread)
        ]
    return Results((), tuple(rows))


@VARIANTS
def test_they_are_compared_with_the_runs_of_coverage(variant):
    assert variant.FIGURE.trained_for == coverage.FIGURE.name
    for arm in ("as", "as-round"):
        assert variant.FIGURE.arms[arm] == coverage.FIGURE.arms[arm]
    for name in ("worlds", "steps", "batch", "seeds", "tuned"):
        assert getattr(variant.FIGURE, name) == getattr(coverage.FIGURE, name)


def test_the_second_is_compared_with_the_first():
    assert whole_turn.ARMS[two_models.OURS] == two_models.ARMS[two_models.OURS]


@VARIANTS
def test_their_own_arms_are_trained_until_their_learning_rate_is_zero(variant):
    request = make_request(variant.FIGURE.name, scale="full")
    configs = {arm: config_of(request, two_models.WORLD, arm) for arm in variant.ARMS}
    for arm in configs.keys() - {"as", "as-round"}:
        last = configs[arm].steps_per_update
        assert 0 <= configs[arm].ppo.lr_end_steps - configs[arm].steps < last
        assert configs[arm].steps < configs["as"].steps == request.steps
    short = make_request(variant.FIGURE.name, scale="full", steps=1_000_000)
    assert config_of(short, two_models.WORLD, variant.OURS).steps <= 1_000_000


def test_explore_stops_learning_first_with_two_models():
    cfg = config_of(make_request("two-models", scale="full"), two_models.WORLD, two_models.OURS)
    assert cfg.method_fields["explore_lr_end_steps"] < cfg.ppo.lr_end_steps


@VARIANTS
@pytest.mark.parametrize(
    ("rooms", "stilled", "reached", "against_the_round"),
    [
        (3.2, 0.7, ["holds", "holds"], ["holds", "holds"]),
        (2.5, 0.6, ["does not hold", "undecided"], ["holds", "holds"]),
        (1.5, 0.4, ["does not hold", "does not hold"], ["does not hold", "does not hold"]),
    ],
)
def test_targets_and_comparisons_are_judged(variant, rooms, stilled, reached, against_the_round):
    claims = variant.FIGURE.judge(made_up(variant, rooms, stilled))
    assert [claim.verdict for claim in claims[:2]] == reached
    assert claims[0].ours == pytest.approx(rooms)
    assert claims[1].ours == pytest.approx(stilled)
    told = [claim for claim in claims[2:] if variant.ARMS["as-round"].label in claim.claim]
    assert [claim.verdict for claim in told] == against_the_round
    assert told[0].ours == pytest.approx(rooms - 2.0)
    assert len(claims) == 2 + 2 * (len(variant.ARMS) - 1)
