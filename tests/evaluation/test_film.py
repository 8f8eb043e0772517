"""Films and contact sheets, from episodes made by hand."""

import io
import itertools
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from advsurprise import envs, methods
from advsurprise.envs.base import Scene
from advsurprise.envs.picture import tile_shapes
from advsurprise.errors import MissingExtra, UserError
from advsurprise.evaluation import encode, film, lettering, pictures
from advsurprise.evaluation.record import Episode
from advsurprise.evaluation.replay import Replayed
from advsurprise.grid import render, tiles
from advsurprise.methods.base import LOG_PROBABILITY
from advsurprise.types import Measured

STEPS = 6
ROLES = np.asarray([0, 0, 0, 1, 1, 1])
SCORED = np.asarray([0, 0, 0, 0, 1, 1], bool)
EXPLORE, CONTROL = (render.rgb(colour) for colour in pictures.ROLE_COLOURS[:2])


def filled(record, *leaves):
    """A record with other leaves, in numpy and with an axis of time, as they are recorded."""
    return jax.tree.unflatten(jax.tree.structure(record), leaves)


def episode_of(spec, obs, **changed):
    """An episode in which each role acts three times."""
    count = len(obs)
    one = Measured(jnp.zeros((1, 1)), jnp.zeros((1, 1), bool))
    trace = {LOG_PROBABILITY: filled(one, np.linspace(-1, -6, STEPS), SCORED)}
    values = {
        "role": ROLES,
        "action": np.arange(STEPS) % spec.num_actions,
        "logits": np.zeros((STEPS, spec.num_actions), np.float32),
        "value": np.zeros((STEPS, 1), np.float32),
        "reward": {name: np.full((STEPS, 1), np.nan, np.float32) for name in ("explore", "control")},
        "earned": np.zeros(STEPS),
        "trace": trace,
        "features": np.zeros((STEPS, *obs.shape[1:], 0), np.float32),
        "obs": obs,
        "measures": {name: np.zeros(count, np.float32) for name in spec.info},
        "at_end": dict.fromkeys(spec.info, 0.0),
        "scene": None,
        "end": "terminated",
    }
    return Episode(**{**values, **changed})


def run_of(env, method, episodes):
    about = {"env": method.spec.id, "method": "adversarial-surprise", "steps": 1000, "settings": ""}
    return Replayed("runs/four", env, method, about, {3: episodes})


@pytest.fixture(scope="module")
def rooms():
    """A room of walls in a corner of the grid, in which the body walks to the right; after the last step one more
    state."""
    env = envs.make("rooms/switch", grid=12, max_side=5)
    method = methods.make("adversarial-surprise", env.spec, stack=1)
    cells = np.zeros((STEPS + 1, 12, 12), np.uint8)
    cells[:, 2:10, 1:6], cells[:, 3:9, 2:5] = tiles.WALL, tiles.EMPTY
    seen = np.zeros_like(cells, bool)
    seen[:, 5, 3] = True
    along = np.minimum(np.arange(STEPS + 1) + 3, 8)
    still = np.zeros(STEPS + 1, int)
    zero = jnp.int32(0)
    one = Scene(jnp.zeros((1, 1), jnp.uint8), jnp.zeros((1, 1), bool), zero, zero, zero, jnp.uint8(0))
    scene = filled(one, cells, seen, along, still + 3, still, still.astype(np.uint8))
    obs = np.zeros((STEPS + 1, 7, 7), np.uint8)
    return run_of(env, method, [episode_of(env.spec, obs, scene=scene)])


def has(picture, colour, *, least=20):
    return (picture == colour).all(axis=-1).sum() >= least


