"""Steps per second of a pure world: whole episodes of random actions, compiled into one program; and step by step
through Gymnasium, next to Farama MiniGrid."""

import functools
import itertools
import time
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from advsurprise.bench import face
from advsurprise.envs import find
from advsurprise.envs.base import AbstractEnv
from advsurprise.envs.rooms import WORLDS
from advsurprise.errors import MissingExtra, UserError

EPISODES_PER_CALL = 2
"""Episodes of each body per call of the compiled program, so that new layouts are part of the timing."""
USUAL_STEPS = 128
"""Assumed length of an episode in worlds without a fixed one."""
USUAL_BODIES = 64
"""Bodies of the vector environment that is compared with MiniGrid; the row with the nearest number is used."""


def run(
    world: str,
    *,
    settings: Iterable[str],
    bodies: Iterable[int],
    seconds: float,
    gymnasium: bool,
    minigrid: bool,
    log: Callable[[str], None],
) -> dict[str, Any]:
    """One row per number of bodies; then, interleaved, MiniGrid, the world through Gymnasium, and the compiled loop."""
    bodies = tuple(bodies)
    if not bodies or min(bodies) < 1:
        raise UserError("--bodies takes whole numbers from 1")
    if seconds <= 0:
        raise UserError(f"--seconds must be positive, not {seconds}")
    entry = find(world)
    fields = entry.parse(settings)
    env = entry.make(**fields)
    device = jax.devices()[0]
    log(f"{world} on {device.device_kind}: {_episode_steps(env)} steps per body and episode")
    rows = []
    for number in bodies:
        log(f"{number} bodies: compiling …")
        rows.append(time_world(env, number, seconds))
        log(_row_text(rows[-1]))
    result: dict[str, Any] = {"device": device.device_kind, "rows": rows}
    row = min(rows, key=lambda row: abs(row["bodies"] - USUAL_BODIES))
    contenders = []
    if minigrid:
        log(f"Farama MiniGrid, {face.MINIGRID_ID} …")
        try:
            contenders.append(face.minigrid())
        except MissingExtra as missing:
            result["note"] = str(missing)
    if gymnasium and world in WORLDS:
        log("through Gymnasium …")
        contenders.append(face.one_body(world, fields))
        contenders.append(face.vector(world, fields, row["bodies"]))
        contenders.append(_compiled(env, row["bodies"]))
    result["interleaved"] = face.compare(contenders, seconds)
    return result | _ratios(result["interleaved"], row)


def _ratios(interleaved: list[dict[str, Any]], row: dict[str, Any]) -> dict[str, Any]:
    """MiniGrid's speed and the ratio of the compiled row to it; adds a ratio to each contender."""
    if not interleaved or interleaved[0]["name"] != face.MINIGRID:
        return {"minigrid_steps_per_s": None, "ratio": None}
    speed, cpu_speed = interleaved[0]["steps_per_s"], interleaved[0]["steps_per_cpu_s"]
    for each in interleaved:
        each["ratio"] = round(each["steps_per_s"] / speed, 2)
        each["cpu_ratio"] = round(each["steps_per_cpu_s"] / cpu_speed, 2)
    return {
        "minigrid_steps_per_s": speed,
        "ratio": round(row["steps_per_s"] / speed, 1),
        "ratio_bodies": row["bodies"],
    }


def text(result: dict[str, Any]) -> str:
    """The result as text."""
    lines = [f"{'bodies':>8} {'steps/s':>13} {'compile':>9}   on {result['device']}"]
    lines += [_row_text(row) for row in result["rows"]]
    if result.get("ratio"):
        lines.append(
            f"Farama MiniGrid: {result['minigrid_steps_per_s']:,.0f} steps/s in one process; "
            f"ratio {result['ratio']:,.1f} at {result['ratio_bodies']} bodies"
        )
    if result["interleaved"]:
        lines.append(f"Interleaved, best of {face.ROUNDS} rounds:")
        lines += [_turn_text(row) for row in result["interleaved"]]
    return "\n".join(lines)


