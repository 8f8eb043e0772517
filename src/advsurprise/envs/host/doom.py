"""Doom scenarios as host worlds, through ViZDoom (the extra `doom`). Guide: docs/doom.md. Imports no jax."""

import dataclasses
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

from advsurprise.envs.host.body import Maker
from advsurprise.envs.host.doom_engine import SCREEN, configure
from advsurprise.envs.world import World
from advsurprise.errors import check

if TYPE_CHECKING:
    from advsurprise.envs.host.base import Host
    from advsurprise.types import EnvSpec

PACKAGE = "advsurprise.envs.host"
MAX_TICS = 2100
"""Tics (60 s of play) after which an episode is truncated if its scenario has no limit: that of most others."""
DENSITY_SIDE, DENSITY_FRAMES = 20, 4
"""What a density model sees, as in the paper: the last 4 observations of 20x20 pixels."""
POSITIONS = {"take-cover": tuple(range(16, 753, 32))}
"""Edges of the bins of positions along the y axis, by scenario: Take Cover's corridor from end to end."""


@dataclass(frozen=True)
class DoomSettings:
    """Settings of every scenario."""

    frame_skip: int = 4
    """Tics (35 per second) for which each action is held."""
    side: int = 20
    """Rows and columns of an observation, averaged down from the screen's 120x160."""
    max_tics: int = 0
    """Tics after which an episode is truncated; 0 for the scenario's own limit, or 2100 if it has none."""
    skill: int = 0
    """Doom's difficulty, 1 (easiest) to 5; 0 for the scenario's own."""
    no_action: bool = True
    """Whether action 0 presses nothing; the others press one button each."""

    def __post_init__(self):
        rules = [
            (self.frame_skip >= 1, f"frame_skip must be at least 1, not {self.frame_skip}"),
            (1 <= self.side <= min(SCREEN), f"side must be 1 to {min(SCREEN)}, not {self.side}"),
            (self.max_tics >= 0, f"max_tics must be at least 0, not {self.max_tics}"),
            (0 <= self.skill <= 5, f"skill must be 1 to 5, or 0 for the scenario's own, not {self.skill}"),
        ]
        check(rules, subject="doom")


def open_host(
    scenario: str,
    bodies: int,
    *,
    seeds: int = 1,
    groups: int | None = None,
    workers: int | None = None,
    **settings: Any,
) -> "Host":
    """Opens a scenario with `bodies` bodies for each of `seeds` seeds."""
    chosen = DoomSettings(**settings)
    described = spec(scenario, chosen)
    from advsurprise.envs.host.pool import BodyHost

    kwargs = {"scenario": scenario} | dataclasses.asdict(chosen)
    clean_up = f"{PACKAGE}.doom_engine:clean_up"
    maker = Maker(f"{PACKAGE}.doom_body:make_body", kwargs, clean_up=clean_up, own_processes=True)
    return BodyHost(described, maker, seeds=seeds, bodies=bodies, groups=groups, workers=workers)


def read_spec(scenario: str, **settings: Any) -> "EnvSpec":
    """What a learner needs to know about a scenario, given its settings."""
    return spec(scenario, DoomSettings(**settings))


def spec(scenario: str, settings: DoomSettings) -> "EnvSpec":
    """What a learner needs to know about a scenario; reads its configuration without starting a game."""
    buttons = [
        button.name.lower().replace("_", " ") for button in configure(config_file(scenario)).get_available_buttons()
    ]
    from advsurprise.types import GAME_OVER, EnvSpec, Measure

    measures = (
        Measure("game/score", "the scenario's own reward per episode", short="score", shown=True, of_game=True),
        Measure("episode_length", "steps per episode", short="length", shown=True),
        Measure("health", "health at the end", short="health"),
        Measure("position_x", "position along the map's x axis", short="x"),
        Measure("position_y", "position along the map's y axis", short="y", edges=POSITIONS.get(scenario, ())),
        Measure(GAME_OVER, "episodes that ended"),
    )
    shown = min(DENSITY_SIDE, settings.side)
    return EnvSpec(
        id=f"doom/{scenario}",
        observation_shape=(settings.side, settings.side),
        observation_dtype="uint8",
        observation_kind="image",
        num_classes=0,
        num_actions=len(presses(len(buttons), no_action=settings.no_action)),
        max_steps=0,
        measures=measures,
        action_names=("nothing", *buttons) if settings.no_action else tuple(buttons),
        truncates=True,
        noop=0 if settings.no_action else None,
        turn_steps=(("explore", 64), ("control", 128)),
        density_shape=(shown, shown, DENSITY_FRAMES),
    )


def presses(buttons: int, *, no_action: bool) -> list[list[bool]]:
    """The buttons that each action presses: none, then one each."""
    pressed = [[button == each for each in range(buttons)] for button in range(buttons)]
    return [[False] * buttons, *pressed] if no_action else pressed


def config_file(scenario: str) -> str:
    """ViZDoom's name of the scenario's configuration file."""
    return f"{scenario.replace('-', '_')}.cfg"


_TABLE = {
    "take-cover": "Doom: a corridor, fireballs from the front, left and right to dodge them",
    "basic": "Doom: a monster at the far wall, to be shot from the right place",
    "simpler-basic": "Doom: basic with plainer textures",
    "rocket-basic": "Doom: basic with a rocket launcher, whose rockets take time",
    "defend-the-center": "Doom: monsters close in from all sides, ammunition is short",
    "defend-the-line": "Doom: monsters come along a room, ever stronger",
    "deadly-corridor": "Doom: a corridor of shooting monsters, a vest at its end",
    "health-gathering": "Doom: a floor of acid, medikits to stay alive",
    "health-gathering-supreme": "Doom: health-gathering in a maze, with poison among the medikits",
    "my-way-home": "Doom: a maze of rooms, a vest in one of them",
    "predict-position": "Doom: a moving monster and one rocket",
}

WORLDS = {
    f"doom/{scenario}": World(
        f"doom/{scenario}",
        description,
        "host",
        functools.partial(open_host, scenario),
        get_type_hints(DoomSettings),
        view_fields=("frame_skip", "side", "no_action"),
        settings=DoomSettings,
        spec=functools.partial(read_spec, scenario),
    )
    for scenario, description in _TABLE.items()
}
