"""Reward that Adversarial Surprise gives a scripted Control for stilling the room and for looking away, with both
buffers, in every room world. Nothing is trained."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from advsurprise.envs import rooms
from advsurprise.evaluation.curves import draws
from advsurprise.evaluation.plot import PALETTE, saved
from advsurprise.evaluation.statistics import estimate, mean_known
from advsurprise.experiments.figure import Arm, Claim, Figure, Results, Scale, Untrained, Verdict
from advsurprise.experiments.scripted import BEHAVIOURS, Explore, Steps, body_keys, play
from advsurprise.experiments.settings import FOUR
from advsurprise.experiments.verdicts import QUANTILES, RESAMPLES, alike, verdict
from advsurprise.methods.adversarial_surprise import AdversarialSurprise

SCOPES = ("episode", "round")
SEEDS: dict[Scale, int] = {"small": 8, "full": 20}
"""Number of seeds for layouts and noise, from 0 on."""
LAYOUTS: dict[Scale, int] = {"small": 3, "full": 5}
"""Layouts per seed, with one episode each."""
MARGIN = 0.1
"""Largest difference in nats per scored step at which two rewards count as alike."""
PAY = "nats per scored step"
PAPER = "not in the paper"
LENGTHS = {"rooms/door": 96, "rooms/lock": 96}
"""Episode lengths that are not 128."""


class Setting(NamedTuple):
    """Setting in which Control's behaviours are compared."""

    world: str
    """One of `WORLDS`."""
    turn: int
    """Steps per turn."""
    explore: Explore


NOISY = "rooms/four, all noisy"
FOUR_32, SWITCH_32 = Setting("rooms/four", 32, "walks"), Setting("rooms/switch", 32, "walks")
NOISY_32 = Setting(NOISY, 32, "walks")
DOOR_32, LOCK_32 = Setting("rooms/door", 32, "walks"), Setting("rooms/lock", 32, "walks")
SHORT = (Setting("rooms/four", 16, "walks"), Setting("rooms/four", 8, "walks"))
SETTINGS = (
    *(FOUR_32, NOISY_32, SWITCH_32, DOOR_32, LOCK_32),
    *SHORT,
    *(each._replace(explore="stays") for each in (FOUR_32, SWITCH_32)),
    *(each._replace(explore="random") for each in (DOOR_32, LOCK_32)),
)
WORLDS: dict[str, dict[str, Any]] = {
    **FOUR,
    NOISY: FOUR["rooms/four"] | {"kinds": ("noisy",) * 4},
    "rooms/switch": {},
    "rooms/door": {},
    "rooms/lock": {},
}
"""Worlds with their non-default fields; the part of a name after a comma is not part of the id."""


# ---------------------------------------------------------------------------------------------------------------- rows


def make(scale: Scale, seeds: int, log: Callable[[str], None]) -> Results:
    """Plays every behaviour in every setting, on the same layouts and with the same noise."""
    keys = body_keys(range(seeds), LAYOUTS[scale])
    rows: list[dict[str, Any]] = []
    for number, setting in enumerate(SETTINGS):
        log(f"{number + 1} of {len(SETTINGS)}: {setting.world}, turns of {setting.turn}, Explore {setting.explore}")
        world = rooms.make(setting.world.split(",")[0], **WORLDS[setting.world])
        turn = setting.turn
        methods = tuple(AdversarialSurprise(world.spec, scope=each, k_explore=turn, k_control=turn) for each in SCOPES)
        for name, behaviour in BEHAVIOURS.items():
            steps = play(world, methods, setting.explore, behaviour, keys)
            # Views are repeated for the episode's model only: the round's is empty when Control's turn starts.
            scopes = SCOPES[:1] if behaviour.pose == "repeat" else SCOPES
            rows += [row for scope in scopes for row in _rows(setting, name, scope, steps, seeds)]
    return Results(tuple(rows), ())


