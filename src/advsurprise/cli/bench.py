"""The verb bench: speed, agreement with MiniGrid, and recovery from crashes."""

from dataclasses import dataclass
from typing import Annotated, Any

from tyro.conf import Positional, UseAppendAction, arg, subcommand

from advsurprise.cli.flags import EnvSettings, Json, optional
from advsurprise.cli.output import log, show
from advsurprise.errors import EXIT_FAILED


@dataclass(frozen=True)
class BenchWorlds:
    """Time an environment with random actions, compiled and through Gymnasium, and compare it with MiniGrid."""

    world: Annotated[Positional[str], arg(metavar="[ENV]")] = "rooms/four"
    """The environment to time."""
    bodies: tuple[int, ...] = (1, 16, 64, 256, 1024, 4096)
    """Numbers of parallel environments, one row each."""
    seconds: float = 2.0
    """Seconds to time each row for, after compiling."""
    settings: EnvSettings = ()
    gymnasium: bool = True
    """Also time a room world through Gymnasium: one body, and a vector of 64 (or the nearest of --bodies)."""
    minigrid: bool = True
    """Also time Farama MiniGrid's MultiRoom-N4-S5 in one process."""
    json: Json = False

    def run(self) -> None:
        from advsurprise.bench import worlds

        result = worlds.run(
            self.world,
            settings=self.settings,
            bodies=self.bodies,
            seconds=self.seconds,
            gymnasium=self.gymnasium,
            minigrid=self.minigrid,
            log=log,
        )
        show(result, worlds.text, as_json=self.json)


@dataclass(frozen=True)
class BenchTrain:
    """Time full training updates, and compare their throughput with that of a large matrix product."""

    env: Annotated[str, arg(metavar="ENV")] = "rooms/four"
    """The environment."""
    method: Annotated[str, arg(metavar="METHOD")] = "adversarial-surprise"
    """The method, or several (a,b,c), one row each."""
    bodies: tuple[int, ...] = (16, 64)
    """Numbers of parallel environments per seed, one row each."""
    seeds: tuple[int, ...] = (1,)
    """Numbers of seeds trained together, one row each."""
    updates: int = 5
    """Updates to time per row, after one warm-up update."""
    settings: Annotated[
        UseAppendAction[tuple[str, ...]],
        arg(name="set", metavar="FIELD=VALUE", help="Change any field: ppo.minibatch=1024, env.rooms=6 …"),
    ] = ()
    json: Json = False

    def run(self) -> None:
        from advsurprise.bench import train
        from advsurprise.learning import devices

        devices.see_cores()
        result = train.run(self.env, **_updates(self))
        show(result, train.text, as_json=self.json)


@dataclass(frozen=True)
class BenchHost:
    """Time a host world: stepping only, stepping with policies, and training, in one run."""

    env: Annotated[str, arg(metavar="ENV")]
    """The environment."""
    method: Annotated[str, arg(metavar="METHOD")] = "adversarial-surprise"
    """The method, or several (a,b,c), one row each."""
    bodies: tuple[int, ...] = (16,)
    """Numbers of parallel environments per seed, one row each."""
    seeds: int = 1
    """Number of seeds trained together."""
    updates: int = 3
    """Updates to time per row, after one warm-up update."""
    peer: bool = True
    """Also time Stable-Baselines3's PPO in an Atari game, if it is installed."""
    settings: Annotated[
        UseAppendAction[tuple[str, ...]],
        arg(name="set", metavar="FIELD=VALUE", help="Change any field: rollout=128, env.workers=4 …"),
    ] = ()
    json: Json = False

    def run(self) -> None:
        from advsurprise.bench import hosts

        result = hosts.run(self.env, **_updates(self), with_peer=self.peer)
        show(result, hosts.text, as_json=self.json)


@dataclass(frozen=True)
class BenchAtari(BenchHost):
    """Time an Atari game: stepping only, stepping with policies, and training, in one run."""

    env: Annotated[str, arg(metavar="ENV")] = "atari/freeway"
    """The game."""


@dataclass(frozen=True)
class BenchDoom(BenchHost):
    """Time a Doom scenario: stepping only, stepping with policies, and training, in one run."""

    env: Annotated[str, arg(metavar="ENV")] = "doom/take-cover"
    """The scenario."""


