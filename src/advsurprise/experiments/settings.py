"""The paper's settings in the room worlds, shared by all figures."""

import functools
import importlib.resources
import json
from typing import Any

from advsurprise.experiments.figure import Arm, Batch

FOUR: dict[str, dict[str, Any]] = {"rooms/four": {"fixed_boxes": True}}
"""Four rooms with boxes that cannot be picked up, as in the authors' environment."""
TUNED = "tuned.json"
"""Settings chosen by `advsurprise.experiments.tuning` for each method in the room worlds."""
TUNED_GAMES = "tuned_games.json"
"""The same in games."""
GAME_BATCH = Batch(save_every=25)
"""As in the room worlds, with checkpoints about a minute apart on a GPU."""
ARMS = {
    "as": Arm("Adversarial Surprise", "adversarial-surprise"),
    "as-round": Arm("Adversarial Surprise, round's buffer", "adversarial-surprise", {"method.scope": "round"}),
    "rnd": Arm("RND", "rnd"),
    "asp": Arm("ASP", "asp"),
    "asp-cell": Arm("ASP, goal is the cell", "asp", {"method.goal": "cell"}),
    "smirl": Arm("SMiRL", "smirl"),
}


def turns(explore: int, control: int | None = None) -> dict[str, int]:
    """Fields for turns of `explore` steps; Control's turns default to the same."""
    return {"method.k_explore": explore, "method.k_control": explore if control is None else control}


def arms(*names: str) -> dict[str, Arm]:
    """The arms with these names."""
    return {name: ARMS[name] for name in names}


@functools.cache
def tuned(file: str = TUNED) -> dict[str, dict[str, Any]]:
    """Tuned, non-default fields of each method."""
    return json.loads(importlib.resources.files("advsurprise.experiments").joinpath(file).read_text())
