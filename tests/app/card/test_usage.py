"""The code of a card: the tokens at which replies end."""

from __future__ import annotations

import json

from huggingface_hub import constants

from turnwise.app.card.usage import generation_stops
from turnwise.app.card.weights import PublishedPolicy
from turnwise.policies import PolicyConfig


def published(**where):
    return PublishedPolicy(name="main", config=PolicyConfig(model="ann/base"), **where)


def test_replies_end_where_the_base_says(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    adapter = published(folder="", base="ann/base", rank=4, stages=1)
    assert generation_stops(tmp_path, adapter) == ()
    cached = tmp_path / "cache" / "models--ann--base"
    for name, text in (("refs/main", "1f"), ("snapshots/1f/generation_config.json", "")):
        (cached / name).parent.mkdir(parents=True)
        (cached / name).write_text(text or json.dumps({"eos_token_id": [7, 9]}))
    assert generation_stops(tmp_path, adapter) == (7, 9)
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "generation_config.json").write_text(json.dumps({"eos_token_id": 3}))
    assert generation_stops(tmp_path, published(folder="adapter", base_folder="base")) == (3,)
