"""A host world made of bodies, stepped in worker processes or in this one.

>>> with BodyHost(spec, Maker("package.module:make", {}), seeds=2, bodies=16) as host:
...     timestep = host.reset(jax.random.split(jax.random.key(0), 2))
"""

import warnings
import weakref

import jax
import numpy as np
from jaxtyping import Array, Bool, Int, Key, Shaped, UInt8

from advsurprise.envs.host import saved
from advsurprise.envs.host.base import Host, as_timestep, check_actions, check_sizes, seed_keys
from advsurprise.envs.host.body import Maker
from advsurprise.envs.host.shared import LOAD, NO_ACTION, RELOCATE, RESET, SAVE, STEP, Layout, Setup, pack, unpack
from advsurprise.envs.host.workers import Death, WorkerDied, Workers, default_workers
from advsurprise.errors import UserError, WorldWarning
from advsurprise.types import CONTINUE, RESTART, REWIND, EnvSpec, TimeStep

MAX_DEATHS = 3
"""Deaths of a worker in a row, without a step in between, after which it is not replaced."""
ALL = 255
"""In place of a group: all groups."""


class BodyHost(Host):
    """Bodies of a world behind the host contract.

    `workers` is the number of processes: None for about one per core, 0 to step all bodies in this process, within
    `recv`. A worker that dies is replaced; the episodes of its bodies are truncated at their last observation.
    """

    def __init__(
        self,
        spec: EnvSpec,
        maker: Maker,
        *,
        seeds: int,
        bodies: int,
        groups: int | None = None,
        workers: int | None = None,
    ):
        if groups is None:
            groups = 1 if workers == 0 or bodies % 2 else 2
        check_sizes(spec.id, seeds=seeds, bodies=bodies, groups=groups)
        if groups >= ALL:
            raise UserError(f"{spec.id}: groups must be fewer than {ALL}, not {groups}")
        if workers is not None and workers < 0:
            raise UserError(f"{spec.id}: workers must be at least 0, not {workers}")
        self.seeds, self.bodies, self.groups, self.replaced = seeds, bodies, groups, 0
        self._spec = spec
        rows = seeds * bodies
        layout = Layout(rows, spec.observation_shape, spec.observation_dtype, spec.info)
        count = min(default_workers() if workers is None else workers, rows)
        shares = _share_out(rows, groups, max(count, 1))
        setups = [Setup(*maker, layout, share) for share in shares]
        self._shares = [[np.asarray(own, int) for own in share] for share in shares]
        self._workers = Workers(spec.id, setups, layout, local=count == 0)
        self._finalizer = weakref.finalize(self, self._workers.close)
        self._arrays = self._workers.arrays
        self.resumes = self._workers.all[0].traits["resumes"]
        self.rewinds = self._workers.all[0].traits["rewinds"]
        self._started = False
        self._sent: set[int] = set()
        self._slot = [0] * groups
        """Slot of each group's current observations; the next step writes to the other one."""
        self._final = np.zeros((rows, *spec.observation_shape), spec.observation_dtype)
        self._info = np.zeros((rows, len(spec.info)), np.float32)
        """Current measures of each body, 0 where only its first observation is known."""
        self._lost = np.zeros(rows, bool)
        """Bodies whose worker died, until a step reports it: the first observation of their new episode is in the slot
        that the step would have written."""
        self._deaths = [0] * len(setups)
        self._entropy = np.zeros((seeds, 0), np.uint32)
        """Key data of each seed, from which its episodes are drawn."""
        self._seeded = np.zeros(rows, np.uint32)
        """Number of seeds drawn for each body so far."""

    @property
    def spec(self) -> EnvSpec:
        """What a learner needs to know about the world."""
        return self._spec

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers."""
        return self._workers.pids

    def __enter__(self) -> "BodyHost":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops all workers; does nothing the second time."""
        self._started = False
        self._sent.clear()
        self._finalizer()

    def reset(self, seed: int | Key[Array, "..."]) -> TimeStep:
        """Starts the first episode of every body."""
        self._drain()
        keys = seed_keys(seed, self.seeds)
        self._entropy = np.asarray(jax.random.key_data(keys)).reshape(self.seeds, -1).astype(np.uint32)
        self._seeded[:] = 0
        self._lost[:] = False
        self._draw_seeds(range(len(self._seeded)))
        for worker in self._workers.all:
            worker.order(RESET, ALL, bytes(self._slot))
        self._wait(ALL)
        for group in range(self.groups):
            self._settle(group, self._lost[self._rows(group)])
        self._info[:] = self._arrays.info
        self._started = True
        firsts = [self._arrays.obs[slot, self._rows(group)] for group, slot in enumerate(self._slot)]
        shape = self._spec.observation_shape
        obs, info = self._by_body(np.concatenate(firsts)), self._by_body(self._info)
        return self._first_timestep(obs.reshape(-1, *shape), info.reshape(-1, info.shape[-1]))

    def send(self, action: Shaped[np.ndarray, " rows"], group: int = 0) -> None:
        """Starts a step with every body of a group."""
        rows = self._idle(group)
        self._arrays.action[rows] = check_actions(self._spec, action, self.seeds * self.group_bodies)
        lost = self._lost[rows]
        some_lost = lost.any()
        if some_lost:
            self._arrays.action[rows][lost] = NO_ACTION
        slot = bytes([1 - self._slot[group]])
        for worker, share in zip(self._workers.all, self._shares, strict=True):
            if len(share[group]) and not (some_lost and self._lost[share[group]].all()):
                worker.order(STEP, group, slot)
        self._sent.add(group)

    def recv(self, group: int = 0) -> TimeStep:
        """Waits for the step that `send` started. Observations are overwritten by the group's next step but one, final
        observations by the next."""
        if group not in self._sent:
            raise RuntimeError("send actions before receiving")
        self._wait(group)
        self._sent.discard(group)
        rows = self._rows(group)
        self._slot[group] = 1 - self._slot[group]
        self._end_lost(group)
        reward, terminated, truncated, info = (
            array[rows].copy()
            for array in (self._arrays.reward, self._arrays.terminated, self._arrays.truncated, self._arrays.info)
        )
        obs = final_obs = self._arrays.obs[self._slot[group], rows]
        ended = terminated | truncated
        self._info[rows] = info
        if ended.any():
            final_obs = self._final[rows]
            final_obs[:] = obs
            final_obs[ended] = self._arrays.final_obs[rows][ended]
            self._info[rows][ended] = 0
        return self._timestep(obs, final_obs, reward, terminated, truncated, info)

    def relocate(self, request: Int[np.ndarray, " rows"], group: int = 0) -> TimeStep:
        """Relocates bodies between two steps."""
        rows = self._idle(group)
        moved = request != CONTINUE
        known = np.isin(request, (CONTINUE, REWIND, RESTART)).all()
        if request.shape != (self.seeds * self.group_bodies,) or not known:
            raise UserError(f"{self._spec.id}: requests must be CONTINUE, REWIND or RESTART for each body of the group")
        self._arrays.rewind[rows] = request == REWIND
        self._arrays.restart[rows] = request == RESTART
        self._lost[rows] &= ~moved
        for worker, share in zip(self._workers.all, self._shares, strict=True):
            if moved[share[group] - rows.start].any():
                worker.order(RELOCATE, group, bytes([self._slot[group]]))
        self._wait(group)
        self._settle(group, self._lost[rows] & moved)
        self._info[rows][moved] = self._arrays.info[rows][moved]
        obs = self._arrays.obs[self._slot[group], rows]
        return self._first_timestep(obs, self._info[rows].copy())

    def save(self) -> UInt8[np.ndarray, " n"]:
        """Saves every body, independently of groups and workers."""
        if not self.resumes:
            raise NotImplementedError(f"{self._spec.id} cannot be resumed")
        for group in range(self.groups):
            self._idle(group)
        states: dict[int, bytes] = {}
        while missing := set(range(len(self._workers.all))) - states.keys():
            for index in missing:
                self._workers.all[index].order(SAVE, ALL)
            states |= self._wait(ALL)
        bodies = [b""] * len(self._lost)
        for index, share in enumerate(self._shares):
            for row, state in zip(np.concatenate(share).tolist(), unpack(states[index]), strict=True):
                bodies[row] = state
        slots = np.repeat(self._slot, len(bodies) // self.groups)
        rows = np.arange(len(bodies))
        current, following = self._arrays.obs[slots, rows], self._arrays.obs[1 - slots, rows]
        by_row = saved.ByBody(self._seeded, self._lost, self._info, current, following)
        order = self._by_body(rows).ravel()
        by_body = saved.ByBody(*(array[order] for array in by_row))
        whole = saved.Saved(self._entropy, by_body, [bodies[row] for row in order])
        return saved.write(self._spec, self.seeds, self.bodies, whole)

    def load(self, state: UInt8[np.ndarray, " n"]) -> None:
        """Continues where `save` was called; refuses damaged bytes and those of other bodies, changing nothing."""
        if not self.resumes:
            raise NotImplementedError(f"{self._spec.id} cannot be resumed")
        entropy, by_body, bodies = saved.read(self._spec, self.seeds, self.bodies, state)
        self._drain()
        self._entropy = entropy
        order = self._by_body(np.arange(len(bodies))).ravel()
        self._slot = [0] * self.groups
        targets = (self._seeded, self._lost, self._info, self._arrays.obs[0], self._arrays.obs[1])
        for target, array in zip(targets, by_body, strict=True):
            target[order] = array
        states = dict(zip(order.tolist(), bodies, strict=True))
        for worker, share in zip(self._workers.all, self._shares, strict=True):
            worker.order(LOAD, ALL, pack([states[row] for row in np.concatenate(share).tolist()]))
        self._wait(ALL)
        self._started = True

    # --- waiting for workers, and replacing those that died -----------------------------------------------------------

    def _wait(self, group: int) -> dict[int, bytes]:
        """Waits until all commands for a group are finished; returns the result of each worker."""
        results: dict[int, bytes] = {}
        try:
            for index in range(len(self._shares)):
                while self._workers.all[index].busy(group):
                    self._finish(index, results)
        except UserError:
            self.close()
            raise
        return results

    def _finish(self, index: int, results: dict[int, bytes]) -> None:
        try:
            command, results[index] = self._workers.all[index].finish()
        except Death as death:
            self._replace(index, death)
            return
        if command == STEP:
            self._deaths[index] = 0

    def _replace(self, index: int, death: Death) -> None:
        """Replaces a worker and starts new episodes for its bodies."""
        who = f"worker {index + 1} of {len(self._shares)}"
        reason, restarted = death, False
        while not restarted:
            self._deaths[index] += 1
            if self._deaths[index] >= MAX_DEATHS:
                raise WorkerDied(f"{self._spec.id}: {who} died {MAX_DEATHS} times in a row ({reason})") from reason
            try:
                self._restart(index)
                restarted = True
            except Death as again:
                reason = again
        self.replaced += 1
        rows = np.concatenate(self._shares[index]).tolist()
        self._lost[rows] = True
        bodies = f"{len(rows)} bodies" if len(rows) > 1 else "1 body"
        warnings.warn(f"{who} died ({death}); its {bodies} started new episodes", WorldWarning, stacklevel=5)

    def _restart(self, index: int) -> None:
        """Starts a new worker with new episodes."""
        worker = self._workers.replace(index)
        self._draw_seeds(np.concatenate(self._shares[index]).tolist())
        worker.order(RESET, ALL, bytes(1 - slot for slot in self._slot))
        worker.finish()

    def _end_lost(self, group: int) -> None:
        """Truncates the episodes of bodies whose worker died, in the step that was just received."""
        rows = self._rows(group)
        if not self._lost[rows].any():
            return
        lost = rows.start + np.flatnonzero(self._lost[rows])
        self._arrays.reward[lost] = 0
        self._arrays.terminated[lost] = False
        self._arrays.truncated[lost] = True
        self._arrays.info[lost] = self._info[lost]
        self._arrays.final_obs[lost] = self._arrays.obs[1 - self._slot[group], lost]
        self._lost[lost] = False

    def _settle(self, group: int, which: Bool[np.ndarray, " rows"]) -> None:
        """Shows the new episodes of bodies whose worker died while starting new ones anyway."""
        rows = self._rows(group).start + np.flatnonzero(which)
        slot = self._slot[group]
        self._arrays.obs[slot, rows] = self._arrays.obs[1 - slot, rows]
        self._lost[rows] = False

    def _drain(self) -> None:
        """Waits for all steps that were sent but not received."""
        self._check_open()
        for group in sorted(self._sent):
            self._wait(group)
        self._sent.clear()

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            raise RuntimeError("the world is closed")

    def _idle(self, group: int) -> slice:
        """Rows of a group; raises if it is not ready for actions."""
        self._check_open()
        if not self._started:
            raise RuntimeError("reset the world before stepping or relocating bodies")
        if group in self._sent:
            raise RuntimeError("receive the last step before sending actions or relocating bodies")
        return self._rows(group)

    # --- rows, seeds and timesteps ------------------------------------------------------------------------------------

    def _rows(self, group: int) -> slice:
        size = self.seeds * self.group_bodies
        return slice(group * size, (group + 1) * size)

    def _by_body(self, array: Shaped[np.ndarray, "rows ..."]) -> Shaped[np.ndarray, "S B ..."]:
        """Rows of all groups as axes [seed, body]."""
        by_group = array.reshape(self.groups, self.seeds, self.group_bodies, *array.shape[1:])
        return by_group.swapaxes(0, 1).reshape(self.seeds, self.bodies, *array.shape[1:])

    def _draw_seeds(self, rows: "range | list[int]") -> None:
        """Draws seeds for bodies from their seed's key, their index and the number of seeds drawn before."""
        numbers = self._by_body(np.arange(len(self._seeded)))
        where = {int(row): place for place, row in np.ndenumerate(numbers)}
        for row in rows:
            seed, body = where[row]
            entropy = [*self._entropy[seed].tolist(), body, int(self._seeded[row])]
            self._arrays.seed[row] = np.random.SeedSequence(entropy).generate_state(1)[0] >> 1
            self._seeded[row] += 1

    def _first_timestep(self, obs: Shaped[np.ndarray, "rows ..."], info: Shaped[np.ndarray, "rows m"]) -> TimeStep:
        """Timestep of bodies that did not step."""
        never = np.zeros(len(obs), bool)
        return self._timestep(obs, obs, np.zeros(len(obs), np.float32), never, never.copy(), info)

    def _timestep(self, obs, final_obs, reward, terminated, truncated, info) -> TimeStep:
        return as_timestep(
            obs=obs,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            final_obs=final_obs,
            info={name: info[:, index] for index, name in enumerate(self._spec.info)},
        )


def _share_out(rows: int, groups: int, workers: int) -> list[tuple[tuple[int, ...], ...]]:
    """Rows of each worker and group: within a group, workers differ by at most one row."""
    size = rows // groups
    split = [range(group * size, (group + 1) * size) for group in range(groups)]
    return [tuple(tuple(row for row in each if row % workers == index) for each in split) for index in range(workers)]
