"""How long turns should be, at the same episode length (appendix B, ablation on the horizon)."""

import numpy as np

from advsurprise.evaluation.curves import draws, iqm
from advsurprise.experiments.figure import Arm, Claim, Figure, Results
from advsurprise.experiments.settings import FOUR, turns
from advsurprise.experiments.verdicts import RESAMPLES, more

WORLD, EPISODE = "rooms/four", "end/rooms_episode"
TURNS, BEST = (2, 4, 8, 16, 32, 64), (8, 16)
PAPER = "the best turns have 8 to 16 steps"
SURE = 0.95


def judge(results: Results) -> list[Claim]:
    """Claim 5."""
    rooms = {turn: results.of_frozen(WORLD, f"as-{turn}", EPISODE) for turn in TURNS}
    chosen = np.stack(
        [iqm(values[draws(np.zeros(len(values), int), RESAMPLES, seed)]) for seed, values in enumerate(rooms.values())]
    )
    best = np.asarray(TURNS)[np.argmax(chosen, axis=0)]
    share = float(np.isin(best, BEST).mean())
    decided = "holds" if share >= SURE else "does not hold" if share <= 1 - SURE else "undecided"
    measure = "share of the bootstrap samples in which turns of 8 or 16 steps visit the most rooms"
    seeds = len(rooms[8])
    made = [Claim("turns of 8 or 16 steps visit the most rooms", PAPER, measure, share, share, share, seeds, decided)]
    for turn in TURNS:
        if turn not in BEST:
            inner = max(BEST, key=lambda each: float(iqm(rooms[each])))
            sentence = f"turns of {inner} steps visit more rooms in an episode than turns of {turn}"
            made.append(more(sentence, PAPER, "rooms per episode, frozen policies", rooms[inner], rooms[turn]))
    return made


FIGURE = Figure(
    name="horizon",
    question="how long the turns of Explore and Control should be",
    paper="appendix B, ablation on the horizon",
    worlds=FOUR,
    arms={f"as-{turn}": Arm(f"turns of {turn}", "adversarial-surprise", turns(turn)) for turn in TURNS},
    steps={"small": 250_000, "full": 20_000_000},
    columns=(EPISODE, "mean/rooms_episode", "end/rooms_life", "end/stilled", "scored_surprise"),
    drawn=(EPISODE, "end/rooms_life", "end/stilled"),
    judge=judge,
)
