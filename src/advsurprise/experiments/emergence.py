"""What Control has done by the end of its first turn, over training (section 5, Q3; appendix B): go to the dark room,
then shut the door, then lock it."""

import numpy as np

from advsurprise.experiments.figure import Claim, Figure, Results
from advsurprise.experiments.settings import arms
from advsurprise.experiments.verdicts import change_point, difference, mean, verdict

FIRST = 0.1
"""The start of training: steps up to this share of it."""
RISE = 0.1
"""Rise of a curve, in share of episodes, that counts as a change."""
DARK, SHUT, LOCKED = (f"handover/control/first/{name}" for name in ("in_dark", "shut_in", "locked_in"))
SHUT_OUT, STAYED = (f"handover/explore/first/{name}" for name in ("doors_closed", "in_dark"))
PHASES = "two phase transitions: first to the dark room, then shut or locked in it"
BACK = "Explore learns to go back to the noisy room"
NOT_IN_PAPER = "not in the paper"
BEHAVIOURS = {
    "rooms/door": {DARK: "is in the dark room", SHUT: "has shut itself into the dark room"},
    "rooms/lock": {DARK: "is in the dark room", LOCKED: "has locked itself into the dark room"},
}


def judge(results: Results) -> list[Claim]:
    """Claim 4."""
    made = []
    for world, behaviours in BEHAVIOURS.items():
        for column, behaviour in behaviours.items():
            made.append(_more_often(results, world, column, f"Control {behaviour} when its first turn ends", PHASES))
        second = list(behaviours)[1]
        verb = {SHUT: "shut", LOCKED: "lock"}[second]
        sentence = f"Control learns to {verb} itself in after it learns to go to the dark room"
        made.append(_later(results, world, second, sentence, PHASES))
        made += _answers(results, world)
    return made


def _later(results: Results, world: str, column: str, sentence: str, paper: str) -> Claim:
    """The claim that a behaviour appears after Control has learnt to go to the dark room."""
    curves = [results.curve(world, "as", name) for name in (DARK, column)]
    dates = [np.asarray([change_point(steps, one, rise=RISE) for one in values]) for steps, values in curves]
    between = dates[1] - dates[0]
    ours, low, high = mean(between)
    measure = f"steps between the two changes, over the {int(np.isfinite(between).sum())} seeds with both"
    return Claim(f"{world}: {sentence}", paper, measure, ours, low, high, len(between), verdict(low, high))


def _more_often(results: Results, world: str, column: str, behaviour: str, paper: str) -> Claim:
    """The claim that a behaviour is more frequent at the end of training than at its start."""
    steps, values = results.curve(world, "as", column)
    at_start = np.nanmean(values[:, steps <= FIRST * steps[-1]], axis=1)
    ours, low, high = difference(results.at_end(world, "as", column), at_start)
    measure = "share of episodes, end of training minus start"
    sentence = f"{world}: {behaviour}, increasingly often"
    return Claim(sentence, paper, measure, ours, low, high, len(values), verdict(low, high))


def _answers(results: Results, world: str) -> list[Claim]:
    """Claims about how Explore responds to Control's dark room."""
    here, there = (results.at_end(world, "as", column) for column in (DARK, STAYED))
    ours, low, high = difference(here, there)
    measure = "share of episodes in the dark room, end of Control's turn minus end of Explore's, end of training"
    sentence = f"{world}: Explore takes the body back to the noisy room"
    back = Claim(sentence, BACK, measure, ours, low, high, len(here), verdict(low, high))
    shut = _more_often(results, world, SHUT_OUT, "the door is closed when Explore's turn ends", NOT_IN_PAPER)
    sentence = "Explore learns to shut the door after Control learns to go to the dark room"
    return [back, shut, _later(results, world, SHUT_OUT, sentence, NOT_IN_PAPER)]


FIGURE = Figure(
    name="emergence",
    question="what Control has done when its first turn ends",
    paper="section 5, Q3, and appendix B",
    worlds={"rooms/door": {}, "rooms/lock": {}},
    arms=arms("as"),
    steps={"small": 1_000_000, "full": 20_000_000},
    columns=(DARK, SHUT, LOCKED, SHUT_OUT, STAYED, "scored_surprise", "end/in_dark"),
    drawn=(DARK, SHUT, SHUT_OUT),
    judge=judge,
)
