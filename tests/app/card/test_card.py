"""A run as a model card: what its folder holds, that its code works alone, and what is refused."""

from __future__ import annotations

import getpass
import json
import shutil
import tomllib
from pathlib import Path

import pytest
import tomli_w
import torch
import yaml
from huggingface_hub import ModelCard
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from turnwise.app import loading
from turnwise.app.card.files import published_files
from turnwise.app.card.write import write_card
from turnwise.errors import ModelError, RunError
from turnwise.policies.joined import write_joined
from turnwise.recipe.schema import load_recipe
from turnwise.runs import read_scores

from .conftest import run_code, snippets
from .hub import TOKEN


def test_the_folder_holds_what_a_card_is_made_of(lora_card):
    found = {str(file) for file in published_files(lora_card)}
    assert found >= {
        "README.md",
        "recipe.toml",
        "eval.json",
        "curve.png",
        "adapter/adapter_config.json",
        "adapter/adapter_model.safetensors",
        "adapter/tokenizer.json",
        "adapter/chat_template.jinja",
        "base/config.json",
        "base/model.safetensors",
    }
    assert "episode.gif" not in found, "the frozen lake draws no pictures"
    assert not any(file.endswith(("merge_first.json", "manifest.json", ".pt")) for file in found)


def test_the_code_of_the_card_plays_as_the_run_does(lora_run, lora_card):
    (code,) = snippets(lora_card)
    assert "PeftModel" in code and "turnwise" not in code
    printed = run_code(code, lora_card).rstrip("\n")
    prompt: dict = {}
    exec(code.split("model = Auto")[0].replace('"."', repr(str(lora_card))), prompt)
    exec(code[code.index("messages") : code.index("prompt")], prompt)
    mine = loading.load_run(lora_run)
    mine.use_checkpoint()
    policy = mine.policies["main"]
    given = prompt["tokenizer"].apply_chat_template(
        prompt["messages"], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    reply = policy.model.generate(
        **given, do_sample=False, max_new_tokens=20, eos_token_id=sorted(policy.stop_ids)
    )
    said = policy.tokenizer.decode(reply[0, given["input_ids"].shape[1] :])
    assert printed == said and "answer" in said
    assert [m["role"] for m in prompt["messages"]] == ["system", "user"]


def test_the_tokenizer_of_the_card_is_that_of_the_run(lora_run, lora_card):
    found = AutoTokenizer.from_pretrained(lora_card / "adapter")
    own = AutoTokenizer.from_pretrained(lora_run / "models" / "main")
    assert (found.eos_token, found.pad_token) == (own.eos_token, own.pad_token)
    config = json.loads((lora_card / "base" / "config.json").read_text())
    assert len(found) == len(own) <= config["vocab_size"]
    assert own.pad_token_id == found.pad_token_id < config["vocab_size"]


def test_the_base_models_own_way_to_sample_changes_no_reply(lora_card, tmp_path, capsys):
    """Models of the hub come with a repetition penalty, which turnwise does not know."""
    other = shutil.copytree(lora_card, tmp_path / "card")
    file = other / "base" / "generation_config.json"
    own = {"repetition_penalty": 9.0, "no_repeat_ngram_size": 2, "num_beams": 3}
    file.write_text(json.dumps(json.loads(file.read_text()) | own))
    (code,) = snippets(lora_card)
    said = []
    for card in (lora_card, other):
        exec(code.replace('here = "."', f"here = {str(card)!r}"), {})
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] != ""


def test_one_adapter_is_the_sum_of_two(lora_run, lora_card):
    base = AutoModelForCausalLM.from_pretrained(lora_card / "base")
    model = PeftModel.from_pretrained(base, str(lora_card / "adapter"))
    mine = loading.load_run(lora_run)
    mine.use_checkpoint()
    ids = torch.arange(10, 30)[None]
    with torch.no_grad():
        ours, theirs = mine.policies["main"].model(ids).logits, model(ids).logits
        with model.disable_adapter():
            bare = model(ids).logits
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-4)
    assert (theirs - bare).abs().max() > 0.1
    assert model.peft_config["default"].r == 8


