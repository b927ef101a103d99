"""A key is hidden in a server's words, however they spell it."""

from __future__ import annotations

import html
import json
import time
from urllib.parse import quote

import pytest

from turnwise.engines.masking import KeyMask

KEY = "sk-ab/cd+ef&gh\"i'j=k\\l<m>"
SPELLED = {
    "plain": KEY,
    "JSON": json.dumps(KEY)[1:-1],
    "JSON of PHP": json.dumps(KEY)[1:-1].replace("/", r"\/"),
    "JSON of Go": json.dumps(KEY)[1:-1].replace("&", r"\u0026").replace("<", r"\u003C"),
    "JSON in escapes": "".join(f"\\u{ord(c):04x}" for c in KEY),
    "an address": quote(KEY, safe=""),
    "HTML": html.escape(KEY),
    "HTML in numbers": "".join(f"&#{ord(c)};" for c in KEY),
    "HTML in hexadecimal numbers": "".join(f"&#x{ord(c):X};" for c in KEY),
}


@pytest.mark.parametrize("said", SPELLED.values(), ids=SPELLED)
def test_a_key_is_hidden_however_it_is_spelled(said):
    mask = KeyMask(KEY)
    assert mask.hidden(f"no {said}, no {said}") == "no ***, no ***"
    assert mask.hidden_in_reply(said) == "***"


def test_a_short_key_is_a_placeholder_and_stays_in_replies():
    mask = KeyMask("none")
    assert mask.hidden("none is no key") == "*** is no key"
    assert mask.hidden_in_reply("none of them") == "none of them"
    assert KeyMask("").hidden("as it is") == "as it is"


@pytest.mark.parametrize("text", ["", "kkkk", "\\u006b", "%6b;&#107;", "\u202e\x1b[2J"])
def test_other_text_stays(text):
    assert KeyMask("k" * 60).hidden(text) == text


def test_the_work_is_linear_in_the_length():
    mask = KeyMask("&#0" * 20)
    began = time.process_time()
    for piece in ("&#0", "&#", "&#0000000", "\\", "%", "\\u00", "&"):
        mask.hidden(piece * 100_000)
    assert time.process_time() - began < 5.0
    assert mask.hidden("&#0" * 20) == "***"
