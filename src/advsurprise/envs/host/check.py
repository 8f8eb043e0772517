"""`advsurprise check-env`: reports what is wrong with an environment before a training run fails."""

import contextlib
import json
import numbers
import re
import shlex
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env, data_equivalence

from advsurprise.envs.host.gymnasium import open_host
from advsurprise.envs.host.load import make_env, sentence
from advsurprise.envs.host.spaces import Reading, read_actions, read_metadata, read_observations, short
from advsurprise.errors import UserError

WALK_STEPS = 1000
"""Random steps within which an episode should end."""
WALK_SECONDS = 5.0
"""Time limit for these steps."""
SEED_STEPS = 50
"""Steps that must be the same for the same seed."""
SPEED_BODIES = 4
SPEED_SECONDS = 0.5
DENSITIES = {"classes": "categorical", "image": "gaussian", "vector": "gaussian"}
"""The density model that fits each kind of observation."""


@dataclass
class Findings:
    """The results of a check."""

    problems: list[str] = field(default_factory=list)
    """What must be fixed."""
    notes: list[str] = field(default_factory=list)
    """What is worth knowing."""

    def problem(self, text: str) -> None:
        """Adds a problem, without duplicates."""
        if text not in self.problems:
            self.problems.append(text)

    def note(self, text: str) -> None:
        """Adds a note, without duplicates."""
        if text not in self.notes:
            self.notes.append(text)


def check(name: str, kwargs: dict[str, Any] | None = None) -> dict[str, Any]:
    """Makes an environment, tries it out and reports (see `text`); its faults are reported, not raised."""
    findings = Findings()
    report: dict[str, Any] = {"env": name, "ok": False, "problems": findings.problems, "notes": findings.notes}
    report |= {"observation": None, "actions": None, "kind": None, "density": None, "steps_per_s": None}
    # Keeps what the environment prints out of the report.
    with contextlib.redirect_stdout(sys.stderr), warnings_as_notes(findings):
        _examine(name, kwargs, findings, report)
    report["ok"] = not findings.problems
    report["train_with"] = train_line(name, kwargs) if report["ok"] else None
    return report


def text(report: dict[str, Any]) -> str:
    """The report as text."""
    lines = [f"{report['env']}: {'ready to train' if report['ok'] else 'not ready'}"]
    lines += [f"  problem   {problem}" for problem in report["problems"]]
    if report["observation"]:
        lines.append(f"  sees      {report['observation']}" + (f", as {report['kind']}" if report["kind"] else ""))
    if report["actions"]:
        lines.append(f"  does      {report['actions']}")
    if report["density"]:
        lines.append(f"  density   {report['density']}")
    if report["steps_per_s"]:
        lines.append(f"  speed     {report['steps_per_s']} steps/s")
    lines += [f"  note      {note}" for note in report["notes"]]
    if report["train_with"]:
        lines.append(f"Train with: {report['train_with']}")
    return "\n".join(lines)


def _examine(name: str, kwargs: dict[str, Any] | None, findings: Findings, report: dict[str, Any]) -> None:
    """Runs the checks in order, skipping those that an earlier fault makes meaningless."""
    try:
        env = make_env(name, kwargs)
    except UserError as error:
        return findings.problem(str(error))
    if not _has_spaces(env, findings):
        return None
    report |= {"observation": short(env.observation_space), "actions": short(env.action_space)}
    reading = _read(env, name, findings)
    if reading is not None:
        report |= {"kind": reading.kind, "density": DENSITIES[reading.kind]}
    if _answers_well(env, findings):
        _walk(env, findings)
        _check_seeds(env, name, kwargs, findings)
        _check_gymnasium(env, findings)
    if not findings.problems:
        report["steps_per_s"] = _speed(name, kwargs, findings)
    _close(env, findings)
    return None


def _has_spaces(env: gymnasium.Env, findings: Findings) -> bool:
    for part in ("observation_space", "action_space"):
        space = getattr(env, part, None)
        if not isinstance(space, gymnasium.Space):
            what = "but is missing" if space is None else f"not {space!r}"
            findings.problem(f"{part} must be a gymnasium space, {what}")
    return not findings.problems


