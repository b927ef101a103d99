"""Nano models: small models of the Qwen3 architecture with a tokenizer made from given texts.

Provides `make_nano` and `make_tokenizer`, with the ChatML template. They work offline. The result
is a Hugging Face directory that `AutoModelForCausalLM` and `AutoTokenizer` load, so nano models run
through the same code as other models.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from turnwise.formats import Tags
from turnwise.policies.folders import quiet, replaced_folder
from turnwise.policies.presets import NanoConfig, nano_preset

START, END, PAD = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
INIT_STD = 0.02
"""Standard deviation of the initial weights if the sizes have none."""
ROLES = ("system", "user", "assistant", "tool")
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
    """Return a byte-level tokenizer in which every word is one token, with or without a blank.

    Words that are not in the vocabulary are spelt in bytes, so every text can be encoded and
    decodes to itself. Numbers are never words: each digit is a token.

    Example:
        >>> tokenizer = make_tokenizer(["you r1c2"], ["DOWN"])
        >>> tokenizer.convert_ids_to_tokens(tokenizer.encode("you r1c2 17 DOWN"))
        ['you', 'Ġr1c2', 'Ġ', '1', '7', 'ĠDOWN']
    """
    config = config or NanoConfig()
    table = _vocabulary(_chosen_words(transcripts, words, config.max_words))
    # With `ignore_merges`, a pre-token in the vocabulary is one token, without merges.
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
    std = INIT_STD if config.init_std is None else config.init_std
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
        initializer_range=std,
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
                parameter.normal_(0.0, std, generator=generator)
            else:
                parameter.fill_(1.0)  # norms: Qwen3 has no biases
    return model


def _chosen_words(transcripts: Iterable[str], words: Iterable[str], limit: int) -> list[str]:
    """Return the words that become tokens: roles, tags, digits, given ones, frequent ones.

    Tags are always among them: replies of every format may hold them. Markers of other formats are
    among the given words.
    """
    given = (word for text in words for word in text.split())
    chosen = [*ROLES, *Tags.markers, *"0123456789", *given]
    counts = Counter(word for text in transcripts for word in text.split())
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[:limit]
    kept = dict.fromkeys([*chosen, *frequent])
    return [word for word in kept if not _NUMBER.fullmatch(word) and not _has_special(word)]


def _has_special(word: str) -> bool:
    """Whether a word contains a special token, which the tokenizer splits off first."""
    return any(special in word for special in (START, END, PAD))


def _vocabulary(words: Iterable[str]) -> dict[str, int]:
    """Return the table token -> id: 256 bytes, then each word without and with a blank before."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokens = sorted(pre_tokenizers.ByteLevel.alphabet())
    for word in words:
        for form in (word, f" {word}"):
            tokens.append("".join(piece for piece, _ in byte_level.pre_tokenize_str(form)))
    return {token: index for index, token in enumerate(dict.fromkeys(tokens))}
