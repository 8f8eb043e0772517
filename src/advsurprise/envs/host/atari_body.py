"""One Atari game on the Arcade Learning Environment, as a body that is stepped in a worker. Imports no jax."""

import dataclasses
import functools
import importlib
import itertools
import json
import struct
import zlib
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from advsurprise.envs.host.area import AreaResize
from advsurprise.envs.host.body import Body, Stepped
from advsurprise.errors import UserError, check, require

MAGIC = b"atari-2\n"
"""First bytes of a saved body."""
HEADER = struct.Struct("<II")
"""Checksum of what follows, length of the JSON text; then the text, then the arrays that it lists."""

RESET_DRAWS = {"berzerk": 40, "double_dunk": 32}
"""Random numbers that the emulator draws while it resets these games, two for each key it presses."""


@dataclass(frozen=True)
class AtariSettings:
    """How a game is played; the defaults are those of OpenAI Baselines' wrappers."""

    frame_skip: int = 4
    """Frames per step: the action is repeated, and the maximum of the last two frames is observed."""
    sticky: float = 0.0
    """Probability that a frame repeats the action of the frame before it. Baselines uses 0 (`NoFrameskip-v4`);
    ALE recommends 0.25, as in its `v5` environments."""
    noops: int = 30
    """A game starts with a random number of no-op frames, from 1 to this; 0 for none."""
    full_actions: bool = False
    """Whether a body can use all 18 joystick actions instead of those the game distinguishes."""
    life: Literal["episode", "game"] = "episode"
    """`episode`: losing a life ends the episode, and the next one continues the same game; `game`: a whole game is one
    episode."""
    fire_on_reset: bool = True
    """Whether episodes start with FIRE in games that have this action: some games wait for it."""
    max_frames: int = 108_000
    """Frames after which a game is truncated: 30 minutes of play; 0 for no limit."""
    side: int = 84
    """Height and width of an observation."""


def check_settings(id: str, settings: AtariSettings) -> None:
    """Refuses invalid settings."""
    rules = [
        (settings.frame_skip >= 1, f"frame_skip must be at least 1, not {settings.frame_skip}"),
        (0 <= settings.sticky < 1, f"sticky must be at least 0 and below 1, not {settings.sticky}"),
        (settings.noops >= 0, f"noops must be at least 0, not {settings.noops}"),
        (settings.max_frames >= 0, f"max_frames must be at least 0, not {settings.max_frames}"),
        (8 <= settings.side <= 160, f"side must be from 8 to 160, not {settings.side}"),
    ]
    check(rules, subject=id)


class _First(NamedTuple):
    """First state of the episode."""

    state: Any
    """The emulator's state."""
    obs: np.ndarray
    """Its observation: a restored emulator has no screen before the next frame."""
    held: Any
    """Emulator action of the last frame."""
    lives: int
    """Lives left."""
    score: float
    """The game's score."""


def make(game: str, **settings: Any) -> "AtariBody":
    """Makes a body of the game, named after its ROM (`space_invaders`)."""
    return AtariBody(game, AtariSettings(**settings))