def _read(env: gymnasium.Env, name: str, findings: Findings) -> Reading | None:
    reading = None
    with as_problems(findings):
        reading = read_observations(env.observation_space, name)
    with as_problems(findings):
        read_metadata(env.metadata, read_actions(env.action_space, name), name)
    return reading


@contextlib.contextmanager
def as_problems(findings: Findings, what: str = "") -> Iterator[None]:
    """Turns an exception into a problem: a `UserError` as is, any other with what was being done."""
    try:
        yield
    except UserError as error:
        findings.problem(str(error))
    except Exception as error:
        findings.problem(f"{what} raised {sentence(error)}")


@contextlib.contextmanager
def warnings_as_notes(findings: Findings) -> Iterator[None]:
    """Records warnings as notes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        plain = re.sub(r"\x1b\[[0-9;]*m", "", str(warning.message))
        findings.note(" ".join(plain.removeprefix("WARN: ").split()))


def _answers_well(env: gymnasium.Env, findings: Findings) -> bool:
    """Tries a reset and a step of the unwrapped environment: wrappers would fail on malformed results."""
    bare = env.unwrapped
    known = len(findings.problems)
    with as_problems(findings, "reset(seed=0)"):
        answer = bare.reset(seed=0)
        if not isinstance(answer, tuple) or len(answer) != 2:
            findings.problem(f"reset must return (observation, info), not {_form(answer)}")
    if len(findings.problems) > known:
        return False
    bare.action_space.seed(0)
    action = bare.action_space.sample()
    with as_problems(findings, f"step({action})"):
        answer = bare.step(action)
        if not isinstance(answer, tuple) or len(answer) != 5:
            findings.problem(
                f"step must return (observation, reward, terminated, truncated, info), not {_form(answer)}"
            )
    return len(findings.problems) == known


def _form(answer: object) -> str:
    return f"a tuple of {len(answer)}" if isinstance(answer, tuple) else f"a {type(answer).__name__}"


def _walk(env: gymnasium.Env, findings: Findings) -> None:
    """Takes random steps through some episodes and checks every result."""
    env.action_space.seed(0)
    ended = False
    with as_problems(findings, "taking random steps"):
        obs, info = env.reset(seed=0)
        _check_observation("reset", obs, env.observation_space, findings)
        _check_info("reset", info, findings)
        ended = _episode_ends(env, findings)
    if not findings.problems and not ended:
        findings.note(f"no episode ended within {WALK_STEPS} random steps or {WALK_SECONDS:.0f} seconds")


def _episode_ends(env: gymnasium.Env, findings: Findings) -> bool:
    """Takes steps until there is a problem or a limit is reached; returns whether an episode ended."""
    ended = False
    deadline = time.monotonic() + WALK_SECONDS
    for _ in range(WALK_STEPS):
        obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
        _check_observation("step", obs, env.observation_space, findings)
        _check_step(reward, terminated, truncated, info, findings)
        if terminated or truncated:
            ended = True
            env.reset()
        if findings.problems or time.monotonic() > deadline:
            break
    return ended


def _check_observation(where: str, obs: Any, space: gymnasium.Space, findings: Findings) -> None:
    if space.contains(obs):
        return
    array = np.asarray(obs)
    if space.shape is not None and array.shape != space.shape:
        fault = f"has shape {array.shape}, but observation_space declares {space.shape}"
    elif space.dtype is not None and not np.can_cast(array.dtype, space.dtype):
        fault = f"has dtype {array.dtype}, but observation_space declares {space.dtype}"
    elif array.dtype.kind == "f" and np.isnan(array).any():
        fault = "contains NaN"
    else:
        fault = f"is not within observation_space {short(space)}: it is {short(obs)}"
    findings.problem(f"the observation of {where} {fault}")


def _check_step(reward: Any, terminated: Any, truncated: Any, info: Any, findings: Findings) -> None:
    number = isinstance(reward, numbers.Real | np.number) or (isinstance(reward, np.ndarray) and reward.shape == ())
    if not number or not np.isfinite(float(reward)):
        findings.problem(f"the reward of step must be a finite number, not {reward!r}")
    for name, value in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(value, bool | np.bool_):
            findings.problem(f"{name} of step must be True or False, not {value!r}")
    _check_info("step", info, findings)


def _check_info(where: str, info: Any, findings: Findings) -> None:
    if not isinstance(info, dict):
        findings.problem(f"the info of {where} must be a dict, not {info!r}")


def _check_gymnasium(env: gymnasium.Env, findings: Findings) -> None:
    """Gymnasium's own checker, which stops at its first error."""
    try:
        check_env(env.unwrapped, skip_render_check=True, skip_close_check=True)
    except Exception as error:
        reason = " ".join(str(error).split()) if isinstance(error, AssertionError) else sentence(error)
        findings.problem(f"Gymnasium's check_env: {reason}")


