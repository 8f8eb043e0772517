"""The paper's settings in the room worlds, once for all figures."""

import functools
import importlib.resources
import json
from typing import Any

from advsurprise.experiments.figure import Arm, Batch

FOUR: dict[str, dict[str, Any]] = {"rooms/four": {"fixed_boxes": True}}
"""Four rooms with boxes that cannot be carried off, as in the authors' environment, where picking up does nothing."""
TUNED = "tuned.json"
"""The settings that `advsurprise.experiments.tuning` has chosen for each method in the room worlds."""
TUNED_GAMES = "tuned_games.json"
"""The same in games."""
GAME_BATCH = Batch(save_every=25)
"""That of the room worlds; on a GPU checkpoints are a minute apart."""
ARMS = {
    "as": Arm("Adversarial Surprise", "adversarial-surprise"),
    "as-round": Arm("Adversarial Surprise, round's buffer", "adversarial-surprise", {"method.scope": "round"}),
    "rnd": Arm("RND", "rnd"),
    "asp": Arm("ASP", "asp"),
    "asp-cell": Arm("ASP, goal is the cell", "asp", {"method.goal": "cell"}),
    "smirl": Arm("SMiRL", "smirl"),
}


def turns(explore: int, control: int | None = None) -> dict[str, int]:
    """Turns of so many steps, of both roles unless Control's are named."""
    return {"method.k_explore": explore, "method.k_control": explore if control is None else control}


def arms(*names: str) -> dict[str, Arm]:
    """Some of the arms."""
    return {name: ARMS[name] for name in names}


@functools.cache
def tuned(file: str = TUNED) -> dict[str, dict[str, Any]]:
    """For each method the fields in which its tuned settings differ from the defaults."""
    return json.loads(importlib.resources.files("advsurprise.experiments").joinpath(file).read_text())
