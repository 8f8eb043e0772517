"""Positions in Take Cover's corridor over training (section 5, Q1). No method observes the position."""

import dataclasses
import textwrap
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from advsurprise.envs.host.doom import POSITIONS
from advsurprise.errors import UserError
from advsurprise.evaluation import plot
from advsurprise.experiments import zero_shot
from advsurprise.experiments.figure import LAST, Arm, Claim, Results
from advsurprise.experiments.verdicts import mean, more, verdict
from advsurprise.types import Measure

WORLD, START = "doom/take-cover", 384
EDGES = POSITIONS["take-cover"]
SHARES = Measure("position_y", "", edges=EDGES).shares
VISITED = 1 / 1000
"""Share of steps from which a bin counts as visited."""
ALL = 0.99
"""Share of the bins that counts as all of them."""
EARLY = 0.1
"""The start of training, as a share of it."""
FAINTEST = -4
"""log10 of the share at and below which a bin is drawn black."""
COLUMNS = 4
"""Most panels in a row."""
CAPTION = (
    "means over training seeds; dashed: where episodes begin; below: every training seed, last tenth of training; "
    "visits: share of the 23 bins with 1/1000 of all steps or more; covers: exp(entropy) / 23"
)
WHOLE = "Adversarial Surprise alone visits all positions within the first 1000 training steps"
ENDS = {
    "rnd": "RND fails to explore both ends of the corridor within the first 1000 training steps",
    "smirl": "SMiRL fails to explore the right end of the corridor within the first 1000 training steps",
}
"""The paper's claims about other methods."""
BASELINES, RANDOM = zero_shot.BASELINES, "random-play"
NOT_THERE = zero_shot.NOT_THERE
ARMS = {name: arm for name, arm in zero_shot.ARMS.items() if arm.learns}
ARMS[RANDOM] = Arm("random play", "random", {"bodies": 16, "steps": 65_536}, learns=False)
"""The arms of the zero-shot figure, with longer random play: the first 128 steps of a body are less than two episodes,
and closer to the start position than later ones (`evenness` 0.67, against 0.76 to 0.80 in longer runs)."""
RANDOM_ERROR = 0.02
"""Spread of `evenness` between runs of random play: intervals of differences from it are widened by this."""


class Stretch(NamedTuple):
    """A part of training."""

    name: str
    """Its label."""
    covers: Callable[[Float[np.ndarray, " T"]], Bool[np.ndarray, " T"]]
    """Whether steps, given as shares of training, lie in it."""


BEGINNING = Stretch("first tenth of training", lambda share: (share <= EARLY) | (share == share[0]))
END = Stretch("last tenth of training", lambda share: share > LAST)
THROUGHOUT = Stretch("all of training", lambda share: share > 0)


class Positions(NamedTuple):
    """Positions of an arm's bodies."""

    steps: Float[np.ndarray, " T"]
    """Environment steps at each row."""
    shares: Float[np.ndarray, "S T bins"]
    """Share of the steps since the previous row in each bin, per training seed."""

    def within(self, stretch: Stretch) -> Float[np.ndarray, "S bins"]:
        """Each training seed's distribution over a part of training."""
        weights = np.diff(self.steps, prepend=0) * stretch.covers(self.steps / self.steps[-1])
        total = np.einsum("t,stb->sb", weights, self.shares)
        return total / total.sum(axis=1, keepdims=True)

    def as_one(self) -> "Positions":
        """All rows merged into one."""
        return Positions(self.steps[-1:], self.within(THROUGHOUT)[:, None])


def positions(results: Results, arm: str) -> Positions | None:
    """Positions of an arm's bodies; None if there are no rows."""
    mine = Results(tuple(row for row in results.rows if row["arm"] == arm), ())
    curves = [mine.curve(WORLD, arm, column) for column in SHARES]
    shares = np.stack([values for _, values in curves], axis=-1)
    known = np.isfinite(shares).all(axis=(0, 2))
    return Positions(curves[0][0][known], shares[:, known]) if known.any() else None


def everyone(results: Results) -> dict[str, Positions]:
    """Positions of all arms that have results; an arm that does not learn has one row."""
    by_arm = {arm: each for arm in ARMS if (each := positions(results, arm))}
    return {arm: each if ARMS[arm].learns else each.as_one() for arm, each in by_arm.items()}


