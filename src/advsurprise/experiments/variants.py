"""Variants of Adversarial Surprise, on seeds that no figure uses. In rooms/four: which explores *and* stills? In Doom's
Take Cover: which learns at all?

python -m advsurprise.experiments.variants --out runs/variants --workers 6    # writes OUT/variants.csv
python -m advsurprise.experiments.variants --family doom --out runs/doom-variants --workers 3 --env-workers 5
"""

import dataclasses
import pathlib
from typing import Any, Literal, NamedTuple

from advsurprise.errors import UserError, nearest
from advsurprise.evaluation.provenance import setting
from advsurprise.experiments import evaluate
from advsurprise.experiments.cells import binned
from advsurprise.experiments.figure import Arm, Batch, as_csv
from advsurprise.experiments.runs import say, script, train_all, training
from advsurprise.experiments.settings import FOUR, GAME_BATCH, turns
from advsurprise.training import files
from advsurprise.training.folder import METRICS
from advsurprise.training.jobs import Job
from advsurprise.training.metrics import read_rows

SEEDS = (100, 101, 102)
STEPS = 20_000_000
BINS = 32
ROOM_COLUMNS = ("end/rooms_episode", "end/stilled", "mean/stilled", "end/rooms_life", "scored_surprise")
GAME_COLUMNS = (
    *("game/score", "end/episode_length", "scored_surprise", "common_surprise"),
    *("explore/entropy", "control/entropy"),
)
LARGE = {"bodies": 256, "ppo.minibatch": 2048, "ppo.lr": 1e-3}
"""Four times the samples of the authors' batch, in the same number of minibatches."""
HUGE = {"bodies": 1024, "ppo.minibatch": 8192, "ppo.lr": 1e-3}
"""Sixteen times the samples, in the same number of minibatches."""
MIDDLE = {"bodies": 128, "ppo.minibatch": 1024, "ppo.lr": 1e-3}
"""Twice the samples, in the same number of minibatches."""
WIDE = {"network_width": 2}
UNQUIET = {"method.quiet": 0.0}
"""All of Control's turn is scored."""
NO_PRIOR = {"method.pay_prior": False}
ROUND = {"method.scope": "round"}
TWO_MODELS = ROUND | NO_PRIOR | {"method.explore_scope": "episode"}
"""Control is rewarded under the round's model, Explore under the episode's."""
WHOLE_TURN = {"method.explore_pay": "control"}
"""Explore is rewarded for all of Control's steps, not only the scored ones."""
BEST = turns(16, 8) | LARGE | TWO_MODELS | WHOLE_TURN
"""The best variant so far that does not forget the rooms it has learned to visit."""
OWN_SCALE = {"method.explore_scale": "own"}
"""Explore's reward is divided by the standard deviation of its own return, not of Control's."""
LESS_ENTROPY = {"ppo.entropy_coef": 0.003}
SCALED = TWO_MODELS | WHOLE_TURN | LARGE | LESS_ENTROPY | OWN_SCALE
"""Two models with Explore's own scale, without turns."""
ROUND_MODELS = ROUND | NO_PRIOR | WHOLE_TURN | OWN_SCALE | {"method.explore_scope": "round"}
"""Explore is rewarded for all of Control's steps under a second model of the round."""
LIGHTLY = {"method.quiet_weight": 0.1}
"""Quiet steps cost Control a tenth of what they pay Explore."""
FADING = 10_000_000
"""Steps for which the figure's variant with two models of the round is trained, and over which its rates decay to 0."""
FADED = ROUND_MODELS | LARGE | LESS_ENTROPY | {"ppo.lr_end_steps": FADING}
"""Two models of the round with the large batch, without turns."""
PAID_FOR_SCORED = {"method.explore_pay": "scored"}
SHORT = PAID_FOR_SCORED | {"ppo.lr_end_steps": 6_500_000}
"""To be trained for 6.5M steps."""
FALLING = {"ppo.lr_end_steps": STEPS}
"""The learning rate decays to 0 at the end."""
LATE = 13_000_000
"""Steps for which the variants with an Explore that stops learning first are trained."""
LATEST = 50_000_000
"""The same with the huge batch: as many gradient steps, with four times the samples each."""


def first_explore(explore: int, control: int = LATE) -> dict[str, Any]:
    """Learning rates decay to 0, Explore's within so many steps and Control's within others; scored steps are paid."""
    return PAID_FOR_SCORED | {"method.explore_lr_end_steps": explore, "ppo.lr_end_steps": control}