def test_one_picture_per_state_with_who_acts(rooms):
    frames = list(film.frames(rooms))
    assert len(frames) == STEPS + 1
    assert {frame.shape for frame in frames} == {(film.ROWS, film.COLUMNS, 3)}
    for state, frame in enumerate(frames):
        acts, other = (EXPLORE, CONTROL) if state < 3 else (CONTROL, EXPLORE)
        for part in (frame[: film.HEADER], frame[film.HEADER : film.HEADER + film.STAGE[0]]):
            assert has(part, acts)
            assert not has(part, other, least=1)
    header = [frame[: film.HEADER] for frame in frames]
    assert all(not np.array_equal(one, two) for one, two in itertools.pairwise(header))


def test_the_cursor_is_at_the_step(rooms):
    rows, columns = film.CHART
    for state, frame in enumerate(film.frames(rooms)):
        chart = frame[film.CHART_TOP : film.CHART_TOP + rows, film.CHART_LEFT : film.CHART_LEFT + columns]
        (black,) = np.nonzero((chart == 0).all(axis=(0, 2)))
        assert abs(black.mean() - min((state + 0.5) * columns / STEPS, columns - 1)) <= 1.5


def test_the_curve_is_surprise_with_scored_steps_shaded(rooms):
    chart = film.curve(rooms, rooms.seeds[3][0])
    np.testing.assert_allclose(chart.values, np.linspace(1, 6, STEPS))
    np.testing.assert_array_equal(chart.shaded, SCORED)
    assert chart.group.tolist() == [0, 0, 0, 1, 1, 1]
    assert lettering.span(chart) == (1, 6)
    drawn = np.asarray(lettering.draw_chart(chart, 60, 600))
    (shaded,) = np.nonzero((drawn[2] == render.rgb(lettering.SHADE)).all(axis=-1))
    assert (shaded.min(), shaded.max()) == (400, 599)
    # It rises, in the colour of the role that acts.
    heights = {}
    for colour, steps in ((EXPLORE, (0, 2)), (CONTROL, (3, 5))):
        for step in steps:
            at = round(lettering.column_of(step, STEPS, 600))
            heights[step] = np.abs(drawn[:, at - 1].astype(int) - colour).sum(axis=-1).argmin()
    assert heights[0] > heights[2] > heights[3] > heights[5]
    assert not has(drawn[:, :290], CONTROL, least=1)


def test_the_world_is_cut_to_what_is_there_and_drawn_as_in_a_replay(rooms):
    world, _ = pictures.panels(rooms, rooms.seeds[3][0])
    picture = world.draw(0, pictures.ROLE_COLOURS[0], (100, 400))
    # Eight columns and five rows, the largest tiles that fit.
    assert picture.shape == (5 * 20, 8 * 20, 3)
    wall, empty = (tile_shapes()[code][1:] for code in (tiles.WALL, tiles.EMPTY))
    np.testing.assert_array_equal(picture[:20, :20], render.tile_of(wall, 20))
    np.testing.assert_array_equal(picture[40:60, 60:80], render.tile_of(empty, 20, True))
    np.testing.assert_array_equal(picture[40:60, 20:40], render.tile_of(empty, 20, False, 0, pictures.ROLE_COLOURS[0]))


def test_a_contact_sheet_has_pictures_at_equal_intervals(rooms):
    episode = rooms.seeds[3][0]
    assert film.chosen_states(episode) == list(range(STEPS + 1))
    long = episode._replace(obs=np.zeros((512, 7, 7), np.uint8))
    chosen = film.chosen_states(long)
    assert (len(chosen), chosen[0], chosen[-1]) == (12, 0, 511)
    assert set(np.diff(chosen)) <= {46, 47}
    both = film.sheet(rooms._replace(seeds={3: [episode, episode]}))
    alone = film.sheet(rooms)
    # They differ in the number of the episode.
    second = both[len(alone) :]
    np.testing.assert_array_equal(second[film.HEADER :], alone[film.HEADER :])
    assert not np.array_equal(second, alone)
    assert has(alone, EXPLORE)
    assert has(alone, CONTROL)


