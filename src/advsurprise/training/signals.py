"""SIGINT and SIGTERM as a request to stop after the current update."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """A list that gets the number of the first SIGINT or SIGTERM; a second one interrupts at once.

    Python delivers signals to the main thread only: in any other thread the list stays empty.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def remember(number, frame):
        if received:
            raise KeyboardInterrupt
        received.append(number)

    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
