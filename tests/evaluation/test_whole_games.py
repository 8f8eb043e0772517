"""The score of a real game with lives is that of the whole game, however many episodes it was."""

import jax
import numpy as np
import pytest

from advsurprise import envs, methods
from advsurprise.evaluation.play import play_host
from advsurprise.learning.host_collect import HostCollector
from advsurprise.learning.interaction import make_agent

pytestmark = pytest.mark.slow

BODIES = 2


def test_the_score_is_that_of_whole_games():
    """Losing one of Assault's four lives ends an episode; the reward of every step is added up here."""
    host = envs.find("atari/assault").open(BODIES, side=8, frame_skip=8, groups=1)
    steps, receive = [], host.recv

    def recv(group=0):
        timestep = receive(group)
        ended = timestep.terminated | timestep.truncated
        steps.append((timestep.reward, ended, np.array(timestep.info["game/over"]) > 0))
        return timestep

    host.recv = recv
    try:
        agent = make_agent(methods.make("random", host.spec), BODIES, key=jax.random.key(0))
        found = play_host(HostCollector(host, 64), [agent], episodes=BODIES, seed=5)[0]
    finally:
        host.close()
    rewards, ended, over = (np.stack(column) for column in zip(*steps, strict=True))
    games = [slice(0, int(np.flatnonzero(over[:, body])[0]) + 1) for body in range(BODIES)]
    whole = [rewards[game, body].sum() for body, game in enumerate(games)]
    lives = [ended[game, body].sum() for body, game in enumerate(games)]
    assert lives == [4, 4]
    assert found["game/score"].tolist() == whole
    assert min(whole) > 0
    # Three, two, one and no lives are left at the ends of its episodes.
    assert found["end/game/lives"].tolist() == [1.5, 1.5]
