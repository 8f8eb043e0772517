"""Doom by ViZDoom, with the real game."""

import os
import pathlib
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from advsurprise import envs
from advsurprise.envs.host import doom_engine
from advsurprise.envs.host.doom import WORLDS, DoomSettings, config_file, spec
from advsurprise.envs.host.doom_body import DoomBody, make_body
from advsurprise.envs.host.doom_screen import AreaMean
from advsurprise.errors import MissingExtra, UserError
from advsurprise.types import GAME_OVER

vizdoom = pytest.importorskip("vizdoom")
SCENARIOS = [id.removeprefix("doom/") for id in WORLDS]


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Makes bodies in an empty folder, and closes them."""
    monkeypatch.chdir(tmp_path)
    made = []

    def build(scenario="take-cover", **settings) -> DoomBody:
        made.append(make_body(scenario, **settings))
        return made[-1]

    yield build
    for body in made:
        body.close()


def _play(body, actions) -> list:
    """All that a body answers, episodes one after the other."""
    seen = []
    for action in actions:
        stepped = body.step(int(action))
        first = body.begin().tobytes() if stepped.terminated or stepped.truncated else None
        seen.append((stepped.obs.tobytes(), *stepped[1:], first))
    return seen


def _actions(count, *, number=3, seed=0):
    return np.random.default_rng(seed).integers(number, size=count)


def test_every_name_is_a_scenario_that_vizdoom_brings_with_buttons_to_press():
    for scenario in SCENARIOS:
        game = doom_engine.configure(config_file(scenario))
        assert not any("DELTA" in button.name for button in game.get_available_buttons())
        told = spec(scenario, DoomSettings())
        assert told.id == f"doom/{scenario}"
        assert told.num_actions == game.get_available_buttons_size() + 1 >= 3


def test_listed_without_vizdoom_and_opened_with_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "vizdoom", None)
    assert "doom/take-cover" in envs.list_envs()
    with pytest.raises(MissingExtra, match=r'pip install "advsurprise\[doom\]"') as raised:
        envs.find("doom/take-cover").open(2)
    assert raised.value.exit_code == 3


def test_names_and_bodies_import_neither_jax_nor_the_game():
    code = "import sys, advsurprise.envs.host.doom_body; assert not {'jax', 'vizdoom'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"side": 121}, "side"),
        ({"frame_skip": 0}, "frame_skip"),
        ({"skill": 6}, "skill"),
        ({"max_tics": -1}, "max_tics"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, said):
    with pytest.raises(UserError, match=said):
        DoomSettings(**settings)


@pytest.mark.parametrize("side", [20, 40])
def test_an_observation_is_the_mean_of_blocks_of_the_screen(make, side):
    body = make(side=side)
    obs = body.reset(2)
    screen = body._game.get_state().screen_buffer
    assert screen.shape == (120, 160)
    means = screen.reshape(side, 120 // side, side, 160 // side).mean((1, 3))
    np.testing.assert_array_equal(obs, np.floor(means + 0.5))


def test_where_blocks_do_not_fit_an_entry_is_the_mean_over_its_part_of_the_image_enlarged():
    image = np.random.default_rng(1).integers(0, 256, (12, 16), np.uint8)
    enlarged = image.astype(np.int64).repeat(7, 0).repeat(5, 1).reshape(7, 12, 5, 16).sum((1, 3))
    np.testing.assert_array_equal(AreaMean(12, 16, to=(7, 5))(image), (enlarged + 96) // 192)


@pytest.mark.parametrize("side", [7, 20, 42, 84, 120])
def test_a_flat_image_stays_as_it_is(side):
    for level in (0, 1, 254, 255):
        flat = np.full((120, 160), level, np.uint8)
        assert (AreaMean(120, 160, to=(side, side))(flat) == level).all()


def test_observations_and_measures_are_as_declared(make):
    body = make(side=42)
    told = spec("take-cover", DoomSettings(side=42))
    first = body.reset(0)
    assert (first.shape, str(first.dtype)) == (told.observation_shape, told.observation_dtype) == ((42, 42), "uint8")
    assert first.std() > 5
    assert set(body.info()) == set(told.info)
    stepped = body.step(0)
    assert set(stepped.info) == set(told.info)
    assert stepped.reward == 4
    assert told.noop == 0
    assert told.density_shape == (20, 20, 4)
    # Where the body is, is measured and not seen: neither as an observation nor as a place.
    assert told.places == ()
    bins = {measure.name: measure.edges for measure in told.measures if measure.edges}
    assert (list(bins), len(bins["position_y"]) - 1) == (["position_y"], 23)
    assert bins["position_y"][0] < stepped.info["position_y"] < bins["position_y"][-1]


def test_take_cover_moves_along_y_and_only_when_told(make):
    body = make()
    body.reset(0)
    begin = body.info()
    still = body.step(0).info
    assert (still["position_x"], still["position_y"]) == (begin["position_x"], begin["position_y"])
    left = [body.step(1).info for _ in range(8)][-1]
    assert left["position_y"] - begin["position_y"] > 20
    right = [body.step(2).info for _ in range(16)][-1]
    assert right["position_y"] < left["position_y"] - 20
    assert right["position_x"] == begin["position_x"]


def test_the_bins_reach_from_one_end_of_take_covers_corridor_to_the_other(make):
    body = make()
    (edges,) = (measure.edges for measure in spec("take-cover", DoomSettings()).measures if measure.edges)
    for action, end in ((1, edges[-1]), (2, edges[0])):
        body.reset(0)
        positions = [body.step(action).info["position_y"] for _ in range(20)]
        assert positions[-1] == pytest.approx(end, abs=1)


def test_without_the_empty_action_every_action_presses_a_button(make):
    assert spec("take-cover", DoomSettings(no_action=False)).noop is None
    body = make(no_action=False)
    body.reset(0)
    begin = body.info()["position_y"]
    assert [body.step(0).info for _ in range(8)][-1]["position_y"] > begin


def test_death_terminates_with_the_last_frame_that_was_seen(make):
    body = make()
    body.reset(1)
    before = stepped = body.step(0)
    while not stepped.terminated:
        before, stepped = stepped, body.step(0)
        assert not stepped.truncated
        assert stepped.info[GAME_OVER] == stepped.terminated
    np.testing.assert_array_equal(stepped.obs, before.obs)
    assert stepped.info["health"] <= 0
    assert stepped.info["game/score"] == pytest.approx(4 * stepped.info["episode_length"], abs=4)


def test_the_clock_truncates_after_exactly_so_many_tics_with_a_frame_of_its_own(make):
    body = make(max_tics=30)
    body.reset(1)
    steps = [body.step(1) for _ in range(8)]
    assert [step.truncated for step in steps] == [False] * 7 + [True]
    assert not steps[-1].terminated
    assert steps[-1].info["game/score"] == 30
    assert steps[-1].info[GAME_OVER] == 1
    assert not np.array_equal(steps[-1].obs, steps[-2].obs)
    body.begin()
    assert body.info()["episode_length"] == body.info()[GAME_OVER] == 0


def test_a_seed_decides_every_episode(make):
    one, other = make(), make()
    actions = _actions(250)
    first = one.reset(5).tobytes()
    played = _play(one, actions)
    assert any(after is not None for *_, after in played)
    assert other.reset(5).tobytes() == first
    assert _play(other, actions) == played
    other.reset(6)
    assert _play(other, actions) != played


def test_a_loaded_body_continues_exactly_in_a_fresh_game(make):
    body, fresh = make(), make()
    body.reset(7)
    _play(body, _actions(130, seed=1))
    saved = body.save()
    after = body.info()
    future = _play(body, _actions(100, seed=2))
    assert any(after is not None for *_, after in future)
    fresh.load(saved)
    assert fresh.info() == after
    assert fresh.save() == saved
    assert _play(fresh, _actions(100, seed=2)) == future


def test_rewinding_leads_to_the_first_state_and_the_same_future(make):
    body = make()
    body.reset(8)
    _play(body, _actions(90))
    first = body.begin().tobytes()
    begin, actions = body.info(), _actions(40, seed=3)
    future = _play(body, actions)
    assert body.rewind().tobytes() == first
    assert body.info() == begin
    assert _play(body, actions) == future


def test_damaged_or_foreign_states_are_refused(make):
    body = make()
    body.reset(0)
    saved = body.save()
    for damaged in (b"", saved[:3], saved[:-1], saved[:40] + bytes([saved[40] ^ 1]) + saved[41:]):
        with pytest.raises(ValueError, match="damaged"):
            body.load(damaged)
    with pytest.raises(ValueError, match="saved in take-cover"):
        make(side=42).load(saved)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS[1:])
def test_every_scenario_resumes_and_rewinds_exactly(make, scenario):
    body, fresh = make(scenario), make(scenario)
    actions = _actions(160, number=spec(scenario, DoomSettings()).num_actions)
    first = body.reset(1).tobytes()
    _play(body, actions[:60])
    saved = body.save()
    future = _play(body, actions[60:])
    fresh.load(saved)
    assert _play(fresh, actions[60:]) == future
    assert fresh.reset(1).tobytes() == first


def test_a_body_leaves_no_files_and_no_shared_memory(make, tmp_path):
    body = make()
    body.reset(0)
    body.step(1)
    assert not list(doom_engine.SHARED.glob(f"ViZDoom*{body.instance_id}"))
    body.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_bodies_started_by_threads_outlive_them(make):
    with ThreadPoolExecutor(6) as threads:
        bodies = list(threads.map(lambda _: make(), range(6)))
    assert len({body.instance_id for body in bodies}) == 6
    firsts = {body.reset(3).tobytes() for body in bodies}
    assert len(firsts) == 1


PLAYING = """
import sys, time
from advsurprise.envs.host.doom_body import make_body
body = make_body("take-cover")
body.reset(0)
print(body.instance_id, flush=True)
while True:
    if body.step(0).terminated:
        body.begin()
