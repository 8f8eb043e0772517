"""What is measured of a rollout, the same for every method: the world's own measures, and how surprising it was."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from advsurprise import tree
from advsurprise.methods.base import AbstractMethod, density_for, ended, mean_where
from advsurprise.types import EnvSpec, Rollout

OBSERVED_BODIES, OBSERVED_STEPS = 16, 128
"""How much is measured of the surprise of a rollout while training: so many bodies, for so many of its last steps (a
whole episode, where their length is fixed)."""


def rollout_metrics(rollout: Rollout, method: AbstractMethod) -> dict[str, Array]:
    """The world's measures at the end of episodes (`end/…`) and averaged over time (`mean/…`), and the method's own."""
    spec = method.spec
    over = ended(rollout).astype(jnp.float32)
    metrics: dict[str, Array] = {"episodes": jnp.sum(over)}
    only_where = {measure.name: measure.only_where for measure in spec.measures}
    for name, value in rollout.info.items():
        value = value.astype(jnp.float32)
        counted = over
        if only_where[name]:
            counted = jnp.where(rollout.info[only_where[name]] > 0, over, 0.0)
        metrics[f"end/{name}"] = jnp.sum(value * counted) / jnp.maximum(jnp.sum(counted), 1.0)
        metrics[f"mean/{name}"] = jnp.mean(value)
    found, scored = surprise(rollout, spec, min(OBSERVED_BODIES, over.shape[1]), spec.max_steps or OBSERVED_STEPS)
    own = {name: mean_where(each.counts, each.value) for name, each in method.measure(rollout).items()}
    return metrics | own | {"common_surprise": mean_where(scored, found)}


def surprise(
    rollout: Rollout, spec: EnvSpec, bodies: int, steps: int
) -> tuple[Float[Array, "t {bodies}"], Bool[Array, "t {bodies}"]]:
    """Surprise of what the first bodies saw before each of the last steps, in nats, whatever the method models itself:

        −log p_θ(o_t),  θ fitted on o_0 … o_{t−1} of the episode, scored first and then added.

    Also which steps have one: the first observation of an episode has not, nor has the very first.
    """
    density = density_for(spec)
    empty = density.init(spec.observation_shape)

    def one(stats, obs, ends):
        known = stats.count > 0
        found = jnp.where(known, -density.log_prob(stats, obs), 0.0)
        return tree.select(ends, empty, density.update(stats, obs)), (found, known)

    begin = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (bodies, *leaf.shape)), empty)
    seen = rollout.decision.view.frames[-steps:, :bodies, -1], ended(rollout)[-steps:, :bodies]
    return jax.lax.scan(lambda stats, now: jax.vmap(one)(stats, *now), begin, seen)[1]
