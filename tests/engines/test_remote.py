"""The remote engine against a server that says and does whatever a test tells it to."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from turnwise.engines import (
    Completion,
    RemoteConfig,
    RemoteEngine,
    RoutingEngine,
    ScriptedEngine,
    close_engine,
    remote,
    run,
)
from turnwise.engines.config import EngineConfig
from turnwise.engines.remote import pause_of
from turnwise.engines.table import ENGINES, EngineKind, make_engine
from turnwise.errors import ConfigError, EndpointError, EngineError
from turnwise.settings import parse
from turnwise.types import Media, Message, Prompt

ASKED = Prompt(messages=(Message(role="user", content="2+2?"),))
FOUR = {"choices": [{"message": {"role": "assistant", "content": "4"}, "finish_reason": "stop"}]}


def says(said, status=200, **headers):
    """The handler's part that answers with JSON, or with bytes as they are."""
    body = said if isinstance(said, bytes) else json.dumps(said).encode()

    def answer(handler):
        handler.send_response(status)
        for name, value in ({"Content-Length": len(body)} | headers).items():
            handler.send_header(name.replace("_", "-"), str(value))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def content(text, reason="stop"):
    return {"choices": [{"message": {"content": text}, "finish_reason": reason}]}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            number = len(self.server.asked)
            self.server.asked.append(
                SimpleNamespace(
                    path=self.path,
                    body=json.loads(body),
                    headers=dict(self.headers),
                    at=time.monotonic(),
                    port=self.client_address[1],
                )
            )
        script = self.server.script
        try:
            script[min(number, len(script) - 1)](self)
        except OSError:  # the client has gone
            self.close_connection = True

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    """`server(*answers)`: answers request after request so, the last one for all that follow."""
    made = []

    def start(*answers):
        one = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        one.daemon_threads, one.block_on_close = True, False
        one.script, one.asked, one.lock = answers, [], threading.Lock()
        threading.Thread(target=one.serve_forever, args=[0.01], daemon=True).start()
        one.url = f"http://127.0.0.1:{one.server_address[1]}/v1"
        made.append(one)
        return one

    yield start
    for one in made:
        one.shutdown()
        one.server_close()


@pytest.fixture
def engine(monkeypatch):
    """`engine(url, **options)`: a routing engine whose policy `main` is at the server."""
    monkeypatch.setattr(remote, "FIRST_PAUSE", 0.01)
    made = []

    def make(url, seed=0, local=None, **options):
        config = RemoteConfig(base_url=url, model="small", **{"timeout": 5, **options})
        local = local or ScriptedEngine(lambda request: (1, 2))
        made.append(RoutingEngine(local, {"main": RemoteEngine("main", config, seed)}))
        return made[-1]

    yield make
    for one in made:
        close_engine(one)


@pytest.fixture
def ask(tools):
    """`ask(engine, prompt)`: one request's completion."""

    def one(engine, prompt=ASKED, **options):
        request = tools.request((), prompt=prompt, **options)
        return run(engine.generate(request), engine)

    return one


def test_a_reply_is_a_completion_of_text(server, engine, ask, tools, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "secret")
    there = server(says(FOUR), says(content("", "length")), says(content("ü \n", "odd")))
    here = engine(there.url + "/", api_key_env="SOME_KEY")
    expected = Completion(
        token_ids=(), logprobs=(), finish_reason="stop", policy_version=0, text="4"
    )
    assert ask(here, temperature=0.5, max_tokens=9) == expected
    assert (ask(here).text, ask(here).text) == ("", "ü \n")
    first = there.asked[0]
    assert first.path == "/v1/chat/completions"
    assert first.headers["authorization"] == "Bearer secret"
    seed = first.body.pop("seed")
    assert 0 <= seed < 2**31
    assert first.body == {
        "model": "small",
        "messages": [{"role": "user", "content": "2+2?"}],
        "temperature": 0.5,
        "max_tokens": 9,
        "stream": False,
    }
    assert here.metrics() == {"engine/remote_calls": 3.0, "engine/remote_retries": 0.0}
    assert here.metrics()["engine/remote_calls"] == 0.0


def test_the_seed_is_a_function_of_run_stream_and_turn(server, engine, ask, tools):
    there = server(says(FOUR))
    ways = [{}, {}, {"id": tools.turn(1)}, {"stream": "evaluation"}]
    for way in ways:
        ask(engine(there.url), **way)
    ask(engine(there.url, seed=1))
    seeds = [one.body["seed"] for one in there.asked]
    assert seeds[0] == seeds[1]
    assert len(set(seeds)) == 4


