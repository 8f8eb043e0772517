"""Rooms visited, over training and within an episode (section 5, Q1)."""

from advsurprise.experiments.figure import Claim, Figure, Results
from advsurprise.experiments.settings import FOUR, arms
from advsurprise.experiments.verdicts import area, mean, more

WORLD, ROOMS = "rooms/four", 4
ALL = 0.99
"""Share of the rooms that counts as all of them."""
BASELINES = ("rnd", "asp", "asp-cell", "smirl")
LIFE, EPISODE, OVER_TIME = "end/rooms_life", "end/rooms_episode", "mean/rooms_episode"
SOONER = "Adversarial Surprise visits all rooms over its lifetime, before the others do"
MOST = "Adversarial Surprise visits the most rooms"


def judge(results: Results) -> list[Claim]:
    """Claims 1 and 2."""
    share, low, high = mean(results.at_end(WORLD, "as", LIFE) / ROOMS)
    decided = "holds" if low >= ALL else "does not hold" if high < ALL else "undecided"
    seeds = len(results.at_end(WORLD, "as", LIFE))
    sentence = "Adversarial Surprise visits all rooms over its lifetime"
    made = [Claim(sentence, SOONER, "share of the rooms, end of training", share, low, high, seeds, decided)]
    areas = {arm: area(*results.curve(WORLD, arm, LIFE)) for arm in FIGURE.arms}
    for other in BASELINES:
        name = FIGURE.arms[other].label
        sentence = f"Adversarial Surprise visits new rooms sooner than {name}"
        made.append(more(sentence, SOONER, "rooms over the lifetime, mean over training", areas["as"], areas[other]))
    for column, measure in ((EPISODE, "rooms per episode"), (OVER_TIME, "rooms so far, time mean")):
        for other in BASELINES:
            sentence = f"Adversarial Surprise visits more rooms in an episode than {FIGURE.arms[other].label}"
            both = (results.of_frozen(WORLD, arm, column) for arm in ("as", other))
            made.append(more(sentence, MOST, f"{measure}, frozen policies", *both))
    return made


FIGURE = Figure(
    name="coverage",
    question="how many rooms are visited over the lifetime and per episode",
    paper="section 5, Q1",
    worlds=FOUR,
    arms=arms("as", "as-round", "rnd", "asp", "asp-cell", "smirl"),
    steps={"small": 400_000, "full": 50_000_000},
    columns=(LIFE, EPISODE, OVER_TIME, "end/stilled", "mean/stilled", "scored_surprise", "common_surprise"),
    drawn=(LIFE, EPISODE, "end/stilled"),
    judge=judge,
)
