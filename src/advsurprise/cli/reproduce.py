"""The verb reproduce."""

import pathlib
from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from advsurprise.cli.flags import Json, optional
from advsurprise.cli.output import log, show
from advsurprise.errors import EXIT_FAILED, UserError


@dataclass(frozen=True)
class Reproduce:
    """Reproduce figures of the paper: train, evaluate the frozen policies, plot and check the claims. Safe to
    interrupt: run the same command again to continue."""

    figures: Annotated[Positional[tuple[str, ...]], arg(metavar="[FIGURE ...]", help_behavior_hint="(see --list)")] = ()
    """Figures to reproduce; the runs of several share the workers."""
    list: bool = False
    """List the figures: what each compares, its cost and its results."""
    scale: Literal["small", "full"] = "small"
    """small shows in minutes that everything works; full is what is published."""
    seeds: Annotated[int | None, optional("INT", "2, or 10 for full; see --list")] = None
    """Number of training seeds; for a figure without training, of seeds for layouts and noise."""
    first_seed: int = 0
    """First training seed, to add seeds to a figure: its runs then have a folder of their own."""
    steps: Annotated[str | None, optional("STEPS", "set by --scale")] = None
    """Environment steps per training seed, such as 5M."""
    arms: Annotated[tuple[str, ...], optional("ARM", "all")] = ()
    """Train only these arms of the figure. Results always cover all finished runs in the folder."""
    worlds: Annotated[tuple[str, ...], optional("WORLD", "all at this scale")] = ()
    """Train only in these worlds of the figure."""
    stages: Annotated[int | None, optional("INT", "1; 5 for games at full scale")] = None
    """Number of evaluations of the frozen policies, evenly spaced over training."""
    quick: bool = False
    """Evaluate sampled actions only; run again without --quick to add the other players."""
    workers: int = 1
    """Number of parallel runs; on a GPU with enough memory, four to six are three times as fast as one."""
    env_workers: Annotated[int | None, optional("INT", "about one per core")] = None
    """Worker processes per run in a game; results do not depend on it."""
    out: Annotated[pathlib.Path | None, optional("FOLDER", "runs/reproduce/FIGURE-SCALE")] = None
    """Output folder for runs and results."""
    runs: Annotated[pathlib.Path | None, optional("FOLDER", "--out, or that of the figure that trains them")] = None
    """Folder of the runs."""
    results: Annotated[pathlib.Path, optional("FOLDER", "results")] = pathlib.Path("results")
    """Folder in which --list looks for finished figures."""
    json: Json = False

    def run(self) -> None:
        from advsurprise.config import read_count
        from advsurprise.experiments import listing, reproduce

        if self.list:
            return show(listing.list_figures(self.results), listing.list_text, as_json=self.json)
        if not self.figures:
            raise UserError("name a figure, for example: advsurprise reproduce coverage; --list shows all")
        self._check_several()
        steps = None if self.steps is None else read_count("--steps", self.steps)
        requests = [
            reproduce.make_request(
                name,
                scale=self.scale,
                seeds=self.seeds,
                first_seed=self.first_seed,
                steps=steps,
                out=self.out,
                runs=self.runs,
                worlds=self.worlds,
                arms=self.arms,
                stages=self.stages,
                quick=self.quick,
                env_workers=self.env_workers,
            )
            for name in dict.fromkeys(self.figures)
        ]
        results = reproduce.reproduce(requests, workers=self.workers, log=log)
        made = results[0] if len(results) == 1 else {"figures": results}
        show(made, lambda _: reproduce.text(results), as_json=self.json)
        if results[0]["signal"]:
            raise SystemExit(128 + results[0]["signal"])
        if any(each["failed"] for each in results):
            raise SystemExit(EXIT_FAILED)

    def _check_several(self) -> None:
        """Refuses options that apply to a single figure."""
        given = {"--arms": self.arms, "--worlds": self.worlds, "--out": self.out, "--runs": self.runs}
        for flag, value in given.items():
            if value and len(set(self.figures)) > 1:
                raise UserError(f"{flag} is for one figure, not for {' and '.join(self.figures)}")
