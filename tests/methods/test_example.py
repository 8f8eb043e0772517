"""The example of docs/add_a_method.md: the page shows the file, and the file trains."""

import pathlib

import pytest

from advsurprise import methods, trust
from advsurprise.config import PPOConfig, RunConfig
from advsurprise.errors import UserError
from advsurprise.training.fused import Fused

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "surprise_seeker.py"
NAME = f"{EXAMPLE}:SurpriseSeeker"


def test_the_page_shows_the_example():
    page = (ROOT / "docs" / "add_a_method.md").read_text()
    assert page.partition("```python\n")[2].partition("```")[0] == EXAMPLE.read_text()


def test_the_class_has_sixty_lines_at_most():
    source = EXAMPLE.read_text()
    assert len([line for line in source.partition("import equinox")[2].splitlines() if line.strip()]) <= 60


@pytest.mark.slow
def test_a_method_of_a_users_file_trains_and_seeks_surprise():
    # In ladder/game the lights of the flicker are the most surprising; its place is 4 or 5.
    cfg = RunConfig(
        env="ladder/game",
        method=NAME,
        method_fields={"scale": 0.5},
        ppo=PPOConfig(lr=3e-3, minibatch=64, epochs=2),
        bodies=16,
        rollout=20,
        steps=10**6,
    )
    trust.allow(NAME)
    loop = Fused(cfg)
    state, history = loop.init(), []
    for _ in range(40):
        state, metrics = loop.update(state)
        history.append(float(metrics["seeker_surprise"][0]))
    assert sum(history[-5:]) / 5 > sum(history[:5]) / 5 + 0.3


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (f"{EXAMPLE}:SurpriseSeker", "has no class 'SurpriseSeker'; did you mean 'SurpriseSeeker'"),
        (f"{EXAMPLE}:Memory", "Memory is not a subclass of advsurprise.AbstractMethod"),
        ("nowhere.py:Method", "there is no file 'nowhere.py'"),
    ],
)
def test_a_mistake_in_the_name_is_said(name, sentence):
    trust.allow(name)
    with pytest.raises(UserError, match=sentence):
        methods.method_class(name)
