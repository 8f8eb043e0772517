"""Asymmetric self-play against a plain rendering of its protocol: one body, one clock, two players, step by step.

The rendering below shares nothing with the library. It is given what was done and what was seen, keeps the game's
books in Python, and says who should have played, what they should have seen, and what they are owed.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Int

import advsurprise
from advsurprise import methods
from advsurprise.config import PPOConfig, RunConfig
from advsurprise.envs.host.pure import as_host
from advsurprise.envs.ladder import LadderWorld, Place
from advsurprise.envs.room_state import COUNTED
from advsurprise.errors import UserError
from advsurprise.evaluation.play import play
from advsurprise.evaluation.statistics import summarise
from advsurprise.learning.collect import ScanCollector
from advsurprise.learning.host_collect import HostCollector
from advsurprise.learning.interaction import Agent, role_schedule
from advsurprise.learning.learn import learn, make_learner
from advsurprise.learning.measures import means
from advsurprise.learning.networks import FixedPolicy
from advsurprise.learning.players import with_players
from advsurprise.methods.asp import ASP, Signal
from advsurprise.training.fused import Fused
from advsurprise.types import OVER_TIME, Decision, EnvSpec, Rollout, TimeStep

LEFT, STAY, RIGHT = range(3)
STOP = 3
"""Added to an action: do it, then hand over."""
BODIES = 5
K = 0.01
pytestmark = pytest.mark.slow


def _line(max_steps, *, lights=4, starts=3, **fields):
    """Four cells in a row, each under a light of several colours."""
    cells = tuple(Place(x, (max(x - 1, 0), x, min(x + 1, 3)), (0.0,) * 3, lights=lights) for x in range(4))
    return LadderWorld("line", cells, starts=starts, max_steps=max_steps, **fields)


# The protocol in plain Python.


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
    "repeat": (_line(9), {"mode": "repeat", "clock": 7}),
    "reverse": (_line(9), {"mode": "reverse", "clock": 7}),
    "the world's clock": (_line(6), {"mode": "repeat"}),
    "the world's clock, reverse, truncated": (_line(6, timeout="truncated"), {"mode": "reverse", "stack": 1}),
    "observations": (_line(6, lights=1), {"mode": "repeat", "goal": "observation"}),
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


# Rewards written out, in a game that is played by script.


class Script(eqx.Module):
    """Does what is written for each time of the game."""

    actions: Int[Array, " clock"]
    worth: float = eqx.field(static=True)

    def __call__(self, view):
        now = jnp.round(view.time * self.actions.shape[0]).astype(jnp.int32)
        return 1e6 * jax.nn.one_hot(self.actions[now], 6), jnp.full((*now.shape, 1), self.worth)


@pytest.fixture(scope="module")
def scripted():
    """A function that plays a script for 10 steps, from cell 0, with a clock of 8."""
    env = _line(8, starts=1)

    @jax.jit
    def run(actions):
        method = ASP(env.spec, stack=1)
        policies = {role: Script(actions, -0.035 if role == "bob" else 5.0) for role in method.roles}
        agent = Agent(method, policies, methods.base.Empty())
        collector = ScanCollector(env, 1, 10)
        _, rollout = collector.collect(agent, collector.start(agent, key=jax.random.key(0)), key=jax.random.key(1))
        scores = method.score(agent.learnt, rollout)[1]
        return (
            rollout,
            {role: score.reward[:, 0, 0] for role, score in scores.items()},
            method.learn(agent.learnt, rollout, {})[1] | means(method.measure(rollout)),
        )

    return lambda *actions: run(jnp.asarray((actions + (STAY,) * 8)[:8], jnp.int32))


def test_bob_is_slower_than_alice(scripted):
    # Alice goes right twice and stops in cell 2: t_A = 2. Bob stays, goes right, stays, goes right: t_B = 4.
    # Alice: k (4 − 2) = 0.02 on her second step; Bob: −0.01 on each of his four. The next game begins on step 7.
    rollout, reward, metrics = scripted(RIGHT, RIGHT + STOP, STAY, RIGHT, STAY, RIGHT)
    assert rollout.decision.role[:, 0].tolist() == [0, 0, 1, 1, 1, 1, 0, 0, 1, 1]
    np.testing.assert_allclose(reward["alice"][:6], [0, 0.02, 0, 0, 0, 0], atol=1e-7)
    np.testing.assert_allclose(reward["bob"][2:6], [-0.01] * 4, atol=1e-7)
    assert rollout.terminated[:, 0].tolist() == [False] * 5 + [True] + [False] * 4
    # The second game is cut after two of Bob's steps. His value, −0.035, says that he needs 3.5 more:
    # t_B ≈ 5.5, Alice gets k (5.5 − 2).
    np.testing.assert_allclose(reward["alice"][6:], [0, 0.035, 0, 0], atol=1e-7)
    found = {name: pytest.approx(float(value), abs=1e-6) for name, value in metrics.items()}
    # One game was finished in ten steps; Alice handed over twice, for 0.02 and 0.035.
    assert found == {
        "task_set": 1,
        "solved": 1,
        "time_alice": 2,
        "time_bob": 4,
        "games_per_1000": 100,
        "alice_pay": 0.0275,
    }


def test_bob_is_as_fast_as_alice(scripted):
    # t_A = 3, t_B = 2: max(0, −1) = 0 for Alice, −0.02 for Bob.
    _, reward, metrics = scripted(STAY, RIGHT, RIGHT + STOP, RIGHT, RIGHT)
    assert not reward["alice"][:5].any()
    assert (float(metrics["time_alice"]), float(metrics["time_bob"])) == (3, 2)


def test_bob_does_not_get_there(scripted):
    # t_A = 1 in cell 1; Bob stays for the 7 steps that are left: Alice k (7 − 1) = 0.06.
    rollout, reward, metrics = scripted(RIGHT + STOP)
    np.testing.assert_allclose(reward["alice"][:8], [0.06] + [0] * 7, atol=1e-7)
    assert rollout.terminated[:, 0].tolist() == [False] * 7 + [True] + [False] * 2
    assert (float(metrics["solved"]), float(metrics["time_bob"])) == (0, 7)


def test_a_goal_that_is_nowhere_costs_bob_a_step(scripted):
    # Alice stays and stops: the goal is where Bob begins, which is not tested before he has moved once.
    # He stays: t_B = 1, nothing for Alice (1 − 1 = 0).
    rollout, reward, _ = scripted(STAY + STOP, STAY)
    assert rollout.terminated[:2, 0].tolist() == [False, True]
    np.testing.assert_allclose(reward["bob"][1], -0.01)
    assert not reward["alice"][:2].any()


@pytest.mark.parametrize("last", [RIGHT, RIGHT + STOP])
def test_alice_who_takes_all_the_time_gets_nothing_and_bob_does_not_play(scripted, last):
    rollout, reward, metrics = scripted(*[RIGHT] * 7, last)
    assert not rollout.decision.role.any()
    assert not rollout.signal.stopped.any()
    assert rollout.terminated[:, 0].tolist() == [False] * 7 + [True] + [False] * 2
    assert not reward["alice"].any()
    assert float(metrics["task_set"]) == 0


def test_the_estimate_of_a_cut_game_keeps_to_the_clock():
    # Alice stopped at 2 and Bob has taken one step of 6. Whatever his value says, he needs 1 to 5 more:
    # t_B is 2 to 6, so Alice gets nothing to 4 k.
    false = jnp.zeros((2, 1), bool)
    signal = Signal(jnp.array([[2], [3]]), jnp.array([[2], [2]]), jnp.array([[True], [False]]), false)

    def pay(value):
        rollout = _noted(signal, false, value)
        return float(ASP(_line(8).spec).score(methods.base.Empty(), rollout)[1]["alice"].reward[0, 0, 0])

    assert [round(pay(value), 6) for value in (1.0, -0.001, -0.03, -0.05, -9.0)] == [0, 0, 0.02, 0.04, 0.04]


def test_a_world_that_ends_bobs_turn_spares_him_nothing():
    # t_A = 2 of a clock of 8; the world ends the episode on Bob's second step: he owes that one and the 4 left,
    # −0.05, and Alice gets k (6 − 2). On the step that reaches the goal the world's end changes nothing.
    spec = _line(8).spec._replace(max_steps=0)
    method = ASP(spec, clock=8, stack=1)
    for at_goal, owed, pay in ((False, -0.05, 0.04), (True, -0.01, 0.0)):
        memory, signals = method.start(_at(0)), []
        walk = ((STAY, 0, False), (STOP, 1, False), (RIGHT, 0, False), (RIGHT, 1 if at_goal else 2, True))
        for index, (action, x, ends) in enumerate(walk):
            memory, signal = method.advance(methods.base.Empty(), memory, jnp.int32(action), _at(x, ends))
            memory = method.after_rewind(memory, _at(0)) if index == 1 else memory
            signals.append(signal)
        signal = jax.tree.map(lambda *leaves: jnp.stack(leaves)[:, None], *signals)
        over = jnp.array([[False], [False], [False], [True]])
        scores = method.score(methods.base.Empty(), _noted(signal, over, 0.0))[1]
        np.testing.assert_allclose(scores["bob"].reward[2:, 0, 0], [-0.01, owed], atol=1e-7)
        np.testing.assert_allclose(scores["alice"].reward[:, 0, 0], [0, pay, 0, 0], atol=1e-7)
        assert float(method.measure(_noted(signal, over, 0.0))["solved"].value[-1, 0]) == at_goal


def _noted(signal, over, bob_value):
    """A rollout of one body with nothing in it but signals and ends."""
    nothing = jnp.zeros((1, 1))
    blank = Decision(*[jnp.zeros(1, jnp.int32)] * 2, nothing, nothing[0], nothing)
    decision = jax.tree.map(lambda leaf: jnp.stack([leaf] * len(over)), blank)
    last = {"alice": nothing, "bob": nothing + bob_value}
    return Rollout(
        decision, jnp.zeros(over.shape), over, jnp.zeros_like(over), {}, last, signal, {}, jnp.zeros(1, jnp.int32)
    )


def _at(x, ends=False):
    obs, place = jnp.array([x, 0], jnp.int32), jnp.array([x, 0], jnp.int32)
    return TimeStep(obs, jnp.float32(0), jnp.bool_(ends), jnp.bool_(False), obs, {}, place, place)


@pytest.mark.parametrize(("goal", "solved"), [("auto", False), ("place", False), ("cell", True)])
def test_the_goal_is_the_whole_place_or_its_cell(goal, solved):
    # Alice stops in column 1 with a flag set that Bob, who comes to the same cell, has not.
    method = ASP(_line(8).spec._replace(max_steps=0, places=(8, 1, 2)), goal=goal, stack=1)

    def at(x, flag):
        return dataclasses.replace(_at(x), place=jnp.array([x, 0, flag]), final_place=jnp.array([x, 0, flag]))

    memory, _ = method.advance(methods.base.Empty(), method.start(at(0, 0)), jnp.int32(STOP), at(1, 1))
    memory = method.after_rewind(memory, at(0, 0))
    for flag, expected in ((0, solved), (1, True)):
        assert bool(method.advance(methods.base.Empty(), memory, jnp.int32(RIGHT), at(1, flag))[1].solved) == expected
    assert not bool(method.advance(methods.base.Empty(), memory, jnp.int32(RIGHT), at(2, 1))[1].solved)


def test_alice_who_stops_as_the_world_ends_has_set_no_task():
    method = ASP(_line(8).spec._replace(max_steps=0))
    _, signal = method.advance(methods.base.Empty(), method.start(_at(0)), jnp.int32(STOP), _at(1, ends=True))
    assert not bool(signal.stopped)
    assert int(signal.set_at) == 0


@pytest.mark.parametrize(("threshold", "near"), [(0.0, [True, False, False]), (0.5, [True, True, False])])
def test_images_are_compared_by_distance(threshold, near):
    # Two pixels apart by 0.3 and 0.4 are at a distance of 0.5.
    method = ASP(EnvSpec("X", (2, 1, 1), "float32", "image", 0, 2, 0, ()), threshold=threshold)
    assert (method.limit, method.by_place) == (128, False)
    shown = [jnp.array(pixels)[:, None, None] for pixels in ([0.0, 0.0], [0.3, 0.4], [0.3, 0.5])]

    def seen(obs):
        no = jnp.bool_(False)
        return TimeStep(obs, jnp.float32(0), no, no, obs, {})

    memory = method.start(seen(shown[0]))
    memory, _ = method.advance(methods.base.Empty(), memory, jnp.int32(2), seen(shown[0]))
    for obs, expected in zip(shown, near, strict=True):
        assert bool(method.advance(methods.base.Empty(), memory, jnp.int32(0), seen(obs))[1].solved) == expected


def test_what_is_refused():
    spec = _line(8).spec
    for fields, sentence in [
        ({"clock": 1}, "clock must be at least 2"),
        ({"clock": 9}, "clock must not be longer than an episode of 8 steps"),
        ({"first_stop": 1.0}, "first_stop must be above 0 and below 1"),
        ({"reward_scale": 0.0}, "reward_scale must be positive"),
        ({"gamma": 1.5}, "gamma must be above 0 and at most 1"),
        ({"stack": 0}, "stack must be at least 1"),
        ({"threshold": -1.0}, "threshold must not be negative"),
    ]:
        with pytest.raises(UserError, match=f"asp: {sentence}"):
            ASP(spec, **fields)
    with pytest.raises(UserError, match="does not reveal where the body is: use goal=observation"):
        ASP(spec._replace(places=()), goal="place")


# Rooms: rewinding is exact, noise is not replayed, and both collectors agree.

SMALL = {"max_steps": 24, "max_side": 4, "view": 5, "grid": 10, "timeout": "truncated"}
CROWD, HAND_OVER, WALKED = 128, 12, 50


class Walker(eqx.Module):
    """Goes forward, toggles and turns depending on its view; Alice hands over at the twelfth step."""

    alice: bool = eqx.field(static=True)

    def __call__(self, view):
        time = jnp.round(view.time * SMALL["max_steps"]).astype(jnp.int32)
        mixed = jnp.sum(view.frames[..., -1, :, :].astype(jnp.int32), axis=(-2, -1)) + time
        action = jnp.array([2, 2, 5, 0, 2, 2, 1])[mixed % 7] + jnp.where(self.alice & (time == HAND_OVER - 1), 7, 0)
        return 1e6 * jax.nn.one_hot(action, 14), view.time[..., None]


@pytest.fixture(scope="module")
def rooms():
    """Where bodies in rooms stood after every step, with the rollout of that step, and the same by a host."""
    env = advsurprise.make("rooms/door", **SMALL)
    method = ASP(env.spec)
    agent = Agent(method, {role: Walker(role == "alice") for role in method.roles}, methods.base.Empty())
    collector, host = ScanCollector(env, CROWD, 1), HostCollector(as_host(env, CROWD), 1)
    collect = jax.jit(lambda carry, key: collector.collect(agent, carry, key=key))
    start_key, *keys = jax.random.split(jax.random.key(6), 1 + WALKED)
    carries = [jax.jit(collector.start)(agent, key=start_key)]
    seeds, memory = _with_seed_axis(agent), host.start(_with_seed_axis(agent), key=start_key[None])
    memories = [memory]
    scanned, hosted = [], []
    for key in keys:
        carry, rollout = collect(carries[-1], key)
        memory, host_rollout = host.collect(seeds, memory, key=key[None])
        carries.append(carry)
        memories.append(memory)
        scanned.append(rollout)
        hosted.append(jax.tree.map(np.asarray, host_rollout))
    memories, hosted = (jax.tree.map(lambda leaf: leaf[0], each) for each in (memories, hosted))
    return carries, scanned, memories, hosted


def _with_seed_axis(agent):
    return jax.tree.map(lambda leaf: leaf[None], agent)


def test_the_collectors_collect_the_same(rooms):
    carries, scanned, memories, hosted = rooms
    _assert_same(_stack(scanned), _stack(hosted))
    _assert_same(_stack([carry.memory for carry in carries]), _stack(memories))
    # Hand-overs, successes and ends by the clock were among what was compared.
    both = _stack(scanned)
    over = np.asarray(both.terminated | both.truncated)
    assert np.asarray(both.signal.stopped).sum() >= 2 * CROWD
    assert np.asarray(both.signal.solved).sum() > 5
    assert (over & ~np.asarray(both.signal.solved)).sum() > 5


def _stack(trees):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def _assert_same(left, right):
    """Integers and flags to the bit, floats to rounding."""
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(left), jax.tree.leaves(right), strict=True):
        name = jax.tree_util.keystr(path)
        assert (a.shape, a.dtype) == (b.shape, b.dtype), name
        np.testing.assert_allclose(a, b, rtol=1e-4 if a.dtype.kind == "f" else 0, atol=0, err_msg=name)


def test_bob_begins_in_the_first_state_but_for_what_was_counted(rooms):
    carries, scanned, _, _ = rooms
    states = [carry.env_state for carry in carries]
    assert bool(scanned[HAND_OVER - 1].signal.stopped.all())
    first, last, rewound = states[0], states[HAND_OVER - 1], states[HAND_OVER]
    for name in vars(first):
        if name not in COUNTED:
            assert np.array_equal(getattr(rewound, name), getattr(first, name)), name
    # Alice did change things, and the rooms she was in count in Bob's turn too.
    for name in ("grid", "position", "visited", "words", "time"):
        assert not np.array_equal(getattr(last, name), getattr(first, name)), name
    for name in ("visited", "visited_life", "dark_steps"):
        assert bool((getattr(rewound, name) >= getattr(last, name)).all()), name
    # Bob sees what Alice saw first, over and over, and before it what she saw last.
    memory = carries[HAND_OVER].memory
    first_seen = np.asarray(carries[0].memory.frames.stack[:, -1])
    assert all(np.array_equal(memory.frames.stack[:, index], first_seen) for index in range(4))
    assert not np.array_equal(memory.goal, first_seen)
    assert np.asarray(memory.time).tolist() == np.asarray(memory.set_at).tolist() == [HAND_OVER] * CROWD


def test_noise_is_not_replayed(rooms):
    states = [carry.env_state for carry in rooms[0]]
    assert np.array_equal(states[HAND_OVER].words, states[0].words)
    assert not np.any(np.asarray(states[HAND_OVER + 1].words == states[1].words))


def test_a_game_that_is_over_is_followed_by_a_new_layout(rooms):
    carries, scanned, _, _ = rooms
    found = 0
    for before, after, rollout in zip(carries, carries[1:], scanned, strict=False):
        over = np.asarray(rollout.terminated | rollout.truncated)[0]
        same = np.all(np.asarray(before.first.grid == after.first.grid), axis=1)
        assert (same | over).all()
        assert not (same & over).any()
        assert not np.asarray(after.env_state.time)[over].any()
        assert not np.asarray(after.memory.time)[over].any()
        found += over.sum()
    assert found > CROWD


# Learning.


def _fork():
    """One step leads from the beginning to one of three ends, in which everything stays as it is."""
    ends = tuple(Place(i, (i, i, i), (0.0,) * 3) for i in (1, 2, 3))
    return LadderWorld("fork", (Place(0, (1, 2, 3), (0.0,) * 3), *ends), max_steps=8)


@pytest.fixture(scope="module")
def trained():
    ppo = PPOConfig(lr=3e-3, minibatch=256, entropy_coef=0.003)
    fields = {"first_stop": 0.3, "stack": 1}
    loop = Fused(RunConfig(method="asp", method_fields=fields, ppo=ppo, bodies=64, rollout=32, steps=10**9), _fork())
    state, history = loop.init(), []
    for _ in range(25):
        state, metrics = jax.block_until_ready(loop.update(state))
        history.append(metrics)
    return loop, state, {name: np.array([metrics[name][0] for metrics in history]) for name in history[0]}


def _outcomes(agent):
    measures = summarise([play(_fork(), agent, episodes=500, seed=1)])
    return [measures[name]["mean"] for name in ("task_set", "solved", "time_alice", "time_bob")]


def test_bob_learns_to_do_what_alice_does(trained):
    loop, state, history = trained
    agent = loop.agents(state)[0]
    # Whatever Alice does, she stops in one of the ends. A random Bob has a single try at it: ⅓. A trained one is there
    # in one step, which is as fast as Alice can be, and nothing is left to pay her.
    _, skilled, _, quick = _outcomes(with_players(agent, {"alice": "random"}))
    _, clumsy, _, _ = _outcomes(with_players(agent, {"alice": "random", "bob": "random"}))
    assert clumsy == pytest.approx(1 / 3, abs=0.07)
    assert skilled > 0.97
    assert quick == pytest.approx(1, abs=0.2)
    # Two of three times Alice was paid for the rest of the clock, k (8 − 2 t_A), at first.
    assert history["alice_pay"][0] > 0.01
    assert history["alice_pay"][-1] < 0.003


def test_players_have_their_roles_actions(trained):
    loop, state, _ = trained
    agent = loop.agents(state)[0]
    # The last of the world's own actions, which is no stop: Alice who does nothing sets no task.
    still = dataclasses.replace(agent.method, spec=agent.method.spec._replace(noop=2))
    idle = _outcomes(with_players(Agent(still, agent.policies, agent.learnt), {"alice": "motionless", "bob": "random"}))
    assert idle[0] == 0
    assert np.isnan(idle[1:]).all()
    # Alice at random stops within her first seven steps with probability 1 − 0.7⁷.
    assert _outcomes(with_players(agent, {"alice": "random", "bob": "random"}))[0] == pytest.approx(
        1 - 0.7**7, abs=0.04
    )
    bias = with_players(agent, {"bob": "random"}).policies["bob"].logits
    np.testing.assert_allclose(jax.nn.softmax(bias), [1 / 3] * 3 + [0] * 3, rtol=1e-6)


def test_bobs_missing_half_stays_missing(trained):
    loop, state, _ = trained
    bob = loop.agents(state)[0].policies["bob"]
    assert np.array_equal(bob.actor.bias[3:], np.full(3, np.float32(methods.base.NEVER)))


def test_a_role_that_took_no_step_or_all_of_them(trained):
    loop, state, _ = trained
    cfg = PPOConfig(minibatch=64, epochs=1)
    learner = make_learner(loop.agents(state)[0], cfg)
    rollout = jax.tree.map(lambda leaf: leaf[0], loop.devices.on_first(loop.collect(state)[1]))
    update = jax.jit(lambda learner, rollout, key: learn(learner, rollout, cfg, key=key))
    for index, (name, other) in enumerate((("alice", "bob"), ("bob", "alice"))):
        roles = jnp.full_like(rollout.decision.role, index)
        only = eqx.tree_at(lambda rollout: (rollout.decision.role, rollout.next_role), rollout, (roles, roles[0]))
        after, metrics = update(learner, only, jax.random.key(0))
        assert all(bool(jnp.isfinite(value).all()) for value in metrics.values()), metrics
        assert (float(metrics[f"{name}/steps"]), float(metrics[f"{other}/steps"])) == (64 * 32, 0)
        same = [_equal(after.agent.policies[role], learner.agent.policies[role]) for role in (name, other)]
        assert same == [False, True]


def _equal(left, right):
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True))
