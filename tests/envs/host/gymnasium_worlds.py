"""Small environments of Gymnasium's interface, in which what happens is known."""

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import TimeLimit

from advsurprise.envs.host.base import Host
from advsurprise.envs.host.gymnasium import GymnasiumHost
from advsurprise.envs.host.load import Body

BODIES = 3
HEADER = "import gymnasium\nimport numpy as np\nfrom gymnasium import spaces\n\n"


class Counting(gymnasium.Env):
    """Shows its episode and the step in it, in one array that it writes over. Action 4 ends an episode from step 5."""

    observation_space = spaces.Box(0, 1000, (2,), np.float32)
    action_space = spaces.Discrete(2, start=3)

    def __init__(self, end=5):
        self.end = end
        self.seen = np.array([-1, 0], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seen[:] = self.seen[0] + 1, 0
        return self.seen, {"anything": object()}

    def step(self, action):
        self.seen[1] += 1
        over = bool(action == 4 and self.seen[1] >= self.end)
        return self.seen, float(action), over, False, {"ragged": np.zeros(int(self.seen[1]))}


class Picture(gymnasium.Env):
    """A grey image that brightens by one a step."""

    observation_space = spaces.Box(0, 255, (20, 20), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros((20, 20), np.uint8), {}

    def step(self, action):
        self.time += 1
        return np.full((20, 20), self.time, np.uint8), 0.0, False, self.time == 7, {}


class Grid(gymnasium.Env):
    """A grid of three classes, numbered from 10."""

    observation_space = spaces.Box(10, 12, (5, 5), np.int64)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.integers(10, 13, (5, 5)), {}

    def step(self, action):
        return self.np_random.integers(10, 13, (5, 5)), 0.0, bool(self.np_random.random() < 0.1), False, {}


class Lockstep(VectorEnv):
    """A native vector environment that counts; all bodies end at step 2."""

    single_observation_space = spaces.Box(0, 9, (1,), np.float32)
    single_action_space = spaces.Discrete(2)

    def __init__(self, num_envs=2, mode=None, tells=True):
        self.metadata = {} if mode is None else {"autoreset_mode": mode}
        self.num_envs, self.tells = num_envs, tells
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed=None, options=None):
        assert seed is None or isinstance(seed, int)
        self.time = 0
        return np.zeros((self.num_envs, 1), np.float32), {}

    def step(self, actions):
        self.time = 1 if self.time == 2 else self.time + 1
        done = np.array([self.time == 2] + [False] * (self.num_envs - 1))
        obs = np.where(done & self.tells, 0, self.time).astype(np.float32)[:, None]
        infos = {"final_obs": np.full((self.num_envs, 1), self.time)} if self.tells else {}
        return obs, np.zeros(self.num_envs), done, np.zeros_like(done), infos


def counting_host(mode: AutoresetMode, end: int = 5) -> GymnasiumHost:
    makers = [lambda: Body(TimeLimit(Counting(end), 7))] * BODIES
    return GymnasiumHost(SyncVectorEnv(makers, autoreset_mode=mode), "Counting")


def play(host: Host, actions):
    for action in actions:
        host.send(np.asarray(action))
        yield host.recv()