def _rows(setting: Setting, behaviour: str, scope: str, steps: Steps, seeds: int) -> list[dict[str, Any]]:
    """Means over the layouts of each seed."""
    measured = _measure(steps, scope)
    about = {"turn": setting.turn, "explore": setting.explore, "scope": scope}
    rows = []
    for seed in range(seeds):
        means = {name: mean_known(values.reshape(seeds, -1)[seed]) for name, values in measured.items()}
        kept = {name: float(f"{value:.6g}") if np.isfinite(value) else "" for name, value in means.items()}
        rows.append({"world": setting.world, "arm": behaviour, "seed": seed} | about | kept)
    return rows


def _measure(steps: Steps, scope: str) -> dict[str, np.ndarray]:
    """Each episode's reward and behaviour measures."""
    scored, pay, empty = (np.asarray(each) for each in (steps.scored, steps.log_prob[scope], steps.empty[scope]))
    pay = pay.astype(np.float64)
    number = scored.sum(axis=0)
    end = {name: np.asarray(values[-1], np.float64) for name, values in steps.info.items()}
    # Control's turns end at a scored step that is followed by an unscored one or by nothing.
    ends = scored & ~np.concatenate([scored[1:], np.zeros_like(scored[:1])])
    shut = np.where(ends, np.asarray(steps.info["shut_in"], np.float64), 0.0).sum(axis=0) / ends.sum(axis=0)
    return {
        "pay": pay.sum(axis=0) / number,
        "pay_seen": np.where(empty, 0.0, pay).sum(axis=0) / number,
        "pay_episode": pay.sum(axis=0),
        "stilled": np.where(end["noisy_rooms"] > 0, end["stilled"], np.nan),
        "uses": end["uses"],
        "shut_in": shut,
        "rooms": end["rooms_episode"],
    }


def of(results: Results, setting: Setting, scope: str, behaviour: str, column: str = "pay_seen") -> np.ndarray:
    """Each seed's mean."""
    whose = {"arm": behaviour, "scope": scope, **setting._asdict()}
    mine = [row for row in results.rows if all(row[name] == value for name, value in whose.items())]
    values = [row[column] for row in sorted(mine, key=lambda row: row["seed"])]
    return np.asarray([np.nan if value == "" else value for value in values], np.float64)


# -------------------------------------------------------------------------------------------------------------- claims


def judge(results: Results) -> list[Claim]:
    """Judges what each scope rewards. Differences are between episodes on the same layouts, per seed."""

    def gain(setting: Setting, scope: str, better: str, worse: str) -> np.ndarray:
        return of(results, setting, scope, better) - of(results, setting, scope, worse)

    made = []
    for setting in (FOUR_32, NOISY_32, SWITCH_32):
        world = setting.world
        for scope in SCOPES:
            sentence = f"{world}, the {scope}'s buffer: looking away pays more than stilling and standing there"
            made.append(_above(sentence, gain(setting, scope, "away", "still")))
            sentence = f"{world}, the {scope}'s buffer: stilling pays Control that then stands still"
            made.append(_above(sentence, gain(setting, scope, "still", "nothing")))
            look = "away" if scope == "round" else "repeat"
            sentence = f"{world}, the {scope}'s buffer: stilling pays Control that then chooses the best pose"
            made.append(_above(sentence, gain(setting, scope, f"still-{look}", look)))
        sentence = (
            f"{world}: of what doing nothing forgoes, stilling alone earns a larger share with the round's buffer"
        )
        made.append(_shares(sentence, results, setting))
    made += [claim for setting in (FOUR_32, SWITCH_32) for claim in _explores_gain(results, setting)]
    for setting in (DOOR_32, LOCK_32):
        for explore in ("walks", "random"):
            made += [_shutting(results, setting._replace(explore=explore), scope) for scope in SCOPES]
    for each in SHORT:
        more = of(results, each, "round", "still", "stilled") - of(results, FOUR_32, "round", "still", "stilled")
        sentence = "rooms/four: Control that stills and then stands stills more rooms of an episode in turns of "
        made.append(_above(f"{sentence}{each.turn} than of 32", more, "share of the noisy rooms, difference"))
    for scope in SCOPES:
        clumsy = [gain(each, scope, "still-random", "random") for each in (FOUR_32, *SHORT)]
        for each, short in zip(SHORT, clumsy[1:], strict=True):
            sentence = f"rooms/four, the {scope}'s buffer: to Control that then acts at random, stilling pays more in "
            made.append(_above(f"{sentence}turns of {each.turn} than of {FOUR_32.turn}", short - clumsy[0]))
    return made