def test_the_readme_is_a_model_card_of_the_hub(lora_run, lora_card):
    card = ModelCard.load(lora_card / "README.md")
    data = card.data.to_dict()
    assert data["library_name"] == "peft" and data["license"] == "apache-2.0"
    assert {"turnwise", "frozen-lake", "gigpo", "lora"} <= set(data["tags"])
    assert "base_model" not in data, "the base was made by the run and is on no hub"
    scores = read_scores(lora_run / "eval.json")
    values = {each.metric_name: each.metric_value for each in card.data.eval_results}
    assert values["score, greedy"] == scores.score and "falls" in values
    for said in ("a copy is in `base`", "| baseline: random |", "## Citation", "curve.png"):
        assert said in card.text
    assert f"{scores.score:.3f}" in card.text


def test_nothing_tells_of_the_machine(lora_run, lora_card):
    names = (str(lora_run.parent), str(Path.cwd()), str(Path.home()), f"/{getpass.getuser()}/")
    for file in published_files(lora_card):
        content = (lora_card / file).read_bytes()
        assert [name for name in names if name.encode() in content] == [], file


def test_the_recipe_of_the_card_loads(lora_run, lora_card):
    written = load_recipe(str(lora_card / "recipe.toml"))
    assert written == load_recipe(str(lora_run / "recipe.toml"))
    json.loads((lora_card / "eval.json").read_text())


def changed(run, folder, **policy):
    """Return a copy of a run whose recipe says something else of its policy."""
    copy = shutil.copytree(run, folder / "run")
    recipe = tomllib.loads((copy / "recipe.toml").read_text())
    recipe["policies"]["main"].update(policy)
    recipe.pop("pretrain")
    recipe["env"]["training"] = {}
    recipe["stages"] = ["warmup", "trainer"]
    (copy / "recipe.toml").write_text(tomli_w.dumps(recipe))
    return copy


def test_a_folder_of_the_author_is_copied_and_not_named(lora_run, tmp_path):
    model = shutil.copytree(lora_run / "base" / "main", tmp_path / "secret-place" / "lake-base")
    shutil.copy(model / "model.safetensors", model / "optimizer.safetensors")
    run = changed(lora_run, tmp_path, model=str(model))
    recipe = tomllib.loads((run / "recipe.toml").read_text())
    recipe["policies"]["main"].pop("nano")
    (run / "recipe.toml").write_text(tomli_w.dumps(recipe))
    card = write_card(run)
    assert card == run / "card"
    assert not (card / "base" / "optimizer.safetensors").exists(), "nobody asked for it"
    text = (card / "README.md").read_text()
    assert "on a model from a folder of the author (a copy is in `base`)" in text
    assert "The author has not chosen a license yet." in text
    assert "license" not in yaml.safe_load(text.split("---")[1])
    settings = tomllib.loads((card / "recipe.toml").read_text())
    assert settings["policies"]["main"]["model"] == "./lake-base"
    assert all(b"secret-place" not in (card / f).read_bytes() for f in published_files(card))
    with pytest.raises(RunError, match=r"card' exists: delete it, or choose another folder"):
        write_card(run)


def test_a_run_that_is_not_finished_is_refused(lora_run, tmp_path):
    run = shutil.copytree(lora_run, tmp_path / "run")
    (run / "eval.json").unlink()
    with pytest.raises(RunError, match=r"is not finished, it has no eval\.json: .*turnwise resume"):
        write_card(run)
    assert not (run / "card").exists()


def changed_scores(run, folder, **scores):
    """Return a copy of a run whose eval.json says something else."""
    copy = shutil.copytree(run, folder / "run")
    found = json.loads((copy / "eval.json").read_text())
    (copy / "eval.json").write_text(json.dumps(found | scores))
    return copy


def test_scores_of_other_weights_are_refused(lora_run, tmp_path):
    run = changed_scores(lora_run, tmp_path, checkpoint="train 1")
    with pytest.raises(RunError, match=r"scores of checkpoint train 1, .* now .*turnwise resume"):
        write_card(run)
    assert not (run / "card").exists()