def _turn_text(row: dict[str, Any]) -> str:
    ratio = f"{row['ratio']:>7.1f} x MiniGrid, {row['cpu_ratio']:.1f} x by CPU time" if "ratio" in row else ""
    return (
        f"{row['bodies']:>8} {row['steps_per_s']:>13,.0f} {row['first_s']:>7.1f} s   {row['name']:<20} {ratio}".rstrip()
    )


def _row_text(row: dict[str, Any]) -> str:
    return f"{row['bodies']:>8} {row['steps_per_s']:>13,.0f} {row['compile_s']:>7.1f} s"


def _episode_steps(env: AbstractEnv) -> int:
    """Length of an episode, or an assumed one if episodes differ in length."""
    return env.spec.max_steps or USUAL_STEPS


def time_world(env: AbstractEnv, bodies: int, seconds: float) -> dict[str, Any]:
    """Compiles, warms up, and takes the median over calls until `seconds` have passed (at least three calls)."""
    steps = EPISODES_PER_CALL * _episode_steps(env)
    play, compile_s = _compile(env, bodies, steps)
    durations: list[float] = []
    while sum(durations) < seconds or len(durations) < 3:
        key = jax.random.key(len(durations) + 1)
        start = time.perf_counter()
        jax.block_until_ready(play(key))
        durations.append(time.perf_counter() - start)
    return {
        "env": env.spec.id,
        "bodies": bodies,
        "steps_per_s": round(bodies * steps / float(np.median(durations)), 1),
        "compile_s": round(compile_s, 2),
        "calls": len(durations),
    }


def _compiled(env: AbstractEnv, bodies: int) -> face.Contender:
    """The compiled loop as a contender."""
    steps = EPISODES_PER_CALL * _episode_steps(env)
    play, compile_s = _compile(env, bodies, steps)
    seeds = itertools.count(1)

    def play_episodes() -> int:
        jax.block_until_ready(play(jax.random.key(next(seeds))))
        return bodies * steps

    return face.Contender("compiled loop", bodies, compile_s, play_episodes)


@functools.lru_cache
def _compile(env: AbstractEnv, bodies: int, steps: int) -> tuple[Callable, float]:
    """The compiled program, after one warm-up run, and its compile time in seconds."""
    start = time.perf_counter()
    play = _play.lower(env, bodies, steps, jax.random.key(0)).compile()
    compile_s = time.perf_counter() - start
    jax.block_until_ready(play(jax.random.key(0)))
    return play, compile_s


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _play(env: AbstractEnv, bodies: int, steps: int, key):
    """Sums over everything observed, so that XLA cannot eliminate any of it."""
    reset_key, play_key = jax.random.split(key)
    state, first = jax.vmap(lambda k: env.reset(key=k))(jax.random.split(reset_key, bodies))

    def step(carry, key):
        state, seen = carry
        action_key, world_key = jax.random.split(key)
        action = jax.random.randint(action_key, (bodies,), 0, env.spec.num_actions)
        keys = jax.random.split(world_key, bodies)
        state, timestep = jax.vmap(lambda s, a, k: env.step(s, a, key=k))(state, action, keys)
        used = (timestep.obs, timestep.final_obs, timestep.info, timestep.terminated, timestep.truncated)
        return (state, seen + _digest(used)), None

    begin = (state, _digest((first.obs, first.info)))
    return jax.lax.scan(step, begin, jax.random.split(play_key, steps))[0][1]


def _digest(tree) -> jax.Array:
    """A number that depends on every leaf; leaves are summed per body first, which costs one reduction in total."""
    per_body = [jnp.sum(leaf.reshape(leaf.shape[0], -1).astype(jnp.float32), axis=1) for leaf in jax.tree.leaves(tree)]
    return jnp.sum(sum(per_body[1:], per_body[0]))
