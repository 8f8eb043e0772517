"""One update: a rollout in, a better agent out. Both loops call it, for every method."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from advsurprise.config import PPOConfig
from advsurprise.learning import ppo
from advsurprise.learning.advantage import turn_gae
from advsurprise.learning.devices import ONE_DEVICE, Devices
from advsurprise.learning.fit import MaskedRows, Rows, StaticRows, fit, named
from advsurprise.learning.interaction import Agent, role_schedule
from advsurprise.learning.measures import rollout_metrics
from advsurprise.methods.base import AbstractMethod
from advsurprise.types import OVER_TIME, JoinedViews, Rollout, Score, ShiftedViews

LONG_EPISODE = 4096
"""Steps over which a role's share is counted where episodes have no fixed length."""


class Tail(eqx.Module):
    """The last steps of a rollout, kept for a method whose rewards are earned later than the step they belong to."""

    rollout: Rollout
    learned: dict[str, Bool[Array, "L B"]]
    """For each role, the steps it has learned from."""


class Learner(eqx.Module):
    """An agent and its optimisers."""

    agent: Agent
    opt_states: dict[str, optax.OptState]
    tail: Tail | None = None
    """The end of the last rollout, if the method looks back."""


def make_learner(agent: Agent, cfg: PPOConfig, *, tail: Tail | None = None) -> Learner:
    """A learner before its first update."""
    optimiser, roles = ppo.optimiser(cfg), agent.method.roles if agent.method.trains else ()
    return Learner(agent, {role: optimiser.init(agent.policies[role]) for role in roles}, tail)


def learn(
    learner: Learner,
    rollout: Rollout,
    cfg: PPOConfig,
    *,
    steps: Float[Array, ""] | float = 0.0,
    devices: Devices = ONE_DEVICE,
    key: PRNGKeyArray,
) -> tuple[Learner, dict[str, Array]]:
    """Scores the rollout, estimates advantages, fits every role's policy and the method's own networks.

    `steps` is the number of environment steps before the rollout, for learning rates that decay.
    """
    agent, method = learner.agent, learner.agent.method
    method_key, *role_keys = jax.random.split(key, 1 + len(method.roles))
    window = rollout if learner.tail is None else joined(learner.tail.rollout, rollout)
    learnt, scores = method.score(agent.learnt, window)
    tasks, metrics, learned = method.fit_tasks(learnt, rollout, key=method_key), {}, {}
    rates = role_rates(method, cfg, jnp.float32(steps))
    for index, (role, role_key) in enumerate(zip(method.roles, role_keys, strict=True)):
        if role not in learner.opt_states:
            continue
        done = None if learner.tail is None else learner.tail.learned[role]
        batch, rows, usable = role_batch(window, scores[role], index, method, learned=done, lam=cfg.gae_lambda)
        tasks[role] = ppo.fit_task(
            agent.policies[role], learner.opt_states[role], batch, cfg, rows=rows, rate=rates[role], key=role_key
        )
        metrics |= {f"{role}/{name}": value for name, value in role_metrics(batch, scores[role], rows).items()}
        learned[role] = usable
    fitted = fit(tasks, devices=devices)
    policies = agent.policies | {role: fitted[role][0] for role in learner.opt_states}
    opt_states = {role: fitted[role][1] for role in learner.opt_states}
    learnt, method_metrics = method.learn(learnt, rollout, fitted)
    metrics |= named(fitted) | method_metrics | rollout_metrics(rollout, method)
    tail = None if learner.tail is None else next_tail(window, learned, method.pending(rollout.reward.shape[0]))
    return Learner(Agent(method, policies, learnt), opt_states, tail), metrics


def role_rates(method: AbstractMethod, cfg: PPOConfig, steps: Float[Array, ""]) -> dict[str, Float[Array, ""] | None]:
    """Factor on each role's learning rate; one array for roles that decay alike, which can then be fitted as one."""
    ends = {role: method.lr_end_steps(role) or cfg.lr_end_steps for role in method.roles}
    factors = {end: ppo.rate_factor(end, steps) for end in set(ends.values())}
    return {role: factors[end] for role, end in ends.items()}


def blank_tail(rollout: Rollout, pending: int) -> Tail:
    """The tail before the first rollout, of steps that no role took, with views of `pending` steps; `rollout` has its
    shapes."""
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), rollout)
    blank = eqx.tree_at(lambda rollout: rollout.decision.role, blank, replace_fn=lambda role: role - 1)
    views = ShiftedViews(blank.views.last(pending), jnp.zeros_like(blank.next_role))
    blank = dataclasses.replace(blank, terminated=jnp.ones_like(blank.terminated), views=views)
    learned = {role: jnp.ones_like(blank.terminated) for role in blank.last_value}
    return Tail(blank, learned)


def joined(tail: Rollout, rollout: Rollout) -> Rollout:
    """A rollout with the end of the previous one in front."""
    parts = ({name: getattr(each, name) for name in OVER_TIME} for each in (tail, rollout))
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), *parts)
    old = tail.reward.shape[0]
    return dataclasses.replace(rollout, **both, views=JoinedViews(tail.views, rollout.views, old), info={}, old=old)


