import hashlib

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from transformers import AutoModelForCausalLM, AutoTokenizer

from turnwise.errors import ConfigError, UnknownNameError
from turnwise.policies.config import PolicyConfig
from turnwise.policies.nano import make_model, make_nano, make_tokenizer
from turnwise.policies.presets import PRESETS, NanoConfig, nano_preset
from turnwise.settings import parse

TRANSCRIPTS = (
    "lake\n r0c0 start r0c1 ice r0c2 hole r0c3 ice\n r3c3 goal\n you r1c2",
    "<think> left r1c1 ice left edge </think> <answer> DOWN </answer>",
    "score 12 of 345",
)
TINY = NanoConfig(hidden=16, layers=1, heads=2, kv_heads=1, head_dim=8, intermediate=32)
IN_MEMORY = make_tokenizer(TRANSCRIPTS, ())


@pytest.fixture(scope="module")
def tiny_dir(tmp_path_factory):
    return make_nano(tmp_path_factory.mktemp("nano") / "m", TRANSCRIPTS, ("UP", "pick up"), TINY, 3)


@pytest.fixture(scope="module")
def tokenizer(tiny_dir):
    return AutoTokenizer.from_pretrained(tiny_dir)


def test_every_word_is_one_token_with_and_without_blank(tokenizer):
    words = {word for text in TRANSCRIPTS for word in text.split() if not word.isdigit()}
    words |= {"UP", "pick", "up", "user", "assistant", "system", "tool", *"0123456789"}
    for word in sorted(words):
        assert len(tokenizer.encode(word)) == 1, word
        assert len(tokenizer.encode(" " + word)) == 1, word


def test_an_observation_is_its_words_and_newlines(tokenizer):
    text = TRANSCRIPTS[0]
    assert len(tokenizer.encode(text)) == len(text.split()) + text.count("\n")


def test_numbers_are_digits_and_unseen_words_are_bytes(tokenizer):
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("345")) == ["3", "4", "5"]
    assert len(tokenizer.encode(" 345")) == 4
    assert len(tokenizer.encode("zzz")) == 3


def test_nothing_is_one_token_across_words(tokenizer):
    for token, index in tokenizer.get_vocab().items():
        text = tokenizer.decode([index])
        assert len(text.split()) <= 1, token


@given(st.text(max_size=40))
@example("  two blanks\t\r\n\n x<|im_end|>user é🙂 ")
@settings(max_examples=200, deadline=None)
def test_any_text_round_trips(text):
    assert IN_MEMORY.decode(IN_MEMORY.encode(text)) == text


def test_the_loaded_tokenizer_keeps_template_and_special_tokens(tokenizer):
    chat = [{"role": role, "content": "ice"} for role in ("system", "user", "assistant", "tool")]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert (
        text
        == "".join(
            f"<|im_start|>{role}\nice<|im_end|>\n"
            for role in ("system", "user", "assistant", "tool")
        )
        + "<|im_start|>assistant\n"
    )
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.pad_token == "<|endoftext|>"
    assert len(tokenizer.encode(text)) == 4 * 6 + 3


def test_the_directory_loads_as_an_ordinary_model(tiny_dir, tokenizer):
    model = AutoModelForCausalLM.from_pretrained(tiny_dir)
    ids = torch.tensor([tokenizer.encode("you r1c2")])
    with torch.no_grad():
        logits = model(input_ids=ids).logits
    assert logits.shape == (1, 2, len(tokenizer))
    assert model.config.tie_word_embeddings
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert model.config.max_position_embeddings == 512


def digests(folder):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


def test_equal_seeds_give_equal_bytes_and_leave_the_global_generator_alone(tmp_path):
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    folders = [
        make_nano(tmp_path / name, TRANSCRIPTS, (), TINY, seed)
        for name, seed in (("a", 5), ("b", 5), ("c", 6))
    ]
    a, b, c = map(digests, folders)
    assert a == b
    assert a["model.safetensors"] != c["model.safetensors"]
    assert torch.equal(before, torch.random.get_rng_state())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]


def test_a_folder_is_replaced_whole(tmp_path):
    target = tmp_path / "m"
    target.mkdir()
    (target / "stale").write_text("x")
    make_nano(target, TRANSCRIPTS, (), TINY)
    assert (target / "model.safetensors").exists()
    assert not (target / "stale").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize(
    ("name", "millions"), [("pico", 0.12), ("nano", 0.84), ("micro", 3.2), ("small", 13.1)]
)
def test_presets_have_their_size(name, millions):
    tokenizer = make_tokenizer(TRANSCRIPTS, ())
    model = make_model(tokenizer, nano_preset(name), seed=0)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count / 1e6 == pytest.approx(millions, rel=0.05)


def test_a_preset_is_made_by_its_name(tmp_path):
    model = AutoModelForCausalLM.from_pretrained(
        make_nano(tmp_path / "m", TRANSCRIPTS, (), "micro")
    )
    assert model.config.hidden_size == 256


def test_initial_weights_have_the_asked_scale():
    model = make_model(make_tokenizer(TRANSCRIPTS, ()), NanoConfig(init_std=0.05), seed=0)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            assert parameter.std().item() == pytest.approx(0.05, rel=0.05), name
        else:
            assert torch.all(parameter == 1.0), name


def test_max_words_keeps_the_most_frequent_and_all_that_are_given():
    tokenizer = make_tokenizer(["b b a a a c"], ["z"], NanoConfig(max_words=2))
    lengths = {word: len(tokenizer.encode(" " + word)) for word in "abcz"}
    assert lengths == {"a": 1, "b": 1, "c": 2, "z": 1}


def test_bad_sizes_and_names_are_refused():
    with pytest.raises(ValidationError, match="kv_heads = 3 must divide heads = 4"):
        NanoConfig(kv_heads=3)
    with pytest.raises(ValidationError, match="head_dim = 31 must be even"):
        NanoConfig(head_dim=31)
    with pytest.raises(UnknownNameError, match="did you mean 'micro'"):
        nano_preset("micra")
    assert set(PRESETS) == {"pico", "nano", "micro", "small"}


def test_a_table_of_sizes_changes_the_preset_that_the_model_names():
    recipe = {"model": "micro", "nano": {"kv_heads": 8, "layers": 2}}
    changed = parse(PolicyConfig, recipe, "the policy").nano
    assert changed == nano_preset("micro").model_copy(update={"kv_heads": 8, "layers": 2})
    assert PolicyConfig(model="pico", nano=NanoConfig(layers=3)).nano == NanoConfig(
        hidden=64, layers=3, heads=2, kv_heads=1, intermediate=192, init_std=0.1
    )
    with pytest.raises(ConfigError, match="kv_heads = 3 must divide heads = 2"):
        parse(PolicyConfig, {"model": "pico", "nano": {"kv_heads": 3}}, "the policy")
