"""Records episodes of frozen policies step by step, as plain arrays: the data of a replay, without any drawing.

A step is recorded with the state in which it was decided. Pure worlds also give the state after the last step, so an
episode of T steps has T + 1 states there and T in host worlds.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, Shaped

from advsurprise.envs.base import AbstractEnv, Outcome, Scene
from advsurprise.envs.host.base import Host
from advsurprise.evaluation.play import CHUNK
from advsurprise.learning.collect import ScanCollector
from advsurprise.learning.devices import quickest_compile
from advsurprise.learning.host_collect import HostCollector
from advsurprise.learning.interaction import Agent
from advsurprise.methods.base import density_for
from advsurprise.tree import with_seed_axis
from advsurprise.types import OVER_TIME, EnvSpec, Measured, Rollout, Score, Views

LIMIT = 512
"""Most recorded steps of an episode, unless episodes have a fixed length below it."""
BEFORE = "replay/before/"
"""Prefix of the names in `TimeStep.info` that hold the leaves of the state before the step."""


class Episode(NamedTuple):
    """One episode of T steps and N states: T, or T + 1 if the last state is known."""

    role: np.ndarray
    """Index of the acting role, [T]."""
    action: np.ndarray
    """Its action, [T]."""
    logits: np.ndarray
    """Its logits, [T, A]."""
    value: np.ndarray
    """Its value estimate per stream, [T, V]."""
    reward: dict[str, np.ndarray]
    """Each role's reward per stream, [T, V]; nan on steps of other roles, and where not settled yet."""
    earned: np.ndarray
    """The world's own reward, [T]."""
    trace: dict[str, Measured]
    """`AbstractMethod.trace`, [T]."""
    features: np.ndarray
    """Features of the density model before each step, [T, *entries, k]; k = 0 without one. Of two models, Control's."""
    obs: np.ndarray
    """Observations, [N, *observation]."""
    measures: dict[str, np.ndarray]
    """The world's measures in each state, [N]; nan where unknown."""
    at_end: dict[str, float]
    """The same after the last step."""
    scene: Scene | None
    """The world, [N, …]; None if it has no tiles."""
    end: str
    """How it ended: `terminated`, `truncated`, or `cut` if the recording stopped first."""


def record(
    world: AbstractEnv | Host,
    agents: list[Agent],
    *,
    episodes: int,
    seed: int,
    limit: int = LIMIT,
    player: "PurePlayer | HostPlayer | None" = None,
) -> list[list[Episode]]:
    """Records the first episode of each of `episodes` bodies for every agent, all with the same layouts and noise."""
    player = player or make_player(world, episodes, limit)
    return [_record(player, _with_bodies(agent, episodes), episodes, seed, limit) for agent in agents]


def _record(player: "PurePlayer | HostPlayer", agent: Agent, episodes: int, seed: int, limit: int) -> list[Episode]:
    carry, chunks = None, []
    over = np.zeros(episodes, bool)
    while not over.all() and sum(len(rollout.reward) for rollout, _ in chunks) < limit:
        now = np.uint32(seed), np.uint32(len(chunks))
        carry, *chunk = player.more(agent, carry, *now) if chunks else player.first(agent, *now)
        chunks.append(jax.tree.map(np.array, chunk))
        over |= _over(chunks[-1][0]).any(axis=0)
    rollout = _joined([rollout for rollout, _ in chunks])
    # The last state of a chunk is the first of the next.
    states = jax.tree.map(
        lambda *parts: np.concatenate([*(part[:-1] for part in parts[:-1]), parts[-1]]), *(s for _, s in chunks)
    )
    scores, trace = jax.tree.map(np.asarray, player.outcomes(agent, rollout))
    return [_episode(agent, rollout, states, scores, trace, body, limit) for body in range(episodes)]


def keys(seed: Any, chunk: Any) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """Keys for starting episodes and for playing a chunk, equal to those of an evaluation with the same seed."""
    start_key, play_key = jax.random.split(jax.random.key(seed))
    return start_key, jax.random.fold_in(play_key, chunk)


def _with_bodies(agent: Agent, bodies: int) -> Agent:
    """The agent for another number of bodies; what it has learnt per body is reset."""
    fresh = jax.eval_shape(lambda: agent.method.init(bodies=bodies, key=jax.random.key(0)))

    def fit(mine: Array, fresh: jax.ShapeDtypeStruct) -> Array:
        return mine if mine.shape == fresh.shape else jnp.zeros(fresh.shape, fresh.dtype)

    return Agent(agent.method, agent.policies, jax.tree.map(fit, agent.learnt, fresh))