@pytest.mark.parametrize("status", [429, 500, 503, 408])
def test_what_may_pass_is_tried_again(server, engine, ask, status):
    there = server(says(b"later", status), says(b"", status), says(FOUR))
    here = engine(there.url)
    assert ask(here).text == "4"
    assert here.metrics() == {"engine/remote_calls": 1.0, "engine/remote_retries": 2.0}


def test_a_servers_pause_is_kept_within_a_bound(server, engine, ask, monkeypatch):
    there = server(says(b"", 429, Retry_After="0.3"), says(FOUR))
    assert ask(engine(there.url)).text == "4"
    first, second = there.asked
    assert second.at - first.at >= 0.3
    monkeypatch.setattr(remote, "LONGEST_PAUSE", 0.2)
    there = server(says(b"", 429, Retry_After="86400"), says(FOUR))
    began = time.monotonic()
    assert ask(engine(there.url)).text == "4"
    assert time.monotonic() - began < 4


def test_what_a_server_asks_to_wait_is_read():
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert 20 < pause_of({"retry-after": soon}) <= 30
    assert pause_of({"retry-after": "-3"}) == 0
    for nonsense in ("", "nan", "inf", "soon", "9" * 400, "Wed, 99 Foo 0 0"):
        assert pause_of({"retry-after": nonsense}) is None


