"""A variant that is not in the paper, compared with the paper's algorithm: does it explore and still?

Its runs are in the folder of `coverage`, which shares two of its arms.
"""

import functools

from advsurprise.experiments.figure import Arm, Claim, Figure, Results
from advsurprise.experiments.settings import FOUR, arms, turns
from advsurprise.experiments.variants import (
    LARGE,
    LATE,
    LESS_ENTROPY,
    NO_PRIOR,
    OWN_SCALE,
    TWO_MODELS,
    first_explore,
)
from advsurprise.experiments.verdicts import Values, mean, more, verdict

WORLD, EPISODE, STILLED = "rooms/four", "end/rooms_episode", "end/stilled"
OURS = "two-models"
NOT_THERE = "not in the paper"
SUBJECT = "two models"
TARGETS = {
    EPISODE: (3.0, "rooms per episode", "visit three rooms per episode"),
    STILLED: (0.6, "share of the noisy rooms that are stilled", "still 60% of the noisy rooms"),
}
"""Targets, their measures, and what is claimed."""
SAME = turns(10, 6) | LARGE | LESS_ENTROPY | {"ppo.lr_end_steps": LATE}
"""Turns, batch, learning rate and entropy bonus of the variant and of the single model that it is compared with."""
ARMS = arms("as", "as-round") | {
    "as-large": Arm("one model, same turns and batch", "adversarial-surprise", SAME | NO_PRIOR, steps=LATE),
    OURS: Arm(
        "two models",
        "adversarial-surprise",
        SAME | TWO_MODELS | OWN_SCALE | first_explore(8_000_000),
        steps=LATE,
    ),
}


def judge(results: Results, *, ours: str, subject: str, arms: dict[str, Arm]) -> list[Claim]:
    """Whether one arm reaches the targets, and whether it does more of both than the others."""
    frozen = {arm: {each: results.of_frozen(WORLD, arm, each) for each in TARGETS} for arm in arms}
    made = [_reached(subject, each, frozen[ours][each]) for each in TARGETS]
    for column, (_, measure, _) in TARGETS.items():
        does = "visit more rooms" if column == EPISODE else "still more rooms"
        for other in (arm for arm in arms if arm != ours):
            sentence = f"{subject} {does} in an episode than {arms[other].label}"
            both = (frozen[arm][column] for arm in (ours, other))
            made.append(more(sentence, NOT_THERE, f"{measure}, frozen policies", *both))
    return made


def _reached(subject: str, column: str, values: Values) -> Claim:
    target, measure, does = TARGETS[column]
    ours, low, high = mean(values)
    decided = verdict(low - target, high - target)
    return Claim(f"{subject} {does}", NOT_THERE, f"{measure}, frozen policies", ours, low, high, len(values), decided)


FIGURE = Figure(
    name="two-models",
    question="whether a model for each role explores and stills",
    paper=NOT_THERE,
    worlds=FOUR,
    arms=ARMS,
    steps={"small": 400_000, "full": 50_000_000},
    columns=(EPISODE, "mean/rooms_episode", "end/rooms_life", STILLED, "mean/stilled", "scored_surprise"),
    drawn=(EPISODE, STILLED),
    judge=functools.partial(judge, ours=OURS, subject=SUBJECT, arms=ARMS),
    trained_for="coverage",
)
