"""Rewards of asymmetric self-play written out, in a game that is played by script; and what is refused."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from asp_line import RIGHT, STAY, STOP, line
from jaxtyping import Array, Int

from advsurprise import methods
from advsurprise.errors import UserError
from advsurprise.learning.collect import ScanCollector
from advsurprise.learning.interaction import Agent
from advsurprise.learning.measures import means
from advsurprise.methods.asp import ASP, Signal
from advsurprise.types import Decision, EnvSpec, Rollout, TimeStep

pytestmark = pytest.mark.slow


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
    env = line(8, starts=1)

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
        return float(ASP(line(8).spec).score(methods.base.Empty(), rollout)[1]["alice"].reward[0, 0, 0])

    assert [round(pay(value), 6) for value in (1.0, -0.001, -0.03, -0.05, -9.0)] == [0, 0, 0.02, 0.04, 0.04]


def test_a_world_that_ends_bobs_turn_spares_him_nothing():
    # t_A = 2 of a clock of 8; the world ends the episode on Bob's second step: he owes that one and the 4 left,
    # −0.05, and Alice gets k (6 − 2). On the step that reaches the goal the world's end changes nothing.
    spec = line(8).spec._replace(max_steps=0)
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
    method = ASP(line(8).spec._replace(max_steps=0, places=(8, 1, 2)), goal=goal, stack=1)

    def at(x, flag):
        return dataclasses.replace(_at(x), place=jnp.array([x, 0, flag]), final_place=jnp.array([x, 0, flag]))

    memory, _ = method.advance(methods.base.Empty(), method.start(at(0, 0)), jnp.int32(STOP), at(1, 1))
    memory = method.after_rewind(memory, at(0, 0))
    for flag, expected in ((0, solved), (1, True)):
        assert bool(method.advance(methods.base.Empty(), memory, jnp.int32(RIGHT), at(1, flag))[1].solved) == expected
    assert not bool(method.advance(methods.base.Empty(), memory, jnp.int32(RIGHT), at(2, 1))[1].solved)


def test_alice_who_stops_as_the_world_ends_has_set_no_task():
    method = ASP(line(8).spec._replace(max_steps=0))
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
    spec = line(8).spec
    for fields, sentence in [
        ({"clock": 1}, "clock must be at least 2"),
        ({"clock": 9}, "clock must be at most the 8 steps of an episode, not 9"),
        ({"first_stop": 1.0}, "first_stop must be above 0 and below 1"),
        ({"reward_scale": 0.0}, "reward_scale must be positive"),
        ({"gamma": 1.5}, "gamma must be above 0 and at most 1"),
        ({"stack": 0}, "stack must be at least 1"),
        ({"threshold": -1.0}, "threshold must be at least 0"),
    ]:
        with pytest.raises(UserError, match=f"asp: {sentence}"):
            ASP(spec, **fields)
    with pytest.raises(UserError, match="does not reveal where the body is: use goal=observation"):
        ASP(spec._replace(places=()), goal="place")
