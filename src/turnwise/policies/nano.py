"""Nano models: a small Qwen3-architecture model and its tokenizer, made from nothing on the spot.

Owns the sizes, the tokenizer's construction and the ChatML template. Works offline. Output: an
ordinary Hugging Face directory that `AutoModelForCausalLM` and `AutoTokenizer` load, so nano models
run through the same code as real ones. Must not know environments: it is handed texts and words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from pydantic import Field, model_validator
from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from turnwise.errors import ConfigError, unknown_name
from turnwise.policies.folders import quiet, replaced_folder
from turnwise.settings import Settings

START, END, PAD = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
ROLES = ("system", "user", "assistant", "tool")
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
CHATML = (
    "{% if tools %}{{ '<|im_start|>system\\n' }}"
    "{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] + '\\n' }}"
    "{% set messages = messages[1:] %}{% endif %}"
    "{{ '<tools>' }}{% for tool in tools %}{{ '\\n' + (tool | tojson) }}{% endfor %}"
    "{{ '\\n</tools><|im_end|>\\n' }}{% endif %}"
    "{% for message in messages %}"
    "{% if message['role'] not in ['system', 'user', 'assistant', 'tool'] %}"
    "{{ raise_exception('unknown role ' + message['role']) }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + (message['content'] or '') }}"
    "{% for call in message['tool_calls'] or [] %}{% set call = call['function'] or call %}"
    "{{ '<tool_call>\\n{\"name\": ' + (call['name'] | tojson) + ', \"arguments\": '"
    " + (call['arguments'] | tojson) + '}\\n</tool_call>' }}{% endfor %}"
    "{{ '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# One pre-token is a word with the blank before it, or one white-space character: as no merges
# exist, nothing can become one token across words, and a newline is always its own token.
_WORDS = r" ?[^\s]+|\s"
_NUMBER = re.compile(r"\d{2,}")


class NanoConfig(Settings):
    """Sizes of a model made on the spot. The defaults are those of the preset "nano".

    A policy's `nano` table changes the sizes of the preset that its `model` names.
    """

    hidden: int = Field(default=128, ge=8)
    """Width of the residual stream."""
    layers: int = Field(default=4, ge=1)
    """Number of decoder layers."""
    heads: int = Field(default=4, ge=1)
    """Number of query heads."""
    kv_heads: int = Field(default=2, ge=1)
    """Number of key and value heads; divides `heads`."""
    head_dim: int = Field(default=32, ge=2)
    """Width of one head; even, for rotary positions."""
    intermediate: int = Field(default=384, ge=8)
    """Width inside the feed-forward blocks."""
    context: int = Field(default=512, ge=16)
    """Longest sequence of prompt and completion, in tokens."""
    rope_theta: float = Field(default=10_000.0, gt=0)
    """Base of the rotary position frequencies."""
    tied_embeddings: bool = True
    """Whether the output layer shares the embedding's weights."""
    init_std: float = Field(default=0.02, gt=0)
    """Standard deviation of the initial weights."""
    max_words: int = Field(default=4096, ge=0)
    """How many words of the transcripts become tokens, the most frequent first."""

    @model_validator(mode="after")
    def _check_heads(self) -> NanoConfig:
        if self.heads % self.kv_heads:
            raise ConfigError(
                f"kv_heads = {self.kv_heads} must divide heads = {self.heads}: change one of them"
            )
        if self.head_dim % 2:
            raise ConfigError(f"head_dim = {self.head_dim} must be even: add or remove 1")
        return self


PRESETS: dict[str, NanoConfig] = {
    "pico": NanoConfig(hidden=64, layers=2, heads=2, kv_heads=1, intermediate=192, init_std=0.1),
    "nano": NanoConfig(),
    "micro": NanoConfig(hidden=256, heads=8, kv_heads=4, intermediate=768),
    "small": NanoConfig(hidden=384, layers=8, heads=12, kv_heads=6, intermediate=1024),
}


def nano_preset(name: str) -> NanoConfig:
    """Return the sizes called `name`: about 0.1, 0.8, 3 and 13 million parameters.

    Raises:
        UnknownNameError: if there is no such preset.

    Example:
        >>> nano_preset("micro").hidden
        256
    """
    if name not in PRESETS:
        raise unknown_name("nano preset", name, PRESETS)
    return PRESETS[name]


