"""Switch flips in the two-room switch world (appendix B, emergence of complexity)."""

from advsurprise.experiments.figure import Claim, Figure, Results
from advsurprise.experiments.settings import arms
from advsurprise.experiments.verdicts import alike, difference, more

WORLD, FLIPS = "rooms/switch", "end/uses"
ORDER = "flips: Adversarial Surprise with the round's buffer > SMiRL ~ Adversarial Surprise > ASP, RND"
MEASURE = "switch flips per episode, frozen policies"
MARGIN = 0.1
"""Largest difference in flips per episode at which two methods count as alike."""
PAIRS = (("as-round", "smirl"), ("as-round", "as"), ("as", "asp"), ("as", "rnd"), ("smirl", "asp"), ("smirl", "rnd"))


def judge(results: Results) -> list[Claim]:
    """Claim 3."""
    flips = {arm: results.of_frozen(WORLD, arm, FLIPS) for arm in FIGURE.arms}
    made = []
    for first, second in PAIRS:
        sentence = f"{FIGURE.arms[first].label} flips the switch more often than {FIGURE.arms[second].label}"
        made.append(more(sentence, ORDER, MEASURE, flips[first], flips[second]))
    ours, low, high = difference(flips["smirl"], flips["as"])
    sentence = f"SMiRL flips the switch as often as Adversarial Surprise, within {MARGIN}"
    measure = f"{MEASURE}: difference of interquartile means"
    made.append(Claim(sentence, ORDER, measure, ours, low, high, len(flips["as"]), alike(low, high, MARGIN)))
    return made


FIGURE = Figure(
    name="control",
    question="who learns to use the switch that stops the lights",
    paper="appendix B, emergence of complexity",
    worlds={WORLD: {}},
    arms=arms("as-round", "as", "smirl", "asp", "rnd"),
    steps={"small": 400_000, "full": 20_000_000},
    columns=(FLIPS, "end/stilled", "mean/stilled", "end/restarts", "end/rooms_episode", "scored_surprise"),
    drawn=(FLIPS, "end/stilled", "end/rooms_episode"),
    judge=judge,
)