def _joined(rollouts: list[Rollout]) -> Rollout:
    """Concatenates consecutive rollouts, in numpy."""
    if len(rollouts) == 1:
        return rollouts[0]

    def parts(rollout: Rollout) -> list[Any]:
        views = rollout.views
        return [*(getattr(rollout, name) for name in (*OVER_TIME, "info")), views.age, views.features, views.time]

    def frames(number: int, views: Views) -> np.ndarray:
        return np.asarray(views.frames[0 if number == 0 else views.size - 1 :])

    joined = jax.tree.map(lambda *each: np.concatenate(each), *map(parts, rollouts))
    every = np.concatenate([frames(number, each.views) for number, each in enumerate(rollouts)])
    return eqx.tree_at(lambda rollout: [*parts(rollout), rollout.views.frames], rollouts[-1], [*joined, every])


def _over(rollout: Rollout) -> np.ndarray:
    """Steps that ended an episode."""
    return np.asarray(rollout.terminated) | np.asarray(rollout.truncated)


def _outcomes(agent: Agent, rollout: Rollout) -> tuple[dict[str, Score], dict[str, Measured]]:
    """The reward of every role, as in training, and the method's traces."""
    _, scores = agent.method.score(agent.learnt, rollout)
    return scores, agent.method.trace(agent.learnt, rollout)


def _episode(
    agent: Agent,
    rollout: Rollout,
    states: "States | None",
    scores: dict[str, Score],
    trace: dict[str, Measured],
    body: int,
    limit: int,
) -> Episode:
    """Extracts a body's first episode."""
    ends = np.flatnonzero(_over(rollout)[:, body])
    steps = min(int(ends[0]) + 1 if ends.size else len(rollout.reward), max(limit, agent.method.spec.max_steps))
    how = "cut" if not ends.size or steps <= ends[0] else _how(rollout, steps - 1, body)
    of_body = jax.tree.map(lambda leaf: np.asarray(leaf)[:steps, body], (rollout.decision, rollout.info, scores, trace))
    decision, info, scores, trace = of_body
    seen = np.asarray(rollout.views.frames)[rollout.views.size - 1 :][:steps, body]
    if states is None:
        obs, measures, scene = seen, _measures_before(agent.method.spec, info), None
    else:
        of_body = jax.tree.map(lambda leaf: leaf[: steps + 1, body], states)
        obs, measures, scene = of_body.obs, of_body.measures, of_body.scene
    return Episode(
        role=decision.role,
        action=decision.action,
        logits=decision.logits,
        value=decision.value,
        reward={role: _earned(scores[role], decision.role == number) for number, role in enumerate(agent.method.roles)},
        earned=np.asarray(rollout.reward)[:steps, body],
        trace=trace,
        features=np.asarray(rollout.views.features)[:steps, body, ..., : density_for(agent.method.spec).num_features],
        obs=obs,
        measures={name: np.asarray(value, np.float32) for name, value in measures.items()},
        at_end={name: float(info[name][-1]) for name in agent.method.spec.info},
        scene=scene,
        end=how,
    )


def _how(rollout: Rollout, step: int, body: int) -> str:
    return "terminated" if rollout.terminated[step, body] else "truncated"


def _earned(score: Score, acts: np.ndarray) -> np.ndarray:
    known = acts if score.settled is None else acts & np.asarray(score.settled)
    return np.where(known[:, None], score.reward, np.nan).astype(np.float32)