ONE_OF_ROUND = ROUND | NO_PRIOR | LARGE | LESS_ENTROPY
"""One model, the round's, with the large batch, without turns."""
HUGE_BEST = SCALED | HUGE | turns(10, 6) | first_explore(31_000_000, LATEST)
"""The best variant with the large batch, with the huge one."""
VARIANTS: dict[str, dict[str, Any]] = {
    "turns-32": {},
    "turns-32 minibatch-1024 no-prior": {"ppo.minibatch": 1024} | NO_PRIOR,
    "turns-16 minibatch-1024": turns(16) | {"ppo.minibatch": 1024},
    "turns-16 minibatch-1024 no-prior": turns(16) | {"ppo.minibatch": 1024} | NO_PRIOR,
    "turns-8 minibatch-1024 no-prior": turns(8) | {"ppo.minibatch": 1024} | NO_PRIOR,
    "turns-16 large no-prior": turns(16) | LARGE | NO_PRIOR,
    "turns-32 large no-prior": LARGE | NO_PRIOR,
    "turns-8 large no-prior": turns(8) | LARGE | NO_PRIOR,
    "turns-16 large round no-prior": turns(16) | LARGE | NO_PRIOR | ROUND,
    "turns-16 large-half-rate no-prior": turns(16) | LARGE | NO_PRIOR | {"ppo.lr": 5e-4},
    "turns-16 minibatch-1024 round no-prior": turns(16) | {"ppo.minibatch": 1024} | ROUND | NO_PRIOR,
    "turns-16 minibatch-1024 two-models": turns(16) | {"ppo.minibatch": 1024} | TWO_MODELS,
    "turns-16 large two-models": turns(16) | LARGE | TWO_MODELS,
    "turns-8 minibatch-1024 two-models": turns(8) | {"ppo.minibatch": 1024} | TWO_MODELS,
    "turns-8 large two-models": turns(8) | LARGE | TWO_MODELS,
    "turns-32 large two-models": LARGE | TWO_MODELS,
    "turns-8 large two-models whole-turn": turns(8) | LARGE | TWO_MODELS | WHOLE_TURN,
    "turns-16 large two-models whole-turn": turns(16) | LARGE | TWO_MODELS | WHOLE_TURN,
    "turns-16/8 large two-models": turns(16, 8) | LARGE | TWO_MODELS,
    "turns-16/8 large two-models whole-turn": BEST,
    "turns-16/8 large two-models whole-turn gamma-0.995": BEST | {"method.gamma": 0.995},
    "turns-16/8 large two-models whole-turn entropy-0.003": BEST | LESS_ENTROPY,
    "turns-16/8 large two-models whole-turn falling-rate": BEST | FALLING,
    "turns-16/8 large two-models whole-turn lambda-0.98": BEST | {"ppo.gae_lambda": 0.98},
    "turns-24/8 large two-models whole-turn": BEST | turns(24, 8),
    "turns-24/8 large two-models whole-turn falling-rate": BEST | turns(24, 8) | FALLING,
    "turns-20/12 large two-models whole-turn falling-rate": BEST | turns(20, 12) | FALLING,
    "turns-12/4 large two-models whole-turn falling-rate": BEST | turns(12, 4) | FALLING,
    "turns-12/4 large two-models whole-turn": BEST | turns(12, 4),
    "turns-12/4 large two-models whole-turn entropy-0.003": BEST | turns(12, 4) | LESS_ENTROPY,
    "turns-12/4 large two-models whole-turn gamma-0.995": BEST | turns(12, 4) | {"method.gamma": 0.995},
    "turns-8/4 large two-models whole-turn": BEST | turns(8, 4),
    "turns-6/2 large two-models whole-turn": BEST | turns(6, 2),
    "turns-12/4 own-scale": SCALED | turns(12, 4),
    "turns-12/4 own-scale scored": SCALED | turns(12, 4) | PAID_FOR_SCORED,
    "turns-12/4 own-scale entropy-0.01": SCALED | turns(12, 4) | {"ppo.entropy_coef": 0.01},
    "turns-12/4 own-scale gamma-0.995": SCALED | turns(12, 4) | {"method.gamma": 0.995},
    "turns-12/4 own-scale falling-rate": SCALED | turns(12, 4) | FALLING,
    "turns-8 own-scale": SCALED | turns(8),
    "turns-16/8 own-scale": SCALED | turns(16, 8),
    "turns-32 own-scale": SCALED | turns(32),
    "turns-8 own-scale scored": SCALED | turns(8) | PAID_FOR_SCORED,
    "turns-8 own-scale scored falling-6.5M": SCALED | turns(8) | SHORT,
    "turns-9/7 own-scale scored falling-6.5M": SCALED | turns(9, 7) | SHORT,
    "turns-9/7 own-scale scored falling-8M": SCALED | turns(9, 7) | PAID_FOR_SCORED | {"ppo.lr_end_steps": 8_000_000},
    "turns-9/7 own-scale scored falling-10M": SCALED | turns(9, 7) | PAID_FOR_SCORED | {"ppo.lr_end_steps": 10_000_000},
    "turns-10/6 own-scale scored falling-8M": SCALED | turns(10, 6) | PAID_FOR_SCORED | {"ppo.lr_end_steps": 8_000_000},
    "turns-8 own-scale scored explore-5M": SCALED | turns(8) | first_explore(5_000_000),
    "turns-8 own-scale scored explore-6.5M": SCALED | turns(8) | first_explore(6_500_000),
    "turns-8 own-scale scored explore-8M": SCALED | turns(8) | first_explore(8_000_000),
    "turns-9/7 own-scale scored explore-6.5M": SCALED | turns(9, 7) | first_explore(6_500_000),
    "turns-9/7 own-scale scored explore-8M": SCALED | turns(9, 7) | first_explore(8_000_000),
    "turns-10/6 own-scale scored explore-6.5M": SCALED | turns(10, 6) | first_explore(6_500_000),
    "turns-10/6 own-scale scored explore-8M": SCALED | turns(10, 6) | first_explore(8_000_000),
    "turns-5/3 own-scale scored explore-8M": SCALED | turns(5, 3) | first_explore(8_000_000),
    "turns-6/2 own-scale scored explore-8M unquiet": SCALED | turns(6, 2) | first_explore(8_000_000) | UNQUIET,
    "turns-10/6 own-scale scored explore-8M wide": SCALED | turns(10, 6) | first_explore(8_000_000) | WIDE,
    "turns-10/6 own-scale scored explore-31M huge": HUGE_BEST,
    "turns-5/3 own-scale scored explore-31M huge": HUGE_BEST | turns(5, 3),
    "turns-11/5 own-scale scored explore-31M huge": HUGE_BEST | turns(11, 5),
    "turns-10/6 own-scale scored explore-31M huge rate-2e-3": HUGE_BEST | {"ppo.lr": 2e-3},
    "turns-10/6 own-scale scored explore-31M huge minibatch-4096": HUGE_BEST | {"ppo.minibatch": 4096},
    "turns-10/6 own-scale scored explore-31M huge gamma-0.995": HUGE_BEST | {"method.gamma": 0.995},
    "turns-10/6 own-scale scored explore-31M huge entropy-0.001": HUGE_BEST | {"ppo.entropy_coef": 0.001},
    "turns-12/4 own-scale scored explore-6.5M": SCALED | turns(12, 4) | first_explore(6_500_000),
    "turns-12/4 own-scale scored explore-8M": SCALED | turns(12, 4) | first_explore(8_000_000),
    "turns-12/4 own-scale explore-8M": SCALED | turns(12, 4) | first_explore(8_000_000) | WHOLE_TURN,
    "turns-12 round-models falling-10M": turns(12) | FADED,
    "turns-12 round-models quiet-0.3 falling-10M": turns(12) | FADED | {"method.quiet_weight": 0.3},
    "turns-12 round unquiet falling-10M": turns(12) | ONE_OF_ROUND | UNQUIET | {"ppo.lr_end_steps": FADING},
    "turns-32 middle": MIDDLE,
    "turns-32 middle no-prior": MIDDLE | NO_PRIOR,
    "turns-16 middle no-prior": turns(16) | MIDDLE | NO_PRIOR,
    "turns-12/4 middle two-models whole-turn": BEST | turns(12, 4) | MIDDLE,
    "turns-32 large no-prior wide": LARGE | NO_PRIOR | WIDE,
    "turns-24/8 large two-models whole-turn falling-rate gamma-0.995": BEST
    | turns(24, 8)
    | FALLING
    | {"method.gamma": 0.995},
}


