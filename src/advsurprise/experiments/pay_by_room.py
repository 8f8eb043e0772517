"""What Explore earns from a step of Control in a dark room, in a noisy room with its lights on, and in one that is
stilled. Frozen policies of Adversarial Surprise in a room world, second half of the episodes.

python -m advsurprise.experiments.pay_by_room RUN --episodes 400    # prints JSON, one row per training seed
"""

import dataclasses
import json
import pathlib
from typing import Annotated, Any

import jax
import numpy as np
import tyro
from jaxtyping import Bool, Float

from advsurprise import envs
from advsurprise.api import EVALUATION_SEED, load
from advsurprise.errors import UserError
from advsurprise.experiments.runs import say, script
from advsurprise.learning.collect import ScanCollector
from advsurprise.learning.interaction import Agent
from advsurprise.methods.adversarial_surprise import CONTROL, AdversarialSurprise
from advsurprise.training.run import keep_compiled
from advsurprise.types import Rollout


@dataclasses.dataclass(frozen=True)
class PayByRoom:
    """The run to play."""

    run: Annotated[tyro.conf.Positional[pathlib.Path], tyro.conf.arg(metavar="RUN")]
    """The run folder, or zoo:NAME."""
    episodes: int = 400
    """Episodes per training seed."""


def measure(args: PayByRoom) -> list[dict[str, Any]]:
    """Plays every training seed's policies; returns one row each."""
    if args.episodes < 1:
        raise UserError(f"--episodes must be at least 1, not {args.episodes}")
    trained = load(args.run)
    method = trained.agents[0].method
    if not isinstance(method, AdversarialSurprise) or not trained.config.env.startswith("rooms/"):
        raise UserError(f"{args.run} is not a run of adversarial-surprise in a room world")
    say(f"{args.run}: {args.episodes} episodes of each of {len(trained.agents)} training seeds")
    world = envs.make(trained.config.env, **trained.config.env_fields)
    collector = ScanCollector(world, args.episodes, world.spec.max_steps)
    episode = jax.jit(lambda agent: _episode(collector, agent))
    seeds = zip(trained.config.seeds, trained.agents, strict=True)
    return [{"seed": seed} | by_room(*_paid(method, episode(agent))) for seed, agent in seeds]


def _episode(collector: ScanCollector, agent: Agent) -> Rollout:
    """One episode of every body."""
    start_key, play_key = jax.random.split(jax.random.key(EVALUATION_SEED))
    return collector.collect(agent, collector.start(agent, key=start_key), key=play_key)[1]


def _paid(method: AdversarialSurprise, rollout: Rollout) -> tuple[np.ndarray, ...]:
    """What Explore is paid for each step, whether it is paid for the step, and where the body is, axes [T, B]."""
    signal = rollout.signal
    log_prob = signal.log_prob if signal.explore_log_prob is None else signal.explore_log_prob
    is_control = np.asarray(rollout.decision.role) == CONTROL
    counts = is_control if method.explore_pay == "control" else np.asarray(signal.scored)
    scope = method.scope if method.explore_scope == "same" else method.explore_scope
    counts = after_empty(counts, each_turn=scope == "round")
    info = {name: np.asarray(rollout.info[name]) for name in ("in_dark", "stilled")}
    return -np.asarray(log_prob), counts, info["in_dark"] > 0, info["stilled"]


def after_empty(counts: Bool[np.ndarray, "T B"], *, each_turn: bool) -> Bool[np.ndarray, "T B"]:
    """The counted steps of the second half of an episode whose model is not empty: where it is emptied for each turn,
    without the turn's first counted step. What a step under an empty model pays does not depend on what is seen."""
    late = np.arange(len(counts))[:, None] >= len(counts) // 2
    first = counts & ~np.roll(counts, 1, axis=0)
    return counts & late & ~(first & each_turn)


def by_room(
    pay: Float[np.ndarray, "T B"],
    counts: Bool[np.ndarray, "T B"],
    in_dark: Bool[np.ndarray, "T B"],
    stilled: Float[np.ndarray, "T B"],
) -> dict[str, Any]:
    """Mean pay and number of counted steps in a dark room, and in a noisy one while no or all noisy rooms are stilled
    (so that it is known whether this one is)."""
    places = {
        "dark": in_dark,
        "noisy, lights on": ~in_dark & (stilled == 0),
        "noisy, stilled": ~in_dark & (stilled == 1),
    }
    steps = {name: counts & where for name, where in places.items()}
    return {
        name: {"pay": float(pay[where].mean()) if where.any() else None, "steps": int(where.sum())}
        for name, where in steps.items()
    }


def main(args: PayByRoom) -> None:
    """Prints the rows."""
    keep_compiled()
    print(json.dumps({"run": str(args.run), "episodes": args.episodes, "rows": measure(args)}, indent=1))


if __name__ == "__main__":
    script(main, PayByRoom, __doc__)
