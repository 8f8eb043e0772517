"""Any Gymnasium environment with discrete actions behind the host contract.

>>> host = open_host("CartPole-v1", 16)
>>> timestep = host.reset(0)
"""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any, Literal

import gymnasium
import jax
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from jaxtyping import Array, Bool, Int, PRNGKeyArray, Shaped

from advsurprise.envs.host.base import Host, as_timestep
from advsurprise.envs.host.load import make_body, sentence
from advsurprise.envs.host.spaces import read_actions, read_metadata, read_observations
from advsurprise.envs.host.workers import WorkerDied
from advsurprise.errors import UserError, nearest
from advsurprise.types import CONTINUE, EnvSpec, Measure, TimeStep

Vectorization = Literal["sync", "async", "native"]
MEASURES = (
    Measure("episode_return", "the world's own reward per episode", short="return", shown=True),
    Measure("episode_length", "steps per episode", short="length", shown=True),
)
"""Measured here for every environment: the sum of rewards and the number of steps of the episode so far."""


def open_host(
    name: str,
    bodies: int,
    *,
    kwargs: dict[str, Any] | None = None,
    vectorization: Vectorization | None = None,
) -> "GymnasiumHost":
    """Opens `package:Name-v0`, `Name-v0` or `path/to/file.py:Class` for some bodies.

    The package is imported and the file is run, with all that they do: name only what you trust. Bodies run one after
    the other (`sync`, the default) or each in a process of its own (`async`; processes are spawned, so a script that
    asks for them must begin under ``if __name__ == "__main__"``). `native` asks for the environment's own vector form.
    """
    if bodies < 1:
        raise UserError(f"bodies must be at least 1, not {bodies}")
    known = ("sync", "async", "native")
    if vectorization is not None and vectorization not in known:
        raise UserError(f"unknown vectorization {nearest(str(vectorization), known)}")
    vector = _make_vector(name, bodies, kwargs or {}, vectorization or "sync")
    try:
        return GymnasiumHost(vector, name)
    except UserError:
        vector.close()
        raise


