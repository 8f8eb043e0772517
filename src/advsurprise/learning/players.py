"""Who plays a role: its policy, or another player in its place."""

from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from advsurprise.errors import UserError
from advsurprise.learning.interaction import Agent
from advsurprise.learning.networks import FixedPolicy
from advsurprise.types import View

Player = Literal["trained", "greedy", "random", "motionless"]
"""Who plays a role: its policy (sampled), its policy's likeliest action, uniform actions, or the world's action that
does nothing."""
SURE = 1e6
"""Factor on logits that makes the likeliest action certain."""


class GreedyPolicy(eqx.Module):
    """A policy's likeliest action."""

    policy: eqx.Module

    def __call__(self, view: View) -> tuple[Float[Array, "*n A"], Float[Array, "*n V"]]:
        logits, value = self.policy(view)  # pyright: ignore[reportCallIssue]
        return logits * SURE, value


def with_players(agent: Agent, players: dict[str, Player]) -> Agent:
    """The agent with some roles played by others."""
    noop, streams = agent.method.spec.noop, len(agent.method.streams)
    policies: dict[str, Any] = dict(agent.policies)
    for role, player in players.items():
        if role not in policies:
            raise UserError(f"there is no role {role!r}; roles are {', '.join(policies)}")
        bias = jnp.asarray(agent.method.action_bias(role), jnp.float32)
        if player == "greedy":
            policies[role] = GreedyPolicy(agent.policies[role])
        elif player == "random":
            policies[role] = FixedPolicy(bias, streams)
        elif player == "motionless":
            if noop is None:
                raise UserError(f"{agent.method.spec.id} has no action that does nothing, so no role can be motionless")
            policies[role] = FixedPolicy(jnp.where(jnp.arange(bias.size) == noop, SURE, bias), streams)
    return Agent(agent.method, policies, agent.learnt)


def alone(agent: Agent, role: str) -> Agent:
    """The agent with every turn played by the policy of one role."""
    if role not in agent.policies:
        raise UserError(f"there is no role {role!r}; roles are {', '.join(agent.policies)}")
    return Agent(agent.method, dict.fromkeys(agent.policies, agent.policies[role]), agent.learnt)


def played_by(agent: Agent, player: Player) -> Agent:
    """The agent with all roles played by the same kind of player."""
    return with_players(agent, dict.fromkeys(agent.method.roles, player))
