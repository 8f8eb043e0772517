"""Debian's chromium, driven over the pipe of its DevTools protocol with the standard library alone."""

import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import time
from typing import Any

PATIENCE = 60
"""Seconds to wait for anything that the browser is asked."""


def find() -> str | None:
    """The browser's program, if there is one."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """One headless browser with one page. Errors and requests of the page are kept."""

    def __init__(self, program: str, profile: pathlib.Path):
        down, self._write = os.pipe()
        self._read, up = os.pipe()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"]
        flags += ["--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
        # Chromium reads commands from descriptor 3 and answers on 4. (dash knows no descriptors above 9.)
        command = ["bash", "-c", f'exec "$@" 3<&{down} 4>&{up}', "bash", program, *flags]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, pass_fds=(down, up), start_new_session=True, **quiet)
        os.close(down)
        os.close(up)
        self._buffer, self._number, self._session = b"", 0, None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Sends a command and waits for its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            part = os.read(self._read, 1 << 20)
            assert part, "the browser is gone"
            self._buffer += part
        first, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(first)
        self._keep(message.get("method"), message.get("params", {}))
        return message

    def _keep(self, event: str | None, params: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown" or (
            event == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert")
        ):
            self.complaints.append(json.dumps(params)[:500])
        elif event == "Log.entryAdded":
            self.complaints.append(params["entry"]["text"])
        elif event == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def open(self, address: str, *, until: str = "document.documentElement?.dataset.ready === 'yes'") -> None:
        """Opens a page and waits until it can be used."""
        self.call("Page.navigate", url="about:blank")
        self.complaints.clear()
        self.requests.clear()
        self.call("Page.navigate", url=address)
        self.wait(until)

    def value(self, expression: str) -> Any:
        """What an expression is in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Waits until a condition holds in the page."""
        end = time.monotonic() + PATIENCE
        while not self.value(condition):
            assert time.monotonic() < end, f"never came true: {condition}"
            time.sleep(0.02)

    def press(self, key: str, *, shift: bool = False) -> None:
        """Presses and releases a key."""
        text = {"text": key} if len(key) == 1 else {}
        for kind, extra in (("keyDown", text), ("keyUp", {})):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, modifiers=8 if shift else 0, **extra)

    def click(self, selector: str, *, across: float = 0.5) -> None:
        """Clicks on an element, at some part of its width."""
        x, y = self._point(selector, across)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def touch(self, selector: str, *, across: float = 0.5) -> None:
        """Touches an element."""
        x, y = self._point(selector, across)
        self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def _point(self, selector: str, across: float) -> tuple[float, float]:
        found = f"document.querySelector({selector!r})"
        self.value(f"{found}.scrollIntoView({{block: 'center'}})")
        box = json.loads(self.value(f"JSON.stringify({found}.getBoundingClientRect())"))
        return box["left"] + across * box["width"], box["top"] + box["height"] / 2

    def look(self, *, width: int, height: int, dark: bool = False, phone: bool = False) -> None:
        """Size of the window, and whether its owner likes it dark."""
        scale = 2 if phone else 1
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone
        )
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)

    def picture(self, path: pathlib.Path) -> None:
        """Writes what the window shows, as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        """Ends the browser."""
        self._session = None
        self.call("Browser.close")
        self._process.wait(PATIENCE)
        os.close(self._write)
        os.close(self._read)
