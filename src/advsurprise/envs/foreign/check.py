"""`advsurprise check-env` for pure worlds of other JAX libraries: reports what is wrong.

Tracing detects code that cannot be compiled; tracing and running twice detects functions that depend on more than their
arguments.
"""

import contextlib
import re
import sys
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from advsurprise.envs.foreign import load, world
from advsurprise.envs.foreign.load import Made
from advsurprise.envs.foreign.spaces import describe_actions
from advsurprise.envs.foreign.world import ACTION, ForeignEnv
from advsurprise.envs.host.check import DENSITIES, Findings, as_problems, train_line, warnings_as_notes
from advsurprise.errors import require
from advsurprise.trust import allow
from advsurprise.types import TimeStep

BODIES = 8
STEPS = 500
"""Random steps of each body, within which an episode should end."""


class Played(NamedTuple):
    """Random play, axes [time, body, …]."""

    timestep: TimeStep
    """The world's timesteps."""
    seconds: float
    """Run time of the compiled program."""


def check(name: str, fields: dict[str, Any] | None = None) -> dict[str, Any]:
    """Makes a world, tries it out and reports, as `host.check` does; faults of the world are reported, not raised."""
    allow(name)
    findings, fields = Findings(), fields or {}
    library = name.partition(":")[0]
    if library in load.LIBRARIES:
        require(library, extra=library)
    report: dict[str, Any] = {"env": name, "ok": False, "problems": findings.problems, "notes": findings.notes}
    report |= {"observation": None, "actions": None, "kind": None, "density": None, "steps_per_s": None}
    # Keeps what the world prints out of the report.
    with contextlib.redirect_stdout(sys.stderr), warnings_as_notes(findings), as_problems(findings, "making it"):
        _examine(load.make(name, fields), findings, report)
    report["ok"] = not findings.problems
    report["train_with"] = train_line(name, fields) if report["ok"] else None
    return report


def _examine(made: Made, findings: Findings, report: dict[str, Any]) -> None:
    """Runs the checks in order, skipping those that an earlier fault makes meaningless."""
    with as_problems(findings, "action_space"):
        number, _ = describe_actions(made)
        report["actions"] = f"Discrete({number})"
    before, shapes = dict(vars(made.env)) if hasattr(made.env, "__dict__") else {}, None
    with as_problems(findings, "tracing it"):
        obs, state = world.read_reset(made)
        report["observation"] = world.form(obs)
        if report["actions"] is None:
            return  # a step cannot be traced without a valid action
        shapes = world.read_step(made, obs, state)
        reading = world.read_observations(made, obs, shapes)
        report |= {"kind": reading.kind, "density": DENSITIES[reading.kind]}
    for changed in _changed(before, made.env):
        findings.problem(
            f"{made.name}: reset or step_env changes the environment's attribute {changed!r}, which compiled code does "
            "only once; keep values that change in the state"
        )
    if shapes is not None and not findings.problems:
        _check_tracing(made, shapes, findings)
    if not findings.problems:
        with as_problems(findings, "running it"):
            _check_play(world.build(made), findings, report)


def _changed(before: dict[str, Any], env: Any) -> list[str]:
    """Attributes whose values changed."""
    after = vars(env) if hasattr(env, "__dict__") else {}
    return [name for name in sorted(before.keys() | after.keys()) if before.get(name) is not after.get(name)]


def _check_tracing(made: Made, state: Any, findings: Findings) -> None:
    """Checks that tracing twice gives the same program, constants included, as for any pure function."""
    key = jax.random.key(0)
    both = {
        "reset": lambda: jax.make_jaxpr(lambda key: world.reset(made, key))(key),
        "step_env": lambda: jax.make_jaxpr(lambda *each: world.step(made, *each))(key, state, ACTION),
    }
    for name, trace in both.items():
        once, again = trace(), trace()
        same = _text(once) == _text(again) and len(once.consts) == len(again.consts)
        if not same or not all(map(_equal, once.consts, again.consts)):
            findings.problem(
                f"{made.name}: {name} is not a pure function: tracing it twice gave two different programs; draw all "
                "randomness from key, and keep values that change in the state"
            )


def _text(program: Any) -> str:
    """A program as text, without memory addresses."""
    return re.sub(r"0x[0-9a-f]+", "", str(program))


def _equal(one: Any, other: Any) -> bool:
    return np.array_equal(np.asarray(one), np.asarray(other), equal_nan=np.asarray(one).dtype.kind == "f")


def _check_play(env: ForeignEnv, findings: Findings, report: dict[str, Any]) -> None:
    """Checks that random play gives finite numbers, ends episodes and depends on the key, and on nothing else."""
    program = jax.jit(lambda key: _play(env, key)).lower(jax.random.key(0)).compile()
    played = _timed(program, 0)
    again, other = _timed(program, 0).timestep, _timed(program, 1).timestep
    name, seen = env.spec.id, played.timestep
    if not all(map(_equal, jax.tree.leaves(seen), jax.tree.leaves(again))):
        findings.problem(f"{name}: the same key and actions gave different results the second time")
    for part, value in (("reward", seen.reward), ("observation", seen.obs), ("final observation", seen.final_obs)):
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            findings.problem(f"{name}: a {part} is not a finite number")
    if env.spec.num_classes and int(seen.obs.max()) >= env.spec.num_classes:
        findings.problem(f"{name}: an observation contains a class outside the {env.spec.num_classes} declared")
    if not (seen.terminated | seen.truncated).any():
        findings.note(f"no episode ended within {STEPS} random steps of {BODIES} bodies")
    if _equal(seen.obs, other.obs) and _equal(seen.reward, other.reward):
        findings.note(f"two keys gave the same {STEPS} steps: the world is deterministic or ignores the key")
    report["steps_per_s"] = round(BODIES * STEPS / played.seconds)


def _timed(program: Any, seed: int) -> Played:
    start = time.perf_counter()
    timestep = jax.block_until_ready(program(jax.random.key(seed)))
    return Played(jax.tree.map(np.asarray, timestep), time.perf_counter() - start)


def _play(env: ForeignEnv, key: Any) -> TimeStep:
    """The same random actions whatever the key, so that only the world's own randomness differs."""
    actions = jax.random.randint(jax.random.key(7), (STEPS, BODIES), 0, env.spec.num_actions)
    reset_key, step_key = jax.random.split(key)
    state, _ = jax.vmap(lambda key: env.reset(key=key))(jax.random.split(reset_key, BODIES))

    def step(state: Any, both: Any) -> tuple[Any, TimeStep]:
        action, key = both
        return jax.vmap(lambda s, a, k: env.step(s, a, key=k))(state, action, jax.random.split(key, BODIES))

    return jax.lax.scan(step, state, (actions.astype(jnp.int32), jax.random.split(step_key, STEPS)))[1]
