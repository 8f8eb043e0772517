"""Entry point of `advsurprise`. Exit codes: 0 success, 2 usage error, 3 missing extra, 4 failure.

This module only parses: each verb imports what it needs when it runs, so that `--help` does not load jax. With `--json`
a verb prints exactly one JSON object on standard output.
"""

import gc
import os
import sys
import warnings
from typing import Annotated

import tyro
from tyro.conf import OmitSubcommandPrefixes, subcommand

from advsurprise import __version__
from advsurprise.cli.bench import Bench
from advsurprise.cli.reproduce import Reproduce
from advsurprise.cli.sweep import Sweep
from advsurprise.cli.verbs import (
    CheckEnv,
    Doctor,
    Envs,
    Eval,
    Film,
    Methods,
    Plot,
    Replay,
    Report,
    Resume,
    Theory,
    Train,
    Watch,
    Zoo,
)
from advsurprise.errors import EXIT_FAILED, UserError, WorldWarning

OBJECTS_BETWEEN_COLLECTIONS = 50_000
"""Threshold of Python's garbage collector; its default of 700 costs half a second of a start-up of five."""

Verb = (
    Annotated[Train, subcommand("train")]
    | Annotated[Resume, subcommand("resume")]
    | Annotated[Sweep, subcommand("sweep")]
    | Annotated[Eval, subcommand("eval")]
    | Annotated[Plot, subcommand("plot")]
    | Annotated[Replay, subcommand("replay")]
    | Annotated[Film, subcommand("film")]
    | Annotated[Watch, subcommand("watch")]
    | Annotated[Report, subcommand("report")]
    | Annotated[Zoo, subcommand("zoo")]
    | Annotated[Methods, subcommand("methods")]
    | Annotated[Envs, subcommand("envs")]
    | Annotated[CheckEnv, subcommand("check-env")]
    | Annotated[Theory, subcommand("theory")]
    | Annotated[Reproduce, subcommand("reproduce")]
    | Annotated[Bench, subcommand("bench")]
    | Annotated[Doctor, subcommand("doctor")]
)


def main(words: list[str] | None = None) -> None:
    """Runs one verb; errors become one sentence and an exit code."""
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    try:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                # By default Python shows the same warning only once.
                warnings.simplefilter("always", WorldWarning)
                _run(sys.argv[1:] if words is None else words)
        finally:
            sys.stdout.flush()
    except UserError as error:
        print(f"advsurprise: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt:
        print("advsurprise: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    except BrokenPipeError:
        # The reader closed the pipe, as `head` does; flushing the buffer at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except OSError as error:
        # Any other file system error: a name too long, a folder without permission, a broken disk.
        path = f"{error.filename}: " if error.filename else ""
        print(f"advsurprise: {path}{error.strerror or error}", file=sys.stderr)
        raise SystemExit(EXIT_FAILED) from None


def _show_warning(message: Warning | str, *_: object) -> None:
    """Prints a warning on one line, without its source location, over the progress line if there is one."""
    clear = "\r\x1b[2K" if sys.stderr.isatty() else ""
    print(f"{clear}advsurprise: {' '.join(str(message).split())}", file=sys.stderr, flush=True)


def _run(words: list[str]) -> None:
    if words in (["--version"], ["-V"]):
        print(f"advsurprise {__version__}")
        return
    verb = tyro.cli(
        OmitSubcommandPrefixes[Verb],  # pyright: ignore[reportArgumentType]
        prog="advsurprise",
        description="Adversarial Surprise and its baselines: unsupervised reinforcement learning in noisy worlds.",
        args=words,
    )
    verb.run()


if __name__ == "__main__":
    main()
