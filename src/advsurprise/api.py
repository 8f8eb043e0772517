"""The library in three names: `train`, `load` and what they return."""

import dataclasses
import itertools
import pathlib
import signal
import tempfile
from typing import Any, get_args

from advsurprise import envs, methods
from advsurprise.config import PPOConfig, RunConfig
from advsurprise.envs.base import AbstractEnv
from advsurprise.errors import UserError
from advsurprise.evaluation.play import play, play_host, summary
from advsurprise.learning import devices
from advsurprise.learning.interaction import Agent
from advsurprise.learning.players import Player, played_by, with_players
from advsurprise.training import run
from advsurprise.training.hosted import open_world
from advsurprise.training.loops import whole_episodes

EVALUATION_SEED = 1_000_000
"""First evaluation seed: far from seeds anyone trains with."""


@dataclasses.dataclass(frozen=True)
class Trained:
    """A run that has been trained."""

    folder: pathlib.Path
    """Its folder."""
    config: RunConfig
    """What was asked for."""
    agents: list[Agent]
    """One agent per seed."""
    updates: int
    """Updates done."""

    def evaluate(
        self,
        *,
        episodes: int = 200,
        seeds: int = 10,
        player: Player = "trained",
        env: str | None = None,
        env_fields: dict[str, Any] | None = None,
    ) -> dict[str, dict[str, float]]:
        """Mean and 95% interval of every measure over whole episodes, here or in another world of the same views."""
        share = max(1, episodes // seeds)
        if envs.find(self.config.env).kind == "host":
            return self._evaluate_foreign(share, seeds, player)
        world = self._world(env, env_fields)
        agents = [self._in(world, agent) for agent in self.agents]
        return summary(
            play(world, played_by(agent, player), episodes=share, seed=EVALUATION_SEED + seed)
            for agent in agents
            for seed in range(seeds)
        )

    def _evaluate_foreign(self, episodes: int, seeds: int, player: Player) -> dict[str, dict[str, float]]:
        host = open_world(dataclasses.replace(self.config, bodies=min(8, episodes)))
        agent = played_by(self.agents[0], player)
        try:
            found = [play_host(host, agent, episodes=episodes, seed=EVALUATION_SEED + seed) for seed in range(seeds)]
        finally:
            host.close()
        return summary(found)

    def cross_play(self, *, episodes: int = 200, seeds: int = 10) -> list[dict[str, Any]]:
        """Every role by its policy, by random actions, or by nobody, against every choice for the others: what each
        policy is worth, shown against the same opponents."""
        if envs.find(self.config.env).kind == "host":
            raise UserError(f"cross-play needs a pure world, not {self.config.env}")
        world = self._world(None, None)
        roles = self.agents[0].method.roles
        share = max(1, episodes // seeds)
        rows = []
        for chosen in itertools.product(get_args(Player), repeat=len(roles)):
            if "greedy" in chosen:
                continue
            players = dict(zip(roles, chosen, strict=True))
            found = summary(
                play(world, with_players(self._in(world, agent), players), episodes=share, seed=EVALUATION_SEED + seed)
                for agent in self.agents
                for seed in range(seeds)
            )
            rows.append({**players, "measures": found})
        return rows

    def _world(self, env: str | None, env_fields: dict[str, Any] | None) -> AbstractEnv:
        kept = self.config.env_fields
        if env is not None:
            # In another world the policies must at least see as they were trained to.
            names = envs.find(env).view_fields
            kept = {name: value for name, value in kept.items() if name in names}
        fields = {**kept, **(env_fields or {})}
        return envs.make(self.config.env if env is None else env, **fields)

    def _in(self, world: AbstractEnv, agent: Agent) -> Agent:
        """The same policies in a world that may have another clock or other rooms."""
        mine, theirs = agent.method.spec, world.spec
        if (mine.observation_shape, mine.num_classes, mine.num_actions) != (
            theirs.observation_shape,
            theirs.num_classes,
            theirs.num_actions,
        ):
            raise UserError(
                f"policies trained in {mine.id} cannot see {theirs.id}: shapes or classes differ; between room worlds "
                "policies can be moved that were trained with --set env.encoding=shared"
            )
        method = methods.make(self.config.method, theirs, **self.config.method_fields)
        return Agent(method, agent.policies, agent.learnt)


def train(
    env: str = "rooms/four",
    method: str = "adversarial-surprise",
    steps: int = 2_000_000,
    seed: int = 0,
    *,
    out: str | pathlib.Path | None = None,
    ppo: PPOConfig | None = None,
    env_fields: dict[str, Any] | None = None,
    method_fields: dict[str, Any] | None = None,
    **run_fields: Any,
) -> Trained:
    """Trains one seed with the command line's defaults; without `out`, into a temporary folder.

    Ctrl-C stops it after the current update: the run is saved and `KeyboardInterrupt` raised.

    Where jax has not computed anything before, it is made to see a device in every core, as on the command line.
    """
    devices.see_cores()
    cfg = RunConfig(
        env=env,
        env_fields=env_fields or {},
        method=method,
        method_fields=method_fields or {},
        ppo=PPOConfig() if ppo is None else ppo,
        steps=steps,
        **{"seeds": (seed,), **run_fields},
    )
    cfg = cfg if "rollout" in run_fields else whole_episodes(cfg)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="advsurprise-")) if out is None else pathlib.Path(out)
    result = run.train(cfg, folder)
    if result.signal:
        sentence = f"stopped after {result.steps:,} steps and saved; continue with: advsurprise resume {folder}"
        raise KeyboardInterrupt(sentence) if result.signal == signal.SIGINT else SystemExit(128 + result.signal)
    return load(folder)


def load(path: str | pathlib.Path) -> Trained:
    """A run from its folder."""
    cfg, agents, updates = run.load_agents(pathlib.Path(path))
    return Trained(pathlib.Path(path), cfg, agents, updates)
