"""The shipped recipes with adapters train: on nano, and on small models of their real families."""

import json
import tomllib
from importlib import resources

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from turnwise.app import lifecycle, loading
from turnwise.errors import ModelError
from turnwise.policies import PolicyConfig, load_policy
from turnwise.recipe.schema import load_recipe
from turnwise.runs import read_metrics
from turnwise.types import Message, Prompt

LORA = {
    "rank": 16,
    "alpha": 32.0,
    "dropout": 0.05,
    "targets": ["q_proj", "k_proj", "v_proj", "o_proj"],
    "merge_warmup": True,
}
REAL = {"frozen-lake-qwen3-0.6b": "qwen3", "frozen-lake-gemma-2b": "gemma"}
CPU = "policies.main.device=cpu"


@pytest.mark.parametrize("name", ["frozen-lake-lora", *REAL])
def test_adapters_are_set_as_published(name):
    file = resources.files("turnwise") / "recipes" / f"{name}.toml"
    assert tomllib.loads(file.read_text())["policies"]["main"]["lora"] == LORA
    wanted = {
        "frozen-lake-qwen3-0.6b": "Qwen/Qwen3-0.6B",
        "frozen-lake-gemma-2b": "google/gemma-2b-it",
    }
    assert load_recipe(name).policies["main"].model == wanted.get(name, "nano")


@pytest.mark.parametrize("name", REAL)
def test_a_recipe_for_a_real_model_trains_its_family(name, small_model, train):
    model = small_model(REAL[name])
    run = train("preset=smoke", f"policies.main.model={model}", CPU, recipe=name)
    config = json.loads((run / "adapters/main/grpo/adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["lora_dropout"]) == (16, 32.0, 0.05)
    assert config["base_model_name_or_path"] == str(model)
    phases = [record["phase"] for record in read_metrics(run / "metrics.jsonl")]
    assert phases == ["warmup", "warmup", "train", "train"]
    base = AutoModelForCausalLM.from_pretrained(model)
    merged = PeftModel.from_pretrained(base, str(run / "adapters/main/sft")).merge_and_unload()
    stacked = PeftModel.from_pretrained(merged, str(run / "adapters/main/grpo"))
    mine = loading.load_run(run)
    mine.use_checkpoint()
    ids = torch.arange(10, 30)[None]
    with torch.no_grad():
        torch.testing.assert_close(
            mine.policies["main"].model(ids).logits, stacked(ids).logits, rtol=0, atol=1e-5
        )
    tokenizers = [AutoTokenizer.from_pretrained(run / "adapters/main" / a) for a in ("sft", "grpo")]
    assert all(t.chat_template == mine.policies["main"].tokenizer.chat_template for t in tokenizers)


@pytest.mark.parametrize("name", REAL)
def test_a_recipe_explains_itself_in_its_models_own_words(name, small_model):
    recipe = load_recipe(name)
    config = recipe.policies["main"].model_copy(update={"model": str(small_model(REAL[name]))})
    renderer = load_policy("main", config.model_copy(update={"lora": None})).renderer
    system = Message(role="system", content=recipe.agents["player"].system)
    asked = Message(role="user", content="you r0c0")
    prompt = renderer.prompt_ids(Prompt(messages=(system, asked)))
    text = renderer.tokenizer.decode(prompt)
    assert "RIGHT r0c1 ice UP edge </think>" in text and "\\" not in text
    if name == "frozen-lake-gemma-2b":
        assert text.startswith("<bos><start_of_turn>user\nYou cross a frozen lake")
        assert "</answer>.\n\nyou r0c0<end_of_turn>" in text
    else:
        assert text.endswith("<|im_start|>assistant\n"), "thoughts are on: none is put first"


def test_the_nano_recipe_makes_its_base_and_trains(train):
    run = train("preset=smoke", CPU, recipe="frozen-lake-lora")
    phases = [record["phase"] for record in read_metrics(run / "metrics.jsonl")]
    assert phases == ["pretrain", "pretrain", "warmup", "warmup", "train", "train"]
    assert (run / "base/main/model.safetensors").is_file()
    found = {path.name for path in (run / "adapters/main").iterdir()}
    assert found == {"sft", "grpo"}


def test_a_base_model_without_a_template_is_refused_in_one_sentence(small_model, tmp_path):
    folder = small_model("gemma")
    (folder / "chat_template.jinja").unlink()
    recipe = load_recipe(
        "frozen-lake-gemma-2b", ["preset=smoke", f"policies.main.model={folder}", CPU]
    )
    with pytest.raises(ModelError, match=r"has no chat template: expected an instruction-tuned"):
        lifecycle.train(recipe, run=tmp_path / "run")


def test_targets_that_a_family_lacks_are_refused(small_model, tmp_path):
    sets = ["policies.main.lora.targets=['q_proj','c_attn']", CPU]
    model = f"policies.main.model={small_model('gemma')}"
    recipe = load_recipe("frozen-lake-gemma-2b", ["preset=smoke", model, *sets])
    with pytest.raises(ModelError, match="has no linear layer named c_attn; choose among .*o_proj"):
        lifecycle.train(recipe, run=tmp_path / "run")


def test_a_model_of_pickles_is_refused(small_model):
    folder = small_model("qwen3")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"holds only pickled \.bin weights, but safetensors are"):
        load_policy("main", PolicyConfig(model=str(folder)))
