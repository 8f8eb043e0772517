"""Atari bodies against Gymnasium's own preprocessing over ale-py, pixel by pixel; lives, rewinding and resuming."""

import subprocess
import sys

import numpy as np
import pytest

from advsurprise import envs
from advsurprise.envs.describe import field_docs
from advsurprise.envs.host import atari, atari_scores
from advsurprise.envs.host.area import AreaResize
from advsurprise.envs.host.atari_body import AtariSettings, make
from advsurprise.errors import MissingExtra, UserError
from advsurprise.types import GAME_OVER

cv2 = pytest.importorskip("cv2")
pytest.importorskip("ale_py")

cv2.setNumThreads(1)
GAMES = {"freeway": "Freeway", "berzerk": "Berzerk", "assault": "Assault", "space_invaders": "SpaceInvaders"}


def _shrunk(picture, side=84):
    return cv2.resize(picture, (side, side), interpolation=cv2.INTER_AREA)


@pytest.mark.parametrize(("rows", "side"), [(210, 84), (250, 84), (214, 84), (210, 64), (230, 100)])
def test_resizing_is_opencvs_to_the_pixel(rows, side):
    rng = np.random.default_rng(rows + side)
    resize = AreaResize(rows, 160, side)
    for _ in range(30):
        noise = rng.integers(0, 256, (rows, 160), np.uint8)
        few = rng.choice(rng.integers(0, 256, 4, np.uint8), (rows, 160))
        for picture in (noise, few):
            np.testing.assert_array_equal(resize(picture), _shrunk(picture, side))


# ---- Gymnasium ----


def _gymnasium(game, **options):
    """Gymnasium's preprocessing over ale-py's environment."""
    import gymnasium
    from gymnasium.wrappers import AtariPreprocessing

    kwargs = {"frameskip": 1, "repeat_action_probability": options.pop("sticky", 0.0), "disable_env_checker": True}
    env = gymnasium.make(f"ale_py:ALE/{GAMES[game]}-v5", max_num_frames_per_episode=108_000, **kwargs)
    return AtariPreprocessing(env, frame_skip=4, **options)


def _last_look(env, frames):
    """The true last observation: Gymnasium's own is of an earlier frame."""
    screen = env.ale.getScreenGrayscale()
    return _shrunk(np.maximum(screen, env.obs_buffer[1]) if frames == 4 else screen)


def _compare_game(game, sticky, steps):
    """Plays the same actions in both, up to the beginning of the second game; the number of steps."""
    env = _gymnasium(game, sticky=sticky)
    body = make(game, sticky=sticky, life="game", fire_on_reset=False)
    rng = np.random.default_rng(7)
    np.testing.assert_array_equal(body.reset(11), env.reset(seed=11)[0])
    for step in range(steps):
        before = env.ale.getEpisodeFrameNumber()
        action = int(rng.integers(len(body.actions)))
        obs, reward, terminated, truncated, _ = env.step(action)
        stepped = body.step(action)
        assert (stepped.reward, stepped.terminated, stepped.truncated) == (reward, terminated, truncated)
        assert stepped.info["game/lives"] == env.ale.lives()
        if terminated or truncated:
            np.testing.assert_array_equal(stepped.obs, _last_look(env, env.ale.getEpisodeFrameNumber() - before))
            np.testing.assert_array_equal(body.begin(), env.reset()[0])
            return step + 1
        np.testing.assert_array_equal(stepped.obs, obs)
    return steps


@pytest.mark.slow
@pytest.mark.parametrize("sticky", [pytest.param(0.0, marks=pytest.mark.long), 0.25])
@pytest.mark.parametrize("game", GAMES)
def test_whole_games_are_gymnasiums_to_the_pixel(game, sticky):
    assert 100 < _compare_game(game, sticky, 5000) < 5000


@pytest.mark.parametrize("game", GAMES)
def test_the_first_steps_are_gymnasiums_to_the_pixel(game):
    _compare_game(game, 0.25, 60)


def test_a_life_ends_where_gymnasium_ends_it():
    env = _gymnasium("assault", terminal_on_life_loss=True)
    body = make("assault", fire_on_reset=False)
    rng = np.random.default_rng(3)
    np.testing.assert_array_equal(body.reset(2), env.reset(seed=2)[0])
    for _ in range(1000):
        action = int(rng.integers(len(body.actions)))
        obs, _, terminated, _, _ = env.step(action)
        stepped = body.step(action)
        assert stepped.terminated == terminated
        if terminated:
            assert stepped.info["game/lives"] == 3
            return
        np.testing.assert_array_equal(stepped.obs, obs)
    raise AssertionError("no life was lost")


class _Baselines:
    """A life as an episode, and FIRE at its beginning, over Gymnasium's preprocessing."""

    def __init__(self, env):
        self.env, self.lives, self.over = env, 0, True

    def step(self, action):
        obs, _, self.over, _, _ = self.env.step(action)
        lives, before = self.env.ale.lives(), self.lives
        self.lives = lives
        return obs, self.over, self.over or 0 < lives < before

    def begin(self, **seed):
        obs = self.env.reset(**seed)[0] if self.over else self.env.step(0)[0]
        if "FIRE" in self.env.unwrapped.get_action_meanings():
            self.env.step(1)
            obs = self.env.step(2)[0]
        self.lives = self.env.ale.lives()
        return obs


