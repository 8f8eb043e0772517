"""Scores in whole games of frozen policies that were trained on intrinsic reward only (section 5, Q2)."""

import dataclasses

import numpy as np

from advsurprise.evaluation.curves import draws, iqm
from advsurprise.experiments import zero_shot_plot
from advsurprise.experiments.figure import ALONE, GREEDY, SAMPLED, Arm, Claim, Figure, Results, Verdict
from advsurprise.experiments.settings import GAME_BATCH, TUNED_GAMES, turns
from advsurprise.experiments.verdicts import RESAMPLES, Values, more

SCORE = zero_shot_plot.SCORE
SHORT, LASTING, SCORED = "as-16", "as-rounds", "as-scored"
OURS, BASELINES, ROLES = "as", ("rnd", "smirl", "agac", "asp"), ("explore", "control")
SURE = 0.95
NOT_THERE = "not in the paper"
COLUMNS = (
    *(SCORE, "end/episode_length", "scored_surprise", "common_surprise", "steps_per_s"),
    *(f"{role}/entropy" for role in ("explore", "control", "alice", "bob", "agent")),
    "solved",
)
"""Includes the entropy of every role, and the share of Alice's tasks that Bob solves; empty where a method has none."""
ARMS = {
    OURS: Arm("Adversarial Surprise", "adversarial-surprise", alone=ROLES),
    SHORT: Arm("Adversarial Surprise, turns of 16", "adversarial-surprise", turns(16), alone=ROLES),
    LASTING: Arm(
        "Adversarial Surprise, turns of 16, games outlast lives",
        "adversarial-surprise",
        turns(16) | {"method.rounds": 4},
        alone=ROLES,
    ),
    SCORED: Arm(
        "Adversarial Surprise, all scored",
        "adversarial-surprise",
        turns(16, 32) | {"method.quiet": 0.0},
        alone=ROLES,
    ),
    "rnd": Arm("RND", "rnd"),
    "smirl": Arm("SMiRL", "smirl"),
    "agac": Arm("AGAC", "agac"),
    "asp": Arm("ASP", "asp", alone=("alice", "bob")),
    "task": Arm("PPO on the game's reward", "task"),
    "random": Arm("random", "random", learns=False),
}
"""Turns of 64 and 128 steps are the defaults in games, and the paper's. `task` is trained on the reward that the others
are evaluated on, and `random` is not trained: both are for reference and part of no claim."""
GAMES = {
    "atari/assault": "Assault",
    "atari/berzerk": "Berzerk",
    "atari/freeway": "Freeway",
    "atari/space-invaders": "Space Invaders",
}
COVER = {"doom/take-cover": "Take Cover"}
SMALL_BATCH = dataclasses.replace(GAME_BATCH, bodies=16, rollout=64)


def judge_atari(results: Results) -> list[Claim]:
    """Claim 7."""
    paper = "best in three of four games; SMiRL is best in Freeway"
    return [
        *_against_all(results, GAMES, "scores more than", paper, "score of whole games"),
        *_best_in_most(results),
        *_not_in_the_paper(results, GAMES, "score of whole games"),
    ]


def judge_doom(results: Results) -> list[Claim]:
    """Claim 8."""
    measure = "tics survived"
    return [
        *_against_all(results, COVER, "survives longer than", "survives longer than all others", measure),
        *_not_in_the_paper(results, COVER, measure),
    ]


def _score(results: Results, world: str, arm: str, player: str = SAMPLED) -> Values:
    return results.of_frozen(world, arm, SCORE, player)


def _against_all(results: Results, games: dict[str, str], does: str, paper: str, measure: str) -> list[Claim]:
    """Claims of Adversarial Surprise against every baseline in every game, if both have results."""
    made = []
    for world, game in games.items():
        for other in BASELINES:
            mine, theirs = (_score(results, world, arm) for arm in (OURS, other))
            if len(mine) and len(theirs):
                sentence = f"Adversarial Surprise {does} {ARMS[other].label} in {game}"
                made.append(more(sentence, paper, f"{measure}, frozen policies", mine, theirs))
    return made


