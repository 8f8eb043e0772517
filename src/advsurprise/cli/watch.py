"""`advsurprise watch`: the replay of a run that is still being trained, served to this machine alone."""

import os
import pathlib
import signal
import threading
import webbrowser
from collections.abc import Callable
from typing import Any

import jax

from advsurprise import api
from advsurprise.cli.evaluate import refuse_comparison
from advsurprise.config import RunConfig
from advsurprise.errors import UserError
from advsurprise.evaluation.live import Live
from advsurprise.evaluation.serve import Server
from advsurprise.training.folder import read_run
from advsurprise.training.run import keep_compiled

NICE = 10
"""How far to step back for the training that runs beside it."""
INTERVAL = 1.0
"""Seconds between two looks at the run's folder."""


def watch(
    folder: pathlib.Path, *, port: int, episodes: int, show: bool, announce: Callable[[dict[str, Any]], None]
) -> None:
    """Serves the page and plays every new checkpoint until it is interrupted."""
    api.check_replayed(episodes)
    refuse_comparison(folder)
    cfg = read_run(folder)
    _step_back()
    keep_compiled()
    with api.recorder(cfg, episodes) as record_run:
        live = Live(folder, lambda: record_run(_load(folder, cfg)))
        with Server(live.answers, port) as server:
            announce({"url": server.address, "run": str(folder)})
            if show:
                webbrowser.open(server.address)
            _serve(server, live)


def _load(folder: pathlib.Path, cfg: RunConfig) -> api.Trained:
    """The newest checkpoint of the run, which may have been started over, but not in another world."""
    trained = api.load(folder)
    if (trained.config.env, trained.config.env_fields) != (cfg.env, cfg.env_fields):
        raise UserError(f"{folder} was started over in another world; start advsurprise watch again")
    return trained


def _step_back() -> None:
    """Leaves the machine to the training: low priority, and no accelerator unless the user has named one."""
    if hasattr(os, "nice"):
        os.nice(NICE)  # before jax starts its threads, which inherit it
    if jax.config.jax_platforms is None:  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update("jax_platforms", "cpu")


def _serve(server: Server, live: Live) -> None:
    """Answers in a thread of its own, so that an interrupt reaches the thread that records."""
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    # A plain `kill` ends it as Ctrl-C does: worlds that run in processes of their own are closed. Ctrl-C does so even
    # where whoever has started this ignores it, as shells do for commands in the background.
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        thread.start()
        while True:
            live.look()
            threading.Event().wait(INTERVAL)
    except KeyboardInterrupt:
        return
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        server.shutdown()
        thread.join()


def text(result: dict[str, Any]) -> str:
    """Where the page is."""
    return f"watching {result['run']}: {result['url']}  (Ctrl-C ends it; training goes on)"