class AtariBody(Body):
    """One game, seeded and preprocessed exactly like ale-py's environment in Gymnasium's `AtariPreprocessing`.

    Sticky actions are drawn here and not in the emulator: its state leaves out the action that it would repeat, so
    resuming and rewinding would not be exact. The draws equal the emulator's own.
    """

    rewinds: ClassVar[bool] = True
    resumes: ClassVar[bool] = True

    def __init__(self, game: str, settings: AtariSettings = AtariSettings()):  # noqa: B008
        self.game = game
        self.settings = settings
        self._py = require("ale_py", extra="atari")
        self._py.ALEInterface.setLoggerMode(self._py.LoggerMode.Error)
        self._ale = self._py.ALEInterface()
        self._ale.setFloat("repeat_action_probability", 0.0)
        self._ale.setInt("max_num_frames_per_episode", settings.max_frames)
        self._loaded = False
        self._noop = self._held = self._py.Action.NOOP
        self._sticks = np.random.MT19937()
        # The emulator keeps the probability in single precision.
        self._threshold = float(np.float32(settings.sticky)) * 2**32

    @functools.cached_property
    def actions(self) -> tuple[Any, ...]:
        """Emulator action for each of the body's actions."""
        self._load_game()
        legal = self._ale.getLegalActionSet if self.settings.full_actions else self._ale.getMinimalActionSet
        return tuple(legal())

    @property
    def action_names(self) -> tuple[str, ...]:
        """ALE's name of each action: NOOP, FIRE, UP, …"""
        return tuple(action.name for action in self.actions)

    def reset(self, seed: int) -> np.ndarray:
        """Starts the first game, with the seeds that ale-py's own environment derives from `seed`."""
        own, emulator = np.random.SeedSequence(seed).generate_state(2)
        self._rng = np.random.default_rng(int(own))
        # The emulator's generator; `RandomState` is the only class of numpy that seeds it as C++ does.
        mersenne: Any = np.random.RandomState(emulator).get_state(legacy=False)
        self._sticks.state = mersenne
        self._load_game(int(emulator.astype(np.int32)))
        # Loading a game resets it once.
        self._sticks.random_raw(RESET_DRAWS.get(self.game, 0))
        self._open()
        self._wait(self._draw_noops())
        return self._begin()

    def step(self, action: int) -> Stepped:
        """Repeats the action for the frames of a step; a life counts as lost only if others are left."""
        if not 0 <= action < len(self.actions):
            raise UserError(
                f"{self.game}: action must be a whole number from 0 to {len(self.actions) - 1}, not {action}"
            )
        reward = self._advance(self.actions[action])
        over, cut, lives = self._ale.game_over(with_truncation=False), self._ale.game_truncated(), self._ale.lives()
        lost = self.settings.life == "episode" and 0 < lives < self._lives
        self._over, self._lives = over or cut, lives
        self._lost = lost and not self._over
        self._steps += 1
        return Stepped(self._look(), reward, over or lost, cut and not (over or lost), self.info())

    def begin(self) -> np.ndarray:
        """Starts the next life, after a no-op step, if one was lost; otherwise a new game."""
        if self._lost:
            self._press(self._noop)
        else:
            self._new_game()
        return self._begin()

    def restart(self) -> np.ndarray:
        """Starts a new game from the body's first, before its no-op frames: a reset takes as long as fifteen steps.

        Without sticky actions a start depends on the number of no-op frames only, and is played once.
        """
        noops = self._draw_noops()
        if noops in self._starts:
            self._first, self._steps = self._starts[noops], 0
            return self.rewind()
        state, screen = self._opening
        self._ale.restoreState(state)
        self._screen[:] = screen
        self._held, self._score = self._noop, 0.0
        self._wait(noops)
        drawn = self._rng.bit_generator.state
        obs = self._begin()
        # If the start ended the game, it has drawn another number.
        if not self.settings.sticky and self._rng.bit_generator.state == drawn:
            self._starts[noops] = self._first
        return obs

    def rewind(self) -> np.ndarray:
        """Restores the episode's first state; the step count continues, and random draws are new."""
        first = self._first
        self._ale.restoreState(first.state)
        self._held, self._lives, self._score = first.held, first.lives, first.score
        self._lost = self._over = False
        return first.obs

    def info(self) -> dict[str, float]:
        """Measures of the game and the episode so far."""
        return {
            "game/over": float(self._over),
            "game/score": self._score,
            "game/lives": float(self._lives),
            "episode_length": float(self._steps),
        }

    def save(self) -> bytes:
        """The game, the first state of the episode and every generator."""
        first, sticks = self._first, self._sticks.state["state"]
        facts = {
            **self._identity(),
            "seed": self._seed,
            "now": [self._held.value, self._lives, self._score, self._steps, self._lost, self._over],
            "first": [first.held.value, first.lives, first.score],
            "rng": self._rng.bit_generator.state,
            "sticks": int(sticks["pos"]),
        }
        emulators = (self._ale.cloneState().serialize(), first.state.serialize())
        return pack(facts, (*emulators, first.obs.tobytes(), sticks["key"].astype("<u4").tobytes()))

    def load(self, state: bytes) -> None:
        """Continues a body of the same game and settings."""
        facts, (now, first, obs, sticks) = unpack(state)
        identity = self._identity()
        if {name: facts.get(name) for name in identity} != identity:
            raise ValueError(f"the saved body plays {facts.get('game')} with {facts.get('settings')}")
        self._load_game(facts["seed"])
        self._open()
        self._ale.restoreState(self._py.ALEState(now))
        held, self._lives, self._score, self._steps, self._lost, self._over = facts["now"]
        self._held = self._py.Action(held)
        held, lives, score = facts["first"]
        shown = np.frombuffer(obs, np.uint8).reshape(self.settings.side, self.settings.side)
        self._first = _First(self._py.ALEState(first), shown, self._py.Action(held), lives, score)
        self._rng = np.random.default_rng()
        self._rng.bit_generator.state = facts["rng"]
        key = np.frombuffer(sticks, "<u4").astype(np.uint32)
        self._sticks.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": facts["sticks"]}}

    def _identity(self) -> dict[str, Any]:
        return {"game": self.game, "settings": dataclasses.asdict(self.settings)}

    def _load_game(self, seed: int | None = None) -> None:
        """Loads the ROM, which takes a tenth of a second; with a seed, reloads it."""
        if self._loaded and seed is None:
            return
        rom = importlib.import_module("ale_py.roms").get_rom_path(self.game)
        # The emulator would exit the whole process.
        if rom is None or self._py.ALEInterface.isSupportedROM(rom) is None:
            raise UserError(f"ale-py has no game {self.game!r} for one player")
        self._seed = seed or 0
        self._ale.setInt("random_seed", self._seed)
        self._ale.loadROM(rom)
        self._loaded = True
        rows, columns = self._ale.getScreenDims()
        self._resize = AreaResize(rows, columns, self.settings.side)
        self._screen = np.zeros((rows, columns), np.uint8)
        self._before = self._screen.copy()

    def _new_game(self) -> None:
        """Starts the game after one that is over.

        The emulator is reset rather than restored: memory that a reset does not clear makes each game a little
        different.
        """
        self._reset_game()
        self._wait(self._draw_noops())

    def _open(self) -> None:
        """Resets the game for the first time, and keeps its first state and screen."""
        self._reset_game()
        self._opening = (self._ale.cloneState(), self._screen.copy())
        self._starts: dict[int, _First] = {}

    def _reset_game(self) -> None:
        self._ale.reset_game()
        self._sticks.random_raw(RESET_DRAWS.get(self.game, 0))
        self._held, self._score = self._noop, 0.0
        self._ale.getScreenGrayscale(self._screen)

    def _draw_noops(self) -> int:
        """The number of no-op frames at the start of a game."""
        return int(self._rng.integers(1, self.settings.noops + 1)) if self.settings.noops else 0

    def _wait(self, noops: int) -> None:
        """Plays no-op frames."""
        for _ in range(noops):
            self._frame(self._noop)
        if noops:
            self._ale.getScreenGrayscale(self._screen)

    def _begin(self) -> np.ndarray:
        """Starts an episode in the current game: FIRE and the action after it, as in Baselines, then the first look."""
        fires = self.settings.fire_on_reset and "FIRE" in self.action_names
        for action in (self._py.Action.FIRE, self.actions[2]) if fires else ():
            self._press(action)
        self._lives, self._steps = self._ale.lives(), 0
        self._lost = self._over = False
        obs = self._look()
        self._first = _First(self._ale.cloneState(), obs, self._held, self._lives, self._score)
        return obs

    def _press(self, action: Any) -> None:
        """Takes a step between two episodes; if it ends the game, a new one starts."""
        self._advance(action)
        if self._ale.game_over():
            self._new_game()

    def _advance(self, action: Any) -> float:
        """Runs the frames of one step, up to the game's end; returns the sum of their rewards."""
        score, last = self._score, self.settings.frame_skip - 1
        for frame in range(last + 1):
            self._frame(action)
            if self._ale.game_over():
                break
            if frame == last - 1:
                self._ale.getScreenGrayscale(self._before)
        self._ale.getScreenGrayscale(self._screen)
        if frame == last > 0:
            np.maximum(self._screen, self._before, out=self._screen)
        return self._score - score

    def _frame(self, action: Any) -> None:
        """Runs one frame, which may repeat the action of the one before. The second draw is the second joystick's."""
        if not self.settings.sticky or self._sticks.random_raw(2)[0] >= self._threshold:
            self._held = action
        self._score += self._ale.act(self._held)

    def _look(self) -> np.ndarray:
        return self._resize(self._screen)


def pack(facts: dict[str, Any], arrays: tuple[bytes, ...]) -> bytes:
    """Facts and arrays as bytes that `unpack` reads."""
    text = json.dumps({"facts": facts, "lengths": [len(array) for array in arrays]}).encode()
    body = b"".join([text, *arrays])
    return MAGIC + HEADER.pack(zlib.crc32(body), len(text)) + body


def unpack(state: bytes) -> tuple[dict[str, Any], tuple[bytes, ...]]:
    """Splits what `pack` joined; raises ValueError for other bytes."""
    begin = len(MAGIC) + HEADER.size
    if len(state) < begin or not state.startswith(MAGIC):
        raise ValueError("not the state of an Atari body, or one of another version")
    checksum, length = HEADER.unpack_from(state, len(MAGIC))
    if zlib.crc32(state[begin:]) != checksum:
        raise ValueError("the state of an Atari body is damaged")
    content = json.loads(state[begin : begin + length])
    ends = begin + length + np.cumsum([0, *content["lengths"]])
    return content["facts"], tuple(state[left:right] for left, right in itertools.pairwise(ends))
