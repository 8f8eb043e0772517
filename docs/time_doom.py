"""Steps per second of Doom's bodies by how they are driven: ``python docs/time_doom.py > rows.json``.

Variants alternate, so that what else the machine does falls on all of them. In step: all bodies have taken a step
before any takes the next, as a learner needs it; free: each goes on by itself.
"""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from advsurprise.envs.host.doom_body import DoomBody, make_body

SECONDS, ROUNDS = 2.0, 7


def open_bodies(number: int, **settings) -> list[DoomBody]:
    """Bodies of Take Cover in their first episodes."""
    bodies = [make_body("take-cover", **settings) for _ in range(number)]
    for seed, body in enumerate(bodies):
        body.reset(seed)
    return bodies


def step(body: DoomBody, generator: np.random.Generator) -> None:
    """One random step, and a new episode after the last."""
    stepped = body.step(int(generator.integers(3)))
    if stepped.terminated or stepped.truncated:
        body.begin()


def in_step(bodies: list[DoomBody], threads: int) -> float:
    """Steps per second with a barrier after each step."""
    generators = [np.random.default_rng(seed) for seed in range(len(bodies))]
    steps, begin = 0, time.monotonic()
    with ThreadPoolExecutor(threads) as pool:
        run = pool.map if threads > 1 else map
        while time.monotonic() - begin < SECONDS:
            list(run(step, bodies, generators))
            steps += len(bodies)
    return steps / (time.monotonic() - begin)


def free(bodies: list[DoomBody]) -> float:
    """Steps per second of a thread for each body."""
    begin = time.monotonic()

    def play(body: DoomBody) -> int:
        generator, steps = np.random.default_rng(0), 0
        while time.monotonic() - begin < SECONDS:
            step(body, generator)
            steps += 1
        return steps

    with ThreadPoolExecutor(len(bodies)) as pool:
        return sum(pool.map(play, bodies)) / (time.monotonic() - begin)


def serve() -> None:
    """A process with four bodies, told by lines what to time."""
    bodies = open_bodies(4)
    print(flush=True)
    for line in sys.stdin:
        print(in_step(bodies, 4) if line == "in step\n" else free(bodies), flush=True)


def ask(servers: list[subprocess.Popen], what: str) -> float:
    """The sum over processes that run at once."""
    for server in servers:
        server.stdin.write(f"{what}\n")
        server.stdin.flush()
    return sum(float(server.stdout.readline()) for server in servers)


def main() -> None:
    """Prints every variant's rows, one number for each round."""
    command = [sys.executable, __file__, "serve"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    servers = [subprocess.Popen(command, **pipes) for _ in range(2)]
    for server in servers:
        server.stdout.readline()
    bodies, large = open_bodies(8), open_bodies(1, side=84)
    variants = {
        "1 body": lambda: in_step(bodies[:1], 1),
        "1 body, side 84": lambda: in_step(large, 1),
        "8 bodies, one after the other": lambda: in_step(bodies, 1),
        "8 bodies, 8 threads, in step": lambda: in_step(bodies, 8),
        "2 processes of 4 threads, in step": lambda: ask(servers, "in step"),
        "8 bodies, 8 threads, free": lambda: free(bodies),
        "2 processes of 4 threads, free": lambda: ask(servers, "free"),
    }
    rows = {name: [] for name in variants}
    for _ in range(ROUNDS):
        for name, variant in variants.items():
            rows[name].append(round(variant()))
    print(json.dumps({"cores": os.cpu_count(), "load": os.getloadavg()[1], "steps_per_s": rows}, indent=1))


if __name__ == "__main__":
    serve() if "serve" in sys.argv else main()
