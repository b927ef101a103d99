"""Small models of real families, with tokenizers of bytes; tiny runs; scripts; sandboxes."""

import importlib.util
import os
from collections import Counter
from pathlib import Path

import pytest
import torch
import transformers as hf
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import BPE

from turnwise.errors import SandboxError
from turnwise.sandbox import Sandbox

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # tests compare numbers of one processor
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
TINY = (
    "preset=smoke",
    "policies.main.nano={hidden=32,layers=2,heads=2,kv_heads=1,head_dim=16,intermediate=64}",
    "policies.main.device=cpu",
    "engine.probe_tokens=64",
    "forest.probe_tokens=64",
)
"""Settings that make any shipped recipe a run of seconds."""

CHATML = """{% for message in messages %}\
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}\
{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}\
{% endif %}{% endif %}"""

TURNS = """{{ bos_token }}{% for message in messages %}\
{% if message['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}\
{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}\
{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}\
{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"""

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 1024,
}


def byte_tokenizer(template, special, *, plain=(), bos=None, **named):
    """A tokenizer of bytes with a family's own special tokens and template."""
    table = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    core = Tokenizer(BPE(vocab=table, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in special])
    core.add_tokens([AddedToken(s, special=False, normalized=False) for s in plain])
    if bos:
        core.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, core.token_to_id(bos))]
        )
        named["bos_token"] = bos
    return hf.PreTrainedTokenizerFast(tokenizer_object=core, chat_template=template, **named)


def qwen_tokenizer():
    special = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    return byte_tokenizer(
        CHATML, special, plain=("<think>", "</think>"),
        eos_token="<|im_end|>", pad_token="<|endoftext|>",
    )  # fmt: skip


def gemma_tokenizer():
    special = ("<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>")
    return byte_tokenizer(TURNS, special, bos="<bos>", eos_token="<eos>", pad_token="<pad>")


FAMILIES = {
    "qwen3": (hf.Qwen3Config, qwen_tokenizer, {"tie_word_embeddings": True}),
    "gemma": (hf.GemmaConfig, gemma_tokenizer, {}),
}


@pytest.fixture(scope="session")
def small_model(tmp_path_factory):
    """`small_model(family)`: the directory of a small random model of that family."""

    def make(family):
        config_class, make_tokenizer, more = FAMILIES[family]
        tokenizer = make_tokenizer()
        torch.manual_seed(0)
        config = config_class(
            vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id, **SIZES, **more,
        )  # fmt: skip
        folder = tmp_path_factory.mktemp(family)
        hf.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return make


def load_benchmark(name):
    """The module that the script of this name in benchmarks/ is."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def isolated():
    """A sandbox that all tests of a process use: whatever one leaves behind, the next would see."""
    with Sandbox(workers=1, preload=("numpy",)) as sandbox:
        try:
            sandbox.start()
        except SandboxError as refused:
            pytest.skip(str(refused))
        yield sandbox


def pytest_terminal_summary(terminalreporter, config):
    """With `--durations`, list the files that take longest, with all their tests."""
    seconds = Counter()
    for outcome in ("passed", "failed", ""):  # "" holds setups and teardowns
        for report in terminalreporter.stats.get(outcome, ()):
            seconds[report.nodeid.split("::")[0]] += report.duration
    if config.getoption("durations") is not None:
        terminalreporter.section("seconds by file")
        for file, spent in seconds.most_common(60):
            terminalreporter.line(f"{spent:7.0f} {file}")
