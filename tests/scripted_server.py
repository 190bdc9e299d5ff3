"""A server on the loopback whose answers a test writes down; it remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, kw_only=True)
class Reply:
    content: object = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    # Called instead of writing anything: a server that misbehaves below HTTP.
    raw: Callable[[BaseHTTPRequestHandler], None] | None = None


@dataclass
class Server:
    url: str
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0

    @property
    def posts(self) -> list[Asked]:
        return [each for each in self.asked if each.method == "POST"]


Respond = Callable[[Asked], Reply]


@contextmanager
def serving(respond: Respond) -> Iterator[Server]:
    state = Server(url="")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Without it, small answers wait for the client's acknowledgement.
        disable_nagle_algorithm = True

        def setup(self) -> None:
            state.connections += 1
            super().setup()

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked = Asked(method=self.command, path=self.path, headers=dict(self.headers), body=body)
            state.asked.append(asked)
            reply = respond(asked)
            if reply.raw is not None:
                reply.raw(self)
                self.close_connection = True
                return
            content = reply.content if isinstance(reply.content, bytes) else json.dumps(reply.content).encode()
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = answer

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
