"""Trains on meshes of up to eight virtual devices and writes the results, for test_devices.py: the number of devices is
fixed when jax starts, so this runs in a process of its own."""

import dataclasses
import json
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np

from advsurprise.config import PPOConfig, RunConfig
from advsurprise.training import checkpoint, run
from advsurprise.training.folder import prepare_folder
from advsurprise.training.fused import Fused

TINY = RunConfig(
    env="ladder/game",
    method_fields={"k_explore": 1, "k_control": 4, "stack": 1},
    ppo=PPOConfig(epochs=1, minibatch=8),
    steps=8 * 10 * 2,
    bodies=8,
    rollout=10,
)
MESHES = {
    # name: seeds, devices, rows x devices of a row
    "reference": (2, 1, (1, 1)),
    "own seeds": (2, 2, (2, 1)),
    "both": (2, 8, (2, 4)),
    "several seeds share": (3, 4, (1, 4)),
}
WRITER = "both"
"""Whose checkpoint is resumed by the others with as many seeds."""
READERS = ("reference", "own seeds")


def flat(tree) -> dict[str, np.ndarray]:
    """Every leaf under its path."""
    return {jax.tree_util.keystr(path): _array(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _array(leaf) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)


def _train(loop: Fused):
    """The state after one update, the results of another, and how many programs each of the updates compiled."""
    compiled = []

    def count(event, duration, **about):
        if event == "/jax/core/compile/jaxpr_to_mlir_module_duration":
            compiled.append(about.get("fun_name"))

    state = loop.init()
    jax.monitoring.register_event_duration_secs_listener(count)
    middle, _ = jax.block_until_ready(loop.update(state))
    at_first = len(compiled)
    end = loop.update(middle)
    jax.monitoring.unregister_event_duration_listener(count)
    return middle, end, (at_first, len(compiled) - at_first)


def _facts(loop: Fused, state, compiled: tuple[int, int]) -> dict:
    """Where arrays are after two updates, and how many programs were compiled for them."""
    agents = jax.tree.leaves(loop.agents(state))
    time, params = state.carry.memory.time, jax.tree.leaves(state.learner.agent.policies)[0]
    return {
        "mesh": (loop.devices.seeds, loop.devices.bodies),
        "compiled": compiled,
        "devices": len(time.sharding.device_set),
        "bodies per device": time.sharding.shard_shape(time.shape)[:2],
        "seeds per device": params.sharding.shard_shape(params.shape)[0],
        "devices of agents": len({device for leaf in agents for device in leaf.devices()}),
    }


def main(folder: pathlib.Path) -> None:
    """Trains on every mesh, then resumes one checkpoint on others."""
    loops, facts, middle = {}, {}, None
    for name, (seeds, count, _) in MESHES.items():
        loops[name] = loop = Fused(dataclasses.replace(TINY, seeds=tuple(range(seeds)), devices=count))
        state, (end, metrics), compiled = _train(loop)
        facts[name] = _facts(loop, end, compiled)
        np.savez(folder / f"{name}.npz", **flat((end, metrics)))
        middle = state if name == WRITER else middle
    prepare_folder(loops[WRITER].cfg, folder / "run", fresh=False)
    run.save(folder / "run", loops[WRITER].cfg, 1, middle)
    np.savez(folder / "agents.npz", **flat(loops[WRITER].agents(middle)))
    path, _ = checkpoint.newest_good(folder / "run" / "checkpoints")
    for name in READERS:
        state = loops[name].resumed(checkpoint.load(path, loops[name].like()))
        np.savez(folder / f"{name}, resumed.npz", **flat(loops[name].update(state)))
    (folder / "facts.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
