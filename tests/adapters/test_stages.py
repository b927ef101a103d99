"""The weights that the stages of a run with adapters pass on."""

import itertools
import json
import shutil

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from turnwise.app import build, lifecycle, loading, run_scores
from turnwise.app.stages import begin_adapters, make_base, run_stages, without_adapters
from turnwise.errors import ConfigError, ModelError
from turnwise.forest import ForestConfig
from turnwise.forest.choose import choose
from turnwise.recipe.schema import load_recipe
from turnwise.runs import Run, StopSignal, read_metrics
from turnwise.trainers import Silent
from turnwise.trainers.rows import supervised_row
from turnwise.trainers.update import score_column
from turnwise.types import Message, Prompt

from .conftest import TINY

IDS = torch.arange(10, 30)[None]


def logits(model):
    with torch.no_grad():
        return model(input_ids=IDS, use_cache=False).logits


def records(run, phase):
    return [record for record in read_metrics(run / "metrics.jsonl") if record["phase"] == phase]


def test_the_phases_follow_one_another_and_their_costs_add_up(stacked):
    found = read_metrics(stacked / "metrics.jsonl")
    phases = [phase for phase, _ in itertools.groupby(found, lambda record: record["phase"])]
    assert phases == ["pretrain", "warmup", "train"]
    steps = [record["total/warmup_optimizer_steps"] for record in found]
    assert steps[:5] == [25, 50, 75, 85, 95]
    assert all(a <= b for a, b in itertools.pairwise(r["time/total"] for r in found))
    assert records(stacked, "pretrain")[-1]["loss/ce"] < records(stacked, "pretrain")[0]["loss/ce"]
    report = (stacked / "report.md").read_text()
    assert "| optimizer steps | 95 | 8 | 103 |" in report


def test_training_begins_with_the_merged_weights(stacked):
    """Base + imitation, merged: the fresh adapter says nothing, and the KL is 0 at first."""
    base = AutoModelForCausalLM.from_pretrained(stacked / "base/main")
    mine = loading.load_run(stacked)
    mine.use_start()
    start = logits(mine.policies["main"].model)
    with mine.policies["main"].model.disable_adapter():
        assert torch.equal(logits(mine.policies["main"].model), start)
    assert (logits(base) - start).abs().max() > 0.1, "imitation learned nothing"
    first, *later = records(stacked, "train")
    assert first["policy/ref_k3"] == pytest.approx(0, abs=1e-6)
    assert max(record["policy/ref_k3"] for record in later) > 1e-4
    assert max(record["engine/gap_max"] for record in (first, *later)) < 1e-4


def test_the_warmup_is_a_baseline_of_the_report(stacked):
    scores = json.loads((stacked / "eval.json").read_text())
    alone = run_scores.evaluate_run(stacked, tasks=4, seed=3)
    assert alone.baselines["warmup"] == scores["baselines"]["warmup"]
    assert alone.score == scores["score"]


def test_a_run_may_be_moved(stacked, tmp_path):
    moved = shutil.copytree(stacked, tmp_path / "moved")
    mine = [loading.load_run(run) for run in (stacked, moved)]
    for one in mine:
        one.use_checkpoint()
    assert mine[0].policies["main"].digest() == mine[1].policies["main"].digest()
    assert mine[1].policies["main"].merged[0].path == (moved / "adapters/main/sft").resolve()


def test_trees_are_flat_rows_on_merged_weights(stacked):
    mine = loading.load_run(stacked)
    mine.use_checkpoint()
    renderer = mine.policies["main"].renderer
    asked = Message(role="user", content="lake\n r0c0 start you r0c0")
    prompt = renderer.prompt_ids(Prompt(messages=(asked,)))
    replies = ("LEFT", "DOWN", "DOWN RIGHT", "LEFT")
    rows = [supervised_row("main", prompt, renderer.completion_ids(reply)) for reply in replies]
    columns, gradients = [], []
    for layout in ("tree", "flat"):
        scorer = choose(mine.policies["main"].model, ForestConfig(layout=layout, probe_tokens=64))
        assert scorer.reason.startswith(layout)
        columns.append(score_column(mine.policies["main"].model, scorer, rows))
        for batch in scorer.batches(rows):
            scorer.score(mine.policies["main"].model, batch).logprobs.sum().backward()
        gradients.append([p.grad.clone() for p in mine.policies["main"].trainable_parameters()])
        mine.policies["main"].model.zero_grad()
    np.testing.assert_allclose(columns[0], columns[1], atol=1e-5)
    for tree, flat in zip(*gradients, strict=True):
        torch.testing.assert_close(tree, flat, rtol=1e-3, atol=1e-4)


