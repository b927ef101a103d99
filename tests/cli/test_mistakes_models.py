"""Models and data that a run cannot begin with: a sentence before anything is trained."""

from __future__ import annotations

import json
import shutil

import pytest

SMALL = ("preset=smoke", "policies.main.device=cpu", "engine.probe_tokens=64",
         "forest.probe_tokens=64")  # fmt: skip
NANO = ("policies.main.nano={hidden=16,layers=1,heads=2,kv_heads=1,head_dim=8,intermediate=16,"
        "context=CONTEXT}")  # fmt: skip


@pytest.fixture
def model(smoke_run, tmp_path, monkeypatch):
    """A copy of a model that works."""
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(smoke_run / "models" / "main", tmp_path / "model")


def without_template(model):
    (model / "chat_template.jinja").unlink()
    file = model / "tokenizer_config.json"
    facts = json.loads(file.read_text())
    facts.pop("chat_template", None)
    file.write_text(json.dumps(facts))


def without_weights(model):
    (model / "model.safetensors").unlink()


def cut(model):
    file = model / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])


def damaged(model):
    (model / "config.json").write_text("{")


MODELS = {
    "without a chat template": (without_template, (), "has no chat template: expected an"),
    "without weights": (without_weights, (), "holds no weights, but safetensors are expected"),
    "cut short": (cut, (), "cannot load the model of"),
    "with a damaged config": (damaged, (), "is not a valid JSON file"),
    "without the layers to adapt": (
        None, ("policies.main.lora={rank=4,targets=['c_attn']}",), "no linear layer named c_attn",
    ),
    "that is not there": (None, ("policies.main.model=/no/model",), "is not a directory: expected "
    "a"),
    "for a device that is not there": (None, ("policies.main.device=mps",), "is not available"),
}  # fmt: skip


@pytest.mark.parametrize("case", MODELS)
def test_a_model(turnwise, is_one_sentence, sets, model, case):
    harm, more, words = MODELS[case]
    if harm:
        harm(model)
    chosen = sets(*SMALL, f"policies.main.model={model}", *more)
    is_one_sentence(turnwise("train", "frozen-lake", *chosen, "--run", "run"), words)
    assert not (model.parent / "run" / "metrics.jsonl").exists()


@pytest.mark.parametrize("context", [16, 48])
def test_a_prompt_that_fills_the_context(turnwise, is_one_sentence, sets, tmp_path, context):
    chosen = sets(*SMALL, NANO.replace("CONTEXT", str(context)))
    result = turnwise("train", "frozen-lake", *chosen, "--run", tmp_path / "run")
    words = f"first prompts has 48 tokens, but policy 'main' has a context of {context}: use one"
    is_one_sentence(result, words)


GOOD = '{"prompt": "q", "completion": "a"}\n'
DATA = {
    "a.csv": ("prompt,completion\na,b\na,b,c\n", "'a.csv' line 3: 3 values for 2 columns"),
    "b.csv": ("prompt,said\na,b\n", "line 2: has no completion (columns: prompt, said)"),
    "c.csv": ('prompt,completion\na,"b\n', "'c.csv' line 2: not CSV"),
    "d.csv": ("", "'d.csv' is empty: its first line must name the columns"),
    "a.jsonl": (GOOD + '{"prompt": \n', "'a.jsonl' line 2, column 12: not JSON"),
    "b.jsonl": (GOOD + "[1]\n", "'b.jsonl' line 2: got a JSON list, expected an object"),
    "c.jsonl": (GOOD + '{"prompt": "q", "completion": 4}\n', "line 2: completion = 4 must be text"),
    "d.jsonl": ("\n", "'d.jsonl' has no rows"),
    "e.jsonl": (
        GOOD + json.dumps({"prompt": "a " * 900, "completion": "b"}) + "\n",
        "'e.jsonl' row 2 has 1810 tokens, but policy 'main' has a context of 512: shorten the row",
    ),
    "f.txt": (GOOD, "'f.txt' must end in .jsonl or .csv"),
    "g.jsonl": (None, "no file at 'g.jsonl'"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("section", "name"), [*(("warmup", name) for name in DATA), ("sft_mix", "a.csv")]
)
def test_a_file_of_rows(turnwise, is_one_sentence, sets, model, name, section):
    content, words = DATA[name]
    if content is not None:
        (model.parent / name).write_text(content)
    chosen = sets(*SMALL, f"policies.main.model={model}", f"{section}.data={name}")
    is_one_sentence(turnwise("train", "frozen-lake", *chosen, "--run", "run"), words)
