"""The library and Algorithm 1 (`algorithm_1.py`) on the same play: every role, reward and scale must agree."""

import dataclasses

import jax
import numpy as np
from algorithm_1 import BODIES, STEPS, discounted_returns, explore_pay, library, play, reference, scale_of

from advsurprise.methods.adversarial_surprise import AdversarialSurprise
from advsurprise.types import OVER_TIME, Views

FIELDS = [
    # Turns of Explore and Control, quiet share, episode lengths, which repeat. They end within turns of either role.
    {"k_explore": 3, "k_control": 4, "quiet": 0.5, "lengths": (14,)},
    {"k_explore": 2, "k_control": 5, "quiet": 0.5, "lengths": (9, 4, 17)},
    {"k_explore": 4, "k_control": 3, "quiet": 0.0, "lengths": (60,)},
    {"k_explore": 1, "k_control": 4, "quiet": 0.75, "lengths": (8, 1, 3)},
]


def _settled(roles, ended, length):
    """For each of the first steps: whether the Control turn after it, or its episode, is over within them."""
    over = []
    for step in range(length):
        last = step
        while (
            last < len(roles) - 1
            and not ended[last]
            and not (roles[last] == "control" and roles[last + 1] == "explore")
        ):
            last += 1
        closed = ended[last] or last < len(roles) - 1
        over.append(closed and last < length)
    return np.array(over)


def part(rollout, begin, end):
    """Steps `begin` to `end` of a rollout, as if collected on their own."""
    steps = {name: jax.tree.map(lambda leaf: leaf[begin:end], getattr(rollout, name)) for name in OVER_TIME}
    next_role = rollout.decision.role[end] if end < STEPS else rollout.next_role
    views = rollout.views
    older = views.size - 1
    parts = jax.tree.map(lambda leaf: leaf[begin:end], (views.age, views.features, views.time, views.goal))
    views = Views(views.frames[begin : end + older], *parts)
    return dataclasses.replace(rollout, **steps, next_role=next_role, views=views)


def bodies(parts):
    return np.stack(parts, axis=1)


def game_ends(method, played):
    """Where a game ends, and where rewards are cut off: with the episode, or after so many rounds and nowhere."""
    if not method.rounds:
        return played.ended, played.ended
    length = method.rounds * (method.k_explore + method.k_control)
    clock = np.arange(1, STEPS + 1)[:, None]
    return np.broadcast_to(clock % length == 0, played.ended.shape), np.zeros_like(played.ended)


def compare(spec, *, lengths, **fields):
    method = AdversarialSurprise(spec, **fields)
    played = play(lengths, spec=spec)
    over, cut = game_ends(method, played)
    references = [reference(method, played, body, spec.observation_kind) for body in range(BODIES)]
    rollout, _, _ = library(method, played)
    roles, scored, log_prob = (bodies([reference[i] for reference in references]) for i in range(3))
    shown = log_prob
    if method.explore_scope != "same":
        every = method.explore_pay == "control"
        others = {"explore_scope": "same", "explore_pay": "scored", "explore_scale": "shared", "quiet_weight": 0.0}
        others |= {"scope": method.explore_scope} | ({"quiet": 0.0} if every else {})
        alone = AdversarialSurprise(spec, **fields | others)
        shown = bodies([reference(alone, played, body, spec.observation_kind)[2] for body in range(BODIES)])
        assert not np.allclose(shown, log_prob)
        log_prob = log_prob + method.quiet_weight * np.where(scored, 0.0, shown)
    returns, explore_returns = (
        bodies([discounted_returns(each[:, b], over[:, b], method.gamma) for b in range(BODIES)])
        for each in (log_prob, shown)
    )
    assert (np.asarray(rollout.decision.role) == (roles == "control")).all()
    assert (np.asarray(rollout.signal.scored) == scored).all()
    np.testing.assert_allclose(rollout.signal.log_prob, log_prob, rtol=1e-5, atol=1e-5)
    # Two rollouts, of which the first may end within a turn: the scale runs on, and what Explore is owed beyond the end
    # of a rollout is not settled.
    learnt = method.init(bodies=BODIES, key=jax.random.key(0))
    middle = 37
    for begin, end in ((0, middle), (middle, STEPS)):
        learnt, scores = method.score(learnt, part(rollout, begin, end))
        scale = explore_scale = scale_of(returns[:end])
        if method.explore_scale == "own":
            explore_scale = scale_of(explore_returns[:end])
            assert not np.isclose(explore_scale, scale)
        now = slice(begin, end)
        pay = bodies([explore_pay(roles[now, b], shown[now, b], cut[now, b]) for b in range(BODIES)])
        np.testing.assert_allclose(scores["control"].reward[..., 0], log_prob[now] * scale, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(scores["explore"].reward[..., 0], pay * explore_scale, rtol=1e-5, atol=1e-5)
        settled = bodies([_settled(roles[begin:, b], cut[begin:, b], end - begin) for b in range(BODIES)])
        is_explore = roles[now] == "explore"
        assert (np.asarray(scores["explore"].settled)[is_explore] == settled[is_explore]).all()
        for score in scores.values():
            terminated = cut[now] & ~played.truncated[now]
            assert (np.asarray(score.cut[..., 0]) == cut[now]).all()
            np.testing.assert_array_equal(score.discount[..., 0], np.float32(np.where(terminated, 0, method.gamma)))
            assert not np.any(score.bonus)
            assert not np.any(score.target_shift)
