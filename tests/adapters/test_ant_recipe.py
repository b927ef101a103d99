"""The recipe `ant-colony-qwen3-0.6b` on random weights of that architecture, from hub to card."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
import torch
import transformers as hf
from PIL import Image

from turnwise.recipe.schema import load_recipe
from turnwise.runs import read_metrics

from ..conftest import SIZES, qwen_tokenizer

RECIPE, NAME = "ant-colony-qwen3-0.6b", "Qwen/Qwen3-0.6B"
SETS = ("preset=smoke", "policies.main.device=cpu", "agents.ant.max_tokens=16")


def test_the_recipe_is_the_published_one():
    recipe = load_recipe(RECIPE)
    policy, trainer = recipe.weights["main"], recipe.trainer
    lora = policy.lora
    assert policy.model == NAME
    assert (lora.rank, lora.alpha, lora.dropout) == (16, 32.0, 0.05)
    assert lora.targets == ("q_proj", "k_proj", "v_proj", "o_proj")
    assert (trainer.iterations, trainer.tasks_per_iteration, trainer.group_size) == (30, 1, 4)
    assert (recipe.optimizer.lr, recipe.credit.scheme) == (5e-6, "grpo")
    assert recipe.loss.kl == "loss_k3" and recipe.loss.kl_weight > 0
    assert (recipe.curriculum.first, recipe.curriculum.last) == (0, 6)
    assert recipe.warmup.player == "heuristic" and recipe.env.make("warmup").config.tier == 1


@pytest.mark.parametrize("preset", ["longer", "tier0", "smoke"])
def test_its_presets_load_also_for_a_card_without_bfloat16(preset):
    recipe = load_recipe(RECIPE, [f"preset={preset}", "policies.main.dtype=float16"])
    assert recipe.weights["main"].dtype == "float16"


@pytest.fixture(scope="module")
def offline(tmp_path_factory):
    """A run of commands with a hub's cache that has small random weights by the real name."""
    home = tmp_path_factory.mktemp("hub")
    place, commit = home / "hub" / f"models--{NAME.replace('/', '--')}", "0" * 40
    snapshot = place / "snapshots" / commit
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text(commit)
    tokenizer = qwen_tokenizer()
    torch.manual_seed(0)
    config = hf.Qwen3Config(
        **SIZES | {"max_position_embeddings": 4096}, vocab_size=len(tokenizer),
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=True,
    )  # fmt: skip
    hf.AutoModelForCausalLM.from_config(config).save_pretrained(snapshot)
    tokenizer.save_pretrained(snapshot)

    def run(*words, folder):
        settings = {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, *map(str, words)], cwd=folder, env=os.environ | settings,
            capture_output=True, text=True, timeout=280,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    return run


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_trains_and_its_card_needs_transformers_and_peft_alone(offline, tmp_path):
    command = ["-m", "turnwise", "train", RECIPE, "--run", tmp_path / "run"]
    offline(*command, *(part for each in SETS for part in ("--set", each)), folder=tmp_path)
    phases = [record["phase"] for record in read_metrics(tmp_path / "run" / "metrics.jsonl")]
    assert phases.count("train") >= 2 and "warmup" in phases
    report = (tmp_path / "run" / "report.md").read_text()
    assert "](episode.gif)" in report and "A training episode of iteration" in report
    offline("-m", "turnwise", "card", tmp_path / "run", "--out", tmp_path / "card", folder=tmp_path)
    card = (tmp_path / "card" / "README.md").read_text()
    assert f'base_model:\n- "{NAME}"\nbase_model_relation: adapter\nlibrary_name: peft' in card
    assert f"a LoRA adapter of rank 16 on [`{NAME}`](https://huggingface.co/{NAME})." in card
    written = json.loads((tmp_path / "card" / "adapter_config.json").read_text())
    assert written["base_model_name_or_path"] == NAME
    assert not (tmp_path / "card" / "base").exists()
    with Image.open(tmp_path / "card" / "episode.gif") as film:
        assert film.size[0] == 24 * 5 or film.size[0] == 24 * 7
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    assert f'AutoModelForCausalLM.from_pretrained("{NAME}")' in code
    assert "enable_thinking=False" in code and "turnwise" not in code
    blocked = "import sys\nsys.modules['turnwise'] = None\n"
    assert offline("-c", blocked + code, folder=tmp_path / "card")
