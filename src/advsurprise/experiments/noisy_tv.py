"""RND and the noisy TV: its error on recurring observations, and on lights that never look the same twice.

    python -m advsurprise.experiments.noisy_tv

Bodies act at random in rooms/door, half of them starting in the noisy room and half in the dark one, and RND's
predictor learns from all their observations. Nothing else is trained. Errors are those of new observations, before
the predictor learns from them.
"""

import csv
import dataclasses
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Array, Bool, Float, PRNGKeyArray
from matplotlib.figure import Figure

from advsurprise import envs
from advsurprise.grid.tiles import NUM_COLOURS
from advsurprise.learning.collect import Carry, ScanCollector
from advsurprise.learning.fit import fit
from advsurprise.learning.interaction import Agent, make_agent
from advsurprise.learning.players import played_by
from advsurprise.methods.base import mean_where
from advsurprise.methods.rnd import RND, Learnt, Signal
from advsurprise.training import files
from advsurprise.types import Rollout

WORLDS = (("noisy", "dark"), ("dark", "noisy"))
"""Kinds of the rooms along the chain; bodies start in the first."""
KINDS = {
    "dark": "in the dark room, no light in view",
    "mixed": "in the dark room, lights seen through the door",
    "noisy": "in the noisy room",
}
COLOURS = {"dark": "#2c3e50", "mixed": "#95a5a6", "noisy": "#c0392b"}


@dataclass(frozen=True)
class Settings:
    """Size of the experiment and output files."""

    updates: int = 100
    """Updates of the predictor."""
    bodies: int = 16
    """Number of bodies, half of them in each world."""
    seed: int = 0
    """The random seed."""
    csv: Annotated[pathlib.Path, tyro.conf.arg(metavar="FILE")] = pathlib.Path("docs/results/rnd_noisy_tv.csv")
    """Output file of the numbers."""
    png: Annotated[pathlib.Path, tyro.conf.arg(metavar="FILE")] = pathlib.Path("docs/figures/rnd_noisy_tv.png")
    """Output file of the figure."""


def runs(settings: Settings) -> list[dict[str, float]]:
    """Runs the experiment: one row per update, with the mean error and the share of each kind of observation."""
    worlds = [envs.make("rooms/door", kinds=kinds) for kinds in WORLDS]
    method = RND(worlds[0].spec)
    collectors = [ScanCollector(env, settings.bodies // len(WORLDS), method.spec.max_steps) for env in worlds]
    agent_key, start_key, prime_key, run_key = jax.random.split(jax.random.key(settings.seed), 4)

    @jax.jit
    def begin():
        agent = played_by(make_agent(method, settings.bodies, key=agent_key), "random")
        keys = jax.random.split(start_key, len(WORLDS))
        return agent, [each.start(agent, key=key) for each, key in zip(collectors, keys, strict=True)]

    @jax.jit
    def collect(agent: Agent, carries: list[Carry], key: PRNGKeyArray):
        keys = jax.random.split(key, len(WORLDS))
        pairs = [each.collect(agent, *rest, key=k) for each, *rest, k in zip(collectors, carries, keys, strict=True)]
        return [carry for carry, _ in pairs], together([rollout for _, rollout in pairs])

    @jax.jit
    def learn(learnt: Learnt, rollout: Rollout, key: PRNGKeyArray):
        row = measured(method.errors(learnt, rollout.signal.obs), rollout, method.spec.num_classes)
        return method.learn(learnt, rollout, fit(method.fit_tasks(learnt, rollout, key=key)))[0], row

    agent, carries = begin()
    carries, rollout = collect(agent, carries, prime_key)
    learnt = jax.jit(method.prime)(agent.learnt, rollout)
    rows = []
    for number in range(settings.updates):
        collect_key, learn_key = jax.random.split(jax.random.fold_in(run_key, number))
        carries, rollout = collect(agent, carries, collect_key)
        learnt, row = learn(learnt, rollout, learn_key)
        rows.append({"update": number} | {name: float(value) for name, value in row.items()})
    return rows


def together(rollouts: Sequence[Rollout]) -> Rollout:
    """Merges the observations from several worlds into one rollout, with whether each was made in a dark room."""
    obs = jnp.concatenate([rollout.signal.obs for rollout in rollouts], axis=1)
    rooms = [jnp.asarray([kind == "dark" for kind in kinds]) for kinds in WORLDS]
    dark = jnp.concatenate([dark[r.info["room"]] for dark, r in zip(rooms, rollouts, strict=True)], axis=1)
    return dataclasses.replace(rollouts[0], signal=Signal(obs), info={"dark": dark})


def measured(error: Float[Array, "T B"], rollout: Rollout, classes: int) -> dict[str, Array]:
    """Mean error and share of each kind of observation."""
    row = {}
    for name, holds in kinds(rollout, classes).items():
        row |= {f"{name}/error": mean_where(holds, error), f"{name}/share": jnp.mean(holds.astype(jnp.float32))}
    return row


def kinds(rollout: Rollout, classes: int) -> dict[str, Bool[Array, "T B"]]:
    """Which observations are of each kind."""
    # The colours of lights are the last classes.
    lit = jnp.any(rollout.signal.obs >= classes - NUM_COLOURS, axis=(-2, -1))
    dark = rollout.info["dark"]
    return {"dark": dark & ~lit, "mixed": dark & lit, "noisy": ~dark}


def draw(rows: list[dict[str, float]], path: pathlib.Path) -> None:
    """Draws errors over updates on a logarithmic scale."""
    figure = Figure(figsize=(5.2, 3.2))
    axis = figure.subplots()
    for name, label in KINDS.items():
        errors = np.array([row[f"{name}/error"] for row in rows])
        seen = np.array([row[f"{name}/share"] for row in rows]) > 0
        share = np.mean([row[f"{name}/share"] for row in rows])
        axis.plot(np.flatnonzero(seen), errors[seen], color=COLOURS[name], label=f"{label} ({share:.0%} of steps)")
    axis.set_yscale("log")
    axis.set_xlabel("updates of the predictor")
    axis.set_ylabel("RND's error, ½ Σ (f − g)²")
    axis.legend(frameon=False, fontsize=7)
    axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    files.write_figure(path, figure, dpi=110)


def write(rows: list[dict[str, float]], path: pathlib.Path) -> None:
    """Writes all rows as CSV, with six digits."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: f"{value:.6g}" for name, value in row.items()} for row in rows)


def main() -> None:
    settings = tyro.cli(Settings, description=__doc__)
    rows = runs(settings)
    for path in (settings.csv, settings.png):
        path.parent.mkdir(parents=True, exist_ok=True)
    write(rows, settings.csv)
    draw(rows, settings.png)
    for name, label in KINDS.items():
        first, last = (np.mean([row[f"{name}/error"] for row in part]) for part in (rows[:1], rows[-10:]))
        print(f"{label:48} error {first:8.3f} at the start, {last:8.3f} at the end")


if __name__ == "__main__":
    main()
