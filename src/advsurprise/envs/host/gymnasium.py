"""Any Gymnasium environment with discrete actions behind the host contract.

>>> host = open_host("CartPole-v1", 16)
>>> timestep = host.reset(0)
"""

import contextlib
from collections.abc import Mapping
from typing import Any, Literal, get_args

import gymnasium
import jax
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from jaxtyping import Array, Bool, Int, Key, Shaped

from advsurprise.envs.host.base import Host, as_timestep, check_actions, seed_keys
from advsurprise.envs.host.body import Maker
from advsurprise.envs.host.gymnasium_body import MAKE, maker, step_seconds
from advsurprise.envs.host.load import make_env, sentence
from advsurprise.envs.host.pool import BodyHost
from advsurprise.envs.host.spaces import read_actions, read_metadata, read_observations, short
from advsurprise.errors import UserError, nearest
from advsurprise.types import CONTINUE, EnvSpec, Measure, TimeStep

Vectorization = Literal["auto", "sync", "async", "native"]
MEASURES = (
    Measure("episode_return", "the world's own reward per episode", short="return", shown=True),
    Measure("episode_length", "steps per episode", short="length", shown=True),
)
"""Measured for every environment: the sum of rewards and the number of steps of the episode so far."""
LONG_STEP = 50e-6
"""Seconds per step from which worker processes pay off: communication costs about as much."""


def open_host(
    name: str,
    bodies: int,
    *,
    seeds: int = 1,
    kwargs: dict[str, Any] | None = None,
    vectorization: Vectorization = "auto",
) -> Host:
    """Opens `package:Name-v0`, `Name-v0` or `path/to/file.py:Class` with `bodies` bodies for each of `seeds` seeds.

    This imports the package or runs the file: name only code you trust. Bodies are stepped one after the other in this
    process (`sync`), in worker processes (`async`), or by the environment's own vector form (`native`, one seed).
    `auto` is the vector form if there is one that resets within a step, otherwise `sync` or `async`, depending on the
    time a step takes.
    """
    if bodies < 1:
        raise UserError(f"bodies must be at least 1, not {bodies}")
    known = get_args(Vectorization)
    if vectorization not in known:
        raise UserError(f"unknown vectorization {nearest(str(vectorization), known)}")
    kwargs = kwargs or {}
    if vectorization == "native" or (vectorization == "auto" and seeds == 1 and has_vector_form(name)):
        host = _open_native(name, bodies, seeds, kwargs, required=vectorization == "native")
        if host is not None:
            return host
    with contextlib.closing(make_env(name, kwargs)) as env:
        spec = read_spec(env, name)
        seconds = step_seconds(env, name) if vectorization == "auto" else 0.0
    portable = maker(name, kwargs)
    in_workers = vectorization == "async" or (seconds >= LONG_STEP and portable is not None and is_portable(name))
    if vectorization == "async" and portable is None:
        raise UserError(f"{name}: worker processes need JSON-serializable settings, not {short(kwargs)}")
    made = portable or Maker(MAKE, {"name": name, "kwargs": kwargs})
    host = BodyHost(spec, made, seeds=seeds, bodies=bodies, workers=None if in_workers else 0)
    if vectorization == "auto":
        where = f"in {len(host.worker_pids)} worker processes" if in_workers else "in this process"
        host.notes = (f"{name}: a step takes {seconds * 1e6:.0f} µs; bodies are stepped {where}",)
    return host


def read_spec(env: gymnasium.Env, name: str) -> EnvSpec:
    """What a learner needs to know about an environment."""
    return _spec(env.observation_space, env.action_space, env.metadata, name)


def _spec(observations: gymnasium.Space, actions: gymnasium.Space, metadata: Mapping[str, Any], name: str) -> EnvSpec:
    reading, discrete = read_observations(observations, name), read_actions(actions, name)
    return EnvSpec(
        id=name,
        observation_shape=reading.shape,
        observation_dtype=reading.dtype,
        observation_kind=reading.kind,
        num_classes=reading.num_classes,
        num_actions=int(discrete.n),
        max_steps=0,
        measures=MEASURES,
        truncates=True,
        **read_metadata(metadata, discrete, name),
    )