def _measures_before(spec: EnvSpec, info: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Measures before each step, from those after each step; the first is unknown."""
    return {name: np.concatenate([[np.nan], info[name][:-1]]) for name in spec.info}


# ------------------------------------------------------------------------------------------------ players


class Followed(eqx.Module):
    """A state and the one before it; the same if no step led to it."""

    now: Any
    before: Any
    obs: Shaped[Array, "..."]
    """Current observation, stored since `observe` is the slowest part to compile."""


class Watched(AbstractEnv[Followed]):
    """A world that also puts the state before a step into `TimeStep.info`. Only the first episode is used: after it the
    body stays where it is, so that no program for new layouts is compiled."""

    env: AbstractEnv = eqx.field(static=True)

    @property
    def spec(self) -> EnvSpec:
        return self.env.spec

    def initial(self, *, key: PRNGKeyArray) -> Followed:
        state = self.env.initial(key=key)
        return Followed(state, state, self.env.observe(state))

    def inherit(self, fresh: Followed, state: Followed) -> Followed:
        return Followed(state.now, state.now, state.obs)

    def transition(self, state: Followed, action: Int[Array, ""], *, key: PRNGKeyArray) -> tuple[Followed, Outcome]:
        moved, outcome = self.env.transition(state.now, action, key=key)
        return Followed(moved, state.now, self.env.observe(moved)), outcome

    def observe(self, state: Followed) -> Shaped[Array, "..."]:
        return state.obs

    def measure(self, state: Followed) -> dict[str, Array]:
        leaves = {f"{BEFORE}{number}": leaf for number, leaf in enumerate(jax.tree.leaves(state.before))}
        return self.env.measure(state.now) | leaves

    def place(self, state: Followed) -> Int[Array, " n"]:
        return self.env.place(state.now)

    def rewind(self, first: Followed, state: Followed) -> Followed:
        again = self.env.rewind(first.now, state.now)
        return Followed(again, again, first.obs)


class States(eqx.Module):
    """Recorded states of all bodies, axes [N, B, …]."""

    obs: Shaped[Array, "..."]
    scene: Scene | None
    measures: dict[str, Array]


class PurePlayer:
    """Plays chunks of a pure world. Its programs run only a few times, so they are jitted for fast compilation."""

    def __init__(self, env: AbstractEnv, bodies: int, limit: int):
        fixed = env.spec.max_steps
        self.env = env
        self.collector = ScanCollector(Watched(env), bodies, fixed if 0 < fixed <= limit else min(CHUNK, limit))
        self.first = jax.jit(self._first, compiler_options=quickest_compile())
        self.more = jax.jit(self._more, compiler_options=quickest_compile())
        self.outcomes = jax.jit(_outcomes, compiler_options=quickest_compile())

    def _first(self, agent: Agent, seed: Any, chunk: Any) -> tuple[Any, Rollout, States]:
        return self._more(agent, self.collector.start(agent, key=keys(seed, chunk)[0]), seed, chunk)

    def _more(self, agent: Agent, carry: Any, seed: Any, chunk: Any) -> tuple[Any, Rollout, States]:
        """Plays a chunk, and returns its states, including the one after its last step."""
        carry, rollout = self.collector.collect(agent, carry, key=keys(seed, chunk)[1])
        leaves, structure = jax.tree.flatten(carry.env_state.now)
        before = [rollout.info[f"{BEFORE}{number}"] for number in range(len(leaves))]
        both = [jnp.concatenate([each, last[None]]) for each, last in zip(before, leaves, strict=True)]
        obs = jnp.concatenate([rollout.views.newest, carry.env_state.obs[None]])
        info = {name: value for name, value in rollout.info.items() if not name.startswith(BEFORE)}
        scene, measures = jax.vmap(jax.vmap(self._look))(jax.tree.unflatten(structure, both))
        return carry, dataclasses.replace(rollout, info=info), States(obs, scene, measures)

    def _look(self, state: Any) -> tuple[Scene | None, dict[str, Array]]:
        return self.env.scene(state), self.env.measure(state)


def make_player(world: AbstractEnv | Host, episodes: int, limit: int = LIMIT) -> "PurePlayer | HostPlayer":
    """Returns a player for a world; its programs are compiled once."""
    return HostPlayer(world, episodes) if isinstance(world, Host) else pure_player(world, episodes, limit)


@functools.lru_cache(maxsize=4)
def pure_player(env: AbstractEnv, bodies: int, limit: int) -> PurePlayer:
    """The player for a pure world, cached: two runs of the same method share its programs."""
    return PurePlayer(env, bodies, limit)


class HostPlayer:
    """Plays chunks of a host world."""

    def __init__(self, host: Host, bodies: int):
        assert (host.seeds, host.bodies) == (1, bodies), (host.seeds, host.bodies, bodies)
        self.collector = HostCollector(host, CHUNK)
        self.outcomes = jax.jit(_outcomes, compiler_options=quickest_compile())

    def first(self, agent: Agent, seed: Any, chunk: Any) -> tuple[Any, Rollout, None]:
        """Starts the episodes."""
        memory = self.collector.start(with_seed_axis(agent), key=keys(seed, chunk)[0][None])
        return self.more(agent, memory, seed, chunk)

    def more(self, agent: Agent, memory: Any, seed: Any, chunk: Any) -> tuple[Any, Rollout, None]:
        """Continues them."""
        memory, rollout = self.collector.collect(with_seed_axis(agent), memory, key=keys(seed, chunk)[1][None])
        return memory, jax.tree.map(lambda leaf: leaf[0], rollout), None
