"""The two pure halves of a step: decide before the world moves, absorb after. Every loop is built from them."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from advsurprise import tree
from advsurprise.envs.base import if_any
from advsurprise.learning.networks import ActorCritic, FixedPolicy
from advsurprise.methods.base import AbstractMethod
from advsurprise.types import RESTART, REWIND, Decision, EnvSpec, TimeStep, View


class Agent(eqx.Module):
    """A method with its policies and what else it has learnt."""

    method: AbstractMethod = eqx.field(static=True)
    policies: dict[str, Any]
    """One policy per role."""
    learnt: eqx.Module
    """What the method has learnt besides its policies."""


def make_agent(method: AbstractMethod, bodies: int, *, network_width: int = 1, key: PRNGKeyArray) -> Agent:
    """An untrained agent; `network_width` multiplies the width of every layer of its policies."""
    learnt_key, *role_keys = jax.random.split(key, 1 + len(method.roles))
    policies = {
        role: _policy(method, role, network_width, key=key) for role, key in zip(method.roles, role_keys, strict=True)
    }
    return Agent(method, policies, method.init(bodies=bodies, key=learnt_key))


def _policy(method: AbstractMethod, role: str, factor: int, *, key: PRNGKeyArray) -> ActorCritic | FixedPolicy:
    if not method.trains:
        return FixedPolicy(jnp.asarray(method.action_bias(role), jnp.float32), len(method.streams))
    view = jax.eval_shape(lambda: method.see(method.start(blank_timestep(method.spec))))
    return ActorCritic(
        method.spec,
        frames=view.frames.shape[0] + (view.goal is not None),
        features=view.features.shape[-1],
        action_bias=method.action_bias(role),
        streams=len(method.streams),
        critic_scale=method.critic_scale,
        factor=factor,
        key=key,
    )


def blank_timestep(spec: EnvSpec) -> TimeStep:
    """A timestep of the right shapes, without measures."""
    obs: Shaped[Array, ...] = jnp.zeros(spec.observation_shape, jnp.dtype(spec.observation_dtype))
    place = jnp.zeros(len(spec.places), jnp.int32) if spec.places else None
    never = jnp.bool_(False)
    return TimeStep(obs, jnp.float32(0), never, never, obs, {}, place, place)


def role_schedule(method: AbstractMethod, length: int) -> np.ndarray | None:
    """Which role moves at each step of a rollout, if known beforehand: there is one role, or all bodies share the
    clock, turns depend on it alone, and rollouts start with an episode. None otherwise."""
    if len(method.roles) == 1:
        return np.zeros(length, np.int32)
    fixed = method.spec.max_steps
    if not fixed or length % fixed:
        return None
    return method.schedule(np.arange(length, dtype=np.int32) % fixed)


def start(agent: Agent, timestep: TimeStep):
    """Memories of all bodies at the start of their first episodes."""
    return jax.vmap(agent.method.start)(timestep)


def chance(method: AbstractMethod, bodies: int, *, key: PRNGKeyArray) -> Float[Array, "{bodies} A"]:
    """The random part of one step's decisions: Gumbel noise; argmax(logits + noise) is a sample."""
    return jax.random.gumbel(key, (bodies, len(method.action_bias(method.roles[0]))))


def decide(
    agent: Agent, memory, *, noise: Float[Array, "B A"], role: Int[Array, ""] | None = None
) -> tuple[View, Decision]:
    """What every body sees and does next. With `role`, all bodies are on that role's turn, and only its policy is
    computed."""
    view = jax.vmap(agent.method.see)(memory)
    bodies = view.time.shape[0]
    if role is None:
        roles = turns(agent, memory)
        logits, value = _mixed(agent, view, roles)
    else:
        roles = jnp.broadcast_to(role, (bodies,)).astype(jnp.int32)
        policies = [agent.policies[name] for name in agent.method.roles]
        logits, value = jax.lax.switch(role, [lambda view, policy=policy: policy(view) for policy in policies], view)
    action = jnp.argmax(logits + noise, axis=-1).astype(jnp.int32)
    log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], axis=1)[:, 0]
    return view, Decision(roles, action, logits, log_prob, value)


def world_action(agent: Agent, memory, decision: Decision) -> Int[Array, " B"]:
    """The world's action for each body's decision."""
    return jax.vmap(agent.method.env_action)(memory, decision.action)


def absorb(agent: Agent, memory, decision: Decision, timestep: TimeStep):
    """After the world moved: new memories, the method's signal, and each role's value of truncated observations."""
    method = agent.method

    def one(memory, action, timestep):
        within, signal = method.advance(agent.learnt, memory, action, timestep)
        over = timestep.terminated | timestep.truncated
        return within, tree.select(over, method.start(timestep, within), within), signal

    within, memory, signal = jax.vmap(one)(memory, decision.action, timestep)
    final_value = {name: jnp.zeros_like(decision.value) for name in method.roles}
    if method.spec.truncates:
        final_value = _final_values(agent, within, timestep)
    return memory, signal, final_value


def requests(agent: Agent, memory) -> Int[Array, " B"]:
    """The method's request to the world for every body before the next step."""
    return jax.vmap(agent.method.request)(memory)


def relocated(agent: Agent, memory, request: Int[Array, " B"], timestep: TimeStep):
    """Memories after the world relocated bodies as the method requested; `timestep` is what they see there."""
    method = agent.method

    def one(memory, request, timestep):
        rewound = tree.select(request == REWIND, method.after_rewind(memory, timestep), memory)
        return tree.select(request == RESTART, method.start(timestep, memory), rewound)

    return jax.vmap(one)(memory, request, timestep)


def turns(agent: Agent, memory) -> Int[Array, " B"]:
    """Which role moves next, for every body."""
    return jax.vmap(agent.method.turn)(memory)


def values(agent: Agent, memory) -> dict[str, Float[Array, "B V"]]:
    """Each role's value of what it would see now, whoever's turn it is."""
    view = jax.vmap(agent.method.see)(memory)
    return {name: policy(view)[1] for name, policy in agent.policies.items()}


def _mixed(agent: Agent, view: View, roles: Int[Array, " B"]):
    """Logits and values where bodies are on different turns; a role that no body plays costs nothing."""
    names = agent.method.roles
    shapes = jax.eval_shape(agent.policies[names[0]], view)
    chosen = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    for index, name in enumerate(names):
        playing = roles == index
        policy = agent.policies[name]
        mine = _if_needed(
            jnp.any(playing), lambda both: both[0](both[1]), lambda _: shapes_zero(shapes), (policy, view)
        )
        chosen = jax.tree.map(lambda new, old, p=playing: jnp.where(p[:, None], new, old), mine, chosen)
    return chosen


def _if_needed(needed: Bool[Array, ""], compute: Callable, leave: Callable, operand: Any) -> Any:
    """`compute(operand)`, or `leave(operand)` on a CPU if it is not needed. A GPU always computes it: to check, it
    would wait for the host, which takes longer than a small network."""
    return if_any(needed, compute, leave, operand) if jax.default_backend() == "cpu" else compute(operand)


def shapes_zero(shapes):
    """Zeros of given shapes."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def _final_values(agent: Agent, within, timestep: TimeStep):
    """Values of final observations, computed only on steps that truncate some body."""
    cut = timestep.truncated & ~timestep.terminated
    final = _if_needed(
        jnp.any(cut),
        lambda both: values(both[0], both[1]),
        lambda both: shapes_zero(jax.eval_shape(values, *both)),
        (agent, within),
    )
    return jax.tree.map(lambda value: jnp.where(cut[:, None], value, 0.0), final)