def drops(handler):
    """Promise more than is sent, then hang up."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.wfile.flush()
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


def hangs(handler):
    time.sleep(3)


def trickles(handler):
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    for _ in range(60):
        handler.wfile.write(b" ")
        time.sleep(0.05)


def floods(handler):
    """Send without end, in chunks."""
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for _ in range(100_000):
        handler.wfile.write(b"1000\r\n" + b" " * 0x1000 + b"\r\n")


def no_http(handler):
    handler.wfile.write(b"\0\xffnonsense\r\n\r\n")
    handler.close_connection = True


BAD = {
    "no JSON": (says(b"<html>"), "no JSON"),
    "no UTF-8": (says(b'{"choices": "\xff"}'), "no JSON in UTF-8"),
    "nested": (says(b"[" * 9000), "no JSON"),
    "a list": (says([]), "no text at"),
    "no choices": (says({}), "no text at"),
    "empty choices": (says({"choices": []}), "no text at"),
    "choices of another kind": (says({"choices": {"0": 1}}), "no text at"),
    "a choice of another kind": (says({"choices": ["4"]}), "no text at"),
    "no message": (says({"choices": [{}]}), "no text at"),
    "no content": (says(content(None)), "no text at"),
    "content of another kind": (says(content(["4"])), "no text at"),
    "half a character": (says(content("\ud800")), "lone surrogate"),
    "compressed": (says(b"x", Content_Encoding="gzip"), "in the encoding 'gzip'"),
    "huge": (says(content("x" * 50_000)), "more than max_reply_bytes = 20000"),
    "endless": (floods, "more than max_reply_bytes = 20000"),
    "dropped": (drops, "could not be reached"),
    "no HTTP": (no_http, "could not be reached"),
    "silent": (hangs, "did not answer within 0.4 s"),
    "slow": (trickles, "did not answer within 0.4 s"),
    "failing": (says(b"key secret!", 500), "status 500: 'key ***!'"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_stays_bad_is_an_error_after_the_retries(server, engine, ask, monkeypatch, name):
    monkeypatch.setenv("SOME_KEY", "secret")
    answer, sentence = BAD[name]
    there = server(answer)
    here = engine(there.url, timeout=0.4, retries=1, max_reply_bytes=20_000, api_key_env="SOME_KEY")
    began = time.monotonic()
    with pytest.raises(EngineError) as refusal:
        ask(here)
    said = str(refusal.value)
    assert sentence in said
    assert "policy 'main'" in said and there.url in said and "tried 2 times" in said
    assert "secret" not in said and len(said) < 700
    assert len(there.asked) == 2
    assert time.monotonic() - began < 5
    there.script = (says(FOUR),)
    assert ask(here).text == "4", "what went wrong leaves nothing behind"


def test_a_server_that_is_not_there_is_an_error(engine, ask):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
    with pytest.raises(EngineError, match="could not be reached .*check that the server runs"):
        ask(engine(url, retries=1))


@pytest.mark.parametrize(
    ("status", "cure"),
    [(401, "api_key_env"), (403, "may use this model"), (404, "no such address"), (400, "options")],
)
def test_a_refusal_for_good_is_not_repeated(server, engine, ask, status, cure):
    there = server(says({"error": "no " + "x" * 9000}, status))
    with pytest.raises(EngineError, match=cure) as refusal:
        ask(engine(there.url))
    assert f'status {status}: \'{{"error"' in str(refusal.value)
    assert len(str(refusal.value)) < 700
    assert len(there.asked) == 1


def test_only_so_many_are_under_way_at_once(server, engine, tools):
    now, most, lock = 0, 0, threading.Lock()

    def counts(handler):
        nonlocal now, most
        with lock:
            now, most = now + 1, max(most, now + 1)
        time.sleep(0.02)
        with lock:
            now -= 1
        says(FOUR)(handler)

    here = engine(server(counts).url, max_concurrent=3)
    asked = [tools.request((), prompt=ASKED, id=tools.turn(n)) for n in range(12)]
    assert {one.text for one in tools.ask(here, asked)} == {"4"}
    assert 1 < most <= 3


def test_a_server_that_never_answers_does_not_cost_every_request_its_time(server, engine, tools):
    answers = threading.Event()

    def silent(handler):
        if not answers.wait(20):
            return
        says(FOUR)(handler)

    there = server(silent)
    here = engine(there.url, max_concurrent=2, retries=1, timeout=0.5)
    asked = [tools.request((), prompt=ASKED, id=tools.turn(n)) for n in range(40)]

    async def all_of_them():
        return await asyncio.gather(*map(here.generate, asked), return_exceptions=True)

    began = time.monotonic()
    failed = run(all_of_them(), here)
    assert time.monotonic() - began < 5, "each pair of requests would take a second: 20 in all"
    assert all(isinstance(one, EndpointError) for one in failed)
    assert sum("was not sent" in str(one) for one in failed) > 20
    assert 4 <= len(there.asked) < 16
    answers.set()
    assert tools.ask(here, asked[:1])[0].text == "4"  # it is tried again, and found back
    assert {one.text for one in tools.ask(here, asked)} == {"4"}


def test_a_connection_serves_later_runs_and_a_closed_engine_opens_another(server, engine, ask):
    there = server(says(FOUR))
    here = engine(there.url)
    ask(here)
    ask(here)
    close_engine(here)
    ask(here)
    ports = [one.port for one in there.asked]
    assert ports[0] == ports[1] != ports[2]


def test_each_remote_policy_has_its_own_server(server, ask, monkeypatch):
    scripted = EngineKind(EngineConfig, lambda *parts: ScriptedEngine(lambda request: (1, 2)))
    monkeypatch.setitem(ENGINES, "local", scripted)
    left, right = server(says(content("left"))), server(says(content("right")))
    configs = {
        name: RemoteConfig(base_url=there.url, model=f"{name}-model", timeout=5)
        for name, there in (("left", left), ("right", right))
    }
    here = make_engine({}, configs, EngineConfig(), 0, {})
    try:
        said = [ask(here, policy=name).text for name in ("left", "right", "right")]
        assert said == ["left", "right", "right"]
        assert ask(here, policy="main").token_ids, "this policy is here"
        asked = {one.body["model"] for one in left.asked}
        assert asked == {"left-model"}
        assert here.metrics()["engine/remote_calls"] == 3.0
    finally:
        close_engine(here)


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_deterministic_local_engine_waits_for_replies(server, engine, tools, deterministic):
    local, seen = ScriptedEngine(lambda request: (1, 2)), []
    local.deterministic = deterministic

    def late(handler):
        time.sleep(0.3)
        seen.append(len(local.requests))
        says(FOUR)(handler)

    here = engine(server(late).url, local=local)
    asked = [tools.request((), prompt=ASKED), tools.request((5,), policy="other")]
    assert [one.text for one in tools.ask(here, asked)] == ["4", None]
    assert seen == [0 if deterministic else 1]


def test_its_weights_are_the_servers(engine):
    here = engine("http://127.0.0.1:1/v1")
    with pytest.raises(EngineError, match="'main' is remote"):
        here.update_weights("main")
    here.update_weights("other")
    assert here._local.policy_version == 1


def test_only_messages_of_text_are_sent(engine, ask):
    here = engine("http://127.0.0.1:1/v1")
    picture = Media(kind="image/png", data=b"")
    for prompt in (
        None,
        Prompt(text="2+2="),
        Prompt(messages=ASKED.messages, tools=("{}",)),
        Prompt(messages=ASKED.messages, media=(picture,)),
    ):
        with pytest.raises(EngineError, match="takes messages of text"):
            ask(here, prompt)


def test_a_request_of_odd_text_is_sent(server, engine, ask):
    there = server(says(FOUR))
    odd = Prompt(messages=(Message(role="user", content="\ud800 \0 ü"),))
    assert ask(engine(there.url), odd).text == "4"
    assert there.asked[0].body["messages"][0]["content"] == "\ud800 \0 ü"


def test_wrong_options_say_what_to_do(monkeypatch):
    def config(**options):
        return RemoteConfig(**({"base_url": "http://x/v1", "model": "m"} | options))

    for options in ({"base_url": "ftp://x"}, {"api_key_env": "sk-123"}, {"timeout": float("inf")}):
        with pytest.raises(ValidationError):
            config(**options)
    for value in (None, " ", "ü"):
        if value is None:
            monkeypatch.delenv("NO_KEY", raising=False)
        else:
            monkeypatch.setenv("NO_KEY", value)
        with pytest.raises(ConfigError, match=r"policies\.judge\.api_key_env = 'NO_KEY'"):
            RemoteEngine("judge", config(api_key_env="NO_KEY"), 0)
    with pytest.raises(ConfigError, match=r"judge\.base_url = 'http://é\.\.com' is not an address"):
        RemoteEngine("judge", config(base_url="http://é..com"), 0)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        (
            "base_url",
            "http://",
            "is not an address of a server: give one such as https://api.openai",
        ),
        ("base_url", "http://x:port/v1", "is not an address (Port could not be cast"),
        ("base_url", "http://x:99999/v1", "is not an address (Port out of range"),
        ("base_url", "http://x y/v1", "is not an address of a server"),
        ("base_url", "http://me:s3cret@x/v1", "holds a name or a password: leave it out and use"),
        ("base_url", "http://x/v1?key=s3cret", "a key by api_key_env"),
        ("base_url", "http://x/v1/chat/completions/", "which is added: leave that part out"),
        ("api_key_env", "hf_s3cretABCDEFGHIJKLMNOPQ", "the name of an environment variable"),
    ],
)
def test_a_wrong_address_is_refused_before_a_run_and_no_key_is_repeated(option, value, said):
    given = {"base_url": "http://x/v1", "model": "m", option: value}
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        parse(RemoteConfig, given, "the judge")
    assert "s3cret" not in str(caught.value)


def test_a_key_that_a_server_repeats_is_seen_nowhere(server, engine, ask, monkeypatch):
    key = "sk-0123456789abcdefghij"
    monkeypatch.setenv("SOME_KEY", key)

    def odd_line(handler):
        handler.wfile.write(f"no HTTP {key}\r\n\r\n".encode())
        handler.close_connection = True

    answers = (says((key * 100).encode(), 400), says({"error": key}), odd_line)
    for answer in answers:
        with pytest.raises(EndpointError) as caught:
            ask(engine(server(answer).url, api_key_env="SOME_KEY", retries=0))
        assert "***" in str(caught.value)
        assert key[:6] not in str(caught.value)
    here = engine(server(says(content(f"<{key}>"))).url, api_key_env="SOME_KEY")
    assert ask(here).text == "<***>"


def test_what_a_server_says_of_an_error_with_status_200_is_quoted(server, engine, ask):
    here = engine(server(says({"error": {"message": "no such model"}})).url, retries=0)
    with pytest.raises(EndpointError, match="no such model"):
        ask(here)


def test_the_cookies_of_a_server_are_not_kept(server, engine, ask):
    there = server(says(FOUR, Set_Cookie="a=b; Path=/"))
    here = engine(there.url)
    for _ in range(2):
        ask(here)
    assert "Cookie" not in there.asked[1].headers


def test_a_name_that_no_resolver_takes_is_an_error(engine, ask):
    with pytest.raises(EndpointError, match="could not be reached"):
        ask(engine(f"http://{'a' * 70}.com/v1", retries=0))


def test_a_request_that_is_given_up_is_cancelled(server, engine, tools):
    there = server(hangs)
    here = engine(there.url)

    async def main():
        request = tools.request((), prompt=ASKED)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(here.generate(request), 0.2)
        return asyncio.get_running_loop().outside

    assert run(main(), here) == 0


def test_the_failures_of_a_server_are_one_cause(server, engine, tools):
    here = engine(server(says(b"{")).url, retries=0)
    one = tools.request((), prompt=ASKED)
    said = set()
    for request in (one, replace(one, id=replace(one.id, turn=7))):
        with pytest.raises(EndpointError) as caught:
            run(here.generate(request), here)
        said.add(str(caught.value))
    assert len(said) == 1