def is_nano(model: str) -> bool:
    """Whether a policy's `model` names a preset that is made on the spot.

    Example:
        >>> is_nano("nano"), is_nano("Qwen/Qwen3-0.6B")
        (True, False)
    """
    return model in PRESETS


def make_nano(
    directory: str | Path,
    transcripts: Sequence[str] = (),
    words: Sequence[str] = (),
    config: NanoConfig | str | None = None,
    seed: int = 0,
) -> Path:
    """Write a randomly initialised model and its tokenizer to `directory`, and return its path.

    Equal arguments give equal bytes. The directory appears only when it is complete.

    Args:
        directory: where to write; replaced if it exists.
        transcripts: texts as the model will read and write them; their words become tokens.
        words: further texts whose words become tokens even if no transcript shows them.
        config: sizes, or a preset's name; "nano" by default.
        seed: of the initial weights.
    """
    if isinstance(config, str):
        config = nano_preset(config)
    config = config or NanoConfig()
    tokenizer = make_tokenizer(transcripts, words, config)
    model = make_model(tokenizer, config, seed)
    with replaced_folder(Path(directory)) as folder, quiet():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return Path(directory)


def make_tokenizer(
    transcripts: Iterable[str], words: Iterable[str], config: NanoConfig | None = None
) -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer in which every word is one token, with a blank before or not.

    Words that are not in the vocabulary are spelt in bytes, so every text can be encoded and
    decodes to itself. Numbers are never words: each digit is a token.

    Example:
        >>> tokenizer = make_tokenizer(["you r1c2"], ["DOWN"])
        >>> tokenizer.convert_ids_to_tokens(tokenizer.encode("you r1c2 17 DOWN"))
        ['you', 'Ġr1c2', 'Ġ', '1', '7', 'ĠDOWN']
    """
    config = config or NanoConfig()
    table = _vocabulary(_chosen_words(transcripts, words, config.max_words))
    # `ignore_merges` takes a pre-token that is in the vocabulary as it is, without merges.
    core = Tokenizer(BPE(vocab=table, merges=[], ignore_merges=True))
    split = pre_tokenizers.Split(Regex(_WORDS), "isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
    core.decoder = decoders.ByteLevel()
    special = [AddedToken(text, special=True, normalized=False) for text in (PAD, START, END)]
    core.add_special_tokens(special)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[START],
        chat_template=CHATML,
        clean_up_tokenization_spaces=False,
        model_max_length=config.context,
    )


def make_model(
    tokenizer: PreTrainedTokenizerFast, config: NanoConfig, seed: int
) -> Qwen3ForCausalLM:
    """Return a Qwen3 model with weights drawn from `seed`; the global generator is untouched."""
    table = tokenizer.get_vocab()
    sizes = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        head_dim=config.head_dim,
        intermediate_size=config.intermediate,
        max_position_embeddings=config.context,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
        tie_word_embeddings=config.tied_embeddings,
        initializer_range=config.init_std,
        bos_token_id=None,
        eos_token_id=table[END],
        pad_token_id=table[PAD],
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        model = Qwen3ForCausalLM(sizes).float().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0.0, config.init_std, generator=generator)
            else:
                parameter.fill_(1.0)  # norms: Qwen3 has no biases
    return model


def _chosen_words(transcripts: Iterable[str], words: Iterable[str], limit: int) -> list[str]:
    """Return the words that become tokens: given ones, roles, tags, digits, frequent ones."""
    chosen = [*ROLES, *TAGS, *"0123456789", *(word for text in words for word in text.split())]
    counts = Counter(word for text in transcripts for word in text.split())
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[:limit]
    kept = dict.fromkeys([*chosen, *frequent])
    return [word for word in kept if not _NUMBER.fullmatch(word) and not _has_special(word)]


def _has_special(word: str) -> bool:
    """Whether a word contains a special token, which is cut out before words are looked at."""
    return any(special in word for special in (START, END, PAD))


def _vocabulary(words: Iterable[str]) -> dict[str, int]:
    """Return the table token -> id: 256 bytes, then each word without and with a blank before."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokens = sorted(pre_tokenizers.ByteLevel.alphabet())
    for word in words:
        for form in (word, f" {word}"):
            tokens.append("".join(piece for piece, _ in byte_level.pre_tokenize_str(form)))
    return {token: index for index, token in enumerate(dict.fromkeys(tokens))}