def _claim(
    sentence: str, values: np.ndarray, decide: Callable[[float, float], Verdict], measure: str = f"{PAY}, difference"
) -> Claim:
    """A claim about a mean over seeds, decided by Student's interval."""
    estimated = estimate(values, over="episodes")
    mean, low, high = estimated["mean"], estimated["low"], estimated["high"]
    return Claim(sentence, PAPER, measure, mean, low, high, estimated["n"], decide(low, high))


def _above(sentence: str, values: np.ndarray, measure: str = f"{PAY}, difference") -> Claim:
    """The claim that a number is above 0."""
    return _claim(sentence, values, verdict, measure)


def _nothing(low: float, high: float) -> Verdict:
    """Verdict on the claim that a number is 0 within the margin."""
    return alike(low, high, MARGIN)


def _no_more(low: float, high: float) -> Verdict:
    """Verdict on the claim that a number is not above 0 by more than the margin."""
    return "holds" if high < MARGIN else "does not hold" if low > MARGIN else "undecided"


def _shares(sentence: str, results: Results, setting: Setting) -> Claim:
    """The claim about the gain of only stilling over doing nothing, as a share of the gain of stilling and then taking
    the best pose. A ratio of means: its interval is a bootstrap over seeds."""
    names = {"episode": ("nothing", "still", "still-repeat"), "round": ("nothing", "still", "still-away")}
    pays = {scope: np.stack([of(results, setting, scope, name) for name in names[scope]]) for scope in SCOPES}
    number = pays["round"].shape[1]
    drawn_seeds = np.concatenate([np.arange(number)[None], draws(np.zeros(number, int), RESAMPLES, 0)])

    def share(scope: str) -> np.ndarray:
        nothing, still, most = pays[scope][:, drawn_seeds].mean(axis=-1)
        return (still - nothing) / (most - nothing)

    ours, resampled = share("round")[0] - share("episode")[0], share("round")[1:] - share("episode")[1:]
    low, high = (float(each) for each in np.quantile(resampled, QUANTILES))
    measure = f"share of it, the round's ({share('round')[0]:.2f}) less the episode's ({share('episode')[0]:.2f})"
    return Claim(sentence, PAPER, measure, float(ours), low, high, number, verdict(low, high))


def _explores_gain(results: Results, setting: Setting) -> list[Claim]:
    """Claims about Explore's gain from walking instead of staying, against the best Control."""
    stays = setting._replace(explore="stays")
    wins = [
        of(results, stays, scope, best) - of(results, setting, scope, best)
        for scope, best in (("episode", "still-repeat"), ("round", "still-away"))
    ]
    against = "against Control that stills and chooses the best pose, walking wins Explore"
    return [
        _above(f"{setting.world}, the episode's buffer: {against} something", wins[0]),
        _claim(f"{setting.world}, the round's buffer: {against} nothing, within {MARGIN}", wins[1], _nothing),
    ]


def _shutting(results: Results, setting: Setting, scope: str) -> Claim:
    look = "away" if scope == "round" else "repeat"
    values = of(results, setting, scope, f"still-{look}") - of(results, setting, scope, look)
    verb = "shutting and locking the door" if setting.world == "rooms/lock" else "shutting the door"
    walks = "walks" if setting.explore == "walks" else "acts at random"
    about = f"{setting.world}, the {scope}'s buffer, Explore {walks}"
    return _claim(f"{about}: {verb} pays no more than the best pose without, within {MARGIN}", values, _no_more)


# ------------------------------------------------------------------------------------------------------------- drawing