def test_texts_of_envs_and_users_break_no_card(lora_run, tmp_path):
    """A broken env's error has a token and a path, a baseline a bar, the name marks of Markdown."""
    broken = f"refused {TOKEN} in /home/ann/keys.py"
    scores = {"broken": 2, "broken_by": broken, "baselines": {"always a|b": 0.00001, "random": 0.1}}
    scores |= {"baselines_stderr": {"always a|b": 0.1, "random": 0.1}, "paired": {}}
    scores |= {"measures": {"falls": {"mean": 1e-5, "stderr": 0.1, "episodes": 4}}}
    run = changed_scores(lora_run, tmp_path, **scores)
    recipe = tomllib.loads((run / "recipe.toml").read_text())
    name = 'ants \U0001f41c "<b>" `|` \\'
    (run / "recipe.toml").write_text(tomli_w.dumps(recipe | {"name": name.replace("\\", "*")}))
    card = write_card(run)
    text = (card / "README.md").read_text()
    assert TOKEN not in text and "/home" not in text and "refused removed in keys.py" in text
    assert "| baseline: always a\\|b | 0.000" in text
    data = ModelCard.load(card / "README.md").data.to_dict()
    assert data["model-index"][0]["name"] == name.replace("\\", "*")
    metrics = data["model-index"][0]["results"][0]["metrics"]
    assert {each["name"]: each["value"] for each in metrics}["falls"] == 1e-5
    assert TOKEN not in (card / "eval.json").read_text()


def test_a_secret_in_a_prompt_is_told(lora_run, tmp_path):
    run = shutil.copytree(lora_run, tmp_path / "run")
    recipe = tomllib.loads((run / "recipe.toml").read_text())
    recipe["agents"]["player"]["system"] = f"Use {TOKEN}."
    (run / "recipe.toml").write_text(tomli_w.dumps(recipe))
    with pytest.raises(RunError, match="the prompt of role 'player' seems to hold a Hugging Face"):
        write_card(run)
    assert not (run / "card").exists()


def test_a_base_with_code_of_its_own_is_refused(lora_run, tmp_path):
    model = shutil.copytree(lora_run / "base" / "main", tmp_path / "lake-base")
    run = changed(lora_run, tmp_path, model=str(model), trust_remote_code=True)
    recipe = tomllib.loads((run / "recipe.toml").read_text())
    recipe["policies"]["main"].pop("nano")
    (run / "recipe.toml").write_text(tomli_w.dumps(recipe))
    with pytest.raises(ModelError, match="policy 'main' needs a model with code of its own"):
        write_card(run)


def test_adapters_that_are_no_plain_sum_are_refused(lora_run, tmp_path):
    adapters = [lora_run / "adapters/main" / name for name in ("sft", "grpo")]
    other = shutil.copytree(adapters[0], tmp_path / "sft")
    config = json.loads((other / "adapter_config.json").read_text())
    (other / "adapter_config.json").write_text(json.dumps(config | {"use_rslora": True}))
    with pytest.raises(ModelError, match="has use_rslora, so its sum with .* is no plain LoRA"):
        write_joined([other, adapters[1]], tmp_path, None)


def test_scales_of_summed_adapters_may_differ(lora_run, tmp_path):
    """Of two adapters the first has half the scale and twice the second factor: the same sum."""
    from safetensors.torch import load_file, save_file

    adapters = [lora_run / "adapters/main" / name for name in ("sft", "grpo")]
    other = shutil.copytree(adapters[0], tmp_path / "sft")
    config = json.loads((other / "adapter_config.json").read_text())
    halved = config | {"lora_alpha": config["lora_alpha"] / 2}
    (other / "adapter_config.json").write_text(json.dumps(halved))
    weights = load_file(other / "adapter_model.safetensors")
    doubled = {name: w * 2 if ".lora_B." in name else w for name, w in weights.items()}
    save_file(doubled, other / "adapter_model.safetensors")
    sums = []
    for place, first in (("a", adapters[0]), ("b", other)):
        (tmp_path / place).mkdir()
        write_joined([first, adapters[1]], tmp_path / place, None)
        sums.append(load_file(tmp_path / place / "adapter_model.safetensors"))
    assert all(torch.equal(sums[0][name], sums[1][name]) for name in sums[0])
