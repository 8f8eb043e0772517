"""What is measured of a rollout, the same for every method: the world's measures, the method's, and common surprise.

Columns, each a mean over the steps that count:

    end/NAME                  the world's measure on the last step of an episode
    mean/NAME                 the same on every step: its time mean
    share/NAME/LOWER          the fraction of steps on which it is in the bin that starts at LOWER
    handover/ROLE/first/NAME  the same when the role's first turn of an episode ends
    handover/ROLE/all/NAME    the same when any of the role's turns ends
    NAME                      the method's own measure, or the world's measure of a whole game
    common_surprise           surprise of all observations under one model, the same for all methods
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from advsurprise import tree
from advsurprise.methods.base import AbstractMethod, density_for, ended, small_image
from advsurprise.types import GAME_OVER, EnvSpec, Measure, Measured, Rollout

OBSERVED_BODIES, OBSERVED_STEPS = 16, 128
"""Bodies, and last steps of a rollout, on which common surprise is measured while training (a whole episode, if its
length is fixed)."""


class Steps(eqx.Module):
    """What measures are computed from, step by step."""

    role: Int[Array, "T B"]
    """Which role acted."""
    over: Bool[Array, "T B"]
    """Steps that ended an episode."""
    info: dict[str, Shaped[Array, "T B"]]
    """The world's measures."""
    own: dict[str, Measured]
    """The method's measures."""


def steps_of(rollout: Rollout, method: AbstractMethod) -> Steps:
    """The part of a rollout that is measured."""
    return Steps(rollout.decision.role, ended(rollout), rollout.info, method.measure(rollout))


def rollout_metrics(rollout: Rollout, method: AbstractMethod) -> dict[str, Array]:
    """Every column of a rollout; nan where no step of it counts."""
    spec, steps = method.spec, steps_of(rollout, method)
    length, bodies = steps.over.shape
    # If the method restarts no episodes and rollouts hold whole ones, every rollout starts with an episode.
    whole = spec.max_steps > 0 and length % spec.max_steps == 0 and not method.makes_requests
    measured = columns(steps, method, begins=jnp.full(bodies, whole))
    newest, few = spec.max_steps or OBSERVED_STEPS, min(OBSERVED_BODIES, bodies)
    observed = rollout.views.newest[-newest:, :few]
    _, measured["common_surprise"] = common_surprise(observed, steps.over[-newest:, :few], spec, no_models(spec, few))
    return {"episodes": jnp.sum(steps.over, dtype=jnp.float32), **means(measured)}


def columns(steps: Steps, method: AbstractMethod, *, begins: Bool[Array, " B"]) -> dict[str, Measured]:
    """Every column but common surprise; `begins` marks the bodies whose first step starts an episode."""
    handovers = turn_ends(steps, method, begins) if len(method.roles) > 1 else {}
    measured, always = dict(steps.own), jnp.ones_like(steps.over)
    for measure in method.spec.measures:
        value = steps.info[measure.name].astype(jnp.float32)
        if measure.of_game:
            measured[measure.name] = Measured(value, steps.info[GAME_OVER] > 0)
            continue
        marks = {"end": steps.over, "mean": always}
        if measure.at_handover:
            marks |= {f"handover/{which}": counts for which, counts in handovers.items()}
        if measure.only_where:
            exists = steps.info[measure.only_where].astype(jnp.float32) > 0
            marks = {kind: exists & counts for kind, counts in marks.items()}
        measured |= {f"{kind}/{measure.name}": Measured(value, counts) for kind, counts in marks.items()}
        measured |= shares(measure, value, marks["mean"]) if measure.edges else {}
    return measured


def shares(measure: Measure, value: Float[Array, "T B"], counts: Bool[Array, "T B"]) -> dict[str, Measured]:
    """Whether a measure is in each of its bins, step by step; values outside count in the first or the last."""
    inner = jnp.asarray(measure.edges[1:-1], jnp.float32)
    bins = jnp.searchsorted(inner, value, side="right", method="compare_all")
    return {name: Measured((bins == index).astype(jnp.float32), counts) for index, name in enumerate(measure.shares)}


def turn_ends(steps: Steps, method: AbstractMethod, begins: Bool[Array, " B"]) -> dict[str, Bool[Array, "T B"]]:
    """Steps on which turns end, under `ROLE/first` and `ROLE/all`: the last before another role acts or the episode
    ends. What follows the last step is unknown, and an episode whose start is not included has no first turn."""
    changes = jnp.concatenate([steps.role[1:] != steps.role[:-1], jnp.zeros_like(steps.over[:1])])
    ends = changes | steps.over
    starts = jnp.concatenate([begins[None], steps.over[:-1]])
    marks: dict[str, Bool[Array, "T B"]] = {}
    for index, role in enumerate(method.roles):
        own = ends & (steps.role == index)
        before = jnp.cumsum(own, axis=0, dtype=jnp.int32) - own.astype(jnp.int32)
        # Turns that the role had ended when the episode started; -1 before any start.
        at_start = jax.lax.cummax(jnp.where(starts, before, -1), axis=0)
        marks |= {f"{role}/first": own & (before == at_start), f"{role}/all": own}
    return marks


def common_surprise(
    observed: Shaped[Array, "T B *shape"], over: Bool[Array, "T B"], spec: EnvSpec, stats: Any
) -> tuple[Any, Measured]:
    """Surprise of every observation that bodies acted on, in nats, under a model that is the same for all methods:

        −log p_θ(o_t),  θ fitted on o_0 … o_{t−1} of the episode, scored first and then added.

    The first observation of an episode does not count. `stats` are every body's θ before the first step; those after
    the last are returned with the measure. Of images the model sees only the newest, downscaled to the size that the
    world sets for density models.
    """
    density, empty = density_for(spec), no_model(spec)

    def one(stats, obs, ends):
        obs = small_image(spec, obs) if spec.observation_kind == "image" else obs
        known = stats.count > 0
        value = jnp.where(known, -density.log_prob(stats, obs), 0.0)
        return tree.select(ends, empty, density.update(stats, obs)), (value, known)

    stats, measured = jax.lax.scan(lambda stats, now: jax.vmap(one)(stats, *now), stats, (observed, over))
    return stats, Measured(*measured)


def no_models(spec: EnvSpec, bodies: int) -> Any:
    """An empty θ for every body."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (bodies, *leaf.shape)), no_model(spec))


def no_model(spec: EnvSpec) -> Any:
    """An empty θ."""
    obs = jax.ShapeDtypeStruct(spec.observation_shape, spec.observation_dtype)
    if spec.observation_kind == "image":
        obs = jax.eval_shape(lambda obs: small_image(spec, obs), obs)
    return density_for(spec).init(obs.shape)


def means(measured: dict[str, Measured]) -> dict[str, Float[Array, ""]]:
    """Means over the steps that count; nan if there are none. Columns that count the same steps are summed together:
    otherwise that is a tenth of the program."""
    alike: dict[int, list[str]] = {}
    for name, each in measured.items():
        alike.setdefault(id(each.counts), []).append(name)
    by_name: dict[str, Float[Array, ""]] = {}
    for names in alike.values():
        counts = measured[names[0]].counts
        values = jnp.stack([measured[name].value.reshape(-1) for name in names])
        number = jnp.sum(counts, dtype=jnp.float32)
        total = jnp.sum(jnp.where(counts.reshape(-1), values, 0.0), axis=1)
        mean = jnp.where(number > 0, total / jnp.maximum(number, 1.0), jnp.nan)
        by_name |= {name: mean[index] for index, name in enumerate(names)}
    return {name: by_name[name] for name in measured}