def _best_in_most(results: Results) -> list[Claim]:
    """The claim that it is best in more than half of the games; none unless all methods have results in all games."""
    scores = {world: [_score(results, world, arm) for arm in (OURS, *BASELINES)] for world in GAMES}
    if not all(len(values) for each in scores.values() for values in each):
        return []
    best = np.sum([_is_best(each) for each in scores.values()], axis=0)
    share = float(np.mean(best > len(GAMES) / 2))
    decided: Verdict = "holds" if share >= SURE else "does not hold" if share <= 1 - SURE else "undecided"
    seeds = min(len(values) for each in scores.values() for values in each)
    measure = f"share of the bootstrap samples in which it is best in more than {len(GAMES) // 2} of {len(GAMES)} games"
    sentence, paper = "Adversarial Surprise scores most in most games", "best in three of four games"
    return [Claim(sentence, paper, measure, share, share, share, seeds, decided)]


def _is_best(scores: list[Values]) -> np.ndarray:
    """Whether the first is above all others in each bootstrap sample."""
    means = [iqm(each[draws(np.zeros(len(each), int), RESAMPLES, seed)]) for seed, each in enumerate(scores)]
    return means[0] > np.max(means[1:], axis=0)


def _not_in_the_paper(results: Results, games: dict[str, str], measure: str) -> list[Claim]:
    """Claims on both roles in turn against each role alone, and on our settings against the paper's."""
    made = []
    for world, game in games.items():
        score = {arm: _score(results, world, arm) for arm in (OURS, SHORT, LASTING, SCORED)}
        alone = {role: _score(results, world, OURS, f"{role}{ALONE}") for role in ROLES}
        pairs = {
            **{
                f"Explore and Control in turn score more than {role.title()} alone": (score[OURS], alone[role])
                for role in ROLES
            },
            "turns of 16 steps score more than turns of 64 and 128": (score[SHORT], score[OURS]),
            "games that outlast lives score more than games that end with them": (score[LASTING], score[SHORT]),
            "turns of 16 and 32, all scored, score more than turns of 64 and 128": (score[SCORED], score[OURS]),
        }
        for sentence, (first, second) in pairs.items():
            if len(first) and len(second):
                made.append(more(f"{sentence} in {game}", NOT_THERE, f"{measure}, frozen policies", first, second))
    return made


def draw_atari(results: Results) -> dict[str, bytes]:
    """Draws the panels of all games with results."""
    return zero_shot_plot.draw(ATARI, GAMES, results)


def draw_doom(results: Results) -> dict[str, bytes]:
    """Draws the panels of Take Cover."""
    return zero_shot_plot.draw(DOOM, COVER, results)


ATARI = Figure(
    name="atari-zero-shot",
    question="how frozen policies that were trained on intrinsic reward alone score in Atari",
    paper="section 5, Q2",
    worlds={world: {} for world in GAMES},
    arms=ARMS,
    steps={"small": 2048, "full": 10_000_000},
    columns=COLUMNS,
    drawn=(SCORE,),
    judge=judge_atari,
    draw=draw_atari,
    batch=GAME_BATCH,
    small_batch=SMALL_BATCH,
    bins=zero_shot_plot.BINS,
    seeds={"small": 2, "full": 5},
    episodes={"small": 2, "full": 30},
    stages={"small": 1, "full": 5},
    players=(SAMPLED, GREEDY),
    judges_parts=True,
    small_worlds=("atari/berzerk",),
    tuned=TUNED_GAMES,
    rates={"two_cores": 1_200, "gpu": 14_000},
    starting_s={"two_cores": 80, "gpu": 60},
)
DOOM = dataclasses.replace(
    ATARI,
    name="doom-zero-shot",
    question="how long frozen policies that were trained on intrinsic reward alone survive in Doom's Take Cover",
    worlds={world: {} for world in COVER},
    steps={"small": 4096, "full": 10_000_000},
    judge=judge_doom,
    draw=draw_doom,
    episodes={"small": 10, "full": 30},
    small_worlds=(),
    rates={"two_cores": 2_500, "gpu": 18_000},
    starting_s={"two_cores": 60, "gpu": 40},
)
