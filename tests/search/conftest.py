"""A real server in the OpenAI format that does what a test tells it to, and small searches."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from turnwise.engines import remote
from turnwise.search import prompted
from turnwise.search.problem import Problem
from turnwise.search.tasks import find_task


def line_of(text, count=16, actions=4):
    """Parameters that are a function of a text, as a reply names them."""
    digest = hashlib.blake2b(text.encode()).digest()
    rng = np.random.default_rng(list(digest[:8]))
    return ", ".join(f"params[{i}]: {rng.integers(actions)}" for i in range(count))


def says(text, usage=None, status=200, **headers):
    """An answer with this text, or with the text that a function makes of the prompt."""

    def answer(handler, prompt):
        content = text(prompt) if callable(text) else text
        told = {"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}
        body = json.dumps(told | ({"usage": usage} if usage else {})).encode()
        if status != 200:
            body = content.encode()
        handler.send_response(status)
        for name, value in ({"Content-Length": len(body)} | headers).items():
            handler.send_header(name.replace("_", "-"), str(value))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def proposes(prompt):
    """A reply that names parameters by the prompt, as a model at temperature 0 does."""
    return f"{line_of(prompt)}\nThis looks good."


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = body["messages"][-1]["content"]
        with self.server.lock:
            number = len(self.server.asked)
            self.server.asked.append(prompt)
            self.server.keys.append(self.headers.get("authorization"))
        try:
            self.server.script(number)(self, prompt)
        except OSError:  # the client has gone
            self.close_connection = True

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    """`server(script)`: a server whose answer to request `number` is `script(number)`."""
    made = []

    def start(script):
        one = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        one.daemon_threads, one.block_on_close = True, False
        one.script, one.asked, one.keys, one.lock = script, [], [], threading.Lock()
        threading.Thread(target=one.serve_forever, args=[0.01], daemon=True).start()
        one.url = f"http://127.0.0.1:{one.server_address[1]}/v1"
        made.append(one)
        return one

    yield start
    for one in made:
        one.shutdown()
        one.server_close()


@pytest.fixture
def no_pauses(monkeypatch):
    """Pauses after failed requests last milliseconds."""
    monkeypatch.setattr(remote, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(prompted, "FIRST_PAUSE", 0.001)


@pytest.fixture
def problem():
    """`problem(task)`: a task with its env."""
    made = []

    def make(name, seed=0):
        made.append(Problem(find_task(name), seed))
        return made[-1]

    yield make
    for one in made:
        one.close()