def _check_seeds(env: gymnasium.Env, name: str, kwargs: dict[str, Any] | None, findings: Findings) -> None:
    """Checks that the same seed and actions give the same episodes, in this environment and in a second one."""
    if findings.problems:
        return
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(SEED_STEPS)]
    with as_problems(findings, "repeating an episode"), contextlib.closing(make_env(name, kwargs)) as other:
        first = _trajectory(env, actions, seed=7)
        for again, where in ((env, "again"), (other, "in a second environment")):
            _compare(first, _trajectory(again, actions, seed=7), where, findings)
        if not findings.problems and _difference(first, _trajectory(other, actions, seed=8)) is None:
            findings.note(
                f"two seeds gave the same {SEED_STEPS} steps: the environment is deterministic or ignores the seed"
            )


def _trajectory(env: gymnasium.Env, actions: list[Any], *, seed: int) -> list[Any]:
    """Everything an environment returns after a seeded reset; later episodes are not seeded."""
    seen: list[Any] = [np.array(env.reset(seed=seed)[0])]
    for action in actions:
        obs, reward, terminated, truncated, _ = env.step(action)
        after = np.array(env.reset()[0]) if terminated or truncated else None
        seen.append((np.array(obs), float(reward), bool(terminated), bool(truncated), after))
    return seen


def _difference(one: list[Any], other: list[Any]) -> int | None:
    """The first step at which two trajectories differ; 0 is the reset."""
    differ = (step for step, (a, b) in enumerate(zip(one, other, strict=True)) if not data_equivalence(a, b, True))
    return next(differ, None)


def _compare(first: list[Any], second: list[Any], where: str, findings: Findings) -> None:
    step = _difference(first, second)
    remedy = "draw all randomness from self.np_random, which super().reset(seed=seed) seeds"
    if step == 0:
        findings.problem(f"reset(seed=7) {where} gave a different first observation; {remedy}")
    elif step is not None:
        findings.problem(f"the same seed and actions {where} gave a different result at step {step}; {remedy}")


def _speed(name: str, kwargs: dict[str, Any] | None, findings: Findings) -> int | None:
    """Steps per second of a few bodies behind the host contract, as in training."""
    with as_problems(findings, "running it for training"):
        host = open_host(name, SPEED_BODIES, kwargs=kwargs)
        rng = np.random.default_rng(0)
        host.reset(0)
        steps, start = 0, time.monotonic()
        while time.monotonic() - start < SPEED_SECONDS:
            host.send(rng.integers(host.spec.num_actions, size=SPEED_BODIES))
            host.recv()
            steps += SPEED_BODIES
        speed = round(steps / (time.monotonic() - start))
        host.close()
        return speed
    return None


def _close(env: gymnasium.Env, findings: Findings) -> None:
    with as_problems(findings, "close"):
        env.close()


def train_line(name: str, kwargs: dict[str, Any] | None) -> str:
    """The command that trains in the environment."""
    words = ["advsurprise", "train", "--env", name]
    for key, value in (kwargs or {}).items():
        words += ["--set", f"env.{key}={json.dumps(value)}"]
    return shlex.join(words)