def next_tail(window: Rollout, learned: dict[str, Bool[Array, "T B"]], pending: int) -> Tail:
    """The end of a window, as long as the tail at its start. Views, which may be large, are kept only of `pending`
    steps of every body, from the first on that its role has still to learn from."""
    total, old = window.reward.shape[0], window.old
    nobodys = window.decision.role < 0  # in the blank tail before the first rollout
    done = functools.reduce(jnp.logical_or, learned.values(), nobodys)
    first = jnp.clip(jnp.argmax(~done, axis=0).astype(jnp.int32), total - old, total - pending)
    views = ShiftedViews(window.views.keep(first, pending), first - (total - old))
    steps = {name: getattr(window, name) for name in OVER_TIME}
    steps, learned = jax.tree.map(lambda leaf: leaf[-old:], (steps, learned))
    return Tail(dataclasses.replace(window, **steps, views=views, old=0), learned)


def role_batch(
    window: Rollout,
    score: Score,
    index: int,
    method: AbstractMethod,
    *,
    learned: Bool[Array, "L B"] | None = None,
    lam: float,
) -> tuple[ppo.Batch, Rows, Bool[Array, "T B"]]:
    """The flattened window with a role's advantages and targets, the rows to learn from, and all steps that the role
    will have learned from; `learned` marks the steps of the window's old part that it already has."""
    role = method.roles[index]
    length, bodies = window.reward.shape
    schedule = role_schedule(method, length) if learned is None else None
    usable, last_value = window.decision.role == index, window.last_value[role]
    if schedule is None:
        usable, last_value = usable_steps(window, score, index, last_value)
    streams = jax.vmap(
        lambda r, v, final, g, cut, last: turn_gae(r, v, final, g, cut, usable, last, lam=lam),
        in_axes=-1,
        out_axes=-1,
    )(score.reward, window.decision.value, window.final_value[role], score.discount, score.cut, last_value)
    weights = jnp.asarray(list(method.streams.values()))
    advantage = streams @ weights + score.bonus
    target = window.decision.value + streams + score.target_shift
    decision = window.decision
    samples = (decision.action, decision.log_prob, decision.value, advantage, target)
    batch = ppo.Batch(window.views, *(leaf.reshape(usable.size, *leaf.shape[2:]) for leaf in samples))
    if schedule is not None:
        return batch, scheduled_rows(schedule == index, bodies), usable
    fresh = usable
    if learned is not None:
        fresh = usable.at[: window.old].set(usable[: window.old] & ~learned)
    share = role_share(method, index) * (length - window.old) / length
    return batch, MaskedRows(fresh.reshape(-1), share), usable


def usable_steps(
    rollout: Rollout, score: Score, index: int, last_value: Float[Array, "B V"]
) -> tuple[Bool[Array, "T B"], Float[Array, "B V"]]:
    """Steps of a role that can be learned from, and its value after the last of them.

    The reward of such a step is settled, and what its value bootstraps from is a view the role itself acts on: its next
    own step is in the rollout, or it moves next, or its stream ends first. Otherwise a role would bootstrap from its
    value of views that it is never trained on. Steps that are not usable come after all others of the role, so its
    stream is taken to end before the first of them.
    """
    acted = rollout.decision.role == index
    ends = from_here_on(jnp.all(score.cut, axis=-1))
    acts_later = from_here_on(jnp.concatenate([acted[1:], (rollout.next_role == index)[None]]))
    usable = acted & (ends | acts_later)
    if score.settled is not None:
        usable = usable & score.settled
    waiting = acted & ~usable
    first = jnp.argmax(waiting, axis=0)[None, :, None]
    value = jnp.take_along_axis(rollout.decision.value, first, axis=0)[0]
    return usable, jnp.where(jnp.any(waiting, axis=0)[:, None], value, last_value)


def from_here_on(holds: Bool[Array, "T B"]) -> Bool[Array, "T B"]:
    """Whether something holds on this step or on a later one."""
    return jax.lax.cummax(holds.astype(jnp.int32), axis=0, reverse=True) > 0


def scheduled_rows(acts: Bool[np.ndarray, " T"], bodies: int) -> StaticRows:
    """Rows of the flattened rollout on which a role acts, where that is known beforehand."""
    total = len(acts) * bodies
    return StaticRows(total) if acts.all() else StaticRows(total, np.flatnonzero(np.repeat(acts, bodies)))


def role_share(method: AbstractMethod, index: int) -> float:
    """Fraction of steps that a role takes; without a schedule, an equal share."""
    roles = method.schedule(np.arange(method.spec.max_steps or LONG_EPISODE, dtype=np.int32))
    return 1 / len(method.roles) if roles is None else float(np.mean(roles == index))


def role_metrics(batch: ppo.Batch, score: Score, rows: Rows) -> dict[str, Array]:
    """Metrics of a role's samples, before it learns from them; nan where it has none."""
    mine = rows.weights()
    reward, value, target = score.reward.sum(-1).reshape(-1), batch.value.sum(-1), batch.target.sum(-1)
    metrics = {
        "reward": ppo.weighted_mean(reward, mine),
        "value": ppo.weighted_mean(value, mine),
        "explained_variance": explained_variance(value, target, mine),
    }
    steps = mine.sum()
    return {"steps": steps} | {name: jnp.where(steps > 0, value, jnp.nan) for name, value in metrics.items()}


def explained_variance(
    value: Float[Array, " N"], target: Float[Array, " N"], weight: Float[Array, " N"]
) -> Float[Array, ""]:
    """1 − Var(target − value) / Var(target): 1 if values predict their targets, 0 if a constant would do as well."""

    def variance(x):
        return ppo.weighted_mean((x - ppo.weighted_mean(x, weight)) ** 2, weight)

    return 1.0 - variance(target - value) / jnp.maximum(variance(target), 1e-8)