@pytest.mark.slow
@pytest.mark.parametrize("game", ["assault", "space_invaders"])
def test_lives_and_fire_are_baselines(game):
    oracle, body = _Baselines(_gymnasium(game)), make(game)
    rng = np.random.default_rng(5)
    np.testing.assert_array_equal(body.reset(4), oracle.begin(seed=4))
    ends = games = 0
    while games < 2:
        action = int(rng.integers(len(body.actions)))
        obs, over, ended = oracle.step(action)
        stepped = body.step(action)
        assert (bool(stepped.info["game/over"]), stepped.terminated) == (over, ended)
        if not over:
            np.testing.assert_array_equal(stepped.obs, obs)
        if ended:
            np.testing.assert_array_equal(body.begin(), oracle.begin())
            assert body.info()["episode_length"] == 0
        ends, games = ends + ended, games + over
    assert ends > games


# ---- games, rewinding, resuming ----


def _play(body, steps, seed):
    """Random steps, a new episode after each end: all that was seen."""
    rng, seen = np.random.default_rng(seed), []
    for _ in range(steps):
        stepped = body.step(int(rng.integers(len(body.actions))))
        seen.append((stepped.obs.tobytes(), *stepped[1:]))
        if stepped.terminated or stepped.truncated:
            seen.append((body.begin().tobytes(), 0.0, False, False, body.info()))
    return seen


def test_a_game_is_several_lives_and_its_score_is_their_sum():
    body = make("berzerk")
    body.reset(0)
    seen = _play(body, 500, 0)
    over = [index for index, step in enumerate(seen) if step[4][GAME_OVER]]
    lives = [index for index, step in enumerate(seen) if step[2]]
    assert len(over) >= 2
    assert set(over) < set(lives)
    assert seen[over[0]][4]["game/lives"] == 0
    for index in range(over[0] + 1):
        assert seen[index][4]["game/score"] == sum(step[1] for step in seen[: index + 1])
    assert seen[over[0] + 1][4] == {"game/over": 0, "game/score": 0, "game/lives": 3, "episode_length": 0}


def test_a_long_game_is_truncated():
    body = make("space_invaders", max_frames=200)
    body.reset(0)
    ends = [step for step in _play(body, 120, 0) if step[2] or step[3]]
    assert len(ends) >= 2
    assert all((step[2], step[3], step[4][GAME_OVER]) == (False, True, 1) for step in ends)


def test_the_same_seed_gives_the_same_games_and_another_seed_others():
    plays = []
    for seed in (1, 1, 2):
        body = make("berzerk", sticky=0.25)
        body.reset(seed)
        plays.append(_play(body, 150, 0))
    assert plays[0] == plays[1] != plays[2]


@pytest.mark.parametrize("game", GAMES)
def test_rewinding_leads_back_to_the_first_state(game):
    body = make(game)
    first = body.reset(0).copy()
    steps = [body.step(index % len(body.actions)) for index in range(30)]
    assert not any(step.terminated for step in steps)
    np.testing.assert_array_equal(body.rewind(), first)
    again = [body.step(index % len(body.actions)) for index in range(30)]
    for one, two in zip(steps, again, strict=True):
        np.testing.assert_array_equal(one.obs, two.obs)
        assert (one.reward, one.info["game/score"]) == (two.reward, two.info["game/score"])
    assert again[-1].info["episode_length"] == 60


def test_sticky_draws_after_rewinding_are_new():
    body = make("berzerk", sticky=0.5)
    body.reset(0)
    played = _play(body, 20, 0)
    body.rewind()
    assert [step[0] for step in _play(body, 20, 0)] != [step[0] for step in played]


def test_restarting_begins_a_new_game():
    body = make("assault")
    body.reset(0)
    _play(body, 60, 0)
    body.restart()
    assert body.info() == {"game/over": 0, "game/score": 0, "game/lives": 4, "episode_length": 0}


@pytest.mark.parametrize("game", ["berzerk", "freeway"])
def test_a_restarted_game_is_the_first_one_again_also_in_a_resumed_body(game):
    body, other = make(game, noops=0), make(game, noops=0)
    first = body.reset(5).copy()
    played = _play(body, 40, 0)
    other.load(body.save())
    for each in (body, other):
        np.testing.assert_array_equal(each.restart(), first)
        assert _play(each, 40, 0) == played


def test_restarted_games_wait_for_random_numbers_of_frames():
    body = make("berzerk")
    body.reset(0)
    assert len({body.restart().tobytes() for _ in range(6)}) > 3


