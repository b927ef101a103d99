"""Paths and secrets in texts that are published: what is cut, what is removed, and what stays."""

from __future__ import annotations

import time

import pytest

from turnwise.utils.redaction import cleaned, secrets_in, without_paths, without_secrets

LONG = "a1b2c3d4e5f6" * 4


@pytest.mark.parametrize(
    "secret",
    [
        f"hf_{LONG}",
        f"sk-proj-{LONG}",
        f"gsk_{LONG}",
        f"xai-{LONG}",
        f"nvapi-{LONG}",
        f"AIza{LONG[:35]}",
        f"github_pat_{LONG}",
        f"glpat-{LONG}",
        f"xoxb-{LONG}",
        "ASIAABCDEFGHIJKLMNOP",
        f"eyJ{LONG}.eyJ{LONG}.{LONG}",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----",
        "redis://:hunter2@cache:6379",
        "https://ann:hunter2@host/v1",
        f"https://host/v1?api_key={LONG}",
    ],
)
def test_secrets_are_known_by_their_form(secret):
    assert len(secrets_in(f"given: {secret}")) == 1
    assert without_secrets(f"given: {secret} there").startswith("given: ")
    assert secrets_in(without_secrets(f"given: {secret} there")) == []


@pytest.mark.parametrize(
    "text",
    ["max_tokens = 48", "task-risk-desk-sk-learn-and-more-words", "https://a.b/c?page=2", "a:b@c"],
)
def test_plain_texts_hold_no_secret(text):
    assert secrets_in(text) == []
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    "key",
    [
        "api_key",
        "secret_key",
        "aws_secret_access_key",
        "accessToken",
        "auth-key",
        "passwd",
        "TOKENS",
    ],
)
def test_secrets_are_known_by_their_key(key):
    assert cleaned({key: "correct-horse"}) == {key: "removed"}
    assert cleaned({key: ["correct-horse"]}) == {key: ["removed"]}


def test_a_number_may_be_a_password_and_is_no_token():
    given = {"password": 1234, "max_tokens": 48, "stop_tokens": [3, 4]}
    assert cleaned(given) == {**given, "password": "removed"}


def test_the_special_tokens_of_a_model_are_no_secrets():
    given = {
        "eos_token": "<|im_end|>",
        "pad_token": "[PAD]",
        "unk_token": "unk",
        "bos_token": "<s>",
    }
    assert cleaned(given) == given


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/ann smith/my data/rows.jsonl", "rows.jsonl"),
        ("~/ann-private/rows.jsonl", "rows.jsonl"),
        ("/home/ann", "~"),
        ("file:///home/ann/x/rows.jsonl", "rows.jsonl"),
        ("/srv/my envs/lake.py:Lake", "lake.py:Lake"),
    ],
)
def test_a_value_that_is_a_path_is_cut(text, shown):
    assert cleaned(text) == shown


def test_paths_in_a_sentence_are_cut():
    said = without_paths(
        "no file '/home/ann smith/a b/x.py', path:/home/ann/y.py, in /home/ann. See https://a.b/c/d"
    )
    assert "ann" not in said
    assert "'x.py'" in said and "path:y.py" in said and said.endswith("https://a.b/c/d")


@pytest.mark.parametrize(
    "host", ["gpu-box", "gpu.corp.internal", "10.0.3.7", "[fe80::1]", "ann-laptop.local"]
)
def test_hosts_of_a_private_network_are_not_named(host):
    assert cleaned({"base_url": f"http://{host}:8000/v1"}) == {
        "base_url": "http://localhost:8000/v1"
    }
    assert host not in without_paths(f"no answer from https://{host}/v1: refused")


def test_public_hosts_stay():
    for text in ("https://api.openai.com/v1", "[x](https://huggingface.co/a/b)", "see http://a.b."):
        assert without_paths(text) == text


def test_long_texts_take_no_long_time():
    began = time.process_time()
    for text in (
        "a." * 60_000,
        "/-" * 60_000,
        "'/a" * 60_000,
        "x://" * 60_000,
        "sk-" * 60_000,
        "http://" * 60_000,
    ):
        without_paths(without_secrets(text))
    assert time.process_time() - began < 5
