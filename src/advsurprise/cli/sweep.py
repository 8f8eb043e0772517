"""The verb sweep."""

import functools
import pathlib
import re
import shlex
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from tyro.conf import Positional, UseAppendAction, arg

from advsurprise.cli.flags import Json, Settings, optional
from advsurprise.cli.output import log, show
from advsurprise.errors import EXIT_FAILED, UserError

RETRIES = 3
"""How often a killed run is restarted by default."""


@dataclass(frozen=True)
class Sweep:
    """Train a table of runs in parallel, on this machine or a Ray cluster. Safe to interrupt: run the same command
    again to continue."""

    file: Annotated[Positional[pathlib.Path | None], optional("[FILE.toml]", "none")] = None
    """A table of runs, in the format of docs/scale.md. Flags and --set override its base."""
    grid: Annotated[
        UseAppendAction[tuple[tuple[str, ...], ...]],
        arg(metavar="FIELD=VALUE,VALUE [FIELD=…]", help_behavior_hint="(default: the file's)"),
    ] = ()
    """Values to try, such as ppo.lr=1e-4,3e-4 or method=smirl,rnd; every combination is a run."""
    env: Annotated[str | None, optional("ENV", "rooms/four")] = None
    """The environment."""
    method: Annotated[str | None, optional("METHOD", "adversarial-surprise")] = None
    """The method."""
    steps: Annotated[str | None, optional("STEPS", "2M")] = None
    """Environment steps per seed, such as 300k or 2M, rounded down to whole updates."""
    seeds: Annotated[str | None, optional("SEEDS", "0")] = None
    """Seeds of every run, trained together: a range (0..4), a list (0,3,7) or a single one (5)."""
    bodies: Annotated[str | None, optional("INT", "16")] = None
    """Parallel environments per seed."""
    settings: Settings = ()
    on: Literal["local", "ray"] = "local"
    """Processes on this machine, or Ray (extra `ray`): the cluster at RAY_ADDRESS, or else a local one."""
    workers: Annotated[int | None, optional("INT", "1, or as many as --gpu-share allows; ray: as many as fit")] = None
    """Number of parallel runs."""
    cpus: Annotated[int | None, optional("INT", "2, or 1 with a GPU")] = None
    """Cores that Ray reserves for each run."""
    gpu_share: Annotated[float | None, optional("FLOAT", "equal shares; ray: one GPU, if there is any")] = None
    """Fraction of a GPU for each run, such as 0.25; with Ray also a whole number of GPUs."""
    retries: int = RETRIES
    """How often to restart a run whose process or node was killed."""
    out: Annotated[pathlib.Path | None, optional("FOLDER", "runs/FILE, or runs/ENV-sweep")] = None
    """Output folder; with Ray, on a file system that all nodes share."""
    dry_run: bool = False
    """Train and write nothing; print the table."""
    json: Json = False

    def run(self) -> None:
        import jax

        from advsurprise.cli import table
        from advsurprise.evaluation import sweep

        self._check()
        # Leave the GPUs to the runs.
        jax.config.update("jax_platforms", "cpu")
        flags = {name: getattr(self, name) for name in table.FLAGS}
        words = [word for group in self.grid for word in group]
        read = table.read(self.file, flags=flags, settings=self.settings, grid=words)
        folder = self._folder(read.base.get("env", "rooms/four"))
        planned = sweep.Sweep(table.configs(read), self._command(folder))
        sweep.check(planned, folder)
        if self.dry_run:
            return show(sweep.plan(planned, folder), sweep.plan_text, as_json=self.json)
        about = {"on": self.on, "asked": {"base": read.base, "grid": read.grid, "runs": read.runs}}
        result = sweep.train(planned, folder, self._engine(folder), about=about, log=log)
        show(result, sweep.text, as_json=self.json)
        if result["signal"]:
            raise SystemExit(128 + result["signal"])
        if result["failed"]:
            raise SystemExit(EXIT_FAILED)

    def _check(self) -> None:
        for name in ("workers", "cpus"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise UserError(f"--{name} must be at least 1, not {value}")
        if self.retries < 0:
            raise UserError(f"--retries must be at least 0, not {self.retries}")
        share = self.gpu_share
        if share is not None and not (0 < share <= 1 or (self.on == "ray" and share >= 0 and share.is_integer())):
            raise UserError(f"--gpu-share must be above 0 and at most 1 (with Ray also a whole number), not {share:g}")
        if self.on == "ray":
            from advsurprise.errors import require

            require("ray", extra="ray")
        elif self.cpus is not None:
            raise UserError("--cpus is for --on ray: local runs share this machine's cores")

    def _engine(self, folder: pathlib.Path) -> Any:
        from advsurprise.training import jobs, ray_jobs

        shared: dict[str, Any] = {"folder": folder, "log": log, "gpu_share": self.gpu_share, "retries": self.retries}
        if self.on == "ray":
            return functools.partial(ray_jobs.run_jobs_on_ray, workers=self.workers, cpus=self.cpus, **shared)
        return functools.partial(jobs.run_jobs, workers=self.workers or jobs.room(self.gpu_share), **shared)

    def _folder(self, env: str) -> pathlib.Path:
        if self.out is not None:
            return self.out
        name = f"{env}-sweep" if self.file is None else self.file.stem
        return pathlib.Path("runs") / re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")

    def _command(self, folder: pathlib.Path) -> str:
        """The command line that runs the same sweep again."""
        words = ["advsurprise", "sweep", *([] if self.file is None else [str(self.file)])]
        for name in ("env", "method", "steps", "seeds", "bodies", "workers", "cpus", "gpu_share"):
            value = getattr(self, name)
            words += [] if value is None else [f"--{name.replace('_', '-')}", str(value)]
        words += [word for setting in self.settings for word in ("--set", setting)]
        grid = [word for group in self.grid for word in group]
        words += ["--grid", *grid] if grid else []
        words += ["--on", self.on] if self.on != "local" else []
        words += ["--retries", str(self.retries)] if self.retries != RETRIES else []
        return shlex.join([*words, "--out", str(folder)])
