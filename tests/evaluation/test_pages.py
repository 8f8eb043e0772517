"""Replay, report and watch in a real browser: what they show, and how they are controlled.

All show the same recorded run, so that recording is compiled once.
"""

import json
import os
import pathlib
import threading

import browser
import jax
import numpy as np
import pytest
import run_on_disk

from advsurprise import api, envs, methods
from advsurprise.api import Trained
from advsurprise.cli import main as cli
from advsurprise.config import RunConfig
from advsurprise.evaluation import comparison, report
from advsurprise.evaluation.comparison import Comparison
from advsurprise.evaluation.live import Live
from advsurprise.evaluation.record import record
from advsurprise.evaluation.serve import Server
from advsurprise.evaluation.statistics import estimate
from advsurprise.learning.interaction import make_agent
from advsurprise.training.folder import write_config

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
    steps=3 * STEPS,
    bodies=1,
    rollout=STEPS,
)
TAG = '<img src=x onerror="window.harmed=1">'


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


# ----------------------------------------------------------------------------------------------------- report


@pytest.fixture(scope="module")
def blank():
    return run_on_disk.blank_state(CONFIG)


@pytest.fixture(scope="module")
def compared(trained, blank, tmp_path_factory) -> pathlib.Path:
    """A comparison of a method that is trained to its end and one that has rows alone, and is named like a tag."""
    folder = tmp_path_factory.mktemp("runs") / "both"
    asked = Comparison(CONFIG, {CONFIG.method: CONFIG.method_fields, TAG: {}})
    write_config(folder / comparison.FILE, asked.as_dict(), fresh=True)
    for level, (name, cfg) in zip((3.0, 1.0), asked.configs.items(), strict=True):
        run_on_disk.begin(folder / name, cfg)
        for update in (1, 2, 3):
            run_on_disk.write_rows(folder / name, cfg, update, level=level)
    run_on_disk.write_checkpoint(folder / CONFIG.method, CONFIG, 3, trained.agents, blank)
    return folder


@pytest.fixture(scope="module")
def reported(compared) -> str:
    cli.main(["report", str(compared), "--episodes", str(EPISODES), "--metric", "surprise,uses"])
    return (compared / "report.html").as_uri()


@pytest.fixture
def sheet(window, reported):
    """The report as a desktop shows it."""
    window.look(width=1200, height=900)
    window.open(reported)
    yield window
    assert window.complaints == []
    assert window.requests == [reported]


TEXTS = "(s => [...document.querySelectorAll(s)].map(e => e.textContent))"


def test_a_report_shows_what_is_there_and_a_tag_does_no_harm(sheet, compared):
    assert sheet.value(f"{TEXTS}('.series button')") == [CONFIG.method, TAG]
    assert sheet.value(f"{TEXTS}('.notes li')") == [
        f"{TAG} has no checkpoint, so there is no replay.",
        f"2 seeds: intervals are unreliable ({CONFIG.method}, {TAG}).",
    ]
    assert sheet.value(f"{TEXTS}('#method option')") == [CONFIG.method]
    assert sheet.value("window.harmed") is None
    assert sheet.value("document.images.length") == 0
    unlabelled = "document.querySelectorAll('svg[role=img]:not([aria-label]), canvas:not([aria-label])').length"
    assert sheet.value(unlabelled) == 0
    train, again = sheet.value(f"{TEXTS}('#commands code')")
    assert train.startswith("advsurprise train --env rooms/switch --method 'adversarial-surprise,<img src=x")
    assert again == f"advsurprise report {compared} --episodes {EPISODES} --metric surprise,uses"


def test_numbers_of_a_report_are_those_of_the_statistics(sheet):
    cells = [3.0 + np.asarray(CONFIG.seeds) / 100, 1.0 + np.asarray(CONFIG.seeds) / 100, *[np.full(2, 1.5)] * 2]
    estimates = [estimate(each, over="training seeds") for each in cells]
    expected = [[each["mean"], each["high"] - each["mean"]] for each in estimates]
    shown = (
        "[...document.querySelectorAll('#measures tbody td')].map(e => [e.dataset.mean, e.dataset.half].map(Number))"
    )
    np.testing.assert_allclose(sheet.value(shown), expected, rtol=1e-9)
    assert sheet.value(f"{TEXTS}('#measures b')") == ["3.06 ± 0.32"]
    # Under the cursor, the interquartile mean and its interval at the last step.
    sheet.value("document.querySelector('.learning').focus()")
    sheet.press("End")
    readings = sheet.value(f"{TEXTS}('.panels .readings')[0]")
    assert readings == f"36 steps{CONFIG.method} 3.06 [3.04, 3.09]{TAG} 1.06 [1.04, 1.09]"


def test_every_seed_of_a_curve_can_be_shown(sheet):
    shown = "[...document.querySelectorAll('path.seed')].filter(e => getComputedStyle(e).display !== 'none').length"
    assert sheet.value(shown) == 0
    sheet.click("#every")
    assert sheet.value(shown) == 2 * 2 * 2  # measures, methods, seeds
    sheet.click("#every")
    sheet.click(".series button")
    assert sheet.value(shown) == 2 * 2
    assert sheet.value("document.querySelectorAll('g.faded').length") == 2