FROM_MAX = {"method.offset": "max"}
"""Control is never paid for a step without surprise, and Explore never charged."""
OUTLASTS = {"method.rounds": 4}
"""The game continues when the body dies."""
DOOM_VARIANTS: dict[str, dict[str, Any]] = {
    "turns-64/128": {},
    "turns-16": turns(16),
    "turns-64/128 outlasts": OUTLASTS,
    "turns-16 outlasts": turns(16) | OUTLASTS,
    "turns-16 outlasts-16": turns(16) | {"method.rounds": 16},
    "turns-32 outlasts": turns(32) | OUTLASTS,
    "turns-16 outlasts two-models": turns(16) | OUTLASTS | TWO_MODELS,
    "turns-16/32": turns(16, 32),
    "turns-16/32 unquiet": turns(16, 32) | UNQUIET,
    "turns-16/32 unquiet floor-0.05": turns(16, 32) | UNQUIET | {"method.min_std": 0.05},
    "turns-16 floor-0.05": turns(16) | {"method.min_std": 0.05},
    "turns-64/128 skip-1": {"env.frame_skip": 1},
    "turns-64/128 from-max": FROM_MAX,
    "turns-16/32 unquiet from-max": turns(16, 32) | UNQUIET | FROM_MAX,
    "turns-16/32 unquiet outlasts": turns(16, 32) | UNQUIET | OUTLASTS,
}