def visited(shares: Float[np.ndarray, "S bins"]) -> Float[np.ndarray, " S"]:
    """Share of the bins that are visited."""
    return np.mean(shares >= VISITED, axis=1)


def evenness(shares: Float[np.ndarray, "S bins"]) -> Float[np.ndarray, " S"]:
    """exp(entropy) / number of bins: 1 for equal shares, 1/23 for a body that never leaves its bin."""
    entropy = -np.sum(shares * np.log(np.where(shares > 0, shares, 1.0)), axis=1)
    return np.exp(entropy) / shares.shape[1]


# ------------------------------------------------------------------------------------------------------------- claims


def judge(results: Results) -> list[Claim]:
    """Judges claim 6, for the arms that have results."""
    by_arm = everyone(results)
    made = []
    if "as" in by_arm:
        made += [_whole(by_arm, stretch) for stretch in (BEGINNING, END)]
    made += [_not_whole(by_arm, arm) for arm in ENDS if arm in by_arm]
    others = [arm for arm in (*BASELINES, RANDOM) if {"as", arm} <= set(by_arm)]
    return made + [_more_even(by_arm, arm, stretch) for stretch in (BEGINNING, THROUGHOUT) for arm in others]


def _whole(by_arm: dict[str, Positions], stretch: Stretch) -> Claim:
    shares = visited(by_arm["as"].within(stretch))
    ours, low, high = mean(shares)
    decided = "holds" if low >= ALL else "does not hold" if high < ALL else "undecided"
    sentence = f"Adversarial Surprise visits the whole corridor, {stretch.name}"
    return Claim(sentence, WHOLE, _measure(by_arm, stretch), ours, low, high, len(shares), decided)


def _not_whole(by_arm: dict[str, Positions], arm: str) -> Claim:
    shares = visited(by_arm[arm].within(BEGINNING))
    ours, low, high = mean(shares)
    decided = "holds" if high < ALL else "does not hold" if low >= ALL else "undecided"
    sentence = f"{ARMS[arm].label} does not visit the whole corridor, {BEGINNING.name}"
    return Claim(sentence, ENDS[arm], _measure(by_arm, BEGINNING), ours, low, high, len(shares), decided)


def _measure(by_arm: dict[str, Positions], stretch: Stretch) -> str:
    """Description of the measure, with the value of random play."""
    reference = f"; random play {visited(by_arm[RANDOM].within(THROUGHOUT)).mean():.2f}" if RANDOM in by_arm else ""
    return f"share of {len(SHARES)} bins with 1/1000 of the steps or more, {stretch.name}{reference}"


def _more_even(by_arm: dict[str, Positions], arm: str, stretch: Stretch) -> Claim:
    sentence = f"Adversarial Surprise covers more of the corridor than {ARMS[arm].label}, {stretch.name}"
    measure = f"exp(entropy of positions) / {len(SHARES)}, {stretch.name}"
    ours, theirs = (evenness(by_arm[each].within(stretch)) for each in ("as", arm))
    if ARMS[arm].learns:
        return more(sentence, WHOLE, measure, ours, theirs)
    number, low, high = mean(ours - theirs.mean())
    low, high = low - RANDOM_ERROR, high + RANDOM_ERROR
    text = f"{measure}: difference from random play's {theirs.mean():.2f} ± {RANDOM_ERROR}"
    return Claim(sentence, NOT_THERE, text, number, low, high, len(ours), verdict(low, high))


# ------------------------------------------------------------------------------------------------------------ drawing


def draw(results: Results) -> dict[str, bytes]:
    """Draws a heat map of positions over training for every arm, each above its seeds' last tenth, on one scale."""
    return plot.saved(drawing(results))