@dataclass(frozen=True)
class BenchForeign:
    """Time training in a world of another JAX library, and compare it with plain PPO in the same world."""

    env: Annotated[str, arg(metavar="ENV")] = "gymnax:Breakout-MinAtar"
    """The environment: gymnax:NAME, pgx:NAME or package.module:function."""
    method: Annotated[str, arg(metavar="METHOD")] = "adversarial-surprise,rnd,smirl"
    """The methods (a,b,c), one row each."""
    bodies: int = 64
    """Number of parallel environments per seed."""
    seeds: int = 5
    """Number of seeds trained together."""
    updates: int = 5
    """Updates to time per row, after one warm-up update."""
    settings: Annotated[
        UseAppendAction[tuple[str, ...]],
        arg(name="set", metavar="FIELD=VALUE", help="Change any field: rollout=128, env.max_steps_in_episode=500 …"),
    ] = ()
    json: Json = False

    def run(self) -> None:
        from advsurprise.bench import foreign
        from advsurprise.learning import devices

        devices.see_cores()
        result = foreign.run(self.env, **_updates(self))
        show(result, foreign.text, as_json=self.json)


def _updates(bench: BenchTrain | BenchHost | BenchForeign) -> dict[str, Any]:
    """Keyword arguments shared by the benchmarks of training."""
    from advsurprise.cli.resolve import resolve

    flags = {name: getattr(bench, name) for name in ("bodies", "seeds", "updates", "settings")}
    return flags | {"methods": bench.method.split(","), "resolve": resolve, "log": log}


@dataclass(frozen=True)
class BenchOracle:
    """Step the room worlds in lockstep with Farama MiniGrid and count the steps on which they differ."""

    steps: int = 200_000
    """Total steps, split evenly over the worlds and both view sizes."""
    seed: int = 0
    """Seed of layouts and actions."""
    json: Json = False

    def run(self) -> None:
        from advsurprise.bench import oracle

        result = oracle.run(steps=self.steps, seed=self.seed, log=log)
        show(result, oracle.text, as_json=self.json)
        if result["mismatches"]:
            raise SystemExit(EXIT_FAILED)


@dataclass(frozen=True)
class BenchDrill:
    """Kill training runs at random times, resume them and compare every byte; fuzz commands and files."""

    kills: int = 10
    """Runs to kill, spread over the methods and worlds."""
    fuzz: int = 1000
    """Random command lines, configurations, checkpoints, theory worlds and metrics files to try."""
    methods: Annotated[str | None, optional("METHOD[,…]", "all")] = None
    """Methods whose runs are killed."""
    envs: Annotated[str | None, optional("ENV[,…]", "room worlds, atari/freeway and doom/take-cover")] = None
    """Worlds to train them in."""
    seed: int = 0
    """Seed of the kill times and of the random commands."""
    workers: int = 1
    """Number of parallel processes."""
    json: Json = False

    def run(self) -> None:
        from advsurprise.bench import drill
        from advsurprise.cli.main import main

        result = drill.run(
            kills=self.kills,
            fuzz=self.fuzz,
            main=main,
            methods=self.methods.split(",") if self.methods else (),
            envs=self.envs.split(",") if self.envs else (),
            seed=self.seed,
            workers=self.workers,
            log=log,
        )
        show(result, drill.text, as_json=self.json)
        if drill.failed(result):
            raise SystemExit(EXIT_FAILED)


@dataclass(frozen=True)
class Bench:
    """Benchmark environments and training, check the room worlds against MiniGrid, or drill crash recovery."""

    what: Annotated[
        Annotated[BenchWorlds, subcommand("worlds")]
        | Annotated[BenchTrain, subcommand("train")]
        | Annotated[BenchAtari, subcommand("atari")]
        | Annotated[BenchDoom, subcommand("doom")]
        | Annotated[BenchForeign, subcommand("foreign")]
        | Annotated[BenchOracle, subcommand("oracle")]
        | Annotated[BenchDrill, subcommand("drill")],
        arg(name=""),  # a prefix would show up as a heading in the help
    ]

    def run(self) -> None:
        self.what.run()