def test_a_report_replays_the_median_seed(sheet):
    assert sheet.value("panels[0].run.seeds.map(each => each.seed)") == [4]
    assert "the median of 2 seeds" in sheet.value(f"{TEXTS}('.run .about')[0]")
    sheet.value("document.querySelector('#commands button').focus()")
    sheet.press("ArrowRight")
    assert step_of(sheet) == 0
    sheet.value("byId('scrubber').focus()")
    sheet.press("ArrowRight")
    assert step_of(sheet) == 1


def test_a_report_on_a_phone(sheet):
    sheet.look(width=360, height=740, phone=True)
    sheet.wait("innerWidth === 360")
    assert sheet.value("document.documentElement.scrollWidth") <= 360


def test_methods_of_a_report_are_picked_and_put_side_by_side(window, compared, trained, tmp_path):
    first = trained.only(9).recorded(EPISODES)
    path = tmp_path / "report.html"
    runs = [first._replace(name="one"), first._replace(name=NASTY)]
    path.write_text(report.page(report.read(compared, None), runs, command=""))
    window.open(path.as_uri())
    pick = "((id, value) => { byId(id).value = value; byId(id).dispatchEvent(new Event('change')); })"
    names = f"{TEXTS}('.run h2').join('|')"
    assert window.value(names) == "one"
    window.value(f"{pick}('method', 1)")
    window.wait(f"{names} === {json.dumps(NASTY)} && loaded().length === 1")
    window.value(f"{pick}('beside', 0)")
    window.wait(f"{names} === {json.dumps(NASTY + '|one')} && loaded().length === 2")
    assert window.value("window.harmed") is None
    assert window.complaints == []


# ------------------------------------------------------------------------------------------------------ watch


@pytest.fixture
def live(tmp_path):
    """A run without a checkpoint, and the address of its server."""
    run_on_disk.begin(tmp_path / "run", CONFIG)
    with api.recorder(CONFIG, EPISODES) as record_run:
        made = Live(tmp_path / "run", lambda: record_run(api.load(tmp_path / "run")))
        with Server(made.answers, 0) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
            thread.start()
            yield made, server.address
            server.shutdown()
            thread.join()


def test_a_run_is_watched_while_it_trains(window, live, trained, blank):
    made, address = live

    def train(update: int) -> None:
        agents = jax.tree.map(lambda leaf: (-1) ** update * leaf, trained.agents)
        run_on_disk.write_rows(made.folder, CONFIG, update, level=3.0)
        run_on_disk.write_checkpoint(made.folder, CONFIG, update, agents, blank)

    window.look(width=1200, height=900)
    window.open(address, until="document.getElementById('runs')?.dataset.message")
    assert made.look() is False
    assert window.value("byId('runs').dataset.message").startswith("There is no checkpoint yet.")
    assert window.value("byId('training').textContent") == "No update yet."
    train(1)
    assert (made.look(), made.look()) == (True, False)  # one recording for a checkpoint
    window.value("ask()")
    window.wait(f"loaded().length === 1 && panels[0].run.steps === {STEPS}")
    status = window.value("byId('training').textContent")
    assert status.startswith(f"{STEPS} of {3 * STEPS} steps (33%) · 1,234 steps/s · ")
    # Somebody looks at step 5 of the other seed: new episodes wait until they are asked for.
    window.value("now.seeds[0] = 1, now.state = 5, load()")
    train(2)
    assert made.look() is True
    window.value("ask()")
    window.wait("!byId('newer').hidden")
    assert window.value("byId('newer').textContent") == f"New episodes, from step {2 * STEPS}: show"
    assert (step_of(window), window.value("panels[0].run.steps")) == (5, STEPS)
    window.click("#newer")
    window.wait(f"loaded().length === 1 && panels[0].run.steps === {2 * STEPS}")
    assert (step_of(window), window.value("now.seeds[0]"), window.value("byId('newer').hidden")) == (0, 1, True)
    # At the end of an episode the box lets new ones play by themselves.
    window.value("setSpeed(64), byId('follow').checked = true, seek(lastState())")
    train(3)
    made.look()
    window.value("ask()")
    window.wait(f"loaded().length === 1 && panels[0].run.steps === {3 * STEPS} && now.state > 0")
    assert window.value("byId('training').textContent").endswith("finished")
    assert window.complaints == []
    assert {request.removeprefix(address) for request in window.requests} == {"", "status.json", "episodes.json"}


def test_a_damaged_checkpoint_breaks_nothing(live):
    made, _ = live
    (made.folder / "checkpoints").mkdir()
    (made.folder / "checkpoints" / "step_000000001.json").write_text('{"kind": "advsurprise chec')
    assert (made.look(), made.look()) == (False, False)
    assert "holds no good checkpoint" in made.status()["waiting"]
