"""A run's adapters are used as adapters are: base, merged imitation, reinforcement on top."""

import json

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from turnwise.app import loading
from turnwise.runs import Checkpoints

CHAT = [{"role": "user", "content": "lake\n r0c0 start r0c1 ice\n r1c0 hole r1c1 goal\n you r0c0"}]
TOLERANCE = {"float32": 1e-5, "bfloat16": 1e-1}


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def run(request, train):
    """A run in each precision, and the precision."""
    if request.param == "float32":
        return request.getfixturevalue("stacked"), request.param
    return train(f"policies.main.dtype={request.param}"), request.param


def loaded(folder):
    """Return the run's best policy as turnwise loads it."""
    mine = loading.load_run(folder)
    mine.use_checkpoint()
    return mine.policies["main"]


def test_two_adapters_load_as_peft_loads_them(run):
    folder, dtype = run
    base_model = AutoModelForCausalLM.from_pretrained(folder / "base/main", torch_dtype=dtype)
    sft_model = PeftModel.from_pretrained(base_model, str(folder / "adapters/main/sft"))
    merged_model = sft_model.merge_and_unload()
    grpo_model = PeftModel.from_pretrained(merged_model, str(folder / "adapters/main/grpo"))
    tokenizer = AutoTokenizer.from_pretrained(folder / "adapters/main/grpo")

    text = tokenizer.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)
    prompt = tokenizer(text, return_tensors="pt", add_special_tokens=False)
    mine = loaded(folder)
    assert next(merged_model.parameters()).dtype == mine.base.dtype == getattr(torch, dtype)
    with torch.no_grad():
        theirs, ours = grpo_model(**prompt).logits, mine.model(**prompt).logits
        with grpo_model.disable_adapter():
            without_grpo = grpo_model(**prompt).logits
    torch.testing.assert_close(ours, theirs, rtol=0, atol=TOLERANCE[dtype])
    assert (theirs - without_grpo).abs().max() > 0.1, "the second adapter learned nothing"
    replies = [
        model.generate(**prompt, do_sample=False, max_new_tokens=12, pad_token_id=0)
        for model in (grpo_model, mine.model)
    ]
    assert replies[0].tolist() == replies[1].tolist()


def test_the_second_adapter_is_wrong_without_the_first(stacked):
    base = AutoModelForCausalLM.from_pretrained(stacked / "base/main")
    bare = PeftModel.from_pretrained(base, str(stacked / "adapters/main/grpo"))
    ids = torch.arange(10, 20)[None]
    with torch.no_grad():
        assert (bare(ids).logits - loaded(stacked).model(ids).logits).abs().max() > 0.1


@pytest.mark.parametrize("name", ["sft", "grpo"])
def test_an_adapters_config_says_what_was_asked(stacked, name):
    folder = stacked / "adapters/main" / name
    config = json.loads((folder / "adapter_config.json").read_text())
    asked = {"r": 4, "lora_alpha": 8.0, "lora_dropout": 0.05, "task_type": "CAUSAL_LM"}
    assert {key: config[key] for key in asked} == asked
    assert sorted(config["target_modules"]) == ["k_proj", "o_proj", "q_proj", "v_proj"]
    assert config["base_model_name_or_path"] == str(stacked.resolve() / "base/main")
    assert AutoTokenizer.from_pretrained(folder).chat_template


def test_the_adapter_kept_is_that_of_the_best_checkpoint(stacked):
    best = Checkpoints(stacked / "checkpoints").best()
    assert best is not None
    kept, chosen = stacked / "adapters/main/grpo", best.path / "policies/main"
    name = "adapter_model.safetensors"
    assert (kept / name).read_bytes() == (chosen / name).read_bytes()


def test_the_report_says_where_they_are_and_its_lines_run(stacked):
    report = (stacked / "report.md").read_text()
    assert "`adapters/main/sft` and `adapters/main/grpo`" in report
    code = report.split("```python\n")[1].split("```")[0]
    names: dict = {}
    exec(code, names)
    ids = torch.arange(10, 20)[None]
    with torch.no_grad():
        theirs, ours = names["model"](ids).logits, loaded(stacked).model(ids).logits
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-5)
    assert names["tokenizer"].chat_template


@pytest.mark.slow
def test_one_adapter_for_both_stages_ends_there_too(train):
    folder = train("policies.main.lora.merge_warmup=false")
    assert [path.name for path in (folder / "adapters/main").iterdir()] == ["grpo"]
    assert not (folder / "adapters/main/grpo/merge_first.json").exists()
    base = AutoModelForCausalLM.from_pretrained(folder / "base/main")
    model = PeftModel.from_pretrained(base, str(folder / "adapters/main/grpo"))
    ids = torch.arange(10, 20)[None]
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, loaded(folder).model(ids).logits)
    assert "`adapters/main/grpo`, in PEFT's format" in (folder / "report.md").read_text()


@pytest.mark.slow
def test_imitation_alone_leaves_its_adapter(train):
    for merges in ("true", "false"):
        folder = train("trainer.iterations=0", f"policies.main.lora.merge_warmup={merges}")
        assert [path.name for path in (folder / "adapters/main").iterdir()] == ["sft"]
