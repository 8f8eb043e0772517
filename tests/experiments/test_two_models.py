"""The figure of our own variant, on made-up results whose verdicts are known."""

import numpy as np
import pytest

from advsurprise.experiments import coverage, two_models
from advsurprise.experiments.figure import Results
from advsurprise.experiments.reproduce import config_of, make_request

STILLED = {"as": 0.3, "as-round": 0.5, "as-large": 0.3}


def made_up(rooms: float, stilled: float) -> Results:
    """Ten seeds of each arm; all but ours visit two rooms."""
    spread = np.linspace(-0.05, 0.05, 10)
    rows = []
    for arm in two_models.ARMS:
        mine = (rooms, stilled) if arm == two_models.OURS else (2.0, STILLED[arm])
        names = (two_models.EPISODE, two_models.STILLED)
        rows += [
            {"world": two_models.WORLD, "arm": arm, "seed": seed} | dict(zip(names, np.add(mine, off), strict=True))
            for seed, off in enumerate(spread)
        ]
    return Results((), tuple(rows))


def test_it_is_compared_with_the_runs_of_coverage():
    assert two_models.FIGURE.trained_for == coverage.FIGURE.name
    for arm in ("as", "as-round"):
        assert two_models.FIGURE.arms[arm] == coverage.FIGURE.arms[arm]
    for name in ("worlds", "steps", "batch", "seeds", "tuned"):
        assert getattr(two_models.FIGURE, name) == getattr(coverage.FIGURE, name)


def test_its_own_arms_are_trained_until_their_learning_rate_is_zero():
    request = make_request("two-models", scale="full")
    configs = {arm: config_of(request, two_models.WORLD, arm) for arm in two_models.ARMS}
    for arm in (two_models.OURS, "as-large"):
        assert configs[arm].steps == configs[arm].ppo.lr_end_steps < configs["as"].steps == request.steps
    assert configs[two_models.OURS].method_fields["explore_lr_end_steps"] < configs[two_models.OURS].ppo.lr_end_steps
    short = make_request("two-models", scale="full", steps=1_000_000)
    assert config_of(short, two_models.WORLD, two_models.OURS).steps == 1_000_000


@pytest.mark.parametrize(
    ("rooms", "stilled", "reached", "against_the_round"),
    [
        (3.2, 0.7, ["holds", "holds"], ["holds", "holds"]),
        (2.5, 0.6, ["does not hold", "undecided"], ["holds", "holds"]),
        (1.5, 0.4, ["does not hold", "does not hold"], ["does not hold", "does not hold"]),
    ],
)
def test_targets_and_comparisons_are_judged(rooms, stilled, reached, against_the_round):
    claims = two_models.judge(made_up(rooms, stilled))
    assert [claim.verdict for claim in claims[:2]] == reached
    assert claims[0].ours == pytest.approx(rooms)
    assert claims[1].ours == pytest.approx(stilled)
    told = [claim for claim in claims[2:] if two_models.ARMS["as-round"].label in claim.claim]
    assert [claim.verdict for claim in told] == against_the_round
    assert told[0].ours == pytest.approx(rooms - 2.0)
    assert len(claims) == 2 + 2 * len(two_models.OTHERS)