class Family(NamedTuple):
    """Variants in one world."""

    world: str
    fields: dict[str, Any]
    """Fields of the world."""
    variants: dict[str, dict[str, Any]]
    columns: tuple[str, ...]
    """Metrics that are kept."""
    steps: int
    """Environment steps per seed."""
    batch: Batch


FAMILIES = {
    "rooms": Family(*next(iter(FOUR.items())), VARIANTS, ROOM_COLUMNS, STEPS, Batch()),
    "doom": Family("doom/take-cover", {}, DOOM_VARIANTS, GAME_COLUMNS, 1_000_000, GAME_BATCH),
}


@dataclasses.dataclass(frozen=True)
class Variants:
    """Trains every variant and keeps its curves."""

    out: pathlib.Path = pathlib.Path("runs/variants")
    """Folder of runs and results."""
    family: Literal["rooms", "doom"] = "rooms"
    """Family of variants."""
    steps: int | None = None
    """Environment steps per seed; default: those of the family."""
    workers: int = 1
    """Number of runs in parallel."""
    env_workers: int | None = None
    """Worker processes per run in a game; default: about one per core."""
    only: tuple[str, ...] = ()
    """Variants to train; default: all."""

    @property
    def of(self) -> Family:
        """The family."""
        return FAMILIES[self.family]


def compare(args: Variants) -> None:
    """Trains the unfinished variants, and writes the curves of all that have been started."""
    variants = args.of.variants
    for name in args.only:
        if name not in variants:
            raise UserError(f"unknown variant {nearest(name, variants)}")
    files.make_folder(args.out)
    try:
        train_all(
            [training_job(args, name) for name in args.only or variants], workers=args.workers, folder=args.out, log=say
        )
    finally:
        started = [name for name in variants if (_folder(args, name) / METRICS).exists()]
        files.write(args.out / "variants.csv", as_csv([row for name in started for row in _rows(args, name)]))
        if frozen := [row for name in started for row in _frozen(args, name)]:
            files.write(args.out / "frozen.csv", as_csv(frozen))


def words(name: str) -> str:
    """Settings of a variant in rooms/four, as --set takes them."""
    return " ".join(f"{field}={setting(value)}" for field, value in VARIANTS[name].items()) or "defaults"


def _folder(args: Variants, name: str) -> pathlib.Path:
    return args.out / name.replace(" ", "_").replace("/", "-")


def training_job(args: Variants, name: str) -> Job:
    """The job that trains a variant, or resumes it."""
    family, folder = args.of, _folder(args, name)
    fields = family.fields | ({} if args.env_workers is None else {"workers": args.env_workers})
    arm, steps = Arm(name, "adversarial-surprise", family.variants[name]), args.steps or family.steps
    return training(family.world, fields, arm, seeds=SEEDS, steps=steps, folder=folder, batch=family.batch)


def _rows(args: Variants, name: str) -> list[dict[str, Any]]:
    whose = {"world": args.of.world, "arm": name}
    return [whose | row for row in binned(read_rows(_folder(args, name) / METRICS), args.of.columns, BINS)]


def _frozen(args: Variants, name: str) -> list[dict[str, Any]]:
    """What the frozen policies of a variant did, if `experiments.evaluate` has played them."""
    whose = {"world": args.of.world, "arm": name}
    return [whose | row for row in evaluate.rows(evaluate.read(_folder(args, name)), args.of.columns)]


if __name__ == "__main__":
    script(compare, Variants, __doc__)