def has_vector_form(name: str) -> bool:
    """Whether an environment is registered with its own vector form."""
    registered = gymnasium.registry.get(name)
    return registered is not None and registered.vector_entry_point is not None


def is_portable(name: str) -> bool:
    """Whether another process can make the environment by its name: not if this one registered a class."""
    registered = gymnasium.registry.get(name)
    return registered is None or isinstance(registered.entry_point, str)


def _open_native(
    name: str, bodies: int, seeds: int, kwargs: dict[str, Any], *, required: bool
) -> "GymnasiumHost | None":
    if seeds > 1:
        raise UserError(f"{name}: its vector form supports one seed, not {seeds}")
    try:
        vector = gymnasium.make_vec(name, num_envs=bodies, vectorization_mode="vector_entry_point", **kwargs)
    except Exception as error:
        if not required:
            return None
        raise UserError(f"{name} could not be opened for {bodies} bodies: {sentence(error)}") from error
    try:
        return GymnasiumHost(vector, name)
    except UserError:
        vector.close()
        if required:
            raise
        return None


class GymnasiumHost(Host):
    """A Gymnasium vector environment behind the host contract.

    Every step uses its action: an environment that would spend a step on resetting is reset here, within the step that
    ended its episode, and refused if that is not possible.
    """

    def __init__(self, vector: VectorEnv, name: str):
        self.vector = vector
        self.bodies = vector.num_envs
        self._reading = read_observations(vector.single_observation_space, name)
        self._first_action = int(read_actions(vector.single_action_space, name).start)
        self._mode = _autoreset_mode(vector, name)
        self._spec = _spec(vector.single_observation_space, vector.single_action_space, vector.metadata, name)
        self._ready = False
        self._shown: Shaped[np.ndarray, "bodies ..."] = np.zeros((self.bodies, *self._reading.shape))
        self._pending: Int[np.ndarray, " bodies"] | None = None
        self._return = np.zeros(self.bodies)
        self._length = np.zeros(self.bodies, np.int32)

    @property
    def spec(self) -> EnvSpec:
        """What a learner needs to know about the world."""
        return self._spec

    def reset(self, seed: int | Key[Array, "..."]) -> TimeStep:
        """Starts the first episode of every body; the same seed or key gives the same episodes, as far as the
        environment is reproducible."""
        if self._pending is not None:
            self._wait()
        obs, _ = self.vector.reset(seed=self._seeds(seed))
        self._ready = True
        self._return[:] = 0
        self._length[:] = 0
        shown = self._shown = self._show(np.asarray(obs))
        never = np.zeros(self.bodies, bool)
        return self._timestep(shown, shown, np.zeros(self.bodies), never, never)

    def send(self, action: Shaped[np.ndarray, " rows"], group: int = 0) -> None:
        """Starts a step; bodies move in `recv`."""
        if not self._ready:
            raise RuntimeError("reset the world before stepping it")
        if self._pending is not None:
            raise RuntimeError("receive the last step before sending actions")
        self._pending = check_actions(self._spec, action, self.bodies).astype(np.int64) + self._first_action

    def recv(self, group: int = 0) -> TimeStep:
        """Waits for the step that `send` started."""
        if self._pending is None:
            raise RuntimeError("send actions before receiving")
        obs, reward, terminated, truncated, infos = self._wait()
        terminated = np.array(terminated, bool)
        truncated = np.array(truncated, bool) & ~terminated
        done = terminated | truncated
        seen = final = np.asarray(obs)
        if done.any():
            seen, final = self._reset_ended(seen, done, infos)
        shown = self._shown = self._show(seen)
        final_shown = self._show(final) if done.any() else shown
        self._return += reward
        self._length += 1
        timestep = self._timestep(shown, final_shown, np.asarray(reward), terminated, truncated)
        self._return[done] = 0
        self._length[done] = 0
        return timestep

    def relocate(self, request: Int[np.ndarray, " rows"], group: int = 0) -> TimeStep:
        """Starts a new episode for every body with a request: a Gymnasium environment cannot be rewound."""
        if not self._ready:
            raise RuntimeError("reset the world before relocating bodies")
        if self._pending is not None:
            raise RuntimeError("receive the last step before relocating bodies")
        mask = request != CONTINUE
        if mask.any():
            self._shown = self._restart(mask)
        obs = self._shown
        self._return[mask] = 0
        self._length[mask] = 0
        never = np.zeros(self.bodies, bool)
        return self._timestep(obs, obs, np.zeros(self.bodies), never, never)

    def close(self) -> None:
        """Closes the environments."""
        self._ready = False
        try:
            if self._pending is not None and not self.vector.closed:
                self._wait()
        finally:
            if not self.vector.closed:
                self.vector.close()

    def _wait(self):
        actions, self._pending = self._pending, None
        return self.vector.step(actions)

    def _reset_ended(self, seen: Shaped[np.ndarray, "bodies ..."], done: Bool[np.ndarray, " bodies"], infos):
        """Observations to act on next and observations after the actions, where some episodes ended."""
        if self._mode is AutoresetMode.SAME_STEP:
            return seen, self._with_final(seen, done, infos)
        fresh = np.asarray(self.vector.reset(options={"reset_mask": done.copy()})[0])
        if not np.array_equal(fresh[~done], seen[~done], equal_nan=seen.dtype.kind == "f"):
            raise UserError(f"{self._spec.id}: resetting some bodies with options['reset_mask'] changed others")
        return fresh, seen

    def _restart(self, mask: Bool[np.ndarray, " bodies"]) -> Shaped[np.ndarray, "bodies ..."]:
        """Observations after some bodies were restarted, which must not affect the others."""
        fresh = self._show(np.asarray(self.vector.reset(options={"reset_mask": mask.copy()})[0]))
        if not np.array_equal(fresh[~mask], self._shown[~mask]):
            raise UserError(f"{self._spec.id}: resetting some bodies with options['reset_mask'] changed others")
        return fresh

    def _with_final(self, seen: Shaped[np.ndarray, "bodies ..."], done: Bool[np.ndarray, " bodies"], infos):
        final_obs = infos.get("final_obs")
        final = seen.copy()
        for body in np.flatnonzero(done):
            if final_obs is None or final_obs[body] is None:
                raise UserError(f"{self._spec.id} resets within a step but does not return infos['final_obs']")
            final[body] = final_obs[body]
        return final

    def _show(self, seen: Shaped[np.ndarray, "bodies ..."]):
        try:
            return self._reading.encode(seen)
        except ValueError as error:
            raise UserError(f"{self._spec.id}: {error} (see observation_space)") from error

    def _timestep(self, obs, final_obs, reward, terminated, truncated) -> TimeStep:
        measures = {
            "episode_return": self._return.astype(np.float32),
            "episode_length": self._length.copy(),
        }
        return as_timestep(
            obs=obs,
            reward=reward.astype(np.float32),
            terminated=terminated,
            truncated=truncated,
            final_obs=final_obs,
            info=measures,
        )

    def _seeds(self, seed: int | Key[Array, "..."]) -> Any:
        """One seed per body, or a single one for an environment's own vector form, which accepts only one.

        Gymnasium would count up from a single seed, so that neighbouring seeds would share most of their bodies.
        """
        key = seed_keys(seed, 1)[0]
        entropy = np.asarray(jax.random.key_data(key)).ravel().tolist()
        seeds = [int(state >> 1) for state in np.random.SeedSequence(entropy).generate_state(self.bodies)]
        listed = isinstance(self.vector.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        return seeds if listed else seeds[0]


def _autoreset_mode(vector: VectorEnv, name: str) -> AutoresetMode:
    """The autoreset mode; refuses one that cannot reset within the step that ends an episode."""
    declared = vector.metadata.get("autoreset_mode")
    try:
        mode = AutoresetMode(declared)
    except ValueError:
        known = ", ".join(mode.value for mode in AutoresetMode)
        raise UserError(
            f"{name}: metadata['autoreset_mode'] of the vector environment is {declared!r}, not one of {known}"
        ) from None
    # Other next-step environments ignore or misread a partial reset and would spend a step on it.
    if mode is AutoresetMode.NEXT_STEP and not isinstance(vector.unwrapped, SyncVectorEnv):
        raise UserError(
            f"{name}: the vector environment resets on the step after an episode's end, which the learner would take "
            'for a real step; open it with vectorization "sync" or "async", or make it with SAME_STEP'
        )
    return mode
