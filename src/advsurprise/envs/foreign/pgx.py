"""pgx's games behind gymnax's interface. Games for several players are refused: one body would play all of them."""

from collections.abc import Callable
from typing import Any

from advsurprise.envs.foreign.load import attempt
from advsurprise.errors import UserError, nearest, require


class Game:
    """A game of pgx for one player. An illegal action ends the game, as in pgx."""

    default_params = None

    def __init__(self, game: Any):
        self.game = game
        self.num_actions = int(game.num_actions)
        chosen = getattr(game, "minimal_action_set", None)
        self.action_set = chosen if getattr(game, "use_minimal_action_set", False) else range(self.num_actions)

    def reset(self, key: Any, params: Any = None) -> tuple[Any, Any]:
        """The first observation and state."""
        state = self.game.init(key)
        return state.observation, state

    def step_env(self, key: Any, state: Any, action: Any, params: Any = None) -> tuple[Any, ...]:
        """Takes one step without resetting."""
        state = self.game.step(state, action, key)
        return state.observation, state, state.rewards[0], state.terminated, state.truncated, {}


def game_maker(id: str) -> Callable[..., Game]:
    """A function that makes a game, with the arguments of the game's own class."""
    pgx = require("pgx", extra="pgx")
    if id not in pgx.available_envs():
        raise UserError(f"pgx has no game {nearest(id, pgx.available_envs())}")
    game = attempt(f"pgx:{id} could not be made", lambda: pgx.make(id))
    if game.num_players != 1:
        raise UserError(f"pgx:{id} is a game for {game.num_players} players; only single-player games are supported")
    return _with_signature(type(game))


def _with_signature(game: Callable[..., Any]) -> Callable[..., Game]:
    """Wraps the game's class so that it returns a `Game`."""

    def make(**arguments: Any) -> Game:
        return Game(game(**arguments))

    make.__wrapped__ = game  # `inspect.signature` follows it
    return make
