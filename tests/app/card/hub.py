"""A server that answers as the Hugging Face hub does when a commit is pushed.

Provides `hub`. Every file is taken in the commit itself, as the hub takes small ones.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKEN = "hf_" + "x" * 34


@dataclass
class Hub:
    """What was asked of the server."""

    address: str = ""
    created: list[dict] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)
    public: set[str] = field(default_factory=set)
    """The public repositories that were there before."""


@contextmanager
def hub() -> Iterator[Hub]:
    """Serve a hub on a free port."""
    state = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *said: object) -> None:
            """Keep quiet."""

        def do_GET(self) -> None:
            state.paths.append(self.path)
            name = "/".join(self.path.removeprefix("/api/").split("/")[1:3])
            if "/tree/" in self.path:
                fields = {"type": "file", "size": 1, "oid": "0"}
                return self._answer(200, [{"path": path, **fields} for path in state.files])
            self._answer(200, {"id": name, "private": name not in state.public})

        def do_POST(self) -> None:
            body = self._body()
            state.paths.append(self.path)
            if self.headers.get("authorization") != f"Bearer {TOKEN}":
                self._answer(401, {"error": "Invalid credentials"})
            elif self.path == "/api/repos/create":
                asked = json.loads(body)
                state.created.append(asked)
                kind = "" if asked["type"] == "model" else f"{asked['type']}s/"
                name = f"{asked['organization']}/{asked['name']}"
                status = 409 if name in state.public else 200
                self._answer(status, {"url": f"{state.address}/{kind}{name}"})
            elif self.path == "/api/validate-yaml":
                self._answer(200, {"warnings": [], "errors": []})
            elif "/preupload/" in self.path:
                names = [each["path"] for each in json.loads(body)["files"]]
                modes = {"uploadMode": "regular", "shouldIgnore": False}
                self._answer(200, {"files": [{"path": name, **modes} for name in names]})
            elif "/commit/" in self.path:
                for line in body.splitlines():
                    entry = json.loads(line)
                    if entry["key"] == "file":
                        value = entry["value"]
                        state.files[value["path"]] = base64.b64decode(value["content"])
                url = f"{state.address}/u/n/commit/{'0' * 40}"
                self._answer(200, {"commitUrl": url, "commitOid": "0" * 40, "success": True})
            else:
                self._answer(404, {"error": f"no {self.path}"})

        def _body(self) -> bytes:
            if "content-length" in self.headers:
                return self.rfile.read(int(self.headers["content-length"]))
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def _answer(self, status: int, value: dict | list) -> None:
            content = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
