"""The paper's settings in the room worlds, once for all figures."""

import functools
import importlib.resources
import json
from typing import Any

from advsurprise.experiments.figure import Arm

BODIES, ROLLOUT, MINIBATCH = 64, 128, 256
"""8,192 steps and, in minibatches of 256, 64 gradient steps of each policy per update, as the authors have; theirs come
from 16 bodies of 512 steps."""
SAVE_EVERY = 200
"""Updates between two checkpoints: on a GPU some ten seconds."""
SEEDS = {"small": 2, "full": 10}
"""Training seeds, from 0 on. Seeds from 100 on are those that settings are chosen on."""
EPISODES = {"small": 100, "full": 500}
"""Episodes of each training seed's frozen policies."""
FOUR: dict[str, dict[str, Any]] = {"rooms/four": {"fixed_boxes": True}}
"""Four rooms with boxes that cannot be carried off, as in the authors' environment, where picking up does nothing."""
TUNED = "tuned.json"
"""The settings that `advsurprise.experiments.tuning` has chosen for each method."""
ARMS = {
    "as": Arm("Adversarial Surprise", "adversarial-surprise"),
    "as-round": Arm("Adversarial Surprise, round's buffer", "adversarial-surprise", {"method.scope": "round"}),
    "rnd": Arm("RND", "rnd"),
    "asp": Arm("ASP", "asp"),
    "asp-cell": Arm("ASP, goal is the cell", "asp", {"method.goal": "cell"}),
    "smirl": Arm("SMiRL", "smirl"),
}


def turns(steps: int) -> dict[str, int]:
    """Turns of so many steps for both roles."""
    return {"method.k_explore": steps, "method.k_control": steps}


def arms(*names: str) -> dict[str, Arm]:
    """Some of the arms."""
    return {name: ARMS[name] for name in names}


@functools.cache
def tuned() -> dict[str, dict[str, Any]]:
    """For each method the fields in which its tuned settings differ from the defaults."""
    return json.loads(importlib.resources.files("advsurprise.experiments").joinpath(TUNED).read_text())
