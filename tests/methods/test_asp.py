"""Asymmetric self-play against a plain rendering of its protocol: one body, one clock, two players, step by step.

The rendering below shares nothing with the library. It is given what was done and what was seen, keeps the game's
books in Python, and says who should have played, what they should have seen, and what they are owed.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from asp_line import BODIES, RIGHT, STOP, K, line

from advsurprise import methods
from advsurprise.learning.collect import ScanCollector
from advsurprise.learning.interaction import Agent, role_schedule
from advsurprise.learning.networks import FixedPolicy
from advsurprise.methods.asp import ASP
from advsurprise.types import OVER_TIME

pytestmark = pytest.mark.slow


@dataclasses.dataclass
class Game:
    """One body's games. `step` is given what was seen before the step and what was done; it keeps the books."""

    mode: str
    clock: int
    stack: int

    def begin(self, seen):
        self.first = self.target = seen
        self.x = int(seen[0])
        self.history = [seen] * self.stack
        self.t = self.t_a = 0

    def expected(self):
        """Who plays, the goal shown and the clock."""
        return ("bob" if self.t_a else "alice"), self.target, self.t / self.clock

    def step(self, action, led_to):
        """Returns (handed over, solved, over)."""
        move, stop = action % 3, action >= 3
        self.x = min(max(self.x + (-1, 0, 1)[move], 0), 3)
        self.t += 1
        self.history = [*self.history[1:], led_to]
        if self.t_a:
            solved = self.x == self.target[0]
            return False, solved, solved or self.t == self.clock
        if self.t == self.clock:
            return False, False, True
        if stop:
            self.t_a = self.t
            self.history = [led_to] * self.stack
            if self.mode == "repeat":
                self.target = led_to
                self.x = int(self.first[0])
                self.history = [self.first] * self.stack
        return stop, False, False


def _follow(rollout, after, method, body):
    """Plays the recorded actions of a body by the rules, compares what was recorded, and returns its games."""
    game = Game(method.mode, method.limit, method.stack)
    view = jax.tree.map(np.asarray, rollout.views.all())
    frames = view.frames[:, body]
    # What each step led to is what is seen next, but for hand-overs in `repeat` and ends, where only the cell counts.
    seen_next = np.concatenate([frames[1:, -1], np.asarray(after.frames.stack)[body, -1:]])
    game.begin(frames[0, -1])
    books = []
    for t in range(frames.shape[0]):
        role, target, time = game.expected()
        decision = jax.tree.map(lambda leaf, t=t: np.asarray(leaf)[t, body], rollout.decision)
        assert method.roles[int(decision.role)] == role
        assert np.array_equal(frames[t], game.history)
        assert float(view.time[t, body]) == pytest.approx(time)
        assert view.goal[t, body][0] == target[0]
        action = int(decision.action)
        goes_back = method.mode == "repeat" and role == "alice" and action >= 3
        # After a rewind the goal itself shows what Alice saw last.
        led_to = _goal_after(rollout, after, t, body) if goes_back else seen_next[t]
        handed, solved, over = game.step(action, led_to)
        assert led_to[0] == (game.target[0] if handed and goes_back else game.x) or over
        books.append((role, handed, solved, over, game.t, game.t_a))
        if over:
            game.begin(seen_next[t])
    return books


def _goal_after(rollout, after, t, body):
    goals = rollout.views.goal
    return np.asarray(goals[t + 1, body] if t + 1 < len(goals) else after.goal[body])


def _owed(books, value, clock):
    """Rewards of both roles for a stretch of books, paid forwards: Alice's when her game is settled."""
    alice, bob = np.zeros(len(books)), np.zeros(len(books))
    debt = None
    for t, (role, handed, solved, over, now, t_a) in enumerate(books):
        if role == "bob":
            bob[t] = -K
        if handed:
            debt = t, t_a
        if over and debt is not None:
            end = now if solved else clock
            alice[debt[0]] = K * max(0, (end - debt[1]) - debt[1])
            debt = None
    if debt is not None:
        t_b = min(books[-1][4] - debt[1] + max(-value / K, 1), clock - debt[1])
        alice[debt[0]] = K * max(0, t_b - debt[1])
    return alice, bob