def test_dropout_is_off_in_reinforcement(tmp_path):
    """0.05 is in the adapter's config; in training by reinforcement every pass is the same."""
    recipe = load_recipe(TINY, ["pretrain=none"])
    with StopSignal() as stop:
        run = Run.create(tmp_path, "r", recipe.to_toml(), tmp_path / "run")
        session = build.assemble(recipe, run, stop, Silent())
        begin_adapters(session)
        with torch.no_grad():
            for parameter in session.policies["main"].trainable_parameters():
                parameter.add_(0.1)
        with session.policies["main"].dropout(False):
            assert torch.equal(
                logits(session.policies["main"].model),
                logits(session.policies["main"].model),
            )
        with session.policies["main"].dropout(True):
            assert not torch.equal(
                logits(session.policies["main"].model),
                logits(session.policies["main"].model),
            )
        session.metrics.close()


def test_no_row_is_shown_by_two_stages():
    recipe = load_recipe(TINY)
    assert recipe.rows_before_warmup == 75 * 16
    assert recipe.rows_before_training == build.plan_of(recipe).sft_mix_first == 95 * 16
    assert load_recipe(TINY, ["pretrain=none"]).rows_before_training == 20 * 16


def test_a_base_is_made_once_and_is_an_ordinary_model(stacked):
    base = AutoModelForCausalLM.from_pretrained(stacked / "base/main")
    nano = AutoModelForCausalLM.from_pretrained(stacked / "models/main")
    assert (logits(base) - logits(nano)).abs().max() > 0.1
    recipe = load_recipe(str(stacked / "recipe.toml"))

    def refuse(_):
        raise AssertionError("the base is there: nothing is assembled to make it again")

    assert make_base(recipe, Run(stacked), refuse, resumed=True)
    assert without_adapters(recipe).policies["main"].lora is None


def test_a_run_stopped_in_pretraining_is_scored_by_its_whole_weights(tmp_path):
    recipe = load_recipe(TINY, ["pretrain.steps=25", "warmup.steps=5", "warmup.eval_every=5"])
    with StopSignal() as stop:
        run = Run.create(tmp_path, "r", recipe.to_toml(), tmp_path / "run")
        sessions = []

        def parts(stage):
            sessions.append(build.assemble(stage, run, stop, Silent()))
            return sessions[-1]

        assert make_base(recipe, run, parts, resumed=False)
        assert not sessions[0].policies["main"].has_adapter
        scores = run_scores.evaluate_run(run.path, tasks=2)
        assert scores.checkpoint == "pretrain 25"
        session = parts(recipe)
        assert run_stages(session, recipe, build.plan_of(recipe), resumed=False)
        session.metrics.close()
    assert np.isfinite(run_scores.evaluate_run(run.path, tasks=2).score)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (
            "policies.main.lora=none pretrain.steps=25",
            r"\[pretrain\] trains all weights before an adapter exists",
        ),
        (
            "warmup=none policies.main.lora.merge_warmup=true",
            r"merges the warm-up's adapter, but there is no warm-up",
        ),
        (
            "warmup.steps=0 policies.main.lora.merge_warmup=true",
            r"merges the warm-up's adapter, but there is no warm-up",
        ),
        ("policies.main.dtype=float16", r"\[pretrain\] trains all weights, which underflow"),
        ("pretrain.steps=0", r"pretrain\.steps = 0 trains nothing: leave \[pretrain\] out"),
        ("pretrain.optimizer.warmup_steps=80", r"pretrain\.optimizer\.warmup_steps = 80 outlasts"),
    ],
)
def test_stages_that_stand_on_nothing_are_refused(override, words):
    with pytest.raises(ConfigError, match=words):
        load_recipe(TINY, override.split())


def test_all_weights_of_an_adapter_directory_are_not_trained(stacked, tmp_path):
    recipe = load_recipe(
        TINY, [f"policies.main.model={stacked}/adapters/main/sft", "policies.main.nano=none"]
    )
    with pytest.raises(
        ModelError, match=r"is an adapter, whose base \[pretrain\] would not change"
    ):
        lifecycle.train(recipe, run=tmp_path / "run")


@pytest.mark.slow
def test_training_goes_on_from_a_stack(stacked, train):
    """A run on another run's outcome: three adapters deep, each saying what it stands on."""
    model = f"policies.main.model={stacked}/adapters/main/grpo"
    again = train(model, "policies.main.nano=none", "pretrain=none")
    below = json.loads((again / "adapters/main/grpo/merge_first.json").read_text())
    assert [entry["adapter"].split("/")[-1] for entry in below] == ["sft", "sft"]
    scores = run_scores.evaluate_run(again, tasks=4, seed=3)
    assert scores.checkpoint.startswith("train")
