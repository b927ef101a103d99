"""A run is a function of its recipe: seed and place decide every draw, and nothing else does."""

from itertools import chain

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from turnwise.runs import comparable, read_episodes, read_metrics
from turnwise.seeding import token_uniforms

SEED = 3  # of tiny.toml


def test_equal_seeds_give_equal_runs(elsewhere, unbroken, traces, differences, tmp_path):
    ended = elsewhere.train(tmp_path / "run")
    assert ended.code == 0, ended.said
    assert differences(traces(tmp_path / "run"), unbroken) == []


def test_another_seed_gives_another_run(turnwise, unbroken, traces, tmp_path):
    ended = turnwise.train(tmp_path / "run", sets=["seed=4"])
    assert ended.code == 0, ended.said
    other = traces(tmp_path / "run")
    pairs = list(zip(other["metrics"], unbroken["metrics"], strict=True))
    assert all(one["loss/ce"] != two["loss/ce"] for one, two in pairs[:4])
    assert all(one["rollout/turns"] != two["rollout/turns"] for one, two in pairs[4:6])
    assert other["start/main"] != unbroken["start/main"]


@pytest.mark.slow
def test_dropout_is_drawn_again_after_a_kill(turnwise, tmp_path):
    sets = ["policies.main.lora.dropout=0.2", "trainer.iterations=0"]
    logs = []
    for name in ("unbroken", "killed"):
        event = [{"place": "step", "call": 60}] if name == "killed" else []
        ended = turnwise.train(tmp_path / name, *event, sets=sets)
        if event:
            assert ended.code == -9
            ended = turnwise.resume(tmp_path / name)
        assert ended.code == 0, ended.said
        logs.append(comparable(read_metrics(tmp_path / name / "metrics.jsonl")))
    assert logs[0] == logs[1]


@pytest.fixture(scope="module")
def recorded(turnwise, tmp_path_factory):
    """Turns of all iterations, and the folder with the weights that they were played with."""
    run = tmp_path_factory.mktemp("recorded") / "run"
    ended = turnwise.train(run, sets=["episodes.keep=-1", "checkpoint.keep=20"])
    assert ended.code == 0, ended.said
    weights = {0: run / "start/main"} | {
        int(path.name.rsplit("-", 1)[1]): path / "policies/main"
        for path in (run / "checkpoints").glob("*-train-*")
    }
    played = {
        number: list(chain(*(episode.turns for episode in read_episodes(file).episodes)))
        for number, file in enumerate(sorted((run / "episodes").glob("train-*")))
    }
    assert sorted(played) == sorted(weights)[:-1] == [0, 1, 2, 3, 4, 5]
    return played, weights


def test_no_two_turns_share_a_draw(recorded):
    played, _ = recorded
    turns = list(chain(*played.values()))
    draws = {stream: uniforms_of(turns, stream) for stream in ("train", "warmup", "evaluation")}
    every = np.concatenate([*draws["train"], *draws["warmup"], *draws["evaluation"]])
    assert len(turns) > 100
    assert len(np.unique(every)) == len(every)
    prompts = {
        (turn.id.episode.iteration, turn.id.episode.visit, turn.prompt_ids) for turn in turns
    }
    same = [one for one in prompts for other in prompts if one != other and one[2] == other[2]]
    assert same, "the same prompt must be met again for the comparison to mean something"


def test_recorded_tokens_are_those_that_the_draws_choose(recorded):
    """Every token is the inverse of its policy's distribution function at its own uniform."""
    played, weights = recorded
    wrong = total = 0
    for iteration, turns in played.items():
        model = AutoModelForCausalLM.from_pretrained(weights[iteration]).eval()
        for turn, uniforms in zip(turns, uniforms_of(turns, "train"), strict=True):
            chosen = inverse(model, turn.prompt_ids, turn.completion_ids, uniforms)
            wrong += int((chosen != np.array(turn.completion_ids)).sum())
            total += len(chosen)
    assert total > 1000
    assert wrong / total < 1e-3, f"{wrong} of {total} tokens"  # ties at float32's rounding


def uniforms_of(turns, stream):
    return [token_uniforms(SEED, stream, turn.id, len(turn.completion_ids)) for turn in turns]


def inverse(model, prompt, reply, uniforms):
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*prompt, *reply]])).logits[0, len(prompt) - 1 : -1]
    below = logits.double().softmax(-1).cumsum(-1)
    return torch.searchsorted(below, torch.from_numpy(uniforms)[:, None], right=True)[:, 0].numpy()
