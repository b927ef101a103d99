"""The example in one file takes the library's first update."""

import importlib.util
import sys
from itertools import groupby
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import turnwise as tw
from turnwise.policies import NanoConfig
from turnwise.policies.optimizer import _decay_groups
from turnwise.runs.episodes import read_episodes

EXAMPLE = Path(__file__).parents[1] / "examples" / "00_grpo_in_one_file.py"
LR = 1e-3
SETTINGS = {
    "warmup": None,
    "sft_mix": None,
    "agents.player": {"reply": "whole", "max_tokens": 6, "history": "full"},
    "credit": {
        "scheme": "grpo",
        "std": "group",
        "rewards": {"vowels": 1.0},
        "invalid_below_worst": False,
    },
    "trainer": {
        "iterations": 1,
        "tasks_per_iteration": 4,
        "group_size": 4,
        "minibatches": 1,
        "stop_if_failed": "never",
    },
    "optimizer": {"lr": LR, "schedule": "constant", "warmup_steps": 0},
    "evaluation": {"validation_tasks": 2, "test_tasks": 2},
}
TINY = tw.PolicyConfig(
    nano=NanoConfig(hidden=32, layers=2, heads=2, kv_heads=1, head_dim=16, intermediate=64),
    device="cpu",
)


class Chat(tw.Env[int]):
    """Three turns in which every reply is an answer: its vowels are the reward."""

    name = "chat"
    components = {"vowels": "agent"}  # noqa: RUF012

    def generate(self, rng):
        return {"topic": int(rng.integers(100))}

    def reset(self, task):
        return 0

    def observe(self, state, role):
        return tw.Observation(text=f"turn {state} of three", legal_actions=())

    def step(self, state, role, action, noise):
        vowels = sum(action.count(letter) for letter in "aeiou") / 10
        return tw.Step(
            state=state + 1, rewards={"vowels": vowels}, terminated=state == 2, truncated=False
        )

    def random_action(self, state, role, rng):
        return str(rng.choice(["yes", "no", "maybe"]))

    def score(self, state):
        return 0.5


def example():
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("grpo_in_one_file", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_its_first_update_is_the_librarys(tmp_path):
    run = tmp_path / "run"
    tw.train(TINY, env=Chat(), settings=SETTINGS, run=run, progress=False)
    recorded = read_episodes(run / "episodes" / "train-000000.jsonl")
    one_file = example()
    groups = [
        [
            one_file.Episode(
                [
                    one_file.Turn(list(t.prompt_ids), list(t.completion_ids), list(t.logprobs))
                    for t in episode.turns
                ],
                recorded.returns[episode.turns[0].id],
            )
            for episode in members
        ]
        for _, members in groupby(recorded.episodes, key=lambda episode: episode.id.visit)
    ]
    assert [len(group) for group in groups] == [4] * 4
    assert any(one_file.advantages_of([e.reward for e in group]).any() for group in groups)

    model = AutoModelForCausalLM.from_pretrained(run / "start/main").eval()
    optimizer = one_file.make_optimizer(model, LR)
    one_file.update(model, optimizer, groups)

    (kept,) = (run / "checkpoints").glob("*-train-1")
    # After one step Adam's first moment is the clipped gradient times 1 - beta1.
    state = torch.load(kept / "optimizers/main.pt", weights_only=True)["adamw"]["state"]
    decayed, plain = _decay_groups(model)
    for number, weight in enumerate([*decayed, *plain]):
        mine, theirs = optimizer.state[weight]["exp_avg"], state[number]["exp_avg"]
        assert float(theirs.norm()) > 0
        assert float((mine - theirs).norm()) <= 1e-5 * float(theirs.norm())
    # Adam's first step is lr in every weight: it is theirs wherever the gradient is not rounding.
    steps = load_file(kept / "policies/main/model.safetensors")
    for name, weight in model.named_parameters():
        moved = optimizer.state[weight]["exp_avg"].abs() > 1e-6
        assert float(moved.float().mean()) > 0.05, name
        torch.testing.assert_close(weight[moved], steps[name][moved], rtol=0, atol=0.01 * LR)
