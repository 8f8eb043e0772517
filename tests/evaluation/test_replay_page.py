"""The replay in a real browser: what it shows, and how it is controlled."""

import os
import pathlib

import browser
import jax
import numpy as np
import pytest

from advsurprise import api, envs, methods
from advsurprise.api import Trained
from advsurprise.config import RunConfig
from advsurprise.evaluation.record import record
from advsurprise.learning.interaction import make_agent

PROGRAM = browser.find()
if PROGRAM is None and os.environ.get("ADVSURPRISE_DEMAND_BROWSER"):
    raise RuntimeError("ADVSURPRISE_DEMAND_BROWSER is set, and no chromium is installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="no chromium here: the page is tested where there is one"),
]

STEPS, EPISODES = 12, 2
NASTY = '<b id="nasty">bold</b></script><script>window.harmed = 1</script>&quot;{{css}}'
CONFIG = RunConfig(
    env="rooms/switch",
    env_fields={"grid": 11, "max_side": 5, "max_steps": STEPS},
    method="adversarial-surprise",
    method_fields={"k_explore": 3, "k_control": 3, "stack": 1},
    seeds=(4, 9),
)


def run(name: str, *, key: int) -> Trained:
    """A run whose policies differ from seed to seed; that they were never trained does not matter here."""
    world = envs.make(CONFIG.env, **CONFIG.env_fields)
    method = methods.make(CONFIG.method, world.spec, **CONFIG.method_fields)
    agents = [make_agent(method, 1, key=jax.random.key(key + seed)) for seed in CONFIG.seeds]
    return Trained(pathlib.Path(name), CONFIG, [jax.tree.map(lambda leaf: 20 * leaf, each) for each in agents], 3)


@pytest.fixture(scope="module")
def trained() -> Trained:
    return run(NASTY, key=0)