CASES = {
    "repeat": (line(9), {"mode": "repeat", "clock": 7}),
    "reverse": (line(9), {"mode": "reverse", "clock": 7}),
    "the world's clock": (line(6), {"mode": "repeat"}),
    "the world's clock, reverse, truncated": (line(6, timeout="truncated"), {"mode": "reverse", "stack": 1}),
    "observations": (line(6, lights=1), {"mode": "repeat", "goal": "observation"}),
}
STEPS, CUT = 60, 30


def _untaught(method):
    """Policies that see nothing and do what their biases say: quick to compile."""
    policies = {role: FixedPolicy(jnp.asarray(method.action_bias(role)), 1) for role in method.roles}
    return Agent(method, policies, methods.base.Empty())


@pytest.fixture(scope="module", params=sorted(CASES))
def played(request):
    """A recorded stretch of play by untrained policies, and the memories after it."""
    env, fields = CASES[request.param]
    method = ASP(env.spec, first_stop=0.3, **fields)
    collector = ScanCollector(env, BODIES, STEPS)

    def run(key):
        agent = _untaught(method)
        return collector.collect(agent, collector.start(agent, key=key), key=key)

    carry, rollout = jax.jit(run)(jax.random.key(3))
    return method, carry.memory, rollout


def test_every_step_follows_the_protocol(played):
    method, after, rollout = played
    met = set()
    for body in range(BODIES):
        books = _follow(rollout, after, method, body)
        signal = jax.tree.map(lambda leaf, body=body: np.asarray(leaf)[:, body], rollout.signal)
        over = np.asarray(rollout.terminated | rollout.truncated)[:, body]
        for t, (_role, handed, solved, ends, now, t_a) in enumerate(books):
            assert (signal.stopped[t], signal.solved[t], over[t]) == (handed, solved, ends)
            assert (signal.time[t], signal.set_at[t]) == (now, t_a)
            met |= {"solved"} if solved else {"late" if t_a else "never set"} if ends else set()
    assert met == {"solved", "late", "never set"}


def test_rewards_and_ends(played):
    method, after, rollout = played
    books = [_follow(rollout, after, method, body) for body in range(BODIES)]
    value = np.linspace(-0.05, 0.01, BODIES, dtype=np.float32)
    # Two rollouts, and the cut between them runs through games.
    score = jax.jit(method.score)
    paid = 0
    for begin, end in ((0, CUT), (CUT, STEPS)):
        steps = {name: getattr(rollout, name) for name in (*OVER_TIME, "info")}
        part = dataclasses.replace(rollout, **jax.tree.map(lambda leaf, b=begin, e=end: leaf[b:e], steps))
        last = {"alice": jnp.full((BODIES, 1), 9.0), "bob": jnp.asarray(value)[:, None]}
        _, scores = score(methods.base.Empty(), dataclasses.replace(part, last_value=last))
        owed = [_owed(books[body][begin:end], value[body], method.limit) for body in range(BODIES)]
        is_bob = np.asarray(part.decision.role) == 1
        alice, bob = (np.stack(rewards, axis=1) for rewards in zip(*owed, strict=True))
        np.testing.assert_allclose(scores["alice"].reward[..., 0], alice, atol=1e-7)
        np.testing.assert_allclose(np.where(is_bob, scores["bob"].reward[..., 0], 0), bob, atol=1e-7)
        over = np.asarray(part.terminated | part.truncated)
        for role, ends in (("alice", over | np.asarray(part.signal.stopped)), ("bob", over)):
            assert np.array_equal(scores[role].cut[..., 0], ends)
            assert np.array_equal(scores[role].discount[..., 0], np.where(ends, 0, 1))
        paid += (alice > 0).sum()
    assert paid > 5
    assert any(book[CUT - 1][5] > 0 and not book[CUT - 1][3] for book in books)


def test_actions_are_pairs_of_which_bob_has_half(played):
    method, _, rollout = played
    is_bob = np.asarray(rollout.decision.role) == 1
    action = np.asarray(rollout.decision.action)
    assert action[is_bob].max() == RIGHT
    assert action[~is_bob].max() == RIGHT + STOP
    chances = jax.nn.softmax(jnp.asarray(method.action_bias("alice")))
    np.testing.assert_allclose(chances, [0.7 / 3] * 3 + [0.3 / 3] * 3, rtol=1e-5)
    assert role_schedule(method, 60) is None