def drawing(results: Results):
    """The same as a matplotlib figure."""
    from matplotlib.figure import Figure as Drawing

    by_arm = everyone(results)
    if not by_arm:
        raise UserError(f"no run has {SHARES[0]} and the like in its metrics: the runs are older than these columns")
    lines = -(-len(by_arm) // COLUMNS)
    columns = -(-len(by_arm) // lines)
    width = 1.55 + 2 * columns
    height = 3.0 * lines + 0.77
    made = Drawing(figsize=(width, height))
    # In inches. Every third row is space for the axis of positions and the next title.
    room = {"left": 0.65 / width, "right": 1 - 0.95 / width, "top": 1 - 0.52 / height, "bottom": 0.1 / height}
    ratios = [2.6, 1, 0.95] * lines
    grid = made.add_gridspec(3 * lines, columns, height_ratios=ratios, wspace=0.1, hspace=0.06, **room)
    end = max((each.steps[-1] for arm, each in by_arm.items() if ARMS[arm].learns), default=1.0)
    images = []
    for number, (arm, where) in enumerate(by_arm.items()):
        line, column = divmod(number, columns)
        above, below = (made.add_subplot(grid[3 * line + place, column]) for place in (0, 1))
        # An arm that does not learn is drawn for as long as the others.
        where = where if ARMS[arm].learns else where._replace(steps=np.asarray([end]))
        images.append(_heat(above, ARMS[arm].label, where, end))
        _last(below, where, plot.colour(ARMS[arm].method))
        for axis, label in ((above, "environment steps"), (below, "share")):
            axis.tick_params(labelsize=7, labelleft=column == 0)
            axis.set_ylabel(label if column == 0 else "", fontsize=8)
    bar = made.colorbar(images[0], cax=made.add_axes((1 - 0.76 / width, 0.25, 0.13 / width, 0.5)), extend="min")
    bar.set_label("log10 of the share of steps", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    caption = "\n".join(textwrap.wrap(CAPTION, round(16 * width)))
    made.text(0.5, 0.08 / height, caption, ha="center", va="bottom", fontsize=7, color="#444444")
    return made


def _heat(axis, label: str, where: Positions, end: float):
    """Draws positions over training, which runs downwards."""
    from matplotlib.ticker import EngFormatter

    share = np.log10(np.maximum(where.shares.mean(axis=0), 10.0**FAINTEST))
    image = axis.pcolormesh(EDGES, [0.0, *where.steps], share, cmap="inferno", vmin=FAINTEST, vmax=0, rasterized=True)
    _corridor(axis, "white")
    axis.set_xticks([])
    axis.set_ylim(end, 0)
    axis.yaxis.set_major_formatter(EngFormatter(sep=""))
    both = (each(where.within(THROUGHOUT)).mean() for each in (visited, evenness))
    axis.set_title("{}\nvisits {:.0%}, covers {:.0%}".format(textwrap.fill(label, 24), *both), fontsize=8)
    return image


def _last(axis, where: Positions, colour: str) -> None:
    """Draws every training seed's distribution at the end of training."""
    for seed in np.maximum(where.within(END), 10.0**FAINTEST):
        axis.stairs(seed, EDGES, baseline=None, color=colour, linewidth=0.8, alpha=0.7)
    _corridor(axis, "#777777")
    axis.set_yscale("log")
    axis.set_ylim(10.0**FAINTEST, 1)
    axis.set_yticks([1e-4, 1e-2])
    axis.spines[["top", "right"]].set_visible(False)
    ends = {"left": EDGES[-1], "start": START, "right": EDGES[0]}
    axis.set_xticks(list(ends.values()), [f"{name}\n{place}" for name, place in ends.items()])
    for text, side in zip(axis.get_xticklabels(), ("left", "center", "right"), strict=True):
        text.set_horizontalalignment(side)


def _corridor(axis, colour: str) -> None:
    """Orients the axis as the body sees the corridor, left on the left, and marks the start position."""
    axis.set_xlim(EDGES[-1], EDGES[0])
    axis.axvline(START, color=colour, linewidth=0.8, linestyle=(0, (4, 3)))


FIGURE = dataclasses.replace(
    zero_shot.DOOM,
    name="doom-coverage",
    question="where bodies are in Take Cover's corridor over training",
    paper="section 5, Q1",
    arms=ARMS,
    columns=(*SHARES, "mean/position_y", "game/score", "end/episode_length"),
    drawn=SHARES,
    judge=judge,
    draw=draw,
    bins=64,
    trained_for=zero_shot.DOOM.name,
)
