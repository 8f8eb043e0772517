"""Images and classes of Gymnasium environments through networks and training."""

import jax
import jax.numpy as jnp
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium_worlds import Grid, Picture

from advsurprise import methods
from advsurprise.config import PPOConfig
from advsurprise.envs.host.gymnasium import GymnasiumHost
from advsurprise.learning.host_collect import HostCollector
from advsurprise.learning.interaction import make_agent
from advsurprise.learning.learn import learn, make_learner
from advsurprise.learning.networks import ImageTorso, blank_view, make_torso
from advsurprise.types import EnvSpec

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("side", "outputs"), [(84, 7 * 7 * 64), (60, 4 * 4 * 64), (20, 64), (7, 64), (3, 64)])
def test_image_torsos_fit_images_of_any_size(side, outputs, getkey):
    spec = EnvSpec("X", (side, side, 3), "float32", "image", 0, 2, 0, ())
    torso = make_torso(spec, 4, 2, key=getkey())
    assert isinstance(torso, ImageTorso)
    assert jax.eval_shape(torso, blank_view(spec, 4, 2)).shape == (outputs,)


def test_an_image_torso_sees_frames_and_features(getkey):
    spec = EnvSpec("X", (20, 24, 3), "float32", "image", 0, 2, 0, ())
    torso = make_torso(spec, 2, 2, key=getkey())
    view = blank_view(spec, 2, 2)
    for part in ("frames", "features"):
        seen = jax.random.uniform(getkey(), getattr(view, part).shape)
        gradient = jax.grad(lambda x, part=part: torso(_with(view, part, x)).sum())(seen)
        touched = jnp.any(gradient != 0, axis=(1, 2) if part == "frames" else (0, 1))
        assert touched.all()


def _with(view, part, value):
    fields = {"frames": view.frames, "features": view.features, "time": view.time} | {part: value}
    return type(view)(**fields)


@pytest.mark.slow
@pytest.mark.parametrize("made", [Picture, pytest.param(Grid, marks=pytest.mark.long)])
def test_training_on_images_and_classes(made, getkey):
    bodies, length = 2, 16
    host = GymnasiumHost(SyncVectorEnv([made] * bodies, autoreset_mode=AutoresetMode.SAME_STEP), made.__name__)
    method = methods.make("adversarial-surprise", host.spec, k_explore=4, k_control=4)
    cfg = PPOConfig(epochs=1, minibatch=32)
    learner = make_learner(make_agent(method, bodies, key=getkey()), cfg)
    collector = HostCollector(host, length)
    seeds = jax.tree.map(lambda leaf: leaf[None], learner.agent)
    memory = collector.start(seeds, key=getkey()[None])
    rollout = jax.tree.map(lambda leaf: leaf[0], collector.collect(seeds, memory, key=getkey()[None])[1])
    assert rollout.info["episode_length"].shape == (length, bodies)
    update = jax.jit(lambda learner, rollout, key: learn(learner, rollout, cfg, key=key))
    learner, metrics = update(learner, rollout, getkey())
    assert metrics["episodes"] > 0
    assert metrics["end/episode_length"] > 0
    assert all(bool(jnp.isfinite(value).all()) for value in metrics.values()), metrics
