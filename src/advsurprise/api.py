"""The Python API: `train`, `load` and the `Trained` run that they return."""

import contextlib
import dataclasses
import itertools
import pathlib
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from advsurprise import envs, methods, trust, zoo
from advsurprise.config import PPOConfig, RunConfig
from advsurprise.envs.base import AbstractEnv
from advsurprise.envs.host.base import Host
from advsurprise.errors import UserError
from advsurprise.evaluation import notebook
from advsurprise.evaluation.play import evaluator, play, play_host
from advsurprise.evaluation.player import AgentPlayer
from advsurprise.evaluation.record import Episode, make_player, record
from advsurprise.evaluation.replay import Replayed, write_page
from advsurprise.evaluation.statistics import Estimate, pooled, summarise
from advsurprise.learning import devices
from advsurprise.learning.host_collect import HostCollector
from advsurprise.learning.interaction import Agent
from advsurprise.learning.players import Player, alone, with_players
from advsurprise.training import run
from advsurprise.training.loops import whole_episodes
from advsurprise.training.track import read_names
from advsurprise.types import EnvSpec

EVALUATION_SEED = 1_000_000
"""First evaluation seed: far from seeds anyone trains with."""
MAX_HOST_BODIES, MAX_HOST_ROWS = 32, 160
"""Most bodies that play in parallel in a host world, per training seed and in total."""
MAX_REPLAYED = 64
"""Most episodes of a replay: a page with more would not open in a browser."""


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained run."""

    folder: pathlib.Path
    """Its folder."""
    config: RunConfig
    """Its configuration."""
    agents: list[Agent]
    """One agent per seed."""
    updates: int
    """Number of updates done."""

    def __repr__(self) -> str:
        return notebook.plain(self.folder, self.config, self.updates)

    def _repr_html_(self) -> str:
        """What notebooks show: a table and learning curves."""
        return notebook.rich(self.folder, self.config, self.updates)

    @property
    def name(self) -> str:
        """Display name: its folder, or `zoo:NAME`."""
        return zoo.title(self.folder)

    def default_path(self, file: str) -> pathlib.Path:
        """Default path of an output file: in the run's folder, or for an agent of the zoo in the current one."""
        return pathlib.Path(f"{self.folder.name}-{file}") if zoo.is_shipped(self.folder) else self.folder / file

    def evaluate(
        self,
        *,
        episodes: int = 200,
        seeds: int = 10,
        player: Player = "trained",
        role: str | None = None,
        env: str | None = None,
        env_fields: dict[str, Any] | None = None,
    ) -> dict[str, Estimate]:
        """Mean and 95% interval of every measure over whole episodes, in the run's world or another with equal views.

        Every training seed plays at least `episodes`, split over `seeds` evaluation seeds. The interval is over
        training seeds, or over episodes if there is only one or if no trained policy plays (then it is evaluated once).
        With `role`, its policy acts on every turn.
        """
        with self.playing(episodes=episodes, seeds=seeds, env=env, env_fields=env_fields) as play_all:
            return summarise(play_all(player, role))

    @contextlib.contextmanager
    def playing(
        self,
        *,
        episodes: int = 200,
        seeds: int = 10,
        env: str | None = None,
        env_fields: dict[str, Any] | None = None,
    ) -> Iterator[Callable[[Player, str | None], list[dict[str, np.ndarray]]]]:
        """Yields a function of a player and a role (None for all) that returns every measure, one entry per episode,
        for each training seed. The world is opened and compiled once."""

        def play_all(player: Player, role: str | None) -> list[dict[str, np.ndarray]]:
            players: dict[str, Player] = dict.fromkeys(self.agents[0].method.roles, player)
            agents = self.agents if role is None else [alone(agent, role) for agent in self.agents]
            return dataclasses.replace(self, agents=agents)._play(world, players, episodes, seeds)

        with self._opened(env, env_fields, bodies=episodes) as world:
            yield play_all

    def cross_play(self, *, episodes: int = 200, seeds: int = 10) -> list[dict[str, Any]]:
        """Measures of all combinations of trained, random and (if an action does nothing) motionless players for the
        roles, so that policies are compared against the same opponents."""
        method = self.agents[0].method
        kinds = ("trained", "random") if method.spec.noop is None else ("trained", "random", "motionless")
        rows = []
        with self._opened(None, None, bodies=episodes) as world:
            for chosen in itertools.product(kinds, repeat=len(method.roles)):
                players: dict[str, Player] = dict(zip(method.roles, chosen, strict=True))
                measured = summarise(self._play(world, players, episodes, seeds))
                rows.append({**players, "measures": measured})
        return rows

    def player(self, role: str | None = None, *, index: int = 0, greedy: bool = False, seed: int = 0) -> AgentPlayer:
        """The agent of training seed number `index`, for your own loop; with `role`, only that role acts."""
        return AgentPlayer(self.agents[index], role=role, greedy=greedy, seed=seed)

    def _play(
        self, world: AbstractEnv | HostCollector, players: dict[str, Player], episodes: int, seeds: int
    ) -> list[dict[str, np.ndarray]]:
        """Episodes of each training seed, split over evaluation seeds; in a host world all bodies play at once, each
        with its own seed."""
        spec = world.spec if isinstance(world, AbstractEnv) else world.host.spec
        agents = [with_players(self._in(spec, agent), players) for agent in self.agents]
        if not plays_what_it_learnt(agents[0], players):
            agents = agents[:1]
        if isinstance(world, HostCollector):
            return play_host(world, agents, episodes=episodes, seed=EVALUATION_SEED)
        each, numbers = _share(episodes, seeds), range(EVALUATION_SEED, EVALUATION_SEED + seeds)
        return [pooled([play(world, agent, episodes=each, seed=seed) for seed in numbers]) for agent in agents]

    def replay(
        self,
        path: str | pathlib.Path | None = None,
        *,
        beside: "Trained | None" = None,
        episodes: int = 6,
    ) -> pathlib.Path:
        """Writes a page that replays episodes of every seed, alone or next to those of another run, and returns its
        path (default: `default_path("replay.html")`). Runs in the same world get the same layouts, and an agent of the
        zoo next to a run plays in the run's world if it can."""
        check_replayed(episodes)
        path = self.default_path("replay.html") if path is None else pathlib.Path(path)
        runs = [self.recorded(episodes)]
        if beside is not None:
            runs.append(beside.recorded(episodes, env_fields=beside._fields_beside(self)))
        write_page(path, runs)
        return path

    def film(
        self,
        path: str | pathlib.Path | None = None,
        *,
        episodes: int = 1,
        seed: int | None = None,
        world_seed: int = 0,
        fps: int = 8,
    ) -> pathlib.Path:
        """Writes a video of episodes of one training seed (default: the first) and returns its path (default:
        `default_path("film.mp4")`). The extension .gif gives a GIF, .png a contact sheet.

        It shows the first episodes of the replay; another `world_seed` gives other layouts and noise.
        """
        from advsurprise.evaluation import film

        path = self.default_path("film.mp4") if path is None else pathlib.Path(path)
        film.check(path, episodes=episodes, fps=fps)
        film.write(path, self.only(seed).recorded(episodes, world_seed=world_seed), fps=fps)
        return path

    def recorded(self, episodes: int, *, world_seed: int = 0, env_fields: dict[str, Any] | None = None) -> Replayed:
        """The run with some episodes of every seed, recorded step by step, with the layouts and noise of evaluation
        seed number `world_seed`. `env_fields` replace those of the run."""
        fields = self.config.env_fields if env_fields is None else env_fields
        config = dataclasses.replace(self.config, env_fields=fields)
        with recorder(config, episodes, world_seed=world_seed) as record_run:
            return record_run(dataclasses.replace(self, config=config))

    def only(self, seed: int | None = None) -> "Trained":
        """The run reduced to one training seed, by default the first."""
        seeds = self.config.seeds
        seed = seeds[0] if seed is None else seed
        if seed not in seeds:
            known = ", ".join(map(str, seeds))
            raise UserError(f"{self.folder} was not trained with seed {seed}; it has {known}")
        config = dataclasses.replace(self.config, seeds=(seed,))
        return dataclasses.replace(self, config=config, agents=[self.agents[seeds.index(seed)]])

    def _fields_beside(self, run: "Trained") -> dict[str, Any] | None:
        """Fields of a run's world, for an agent of the zoo that can act there; None to stay in its own."""
        if not zoo.is_shipped(self.folder) or self.config.env != run.config.env:
            return None
        same = _views(self.agents[0].method.spec) == _views(run.agents[0].method.spec)
        return run.config.env_fields if same else None

    @contextlib.contextmanager
    def _opened(
        self, env: str | None, env_fields: dict[str, Any] | None, *, bodies: int
    ) -> Iterator[AbstractEnv | HostCollector]:
        """The run's world or another one, closed afterwards."""
        kept = self.config.env_fields
        trust.allow(env)
        world = envs.find(env or self.config.env)
        if world.id != self.config.env:
            # In another world the policies must at least see as they were trained to.
            kept = {name: value for name, value in kept.items() if name in world.view_fields}
        fields = {**kept, **(env_fields or {})}
        if world.kind == "pure":
            yield world.make(**fields)
            return
        bodies = min(MAX_HOST_BODIES, bodies)
        seeds = min(len(self.agents), max(1, MAX_HOST_ROWS // bodies))
        host = world.open(bodies, seeds=seeds, **fields)
        try:
            yield evaluator(host)
        finally:
            host.close()

    def _in(self, theirs: EnvSpec, agent: Agent) -> Agent:
        """The agent for a world that may have another time limit or other rooms."""
        mine = agent.method.spec
        if _views(mine) != _views(theirs):
            both = mine.observation_kind == theirs.observation_kind == "classes"
            shared = "; room worlds show the same classes if trained with --set env.encoding=shared" if both else ""
            raise UserError(
                f"policies trained in {mine.id} cannot act in {theirs.id}: observations or actions differ{shared}"
            )
        method = methods.make(self.config.method, theirs, **self.config.method_fields)
        return Agent(method, agent.policies, agent.learnt)


def check_replayed(episodes: int) -> None:
    """Refuses a number of episodes that a page cannot show."""
    if not 1 <= episodes <= MAX_REPLAYED:
        raise UserError(f"a replay has from 1 to {MAX_REPLAYED} episodes, not {episodes}")


@contextlib.contextmanager
def recorder(cfg: RunConfig, episodes: int, *, world_seed: int = 0) -> Iterator[Callable[[Trained], Replayed]]:
    """Yields a function that records episodes of a run, also repeatedly: the world is opened and compiled once."""
    world = envs.find(cfg.env)
    env = world.make(**cfg.env_fields) if world.kind == "pure" else world.open(episodes, **cfg.env_fields)
    try:
        player, seed = make_player(env, episodes), EVALUATION_SEED + world_seed

        def record_run(trained: Trained) -> Replayed:
            here = dataclasses.replace(trained, agents=[trained._in(env.spec, agent) for agent in trained.agents])
            return _replayed(here, env, record(env, here.agents, episodes=episodes, seed=seed, player=player))

        yield record_run
    finally:
        if isinstance(env, Host):
            env.close()


def _replayed(trained: Trained, env: AbstractEnv | Host, recorded: list[list[Episode]]) -> Replayed:
    cfg = trained.config
    fields = {"env": cfg.env_fields, "method": cfg.method_fields}
    about = {
        "env": cfg.env,
        "method": cfg.method,
        "steps": trained.updates * cfg.steps_per_update,
        "settings": ", ".join(f"{of}.{name}={value}" for of, of_it in fields.items() for name, value in of_it.items()),
    }
    pure = None if isinstance(env, Host) else env
    seeds = dict(zip(cfg.seeds, recorded, strict=True))
    return Replayed(trained.name, pure, trained.agents[0].method, about, seeds)


def plays_what_it_learnt(agent: Agent, players: dict[str, Player]) -> bool:
    """Whether results depend on the training seed: some role is played by a trained policy."""
    return agent.method.trains and any(player in ("trained", "greedy") for player in players.values())


def _share(episodes: int, seeds: int) -> int:
    """Episodes per evaluation seed."""
    if episodes < seeds or seeds < 1:
        raise UserError(f"{episodes} episodes cannot be split over {seeds} evaluation seeds: each needs at least one")
    return -(-episodes // seeds)


def _views(spec: EnvSpec) -> tuple[Any, ...]:
    """What must match between a world and the one that policies were trained in."""
    return spec.observation_shape, spec.observation_kind, spec.num_classes, spec.num_actions


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
    track: str | None = None,
    **run_fields: Any,
) -> Trained:
    """Trains one seed with the command line's defaults; `out` defaults to a temporary folder. `track` is as in --track.

    Ctrl-C stops it after the current update: the run is saved and `KeyboardInterrupt` raised.

    If jax has not been used before, every core of the CPU becomes one of its devices, as on the command line.
    """
    devices.see_cores()
    trust.allow(env, method)
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
    result = run.train(cfg, folder, trackers=None if track is None else read_names(track))
    if result.signal:
        sentence = f"stopped after {result.steps:,} steps and saved; continue with: advsurprise resume {folder}"
        raise KeyboardInterrupt(sentence) if result.signal == signal.SIGINT else SystemExit(128 + result.signal)
    return load(folder)


def load(path: str | pathlib.Path, *, allow: str | Sequence[str] = ()) -> Trained:
    """Loads a run from its folder, or an agent that ships with the package (`zoo:NAME`). A world or method that is a
    class in a file or comes from a package is run only if you name it in `allow`."""
    trust.allow_all(allow)
    folder = zoo.folder(path)
    cfg, agents, updates = run.load_agents(folder)
    return Trained(folder, cfg, agents, updates)
