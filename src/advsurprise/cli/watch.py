"""`advsurprise watch`: replays of a run while it trains, served to this machine only."""

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
"""Niceness, so that training goes first."""
INTERVAL = 1.0
"""Seconds between checks of the run's folder."""


def watch(
    folder: pathlib.Path, *, port: int, episodes: int, show: bool, announce: Callable[[dict[str, Any]], None]
) -> None:
    """Serves the page and plays every new checkpoint until interrupted."""
    api.check_replayed(episodes)
    refuse_comparison(folder)
    cfg = read_run(folder)
    _yield_to_training()
    keep_compiled()
    with api.recorder(cfg, episodes) as record_run:
        live = Live(folder, lambda: record_run(_load(folder, cfg)))
        with Server(live.answers, port) as server:
            announce({"url": server.address, "run": str(folder)})
            if show:
                webbrowser.open(server.address)
            _serve(server, live)


def _load(folder: pathlib.Path, cfg: RunConfig) -> api.Trained:
    """The newest checkpoint of the run, which may have been restarted, but not in another world."""
    trained = api.load(folder)
    if (trained.config.env, trained.config.env_fields) != (cfg.env, cfg.env_fields):
        raise UserError(f"{folder} was restarted in another world; run advsurprise watch again")
    return trained


def _yield_to_training() -> None:
    """Lowers the priority, and uses no accelerator unless the user has chosen one."""
    if hasattr(os, "nice"):
        os.nice(NICE)  # before jax starts its threads, which inherit it
    if jax.config.jax_platforms is None:  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update("jax_platforms", "cpu")


def _serve(server: Server, live: Live) -> None:
    """Serves from a second thread, so that an interrupt reaches the thread that records."""
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    # SIGTERM ends it like Ctrl-C, so that worlds with worker processes are closed. SIGINT is handled even if the parent
    # ignores it, as shells do for background commands.
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
    """The address of the page."""
    return f"watching {result['run']}: {result['url']}  (Ctrl-C stops watching; training continues)"