def drawn(results: Results) -> dict[str, bytes]:
    """Draws rewards in nats per scored step, without steps under an empty model, with 95% intervals; as PNG and PDF."""
    from matplotlib.figure import Figure as Canvas

    shown = (FOUR_32, NOISY_32, SWITCH_32, DOOR_32, *SHORT, LOCK_32)
    made = Canvas(figsize=(13.0, 5.8), layout="constrained")
    axes = made.subplots(2, 4, sharey=True)
    for axis, setting in zip(axes.flat, shown, strict=False):
        title = f"{setting.world}, turns of {setting.turn}"
        _panel(axis, title, lambda *whose, each=setting: of(results, each, *whose), (-100, 0.4))
    _panel(axes.flat[-1], "rooms/four: what walking wins Explore", lambda *whose: _won(results, *whose), (-1, 100))
    handles, names = axes.flat[0].get_legend_handles_labels()
    made.legend(handles, names, loc="outside upper center", ncols=2, frameon=False, fontsize=8)
    made.supxlabel(
        "Control's pay, nats per scored step, without steps scored under an empty model (0: no surprise at all); "
        "lines: 95% intervals over seeds.\n"
        "In rooms/door and rooms/lock, to still is to shut (and lock) oneself in the dark room. Explore walks; the "
        "last panel is what that costs Control, turns of 32, over an Explore that stays where it is.",
        fontsize=8,
    )
    return saved(made)


def _won(results: Results, scope: str, behaviour: str) -> np.ndarray:
    """Explore's gain from walking instead of staying, in four rooms."""
    stays = of(results, FOUR_32._replace(explore="stays"), scope, behaviour)
    return stays - of(results, FOUR_32, scope, behaviour)


def _panel(axis, title: str, values: Callable[[str, str], np.ndarray], limits: tuple[float, float]) -> None:
    names = list(BEHAVIOURS)
    for offset, scope, shade, mark in ((-0.15, "episode", PALETTE[0], "o"), (0.15, "round", PALETTE[1], "s")):
        known = [name for name in names if len(values(scope, name))]
        estimates = [estimate(values(scope, name), over="episodes") for name in known]
        mean, low, high = (np.asarray([each[key] for each in estimates]) for key in ("mean", "low", "high"))
        heights = [names.index(name) + offset for name in known]
        spread = np.nan_to_num(np.stack([mean - low, high - mean]))
        axis.errorbar(
            mean, heights, xerr=spread, fmt=mark, color=shade, markersize=4, linewidth=1.2, label=f"{scope}'s buffer"
        )
    axis.set_xscale("symlog", linthresh=1.0)
    axis.set_xlim(limits)
    axis.set_xticks([tick for tick in (-100, -10, -1, 0, 1, 10, 100) if limits[0] <= tick <= limits[1]])
    axis.xaxis.set_major_formatter(lambda tick, _: f"{tick:g}")
    axis.set_yticks(range(len(names)), [BEHAVIOURS[name].label for name in names])
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.set_title(title, fontsize=9)
    axis.axvline(0, color="#bbbbbb", linewidth=0.8, zorder=0)
    axis.grid(axis="y", color="#eeeeee", linewidth=0.8)
    axis.tick_params(labelsize=7.5)
    axis.spines[["top", "right"]].set_visible(False)


def _steps(scale: Scale) -> int:
    """Environment steps per seed."""
    return LAYOUTS[scale] * len(BEHAVIOURS) * sum(LENGTHS.get(each.world, 128) for each in SETTINGS)


FIGURE = Figure(
    name="incentive",
    question="what each buffer pays Control for stilling, and for looking away; scripted players, nothing is trained",
    paper=PAPER,
    worlds=WORLDS,
    arms={name: Arm(behaviour.label, "adversarial-surprise") for name, behaviour in BEHAVIOURS.items()},
    steps={"small": _steps("small"), "full": _steps("full")},
    columns=("pay", "pay_seen", "pay_episode", "stilled", "uses", "shut_in", "rooms"),
    drawn=("pay_seen",),
    judge=judge,
    untrained=Untrained(make, {"small": 90, "full": 300}),
    draw=drawn,
    seeds=SEEDS,
)
