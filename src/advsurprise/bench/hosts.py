"""Speed in a host world: stepping only, stepping with policies, and training, in one run.

raw          all bodies under random actions, no policy
inference    the same with policies and densities (collecting)
train        whole updates
apart        raw stepping, policies in a world that takes no time, and learning, one after the other: the best rate
             without overlap if network and emulator share the cores
"""

import itertools
import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Int, Key

from advsurprise.bench import peer
from advsurprise.config import RunConfig
from advsurprise.envs import find
from advsurprise.envs.host.base import Host
from advsurprise.errors import UserError
from advsurprise.learning.host_collect import HostCollector
from advsurprise.training.hosted import Hosted
from advsurprise.training.state import TrainState
from advsurprise.types import EnvSpec, TimeStep

STEPS = "1e15"
"""Total steps of the timed runs: more than any number of bodies takes in one update."""


class StillHost(Host):
    """A world that takes no time: every action returns the same timestep, and episodes never end."""

    def __init__(self, host: Host, first: TimeStep):
        self.seeds, self.bodies, self.groups = host.seeds, host.bodies, host.groups
        self._spec, self._first = host.spec, first
        shape = (self.seeds, self.groups, self.group_bodies)

        def of_group(leaf: np.ndarray) -> np.ndarray:
            return leaf.reshape(*shape, *leaf.shape[1:])[:, 0].reshape(-1, *leaf.shape[1:])

        self._group = jax.tree.map(of_group, first)

    @property
    def spec(self) -> EnvSpec:
        return self._spec

    def reset(self, seed: int | Key[Array, "..."]) -> TimeStep:
        return self._first

    def send(self, action: Int[np.ndarray, " rows"], group: int = 0) -> None:
        pass

    def recv(self, group: int = 0) -> TimeStep:
        return self._group

    def relocate(self, request: Int[np.ndarray, " rows"], group: int = 0) -> TimeStep:
        return self._group

    def close(self) -> None:
        pass


def run(
    env: str,
    *,
    methods: Sequence[str],
    bodies: Sequence[int],
    seeds: int,
    updates: int,
    settings: Sequence[str],
    with_peer: bool,
    resolve: Callable[..., RunConfig],
    log: Callable[[str], None],
) -> dict[str, Any]:
    """One row per method and number of bodies. `resolve` is how the train verb builds its configuration."""
    if find(env).kind != "host":
        raise UserError(f"{env} is not a host world: use bench train")
    if min(*bodies, seeds, updates) < 1:
        raise UserError("--bodies, --seeds and --updates take whole numbers from 1")
    given = {"config": None, "env": env, "steps": STEPS, "settings": settings, "seeds": f"0..{seeds - 1}"}
    cfgs = [resolve(method=method, bodies=number, **given) for number, method in itertools.product(bodies, methods)]
    rows = [_row(cfg, updates, log) for cfg in cfgs]
    return {
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "rows": rows,
        "peer": peer.measure(env, bodies=bodies[0], rollout=cfgs[0].rollout, log=log) if with_peer else None,
    }


def _row(cfg: RunConfig, updates: int, log: Callable[[str], None]) -> dict[str, Any]:
    log(f"{cfg.method} in {cfg.env}: {cfg.bodies} bodies, rollouts of {cfg.rollout} …")
    start = time.perf_counter()
    with closing(Hosted(cfg)) as loop:
        return _timed_row(loop, cfg, updates, time.perf_counter() - start)


