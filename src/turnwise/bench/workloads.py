"""The timed training steps: their shapes, models, prompts and rewards.

Provides `Workload` and the table `WORKLOADS`. Both trainers get the same model directory, prompts
and reward.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

import numpy as np

from turnwise.bench.tools import tool_schemas
from turnwise.errors import ConfigError
from turnwise.policies import NanoConfig, nano_preset
from turnwise.seeding import generator

if TYPE_CHECKING:  # reading the table must not import slow packages
    from transformers import Qwen3Config

CONTEXT = 4096
WORDS = ["".join(letters) for letters in product(ascii_lowercase[:16], repeat=2)]
"""Words of the prompts; each is one token."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """One training step: `prompts` x `group` episodes of `turns` completions, of fixed lengths.

    `prompt_tokens` is the length of the first prompt and `completion_tokens` that of every
    completion. Each later turn adds `observed_tokens` to the history, including those of the chat
    template, and up to `observed_spread` more, which depend on the prompt and the turn. With
    `system_tokens`, the first prompt offers tools and begins with a system message: these are their
    tokens, equal in all prompts, and later observations are results of tools. `micro_rows` are the
    micro-batch sizes to try with TRL; `goal` is the target ratio.
    """

    name: str
    model: str
    prompts: int
    group: int
    prompt_tokens: int
    completion_tokens: int
    turns: int = 1
    observed_tokens: int = 0
    observed_spread: int = 0
    system_tokens: int = 0
    lora: bool = False
    micro_rows: Sequence[int] = ()
    goal: float | None = None

    @property
    def episodes(self) -> int:
        """Episodes of one step."""
        return self.prompts * self.group

    @property
    def row_tokens(self) -> int:
        """Tokens of the longest episode."""
        return max(self.tokens_of(index) for index in range(self.prompts))

    def tokens_of(self, index: int) -> int:
        """Return the tokens of one whole episode of prompt `index`."""
        return sum(self.heard(index)) + self.turns * self.completion_tokens

    def heard(self, index: int) -> list[int]:
        """Return the tokens between the completions: those of the prompt and the observations."""
        later = range(1, self.turns)
        least, spread = self.observed_tokens, self.observed_spread
        return [self.prompt_tokens, *(least + extra(spread, index, turn) for turn in later)]


def extra(spread: int, index: int, turn: int) -> int:
    """Return by how much the observation of a turn exceeds the shortest one, at most `spread`."""
    return int(generator(0, "talk length", index, turn).integers(spread + 1)) if spread else 0


_WORKLOADS = (
    Workload(
        name="nano-short",
        model="nano",
        prompts=16,
        group=8,
        prompt_tokens=60,
        completion_tokens=32,
        micro_rows=(128, 32),
        goal=4.5,
    ),
    Workload(
        name="nano-long",
        model="nano",
        prompts=8,
        group=16,
        prompt_tokens=512,
        completion_tokens=64,
        micro_rows=(128, 32, 8),
        goal=8.0,
    ),
    Workload(
        name="small",
        model="small",
        prompts=4,
        group=8,
        prompt_tokens=256,
        completion_tokens=128,
        micro_rows=(32, 8),
    ),
    Workload(
        name="qwen3-0.6b-lora",
        model="qwen3-0.6b",
        prompts=4,
        group=8,
        prompt_tokens=256,
        completion_tokens=64,
        lora=True,
        micro_rows=(4, 8, 2),
        goal=2.2,
    ),
    Workload(
        name="turns",
        model="nano",
        prompts=8,
        group=8,
        prompt_tokens=200,
        completion_tokens=20,
        turns=20,
        observed_tokens=40,
        micro_rows=(64, 16, 4),
    ),
    Workload(
        name="dialogue",
        model="nano",
        prompts=2,
        group=8,
        prompt_tokens=1540,
        completion_tokens=32,
        turns=12,
        observed_tokens=60,
        observed_spread=140,
        system_tokens=1500,
        micro_rows=(8, 2),
    ),
    Workload(
        name="alone",
        model="nano",
        prompts=64,
        group=2,
        prompt_tokens=12,
        completion_tokens=64,
        micro_rows=(128, 32),
        goal=1.0,
    ),
)
WORKLOADS = {workload.name: workload for workload in _WORKLOADS}


def make_model(workload: Workload, folder: Path) -> Path:
    """Write the model of `workload` with random weights to `folder`; return the path to load.

    The path is a directory of weights, or of an adapter that names its base.
    """
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3ForCausalLM

    from turnwise.policies.nano import make_nano, make_tokenizer

    texts = [" ".join(WORDS)]
    torch.manual_seed(0)
    if workload.model == "qwen3-0.6b":
        Qwen3ForCausalLM(_qwen3()).save_pretrained(folder)
        make_tokenizer(texts, WORDS, NanoConfig()).save_pretrained(folder)
    else:
        sizes = nano_preset(workload.model).model_copy(update={"context": CONTEXT})
        make_nano(folder, texts, WORDS, sizes, seed=0)
    if not workload.lora:
        return folder
    adapter = folder.parent / "adapter"
    base = AutoModelForCausalLM.from_pretrained(folder)
    asked = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(base, asked)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:  # at 0 the gradient of A would be 0, and errors in it invisible
            torch.nn.init.normal_(parameter, std=0.01)
    model.save_pretrained(str(adapter))
    AutoTokenizer.from_pretrained(folder).save_pretrained(adapter)
    return adapter


def _qwen3() -> Qwen3Config:
    """Return the shape of Qwen3-0.6B."""
    from transformers import Qwen3Config

    return Qwen3Config(
        vocab_size=151_936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Words:
    """The number of words that give the required tokens, in the first and in later messages.

    `system` words open the system message; 0 stands for no system message and no tools.
    """

    first: int
    later: int
    system: int = 0


def count_words(workload: Workload, model: Path) -> Words:
    """Return the numbers of words that fill prompts and observations to their lengths.

    Raises:
        ConfigError: if the tools alone have more tokens than the system message may have.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    schemas = tool_schemas() if workload.system_tokens else None

    def tokens(messages: list[dict[str, str]], tools: list[dict[str, Any]] | None) -> int:
        found = tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True)
        return len(found["input_ids"])

    system, user, reply, result = (
        {"role": role, "content": WORDS[0]}
        for role in ("system", "user", "assistant", "tool" if schemas else "user")
    )
    asked, start = tokens([user], None), [system, user] if schemas else [user]
    opened = tokens(start, schemas)
    heard = tokens([*start, reply, result], schemas) - opened - 1
    words = workload.system_tokens - (opened - asked) + 1 if schemas else 0
    if schemas and words < 1:
        raise ConfigError(
            f"{workload.name}: system_tokens = {workload.system_tokens}: the schemas of the tools "
            f"need {opened - asked}; give as many or more"
        )
    return Words(
        first=workload.prompt_tokens - workload.system_tokens - asked + 1,
        later=workload.observed_tokens - heard + 1,
        system=words,
    )


def system_message(words: int) -> str:
    """Return the words of the system message; empty for none."""
    return " ".join(generator(0, "talk system").choice(WORDS, words))


def make_rows(workload: Workload, words: Words, file: Path) -> Path:
    """Write the prompts of a step to a .jsonl file."""
    rng = generator(0, "bench", workload.name)
    texts = [" ".join(rng.choice(WORDS, words.first)) for _ in range(workload.prompts)]
    rows = [{"prompt": [{"role": "user", "content": text}]} for text in texts]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def reward_of(completion_ids: Sequence[int]) -> float:
    """Return a number in [0, 1) that depends on every token, so completions rarely tie."""
    digest = hashlib.blake2b(np.asarray(completion_ids, dtype="<i8").tobytes(), digest_size=8)
    return int.from_bytes(digest.digest(), "little") / 2**64


def luck(completion_ids: Sequence[Sequence[int]], **columns: object) -> list[float | None]:
    """Score completions by `reward_of`, with the signature of TRL's reward functions."""
    return [reward_of(ids) for ids in completion_ids]
