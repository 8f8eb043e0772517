"""The verb reproduce."""

import pathlib
from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from advsurprise.cli.output import log, show
from advsurprise.cli.verbs import Json, optional
from advsurprise.errors import EXIT_FAILED, UserError


@dataclass(frozen=True)
class Reproduce:
    """Make figures of the paper: train what they compare, measure the frozen policies, draw them and judge the claims.
    Can be stopped and given again."""

    figures: Annotated[Positional[tuple[str, ...]], arg(metavar="[FIGURE ...]", help_behavior_hint="(see --list)")] = ()
    """Which figures; the runs of several share the workers."""
    list: bool = False
    """List the figures: what each compares, what it costs, what came of it."""
    scale: Literal["small", "full"] = "small"
    """How much of it: small shows that everything works, in minutes; full is what is published."""
    seeds: Annotated[int | None, optional("INT", "2, or 10 for full; see --list")] = None
    """Training seeds, from 0 on; of a figure that trains nothing, seeds of layouts and noise."""
    steps: Annotated[str | None, optional("STEPS", "what the scale has")] = None
    """Environment steps of each training seed, such as 5M."""
    arms: Annotated[tuple[str, ...], optional("ARM", "all")] = ()
    """What to train, of the arms that the figure compares: a long figure can be made piece by piece. Results are of all
    finished runs in the folder."""
    worlds: Annotated[tuple[str, ...], optional("WORLD", "all of the scale's")] = ()
    """Where to train, of the figure's worlds."""
    stages: Annotated[int | None, optional("INT", "1; of games for full 5")] = None
    """How often the frozen policies are played, at equal distances of training."""
    quick: bool = False
    """Play the policies with sampled actions alone; given again without it, the other players play too."""
    workers: int = 1
    """Runs side by side: on a GPU that has room, four to six are three times as fast as one."""
    env_workers: Annotated[int | None, optional("INT", "about one per core")] = None
    """Worker processes of each run in a game; results do not depend on it."""
    out: Annotated[pathlib.Path | None, optional("FOLDER", "runs/reproduce/FIGURE-SCALE")] = None
    """Where runs and results go."""
    runs: Annotated[pathlib.Path | None, optional("FOLDER", "--out, or where the figure lies that trains them")] = None
    """Where the runs are."""
    results: Annotated[pathlib.Path, optional("FOLDER", "results")] = pathlib.Path("results")
    """Where --list looks for figures that were made."""
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
        asked = [
            reproduce.ask(
                name,
                scale=self.scale,
                seeds=self.seeds,
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
        results = reproduce.reproduce(asked, workers=self.workers, log=log)
        made = results[0] if len(results) == 1 else {"figures": results}
        show(made, lambda _: reproduce.text(results), as_json=self.json)
        if results[0]["signal"]:
            raise SystemExit(128 + results[0]["signal"])
        if any(each["failed"] for each in results):
            raise SystemExit(EXIT_FAILED)

    def _check_several(self) -> None:
        """Refuses options that mean one figure."""
        given = {"--arms": self.arms, "--worlds": self.worlds, "--out": self.out, "--runs": self.runs}
        for flag, value in given.items():
            if value and len(set(self.figures)) > 1:
                raise UserError(f"{flag} is for one figure, not for {' and '.join(self.figures)}")
