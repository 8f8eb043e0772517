"""A local web server: it is reachable only from this machine and serves only known paths."""

import http
import http.server
from collections.abc import Callable, Mapping
from typing import NamedTuple

from advsurprise.errors import UserError

HOST = "127.0.0.1"
NAMES = (HOST, "localhost")
"""Allowed host names. Any other may be an attacker's that resolves to this machine (DNS rebinding)."""
PATIENCE = 10
"""Timeout of a request in seconds."""
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of every response: nothing is cached, and no other site may embed or read it."""


class Answer(NamedTuple):
    """The response for a path."""

    kind: str
    """Its media type."""
    body: bytes
    """Its content."""


Answers = Mapping[str, Callable[[], Answer]]
"""Maps each known path to its response."""


class Server(http.server.ThreadingHTTPServer):
    """Answers GET and HEAD requests for known paths that use an allowed host name."""

    daemon_threads = True

    def __init__(self, answers: Answers, port: int):
        self.answers = answers
        try:
            super().__init__((HOST, port), Handler)
        except (OSError, OverflowError) as error:
            raise UserError(f"cannot serve on port {port}: {getattr(error, 'strerror', None) or error}") from None

    @property
    def address(self) -> str:
        """URL of the server."""
        return f"http://{HOST}:{self.server_port}/"

    def handle_error(self, request, client_address) -> None:
        """Ignores errors: a browser may disconnect during a response."""


class Handler(http.server.BaseHTTPRequestHandler):
    """Handles one request."""

    server: Server
    timeout = PATIENCE
    server_version, sys_version = "advsurprise", ""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def __getattr__(self, name: str):
        # Any other method: the base class looks for `do_NAME`.
        if name.startswith("do_"):
            return self._refuse_method
        raise AttributeError(name)

    def _refuse_method(self) -> None:
        status = http.HTTPStatus
        self._refuse(status.METHOD_NOT_ALLOWED if self._is_local() else status.FORBIDDEN)

    def _answer(self, *, with_body: bool) -> None:
        if not self._is_local():
            return self._refuse(http.HTTPStatus.FORBIDDEN)
        if self.path not in self.server.answers:
            return self._refuse(http.HTTPStatus.NOT_FOUND)
        answer = self.server.answers[self.path]()
        self._send(http.HTTPStatus.OK, answer, with_body=with_body)

    def _is_local(self) -> bool:
        """Whether the Host header names this machine, and this port if it names one."""
        hosts = self.headers.get_all("Host", [])
        allowed = {each for name in NAMES for each in (name, f"{name}:{self.server.server_port}")}
        return len(hosts) == 1 and hosts[0].lower() in allowed

    def _refuse(self, status: http.HTTPStatus) -> None:
        body = f"{status.value} {status.phrase}\n".encode()
        self._send(status, Answer("text/plain; charset=utf-8", body), with_body=self.command != "HEAD")

    def _send(self, status: http.HTTPStatus, answer: Answer, *, with_body: bool) -> None:
        self.send_response(status)
        allow = {"Allow": "GET, HEAD"} if status == http.HTTPStatus.METHOD_NOT_ALLOWED else {}
        length = {"Content-Type": answer.kind, "Content-Length": str(len(answer.body))}
        for name, value in {**length, **HEADERS, **allow}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args) -> None:
        """Logs nothing: standard error is for the user's mistakes."""
