"""The bench that puts our methods beside a plain PPO, and that this PPO is one."""

import numpy as np
import pytest

from advsurprise import trust
from advsurprise.bench import foreign
from advsurprise.bench.plain_ppo import PlainConfig, PlainPPO, of_seeds
from advsurprise.cli.resolve import resolve
from advsurprise.envs.foreign import load
from advsurprise.envs.foreign.rules import their_rules
from advsurprise.errors import UserError

SIZES = {"bodies": 2, "seeds": 2, "updates": 2, "settings": ["rollout=8"], "resolve": resolve, "log": print}


@pytest.mark.long
def test_a_row_for_each_method_and_one_for_the_plain_loop():
    result = foreign.run("corridor:Corridor", methods=["random"], **SIZES)
    assert [row["method"] for row in result["rows"]] == ["random", "plain PPO"]
    assert all(row["steps_per_s"] > 0 and len(row["update_s"]) == 2 for row in result["rows"])
    assert result["rows"][1]["flops_per_step"] > 0
    assert all(np.shape(row["curves"]["end/episode_return"]) == (3, 2) for row in result["rows"])
    assert "times the plain PPO's speed: random" in foreign.text(result)


@pytest.mark.long
def test_the_plain_loop_learns():
    # Going on pays more with every step; whoever acts at random is paid a third of what there is.
    trust.allow("corridor:Newer")
    made = load.make("corridor:Newer", {"goal": 99, "max_steps_in_episode": 6})
    with their_rules():
        init, update = of_seeds(PlainPPO(made, PlainConfig(bodies=8, rollout=18, lr=3e-3)), 2)
        carry, rewards = init(), []
        for _ in range(30):
            carry, measured = update(carry)
            rewards.append(float(measured["reward"].min()))
    assert rewards[0] < 2.2
    assert rewards[-1] > 3.2  # 3.5 is all there is
    assert measured["end/episode_length"].tolist() == [6, 6]
    assert measured["end/episode_return"].min() > 19  # of 21


def test_what_is_refused():
    with pytest.raises(UserError, match="time this one with bench train"):
        foreign.run("rooms/four", methods=["random"], **SIZES)
    with pytest.raises(UserError, match="whole numbers from 1"):
        foreign.run("corridor:Corridor", methods=["random"], **(SIZES | {"seeds": 0}))