@pytest.fixture(scope="module")
def address(trained, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("pages") / "replay.html"
    assert trained.replay(path, episodes=EPISODES) == path
    return path.as_uri()


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    assert PROGRAM is not None
    opened = browser.Browser(PROGRAM, tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture
def page(window, address):
    """The page as a desktop shows it."""
    window.look(width=1200, height=900)
    window.open(address)
    yield window
    assert window.complaints == []
    assert window.requests == [address]


def step_of(page) -> int:
    return int(page.value("document.getElementById('scrubber').value"))


def test_it_loads_from_disk_and_a_name_does_no_harm(page):
    assert page.value("document.querySelector('h2').textContent") == NASTY
    assert NASTY in page.value("document.title")
    assert page.value("document.getElementById('nasty')") is None
    assert page.value("window.harmed") is None
    unlabelled = (
        "[...document.querySelectorAll('canvas, svg[role=img]')].filter(e => !e.getAttribute('aria-label')).length"
    )
    assert page.value(unlabelled) == 0
    assert page.value("document.querySelectorAll('.run figure canvas').length") >= 4


def test_numbers_are_the_recorded_ones(page, trained):
    env = envs.make(CONFIG.env, **CONFIG.env_fields)
    episodes = record(env, trained.agents, episodes=EPISODES, seed=api.EVALUATION_SEED)
    shown = "[...document.querySelectorAll('.readings span')].map(e => Number(e.dataset.value))"
    measured = "[...document.querySelectorAll('.measures dd')].map(e => Number(e.dataset.value))"
    names = [measure.name for measure in env.spec.measures if measure.shown]
    for seed, episode, step in ((0, 0, 2), (1, 1, 7), (1, 0, 11)):
        page.value(f"now.seeds[0] = {seed}, now.episode = {episode}, now.state = {step}, load()")
        one = episodes[seed][episode]
        role = int(one.role[step])
        logits = one.logits[step].astype(np.float64)
        probability = np.exp(logits) / np.exp(logits).sum()
        (trace,) = one.trace.values()
        expected = [
            trace.value[step],
            one.reward[("explore", "control")[role]][step, 0],
            one.value[step, 0],
            -np.sum(probability * np.log(np.maximum(probability, 1e-30))),
            one.measures[names[0]][step],
            probability[one.action[step]],
        ]
        np.testing.assert_allclose(page.value(shown), expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(page.value(measured), [one.measures[name][step] for name in names], rtol=1e-6)
        assert page.value("document.querySelector('.badge').textContent") == ("explore", "control")[role]
        assert page.value("document.querySelector('.did').textContent") == env.action_names[one.action[step]]


def test_the_world_is_drawn_as_its_tiles_are(page, trained):
    """A wall is MiniGrid's grey, wherever the scene has one that is not seen."""
    env = envs.make(CONFIG.env, **CONFIG.env_fields)
    scene = record(env, trained.agents[:1], episodes=EPISODES, seed=api.EVALUATION_SEED)[0][0].scene
    left, top, *_ = page.value("panels[0].episode.bounds")
    wall = [shapes[0] for shapes in env.tile_shapes].index("wall")
    x, y = np.argwhere((scene.tiles[0] == wall) & ~scene.seen[0])[0]
    at = f"({x} - {left} + 0.5) * s, ({y} - {top} + 0.5) * s"
    pixel = f"((c, s) => [...c.getContext('2d').getImageData({at}, 1, 1).data])"
    canvas = "document.querySelector('.world canvas')"
    assert page.value(f"{pixel}({canvas}, {canvas}.width / panels[0].episode.bounds[2])") == [100, 100, 100, 255]


def test_play_advances_and_stops_at_the_end(page):
    page.click("#play")
    page.wait("now.state >= 2")
    page.press(" ")  # the button has the focus: the browser presses it
    assert page.value("now.playing") is False
    page.value("setSpeed(64), play(true)")
    page.wait(f"now.state === {STEPS} && !now.playing")
    assert page.value("document.querySelector('.did').textContent") == "the episode is over"


def test_keys_and_scrubber(page):
    for key, shift, state in (("ArrowRight", False, 1), ("ArrowRight", True, 11), ("ArrowLeft", False, 10)):
        page.press(key, shift=shift)
        assert step_of(page) == state
    page.press("End")
    assert step_of(page) == STEPS
    page.press("Home")
    page.press("]")
    page.wait("document.getElementById('episode').value === '1'")
    page.click("#scrubber", across=0.5)
    assert step_of(page) == STEPS // 2
    page.press("ArrowRight")
    assert step_of(page) == STEPS // 2 + 1
    page.click(".chart .plot", across=0.99)
    assert step_of(page) == STEPS - 1
    assert page.value("document.getElementById('clock').textContent") == f"step {STEPS - 1} of {STEPS}"


def test_dark_and_light(page):
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.value(background)
    page.look(width=1200, height=900, dark=True)
    dark = page.value(background)
    assert sum(map(int, light[4:-1].split(","))) > 600
    assert sum(map(int, dark[4:-1].split(","))) < 100


def test_a_phone(page):
    page.look(width=360, height=740, phone=True)
    page.wait("document.querySelector('.world canvas').clientWidth < 360")
    assert page.value("document.documentElement.scrollWidth") <= 360
    assert page.value("document.querySelector('.world canvas').clientWidth") > 280
    edges = "[...document.querySelectorAll('#transport *')].map(e => e.getBoundingClientRect().right)"
    assert max(page.value(edges)) <= 360
    page.touch(".chart .plot", across=0.99)
    assert step_of(page) == STEPS - 1


def test_two_runs_are_side_by_side_on_the_same_layouts(window, trained, tmp_path):
    path = run("first", key=50).replay(tmp_path / "two.html", beside=trained, episodes=EPISODES)
    window.look(width=1400, height=900)
    window.open(path.as_uri() + "#step=5")
    assert window.complaints == []
    tops = window.value("[...document.querySelectorAll('.run')].map(e => e.getBoundingClientRect().top)")
    assert len(tops) == 2
    assert tops[0] == tops[1]
    same = "panels.map(p => [...p.episode.arrays.tiles.data.subarray(0, 121)].join())"
    assert len(set(window.value(same))) == 1
    window.press("ArrowRight")
    assert step_of(window) == 6
    assert [int(text) for text in window.value("panels.map(p => p.episode.steps)")] == [STEPS, STEPS]
