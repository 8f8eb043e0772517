"""A trained agent for use in your own loop: it tracks the last observations, its density model and its turns."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from advsurprise.errors import UserError
from advsurprise.learning import interaction
from advsurprise.learning.interaction import Agent
from advsurprise.learning.players import with_players
from advsurprise.types import EnvSpec, TimeStep


class AgentPlayer:
    """Plays one body: call `reset` with an episode's first observation, then `act` with each observation.

    >>> player = advsurprise.load("runs/mine").player()
    >>> obs, _ = env.reset()
    >>> player.reset(obs)
    >>> obs, reward, terminated, truncated, _ = env.step(player.act(obs))
    """

    def __init__(self, agent: Agent, *, role: str | None = None, greedy: bool = False, seed: int = 0):
        if role is not None and role not in agent.method.roles:
            raise UserError(f"there is no role {role!r}; roles are {', '.join(agent.method.roles)}")
        if greedy:
            agent = with_players(agent, dict.fromkeys(agent.method.roles, "greedy"))
        self._agent = agent
        self._role = None if role is None else jnp.int32(agent.method.roles.index(role))
        self._key = jax.random.key(seed)
        self._count = 0
        self._memory: Any = None
        self._action: Any = None
        """The last action; None right after a reset."""
        self._last_role: int | None = None

    @property
    def spec(self) -> EnvSpec:
        """The observations that the agent expects: `observation_shape` and `observation_dtype`."""
        return self._agent.method.spec

    @property
    def role(self) -> str | None:
        """The role that acted last; None right after a reset."""
        return None if self._last_role is None else self._agent.method.roles[self._last_role]

    def reset(self, obs: Shaped[np.ndarray, "..."]) -> None:
        """Starts an episode with its first observation."""
        self._memory = _started(self._agent, self._read(obs))
        self._action = self._last_role = None

    def act(self, obs: Shaped[np.ndarray, "..."]) -> int:
        """Returns the action for `obs`: the observation given to `reset`, or the result of the last action."""
        if self._memory is None:
            raise RuntimeError("reset the player with an episode's first observation before it acts")
        if self._action is not None:
            self._memory = _advanced(self._agent, self._memory, self._action, self._read(obs))
        key = jax.random.fold_in(self._key, self._count)
        self._count += 1
        self._action, role, action = _decided(self._agent, self._memory, self._role, key)
        self._last_role = int(role[0])
        return int(action[0])

    def _read(self, obs: Shaped[np.ndarray, "..."]) -> Shaped[Array, "1 ..."]:
        spec, seen = self.spec, np.asarray(obs)
        if seen.shape != spec.observation_shape:
            raise UserError(f"an observation must have shape {spec.observation_shape}, not {seen.shape}")
        return jnp.asarray(seen[None].astype(spec.observation_dtype))


def _timestep(agent: Agent, obs: Shaped[Array, "1 ..."]) -> TimeStep:
    """The time step of one body that sees `obs` in the middle of an episode."""
    never = jnp.zeros(1, bool)
    place = jnp.zeros((1, len(agent.method.spec.places)), jnp.int32) if agent.method.spec.places else None
    return TimeStep(obs, jnp.zeros(1), never, never, obs, {}, place, place)


@jax.jit
def _started(agent: Agent, obs: Shaped[Array, "1 ..."]) -> Any:
    return interaction.start(agent, _timestep(agent, obs))


@jax.jit
def _advanced(agent: Agent, memory: Any, action: Int[Array, " 1"], obs: Shaped[Array, "1 ..."]) -> Any:
    def one(memory, action, timestep):
        return agent.method.advance(agent.learnt, memory, action, timestep)[0]

    return jax.vmap(one)(memory, action, _timestep(agent, obs))


@jax.jit
def _decided(agent: Agent, memory: Any, role: Int[Array, ""] | None, key: PRNGKeyArray):
    """The role's action, the acting role, and the corresponding action of the world."""
    noise: Float[Array, "1 A"] = interaction.chance(agent.method, 1, key=key)
    _, decision = interaction.decide(agent, memory, noise=noise, role=role)
    return decision.action, decision.role, interaction.world_action(agent, memory, decision)
