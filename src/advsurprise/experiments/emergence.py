"""What Control does at the end of its first turn, over training (section 5, Q3; appendix B): to the dark room, then the
door shut, then locked."""

import numpy as np

from advsurprise.experiments.figure import Claim, Figure, Results
from advsurprise.experiments.settings import arms
from advsurprise.experiments.verdicts import change_point, difference, mean, verdict

FIRST = 0.1
"""The beginning of training: steps up to this share of it."""
RISE = 0.1
"""Share of the episodes by which a curve has to rise for a change to be dated."""
DARK, SHUT, LOCKED = (f"handover/control/first/{name}" for name in ("in_dark", "shut_in", "locked_in"))
EXPLORE = tuple(f"handover/explore/first/{name}" for name in ("doors_closed", "in_dark"))
PHASES = "two phase transitions: first to the dark room, then shut or locked in it"
BEHAVIOURS = {
    "rooms/door": {DARK: "is in the dark room", SHUT: "has shut itself into the dark room"},
    "rooms/lock": {DARK: "is in the dark room", LOCKED: "has locked itself into the dark room"},
}


def judge(results: Results) -> list[Claim]:
    """Claim 4."""
    made = []
    for world, behaviours in BEHAVIOURS.items():
        dates = []
        for column, behaviour in behaviours.items():
            steps, values = results.curve(world, "as", column)
            begin = np.nanmean(values[:, steps <= FIRST * steps[-1]], axis=1)
            ours, low, high = difference(results.at_end(world, "as", column), begin)
            sentence = f"{world}: Control {behaviour} when its first turn ends, more and more often"
            measure = "share of the episodes, end of training less its beginning"
            made.append(Claim(sentence, PHASES, measure, ours, low, high, len(values), verdict(low, high)))
            dates.append(np.asarray([change_point(steps, one, rise=RISE) for one in values]))
        ours, low, high = mean(dates[1] - dates[0])
        sentence = f"{world}: it {list(behaviours.values())[1].removeprefix('has ')} after it came to be there at all"
        measure = f"steps between the two changes, of the {int(np.isfinite(dates[1] - dates[0]).sum())} seeds with both"
        made.append(Claim(sentence, PHASES, measure, ours, low, high, len(dates[0]), verdict(low, high)))
    return made


FIGURE = Figure(
    name="emergence",
    question="what Control has done when its first turn ends",
    paper="section 5, Q3, and appendix B",
    worlds={"rooms/door": {}, "rooms/lock": {}},
    arms=arms("as"),
    steps={"small": 1_000_000, "full": 20_000_000},
    columns=(DARK, SHUT, LOCKED, *EXPLORE, "scored_surprise", "end/in_dark"),
    drawn=(DARK, SHUT, LOCKED),
    judge=judge,
)