"""


def _engines(instance_id):
    return list(doom_engine._engines({instance_id}))


def _gone(instance_id, seconds=5.0):
    """Whether the game has ended, waiting for it."""
    until = time.monotonic() + seconds
    while _engines(instance_id) and time.monotonic() < until:
        time.sleep(0.01)
    return not _engines(instance_id)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_of_a_process_that_is_killed(tmp_path, number):
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", PLAYING], stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        instance_id = process.stdout.readline().strip()
        assert _engines(instance_id)
        process.send_signal(number)
    assert _gone(instance_id)
    assert not list(doom_engine.SHARED.glob(f"ViZDoom*{instance_id}"))
    assert not list(tmp_path.iterdir())


def test_a_killed_game_raises_and_a_new_body_takes_its_place(make):
    body = make()
    body.reset(0)
    (engine,) = _engines(body.instance_id)
    os.kill(engine, signal.SIGKILL)
    with pytest.raises(vizdoom.ViZDoomErrorException):
        _play(body, _actions(50))
    body.close()
    assert make().reset(0).std() > 5


def test_leftovers_are_removed_by_instance_id(make, tmp_path):
    body = make()
    body.reset(0)
    instance_id = body.instance_id
    segments = [pathlib.Path(doom_engine.SHARED, f"ViZDoom{part}{instance_id}") for part in doom_engine.SEGMENTS]
    for segment in segments:
        segment.touch()
    other = make()
    other.reset(0)
    note = tmp_path / f"{doom_engine.FOLDER}x" / "instance"
    note.parent.mkdir()
    note.write_text(instance_id)
    doom_engine.clean_up(str(tmp_path))
    assert _gone(instance_id)
    assert not any(segment.exists() for segment in segments)
    assert other.step(1).reward == 4
    with pytest.raises(ValueError, match="not an instance id"):
        doom_engine.remove_leftovers(["../x"])