def test_episodes_whose_worlds_have_other_shapes_share_a_sheet(rooms):
    episode = rooms.seeds[3][0]
    tall = jax.tree.map(lambda leaf: leaf.swapaxes(1, 2) if leaf.ndim == 3 else leaf, episode.scene)
    turned = film.sheet(rooms._replace(seeds={3: [episode._replace(scene=tall)]}))
    both = film.sheet(rooms._replace(seeds={3: [episode, episode._replace(scene=tall)]}))
    first = film.sheet(rooms)
    assert turned.shape[1] < first.shape[1] == both.shape[1]
    np.testing.assert_array_equal(both[: len(first)], first)
    assert (both[len(first) :, turned.shape[1] :] == 255).all()


def image_run(shape, frames):
    """A world of images, whose model expects everything to be half as bright."""
    env = envs.make("rooms/switch", grid=12, max_side=5)
    shown = env.spec._replace(
        observation_shape=shape, observation_dtype="uint8", observation_kind="image", num_classes=0, density_shape=None
    )
    method = methods.make("adversarial-surprise", shown, stack=1)
    mean = frames[..., None].astype(np.float32) / 510
    features = np.concatenate([mean, np.zeros_like(mean)], axis=-1)
    return run_of(None, method, [episode_of(shown, frames, features=features)])


def test_frames_of_games_are_enlarged_beside_what_the_model_expects():
    frames = np.zeros((STEPS, 84, 84), np.uint8)
    frames[2, 10, 20] = 200
    run = image_run((84, 84), frames)
    seen, expected = pictures.panels(run, run.seeds[3][0])
    assert (seen.caption, expected.caption) == ("what the body sees", "what the model expects")
    picture = seen.draw(2, "#000000", (478, 566))
    assert picture.shape == (420, 420, 3)
    assert np.argwhere(picture == 200).min(axis=0).tolist() == [50, 100, 0]
    assert (picture == 200).sum() == 25 * 3
    assert expected.draw(2, "#000000", (100, 100))[10, 20].tolist() == [100] * 3
    assert len(list(film.frames(run))) == STEPS


def test_other_worlds_have_pictures_too():
    numbers = pictures._bars(np.asarray([1.0, -1.0, np.nan]), (-1.0, 1.0))
    is_bar = (numbers == render.rgb(pictures.BAR)).all(axis=-1)
    middle = len(numbers) // 2
    assert is_bar[:middle].any(axis=0).nonzero()[0].max() < 140 <= is_bar[middle + 3 :].any(axis=0).nonzero()[0].min()
    colours = [render.rgb(colour) for colour in pictures.CLASS_COLOURS]
    np.testing.assert_array_equal(pictures._classes(np.asarray([[0, 2]], np.uint8)), [[colours[0], colours[2]]])
    assert pictures.fitted(np.zeros((210, 160, 3), np.uint8), (478, 566)).shape == (420, 320, 3)
    assert pictures.fitted(np.zeros((600, 800, 3), np.uint8), (478, 566)).shape == (300, 400, 3)


def test_methods_without_a_model_show_rewards(rooms):
    episode = rooms.seeds[3][0]
    paid = {"explore": np.full((STEPS, 1), 1.0), "control": np.full((STEPS, 1), 2.0)}
    chart = film.curve(rooms, episode._replace(trace={}, reward=paid))
    assert chart.values.tolist() == [1, 1, 1, 2, 2, 2]
    assert not chart.shaded.any()


def test_the_scale_is_for_what_comes_after_the_first_scored_step():
    counts = np.zeros(20, bool)
    assert film.scaled_steps(counts).all()
    counts[[5, 15]] = True
    assert np.flatnonzero(film.scaled_steps(counts)).tolist() == list(range(6, 20))
    assert film.scaled_steps(counts[:12]).all()


