"""The variant in which Explore is paid for all of Control's turn, compared with the paper's algorithm and with
our other variant: does it explore and still?

Its runs are in the folder of `coverage`, like those of `two_models`.
"""

import dataclasses
import functools

from advsurprise.experiments import two_models
from advsurprise.experiments.figure import Arm
from advsurprise.experiments.settings import arms, turns
from advsurprise.experiments.variants import FADED, FADING, LIGHTLY

OURS, SUBJECT = "whole-turn", "Explore and Control, with the whole turn paid,"
ARMS = arms("as", "as-round") | {
    two_models.OURS: two_models.ARMS[two_models.OURS],
    OURS: Arm("whole turn", "adversarial-surprise", FADED | turns(12) | LIGHTLY, steps=FADING),
}
FIGURE = dataclasses.replace(
    two_models.FIGURE,
    name="whole-turn",
    question="whether paying Explore for all of Control's turn explores and stills",
    arms=ARMS,
    judge=functools.partial(two_models.judge, ours=OURS, subject=SUBJECT, arms=ARMS),
)
