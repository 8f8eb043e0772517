"""Real Atari games on the Arcade Learning Environment, `pip install "advsurprise[atari]"`. Guide: docs/atari.md."""

import functools
import importlib.util
import json
import pathlib
from typing import TYPE_CHECKING, Any, get_type_hints

from advsurprise.envs.host.atari_body import AtariBody, AtariSettings, check_settings
from advsurprise.envs.host.atari_scores import SCORES
from advsurprise.envs.host.body import Maker
from advsurprise.envs.world import World

if TYPE_CHECKING:
    from advsurprise.envs.host.base import Host
    from advsurprise.types import EnvSpec

PAPER_GAMES = ("assault", "berzerk", "freeway", "space_invaders")
"""The games of the paper, by the names of their ROMs: listed even where ale-py is not installed."""
FOR_TWO = frozenset({"combat", "joust", "maze_craze", "warlords"})
"""Games that cannot be played alone."""
TURN_STEPS = (("explore", 64), ("control", 128))
DENSITY_SHAPE = (20, 20, 4)


def games() -> tuple[str, ...]:
    """The single-player ROMs in ale-py, read from its folder: importing it takes a quarter of a second."""
    package = importlib.util.find_spec("ale_py")
    folders = package.submodule_search_locations if package else None
    listed = pathlib.Path(folders[0], "roms", "md5.json") if folders else None
    if listed is None or not listed.is_file():
        return PAPER_GAMES
    names = {pathlib.Path(name).stem for name in json.loads(listed.read_text())}
    return tuple(sorted(names - FOR_TWO))


def open_host(
    game: str,
    bodies: int,
    *,
    seeds: int = 1,
    groups: int | None = None,
    workers: int | None = None,
    **settings: Any,
) -> "Host":
    """Opens the game with `bodies` bodies for each of `seeds` seeds, in worker processes."""
    from advsurprise.envs.host.pool import BodyHost

    maker = Maker("advsurprise.envs.host.atari_body:make", {"game": game, **settings})
    return BodyHost(read_spec(game, **settings), maker, seeds=seeds, bodies=bodies, groups=groups, workers=workers)


def read_spec(game: str, **settings: Any) -> "EnvSpec":
    """What a learner needs to know about the game; starts an emulator to read its actions."""
    from advsurprise.types import GAME_OVER, EnvSpec, Measure

    id = world_id(game)
    chosen = AtariSettings(**settings)
    check_settings(id, chosen)
    names = AtariBody(game, chosen).action_names
    return EnvSpec(
        id=id,
        observation_shape=(chosen.side, chosen.side),
        observation_dtype="uint8",
        observation_kind="image",
        num_classes=0,
        num_actions=len(names),
        max_steps=0,
        measures=(
            Measure("game/score", "the game's score", short="score", shown=True, of_game=True),
            Measure("episode_length", "steps per episode", short="length", shown=True),
            Measure("game/lives", "lives left"),
            Measure(GAME_OVER, "whether the game is over"),
        ),
        truncates=True,
        action_names=tuple(name.lower() for name in names),
        noop=names.index("NOOP") if "NOOP" in names else None,
        turn_steps=TURN_STEPS,
        density_shape=DENSITY_SHAPE,
    )


def world_id(game: str) -> str:
    """The world's name, from that of its ROM."""
    return f"atari/{game.replace('_', '-')}"


def _worlds() -> dict[str, World]:
    fields = get_type_hints(AtariSettings)
    return {
        world_id(game): World(
            world_id(game),
            f"the Atari 2600 game {game.replace('_', ' ').title()}",
            "host",
            functools.partial(open_host, game),
            fields,
            view_fields=("frame_skip", "full_actions", "side"),
            settings=AtariSettings,
            spec=functools.partial(read_spec, game),
            published=dict(zip(("random", "human"), SCORES.get(game, ()), strict=False)),
        )
        for game in games()
    }


WORLDS = _worlds()