def test_a_curve_stays_within_its_scale(rooms):
    """The model's value before it has seen anything is drawn at the end of the scale."""
    chart = film.curve(rooms, rooms.seeds[3][0])._replace(scaled=np.arange(STEPS) >= 3)
    assert lettering.span(chart) == (4, 6)
    drawn = np.asarray(lettering.draw_chart(chart, 60, 600)).astype(int)
    rows = [np.abs(drawn[:, 100 * step + 49] - EXPLORE).sum(axis=-1).argmin() for step in (0, 1, 2)]
    assert len(set(rows)) == 1
    assert 50 < rows[0] < 60


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.3333, "0.333"), (-4718.2, "-4,718"), (np.nan, "–"), (225.4, "225")]
)
def test_numbers_are_short(value, text):
    assert lettering.number(value) == text


def test_long_texts_are_cut():
    letters = lettering.font(13)
    text = lettering.cut("a\nrather long method.py:Name", letters, 90)
    assert text.startswith("a rather")
    assert text.endswith("…")
    assert letters.getlength(text) <= 90


# ------------------------------------------------------------------------------------------------ files


def ffmpeg(*words):
    return subprocess.run([encode.find_encoder(), *words], capture_output=True, check=False)


@pytest.mark.slow
def test_a_film_is_h264_with_the_pixels_that_every_player_shows(rooms, tmp_path):
    made = film.write(tmp_path / "new" / "film.mp4", rooms, fps=4)
    assert (made.pictures, made.seconds) == (STEPS + 1, (STEPS + 1) / 4)
    about = ffmpeg("-i", str(made.path)).stderr.decode()
    assert re.search(r"Video: h264.* yuv420p.* 960x720.* 4 fps", about)
    data = ffmpeg("-i", str(made.path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-").stdout
    decoded = np.frombuffer(data, np.uint8).reshape(-1, film.ROWS, film.COLUMNS, 3)
    drawn = np.stack(list(film.frames(rooms)))
    assert decoded.shape == drawn.shape
    assert np.abs(decoded.astype(int) - drawn).mean() < 3
    assert [path.name for path in made.path.parent.iterdir()] == ["film.mp4"]


def test_gif_and_png(rooms, tmp_path):
    made = film.write(tmp_path / "film.gif", rooms, fps=10)
    with Image.open(made.path) as image:
        assert (image.n_frames, image.info["duration"], image.size) == (STEPS + 1, 100, (film.COLUMNS, film.ROWS))
    made = film.write(tmp_path / "sheet.png", rooms, fps=10)
    assert (made.pictures, made.seconds) == (STEPS + 1, 0)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(made.path.read_bytes()))), film.sheet(rooms))


def test_an_encoder_that_fails_says_why(tmp_path):
    odd = np.zeros((3, 5, 3), np.uint8)
    with pytest.raises(UserError, match="ffmpeg could not make the film: "):
        encode.mp4([odd] * 3, 8)


def test_a_drawing_that_fails_leaves_no_process_behind():
    def frames():
        yield np.zeros((4, 4, 3), np.uint8)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        encode.mp4(frames(), 8)


def test_what_cannot_be_filmed_is_refused_before_it_is_played(tmp_path, monkeypatch):
    for name, given, sentence in (
        ("film.avi", {}, "a film is a .mp4, .gif or \\(contact sheet\\) .png file, not 'film.avi'"),
        ("film.mp4", {"episodes": 0}, "from 1 to 64 episodes, not 0"),
        ("film.mp4", {"fps": 61}, "from 1 to 60 pictures per second, not 61"),
    ):
        with pytest.raises(UserError, match=sentence):
            film.check(tmp_path / name, **{"episodes": 1, "fps": 8, **given})
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    film.check(tmp_path / "sheet.png", episodes=1, fps=8)
    film.check(tmp_path / "film.gif", episodes=1, fps=8)
    with pytest.raises(MissingExtra, match=r"advsurprise\[video\]"):
        film.check(tmp_path / "film.mp4", episodes=1, fps=8)