# With 20 frames, FIRE and the action after it can end a game that has just started, and the next one starts.
@pytest.mark.parametrize(
    ("game", "settings"),
    [
        *((game, {"noops": 3}) for game in GAMES),
        ("assault", {"noops": 3, "sticky": 0.25}),
        ("space_invaders", {"noops": 16, "max_frames": 20}),
    ],
)
def test_starts_that_were_played_before_are_the_same_as_played_again(game, settings):
    body, other = make(game, **settings), make(game, **settings)
    for each in (body, other):
        each.reset(2)
    for turn in range(12):
        other._starts.clear()
        np.testing.assert_array_equal(body.restart(), other.restart())
        assert body.save() == other.save()
        assert _play(body, 10, turn) == _play(other, 10, turn)
    np.testing.assert_array_equal(body.rewind(), other.rewind())
    assert body.save() == other.save()
    assert not body._starts if settings.get("sticky") else body._starts


@pytest.mark.slow
@pytest.mark.parametrize("sticky", [0.0, 0.25])
@pytest.mark.parametrize("game", GAMES)
def test_a_saved_body_continues_exactly(game, sticky):
    body = make(game, sticky=sticky)
    body.reset(3)
    _play(body, 60, 0)
    state = body.save()
    assert len(state) < 30_000
    other = make(game, sticky=sticky)
    other.load(state)
    assert _play(other, 200, 1) == _play(body, 200, 1)
    np.testing.assert_array_equal(other.rewind(), body.rewind())
    assert other.save() == body.save()


def test_later_games_of_a_resumed_body_are_the_same():
    body, other = make("berzerk", sticky=0.25), make("berzerk", sticky=0.25)
    body.reset(3)
    other.load(body.save())
    played = _play(body, 500, 1)
    assert sum(step[4][GAME_OVER] for step in played) >= 2
    assert _play(other, 500, 1) == played


def test_states_that_are_damaged_or_of_another_game_are_refused():
    body = make("freeway")
    body.reset(0)
    state = body.save()
    damaged = bytearray(state)
    damaged[-100] ^= 1
    for bad in (b"", state[:5], state[:-1], bytes(damaged), b"x" + state[1:]):
        with pytest.raises(ValueError, match="state of an Atari body"):
            make("freeway").load(bad)
    with pytest.raises(ValueError, match="plays freeway"):
        make("assault").load(state)
    with pytest.raises(ValueError, match="plays freeway"):
        make("freeway", sticky=0.25).load(state)


def test_actions_that_a_game_does_not_have_are_refused():
    body = make("freeway")
    body.reset(0)
    for action in (-1, 3):
        with pytest.raises(UserError, match="from 0 to 2"):
            body.step(action)


# ---- the family ----


def test_every_game_for_one_player_is_a_world():
    worlds = atari.WORLDS
    assert len(worlds) == 104
    assert {"atari/freeway", "atari/space-invaders", "atari/pong"} <= set(worlds)
    assert "atari/combat" not in worlds
    assert envs.find("atari/ms-pacman").fields == atari.get_type_hints(AtariSettings)
    assert set(field_docs(AtariSettings)) == set(AtariSettings.__dataclass_fields__)


def test_a_world_knows_its_actions_and_measures():
    spec = atari.read_spec("space_invaders")
    assert (spec.observation_shape, spec.observation_dtype, spec.num_actions, spec.noop) == ((84, 84), "uint8", 6, 0)
    body = make("space_invaders")
    assert body.action_names == ("NOOP", "FIRE", "RIGHT", "LEFT", "RIGHTFIRE", "LEFTFIRE")
    body.reset(0)
    assert set(body.step(0).info) == set(body.info()) == set(spec.info)
    full = atari.read_spec("space_invaders", full_actions=True, side=64)
    assert (full.num_actions, full.observation_shape) == (18, (64, 64))
    assert atari.read_spec("backgammon").noop is None


def test_settings_that_make_no_game_are_refused():
    for settings in ({"frame_skip": 0}, {"sticky": 1.0}, {"noops": -1}, {"side": 161}, {"max_frames": -1}):
        with pytest.raises(UserError, match=f"atari/freeway: {next(iter(settings))}"):
            atari.read_spec("freeway", **settings)
    with pytest.raises(UserError, match="no game 'combat' for one player"):
        make("combat").reset(0)


def test_without_ale_py_four_games_are_listed_and_opening_one_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    assert atari.games() == ("assault", "berzerk", "freeway", "space_invaders")
    with pytest.raises(MissingExtra, match=r"pip install .advsurprise\[atari\]"):
        atari.read_spec("freeway")


def test_a_worker_imports_no_jax_and_prints_nothing():
    code = (
        "import sys\nfrom advsurprise.envs.host.atari_body import make\nbody = make('freeway')\nbody.reset(0)\n"
        "body.step(1)\nassert 'jax' not in sys.modules and 'equinox' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_listing_worlds_imports_no_ale_py():
    code = "import sys\nfrom advsurprise.envs import list_envs\nassert 'atari/pong' in list_envs()"
    code += "\nassert 'ale_py' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_scores_are_of_known_games():
    assert set(atari_scores.SCORES) <= set(atari.games())
    assert set(atari.PAPER_GAMES) <= set(atari_scores.SCORES)