def _timed_row(loop: Hosted, cfg: RunConfig, updates: int, opened: float) -> dict[str, Any]:
    host, steps = loop.host, cfg.steps_per_update * len(cfg.seeds)
    state = loop.init()
    state, compiled = _seconds(lambda: loop.update(state)[0])
    # At a run's start, a method whose rewards depend on later steps has fewer samples to learn from.
    for _ in range(-(-loop.method.lookback(cfg.rollout) // cfg.rollout)):
        state = loop.update(state)[0]
    train, collect, learn, raw = [], [], [], []
    for _ in range(updates):
        # Interleaved, so that a slowdown of the machine affects all of them. The run's episodes go on afterwards.
        saved = loop.saved(state)
        raw.append(raw_seconds(host, cfg.rollout))
        state = loop.resumed(saved)
        state, seconds = _seconds(lambda state=state: loop.update(state)[0])
        train.append(seconds)
        collect.append(loop.collect_seconds)
        learn.append(seconds - loop.collect_seconds)
    memory = loop.learn_bytes(state)
    still = statistics.median(still_seconds(loop, state, updates))
    rate = {
        name: steps / statistics.median(times)
        for name, times in (("raw", raw), ("inference", collect), ("train", train))
    }
    apart = steps / (statistics.median(raw) + still + statistics.median(learn))
    return {
        "env": cfg.env,
        "method": cfg.method,
        "bodies": cfg.bodies,
        "seeds": len(cfg.seeds),
        "groups": host.groups,
        "rollout": cfg.rollout,
        **{f"{name}_steps_per_s": round(value, 1) for name, value in rate.items()},
        "fraction_of_raw": round(rate["train"] / rate["raw"], 4),
        "policy_steps_per_s": round(steps / still, 1),
        "learn_s": round(statistics.median(learn), 4),
        "apart_steps_per_s": round(apart, 1),
        "fraction_of_apart": round(rate["train"] / apart, 4),
        "open_s": round(opened, 2),
        "first_update_s": round(compiled, 2),
        "memory_bytes": memory,
        "raw_s": [round(each, 4) for each in raw],
        "train_s": [round(each, 4) for each in train],
    }


def raw_seconds(host: Host, length: int) -> float:
    """Seconds for `length` steps of all bodies under random actions, group by group as in training."""
    rng = np.random.default_rng(0)
    rows = host.seeds * host.group_bodies
    actions = rng.integers(host.spec.num_actions, size=(length, host.groups, rows))
    host.reset(jax.random.split(jax.random.key(0), host.seeds))
    start = time.perf_counter()
    for group in range(host.groups):
        host.send(actions[0, group], group)
    for index, group in itertools.product(range(1, length), range(host.groups)):
        host.recv(group)
        host.send(actions[index, group], group)
    for group in range(host.groups):
        host.recv(group)
    return time.perf_counter() - start


def still_seconds(loop: Hosted, state: TrainState, updates: int) -> list[float]:
    """Seconds of collecting in a world that takes no time."""
    keys = jax.random.split(jax.random.key(0), loop.host.seeds)
    still = HostCollector(StillHost(loop.host, loop.host.reset(keys)), loop.cfg.rollout)
    agent, memory = state.learner.agent, still.start(state.learner.agent, key=keys)
    still.collect(agent, memory, key=keys)
    return [_seconds(lambda: still.collect(agent, memory, key=keys)[0])[1] for _ in range(updates)]


def _seconds(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = jax.block_until_ready(call())
    return result, time.perf_counter() - start


HEAD = f"{'bodies':>7}{'raw':>10}{'inference':>11}{'train':>10}{'of raw':>8}{'apart':>10}{'of apart':>10}{'memory':>12}"


def text(result: dict[str, Any]) -> str:
    """The result as text."""
    rows = result["rows"]
    width = max(len(row["method"]) for row in rows)
    lines = [f"{rows[0]['env']} on {result['device']}, {result['cores']} cores, steps/s", f"{'method':{width}}{HEAD}"]
    for row in rows:
        rates = (
            f"{row['raw_steps_per_s']:>10,.0f}{row['inference_steps_per_s']:>11,.0f}{row['train_steps_per_s']:>10,.0f}"
        )
        apart = f"{row['apart_steps_per_s']:>10,.0f}{row['fraction_of_apart']:>10.0%}"
        memory = f"{row['memory_bytes'] / 2**20:>8,.0f} MiB"
        size = f"{row['method']:{width}}{row['bodies']:>7}"
        lines.append(f"{size}{rates}{row['fraction_of_raw']:>8.0%}{apart}{memory}")
    if result["peer"]:
        lines.append(peer.text(result["peer"], rows[0]["train_steps_per_s"]))
    return "\n".join(lines)
