"""The paper's settings in the room worlds, once for all figures."""

from typing import Any

from advsurprise.experiments.figure import Arm

BODIES, ROLLOUT = 64, 128
"""8,192 steps and, in minibatches of 256, 64 gradient steps of each policy per update, as the authors have; theirs come
from 16 bodies of 512 steps."""
MINIBATCH = 256
SEEDS = {"small": 2, "full": 10}
"""Training seeds, from 0 on. Seeds from 100 on are those that settings are chosen on."""
EPISODES = {"small": 100, "full": 500}
"""Episodes of each training seed's frozen policies."""
FOUR: dict[str, dict[str, Any]] = {"rooms/four": {"fixed_boxes": True}}
"""Four rooms with boxes that cannot be carried off, as in the authors' environment, where picking up does nothing."""
ARMS = {
    "as": Arm("Adversarial Surprise", "adversarial-surprise"),
    "as-round": Arm("Adversarial Surprise, round's buffer", "adversarial-surprise", {"scope": "round"}),
    "rnd": Arm("RND", "rnd"),
    "asp": Arm("ASP", "asp"),
    "asp-cell": Arm("ASP, goal is the cell", "asp", {"goal": "cell"}),
    "smirl": Arm("SMiRL", "smirl"),
}


def arms(*names: str) -> dict[str, Arm]:
    """Some of the arms."""
    return {name: ARMS[name] for name in names}