class GymnasiumHost(Host):
    """A Gymnasium vector environment behind the host contract.

    Every answer is a step that used its action: an environment that would spend a step on resetting is reset here,
    within the step that ended its episode, and one for which that cannot be done is refused.
    """

    def __init__(self, vector: VectorEnv, name: str):
        self.vector = vector
        self.bodies = vector.num_envs
        self._reading = read_observations(vector.single_observation_space, name)
        actions = read_actions(vector.single_action_space, name)
        self._first_action = int(actions.start)
        self._mode = _autoreset_mode(vector, name)
        self._spec = EnvSpec(
            id=name,
            observation_shape=self._reading.shape,
            observation_dtype=self._reading.dtype,
            observation_kind=self._reading.kind,
            num_classes=self._reading.num_classes,
            num_actions=int(actions.n),
            max_steps=0,
            measures=MEASURES,
            truncates=True,
            **read_metadata(vector.metadata, actions, name),
        )
        self._ready = False
        self._shown: Shaped[np.ndarray, "bodies ..."] = np.zeros((self.bodies, *self._reading.shape))
        self._pending: Int[np.ndarray, " bodies"] | None = None
        self._return = np.zeros(self.bodies)
        self._length = np.zeros(self.bodies, np.int32)

    @property
    def spec(self) -> EnvSpec:
        """What a learner must know of the world."""
        return self._spec

    def reset(self, seed: int | PRNGKeyArray) -> TimeStep:
        """Begins the first episode of every body: the same seed (or key) gives the same episodes, as far as the
        environment keeps that promise."""
        if self._pending is not None:
            self._wait()
        obs, _ = self.vector.reset(seed=self._seeds(seed))
        self._ready = True
        self._return[:] = 0
        self._length[:] = 0
        shown = self._shown = self._show(np.asarray(obs))
        never = np.zeros(self.bodies, bool)
        return self._timestep(shown, shown, np.zeros(self.bodies), never, never)

    def send(self, action: Int[np.ndarray, " bodies"]) -> None:
        """Starts a step; only `async` bodies move before `recv`."""
        if not self._ready:
            raise RuntimeError("reset the world before stepping it")
        if self._pending is not None:
            raise RuntimeError("receive the last step before sending actions")
        count = self._spec.num_actions
        if action.shape != (self.bodies,) or action.min() < 0 or action.max() >= count:
            raise UserError(f"{self._spec.id}: actions must be {self.bodies} whole numbers from 0 to {count - 1}")
        self._pending = action.astype(np.int64) + self._first_action
        if isinstance(self.vector, AsyncVectorEnv):
            with _workers_alive(self.vector, self._spec.id):
                self.vector.step_async(self._pending)

    def recv(self) -> TimeStep:
        """Waits for the step that `send` started."""
        if self._pending is None:
            raise RuntimeError("send actions before receiving")
        obs, reward, terminated, truncated, infos = self._wait()
        terminated = np.array(terminated, bool)
        truncated = np.array(truncated, bool) & ~terminated
        done = terminated | truncated
        seen = final = np.asarray(obs)
        if done.any():
            seen, final = self._turn_over(seen, done, infos)
        shown = self._shown = self._show(seen)
        final_shown = self._show(final) if done.any() else shown
        self._return += reward
        self._length += 1
        timestep = self._timestep(shown, final_shown, np.asarray(reward), terminated, truncated)
        self._return[done] = 0
        self._length[done] = 0
        return timestep

    def relocate(self, request: Int[np.ndarray, " bodies"]) -> TimeStep:
        """Begins a new episode of every body with a request: a Gymnasium environment cannot be rewound."""
        if not self._ready:
            raise RuntimeError("reset the world before relocating bodies")
        if self._pending is not None:
            raise RuntimeError("receive the last step before relocating bodies")
        mask = request != CONTINUE
        if mask.any():
            self._shown = self._begin_anew(mask)
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
        if isinstance(self.vector, AsyncVectorEnv):
            with _workers_alive(self.vector, self._spec.id):
                return self.vector.step_wait()
        return self.vector.step(actions)

    def _turn_over(self, seen: Shaped[np.ndarray, "bodies ..."], done: Bool[np.ndarray, " bodies"], infos):
        """What to act on next and what the actions led to, where some episodes ended."""
        if self._mode is AutoresetMode.SAME_STEP:
            return seen, self._with_final(seen, done, infos)
        fresh = np.asarray(self.vector.reset(options={"reset_mask": done.copy()})[0])
        if not np.array_equal(fresh[~done], seen[~done], equal_nan=seen.dtype.kind == "f"):
            raise UserError(f"{self._spec.id}: resetting some bodies with options['reset_mask'] changed others")
        return fresh, seen

    def _begin_anew(self, mask: Bool[np.ndarray, " bodies"]) -> Shaped[np.ndarray, "bodies ..."]:
        """What bodies see after some of them were given new episodes, of which the others must notice nothing."""
        fresh = self._show(np.asarray(self.vector.reset(options={"reset_mask": mask.copy()})[0]))
        if not np.array_equal(fresh[~mask], self._shown[~mask]):
            raise UserError(f"{self._spec.id}: resetting some bodies with options['reset_mask'] changed others")
        return fresh

    def _with_final(self, seen: Shaped[np.ndarray, "bodies ..."], done: Bool[np.ndarray, " bodies"], infos):
        final_obs = infos.get("final_obs")
        final = seen.copy()
        for body in np.flatnonzero(done):
            if final_obs is None or final_obs[body] is None:
                raise UserError(f"{self._spec.id} resets within a step but leaves infos['final_obs'] out")
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

    def _seeds(self, seed: int | PRNGKeyArray) -> Any:
        """One seed per body, or a single one for an environment's own vector form, which takes no more.

        Gymnasium would count up from a single seed, so that neighbouring seeds share most of their bodies.
        """
        key: Array = seed if isinstance(seed, jax.Array) else jax.random.key(seed)
        entropy = np.asarray(jax.random.key_data(key)).ravel().tolist()
        seeds = [int(state >> 1) for state in np.random.SeedSequence(entropy).generate_state(self.bodies)]
        listed = isinstance(self.vector.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        return seeds if listed else seeds[0]


@contextlib.contextmanager
def _workers_alive(vector: AsyncVectorEnv, name: str) -> Iterator[None]:
    """Turns the broken pipe of a dead worker into a sentence, and ends the other workers."""
    try:
        yield
    except (EOFError, ConnectionError) as error:
        dead = [str(body) for body, process in enumerate(vector.processes) if not process.is_alive()]
        # By hand: the vector environment's own `close` would wait for the step that nobody finishes.
        for process, pipe in zip(vector.processes, vector.parent_pipes, strict=True):
            process.kill()
            process.join()
            pipe.close()
        vector.closed = True
        raise WorkerDied(f"{name}: the worker process of body {', '.join(dead)} died") from error


def _make_vector(name: str, bodies: int, kwargs: dict[str, Any], vectorization: Vectorization) -> VectorEnv:
    # A partial of a function that can be imported: worker processes load the environment themselves, by its name.
    makers = [functools.partial(make_body, name, kwargs)] * bodies
    try:
        if vectorization == "native":
            return gymnasium.make_vec(name, num_envs=bodies, vectorization_mode="vector_entry_point", **kwargs)
        if vectorization == "async":
            # Forking a process in which jax has started its threads can lock up.
            return AsyncVectorEnv(makers, context="spawn", autoreset_mode=AutoresetMode.SAME_STEP)
        return SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{name} could not be opened for {bodies} bodies: {sentence(error)}") from error


def _autoreset_mode(vector: VectorEnv, name: str) -> AutoresetMode:
    """How finished episodes are followed by the next, or a sentence if that cannot be made a part of the same step."""
    declared = vector.metadata.get("autoreset_mode")
    try:
        mode = AutoresetMode(declared)
    except ValueError:
        known = ", ".join(mode.value for mode in AutoresetMode)
        raise UserError(
            f"{name}: metadata['autoreset_mode'] of the vector environment is {declared!r}, not one of {known}"
        ) from None
    # Other next-step environments ignore or misread a reset of some bodies and would spend a step on it.
    if mode is AutoresetMode.NEXT_STEP and not isinstance(vector.unwrapped, SyncVectorEnv):
        raise UserError(
            f"{name}: the vector environment resets on the step after an episode's end, which would reach the learner "
            'as a step that nobody took; open it with vectorization "sync" or "async", or make it with SAME_STEP'
        )
    return mode
