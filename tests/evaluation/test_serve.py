"""The server answers this machine alone, and nothing but what it was given."""

import http.client
import threading

import pytest

from advsurprise.errors import UserError
from advsurprise.evaluation.serve import Answer, Server

BODY = b"<p>here</p>"


@pytest.fixture(scope="module")
def server():
    with Server({"/": lambda: Answer("text/html; charset=utf-8", BODY)}, 0) as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


def ask(server, method: str, path: str, *hosts: str) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers of the answer to a request with these Host headers."""
    connection = http.client.HTTPConnection(*server.server_address, timeout=10)
    connection.putrequest(method, path, skip_host=True)
    for host in hosts:
        connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse()
    status, body, headers = answer.status, answer.read(), dict(answer.getheaders())
    connection.close()
    return status, body, headers


def test_it_listens_on_this_machine_only_and_answers_its_names(server):
    port = server.server_port
    assert server.server_address[0] == "127.0.0.1"
    assert server.address == f"http://127.0.0.1:{port}/"
    for host in ("localhost", f"localhost:{port}", "127.0.0.1", f"127.0.0.1:{port}", f"LocalHost:{port}"):
        status, body, headers = ask(server, "GET", "/", host)
        assert (status, body) == (200, BODY), host
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in headers
    status, body, headers = ask(server, "HEAD", "/", "localhost")
    assert (status, body, headers["Content-Length"]) == (200, b"", str(len(BODY)))


def test_other_hosts_are_refused(server):
    port = server.server_port
    strangers = ("evil.example", f"evil.example:{port}", "localhost.evil.example", f"127.0.0.1:{port + 1}", "")
    for hosts in (*((host,) for host in strangers), (), ("localhost", "evil.example")):
        status, body, _ = ask(server, "GET", "/", *hosts)
        assert status == 403, hosts
        assert BODY not in body


def test_other_paths_and_methods_are_refused(server):
    for path in ("/config.json", "/../config.json", "/?x", "/%2e%2e/", "http://localhost/"):
        assert ask(server, "GET", path, "localhost")[0] == 404, path
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "WHATEVER"):
        status, _, headers = ask(server, method, "/", "localhost")
        assert (status, headers["Allow"]) == (405, "GET, HEAD"), method
        assert ask(server, method, "/", "evil.example")[0] == 403


def test_a_taken_port_is_a_sentence(server):
    for port in (server.server_port, 70_000):
        with pytest.raises(UserError, match=f"cannot serve on port {port}: "):
            Server({}, port)
