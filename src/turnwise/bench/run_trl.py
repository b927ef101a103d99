"""The worker process of TRL: its `GRPOTrainer` on a workload, one step per request.

The settings are those with which TRL was fastest at the same mathematics. TRL is an extra
(`pip install turnwise[bench]`) that no other module imports.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import AutoPeftModelForCausalLM
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from turnwise.bench.envs import RandomWordsConfig, words_config, words_of
from turnwise.bench.run_turnwise import ENDLESS, RATE
from turnwise.bench.worker import ParentExited, StepServer
from turnwise.bench.workloads import Words, Workload, luck
from turnwise.kernels.memory import keep_freed_memory
from turnwise.policies.sources import ADAPTER_FILE
from turnwise.render import Renderer
from turnwise.types import Message, Prompt


class StepCallback(TrainerCallback):
    """Takes a step on request and answers with its time."""

    def __init__(self, server: StepServer) -> None:
        self.server = server
        self.began = time.perf_counter()
        self.sampling = 0.0
        self.on_first: Any = None

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        """Answer with the time of the finished step, and wait for the next request."""
        took = time.perf_counter() - self.began
        if self.on_first is None:
            self.server.answer(seconds=took, sampling=self.sampling, update=took - self.sampling)
        else:
            self.on_first()
            self.on_first = None
            self.server.answer()
        self.server.wait()
        self.began = time.perf_counter()


class Trainer(GRPOTrainer):
    """TRL's trainer with a timer around its sampling; `forced` rows replace sampled ones."""

    steps: StepCallback
    forced: dict[tuple[int, ...], list[Mapping[str, Any]]] | None = None

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        began = time.perf_counter()
        outputs = super()._generate_and_score_completions(inputs)
        self.steps.sampling = time.perf_counter() - began
        return outputs

    def _generate_single_turn(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        if self.forced is None:
            return super()._generate_single_turn(prompt_ids, *args, **kwargs)
        return [self.forced[tuple(ids)].pop(0)["rest"] for ids in prompt_ids], None


class TrlRollout:
    """TRL's `rollout_func` for many turns: one row per episode, observation tokens masked."""

    def __init__(
        self, workload: Workload, talk: RandomWordsConfig, renderer: Renderer, cached: bool
    ) -> None:
        self.workload, self.talk, self.renderer, self.cached = workload, talk, renderer, cached

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """Return the episodes of all prompts; each prompt is repeated once per episode."""
        firsts = [tuple(Message(**message) for message in prompt) for prompt in prompts]
        begun = [list(self.renderer.prompt_ids(Prompt(messages=first))) for first in firsts]
        if trainer.forced is not None:
            rows = [trainer.forced[tuple(ids)].pop(0) for ids in begun]
            rests, masks = [row["rest"] for row in rows], [row["sampled"] for row in rows]
        else:
            rests, masks = self._play(trainer, firsts, begun)
        return {
            "prompt_ids": begun,
            "completion_ids": rests,
            "logprobs": None,
            "env_mask": [[int(drawn) for drawn in mask] for mask in masks],
        }

    def _play(
        self, trainer: Any, firsts: Sequence[tuple[Message, ...]], begun: list[list[int]]
    ) -> tuple[list[list[int]], list[list[bool]]]:
        index_of = {words_of(self.talk, index, 0): index for index in range(self.talk.prompts)}
        index = [index_of[first[0].content] for first in firsts]
        history = torch.tensor(begun)
        masks: list[list[bool]] = [[] for _ in begun]
        cache = None
        for turn in range(self.workload.turns):
            if turn:
                said = [self._said(firsts[i], who, turn) for i, who in enumerate(index)]
                history = torch.cat([history, torch.tensor(said)], 1)
                masks = [mask + [False] * len(said[0]) for mask in masks]
            with torch.no_grad():
                found = trainer.model.generate(
                    input_ids=history,
                    attention_mask=torch.ones_like(history),
                    past_key_values=cache,
                    max_new_tokens=self.workload.completion_tokens,
                    do_sample=True,
                    top_k=0,
                    eos_token_id=None,
                    pad_token_id=0,
                    return_dict_in_generate=True,
                )
            history, cache = found.sequences, found.past_key_values if self.cached else None
            masks = [mask + [True] * self.workload.completion_tokens for mask in masks]
        return [row[len(begun[0]) :] for row in history.tolist()], masks

    def _said(self, first: tuple[Message, ...], index: int, turn: int) -> list[int]:
        """Return the tokens between two replies: those of the template and of the observation."""
        reply, mark = Message(role="assistant", content="x"), (0,)
        words = Message(role="user", content=words_of(self.talk, index, turn))
        before, prompt = Prompt(messages=first), Prompt(messages=(*first, reply, words))
        ids = self.renderer.continued_ids(before, mark, reply.content, prompt)
        assert ids is not None
        return list(ids[1:])


def load_model(folder: str) -> Any:
    """Load full weights, or a base model with a trainable adapter."""
    if not (Path(folder) / ADAPTER_FILE).is_file():
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return AutoPeftModelForCausalLM.from_pretrained(folder, is_trainable=True, dtype=torch.float32)


def make_trainer(
    workload: Workload, settings: Mapping[str, Any], server: StepServer, scratch: str
) -> Trainer:
    """Return TRL's trainer for a workload."""
    rows = settings["micro_rows"]
    config = GRPOConfig(
        output_dir=scratch,
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=workload.episodes // rows,
        num_generations=workload.group,
        max_completion_length=workload.row_tokens - workload.prompt_tokens,
        max_steps=ENDLESS,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        weight_decay=0.0,
        beta=0.0,
        epsilon=0.2,
        temperature=1.0,
        top_k=0,
        loss_type="dapo",
        scale_rewards="group",
        use_transformers_continuous_batching=settings["continuous"],
        generation_kwargs={"eos_token_id": None},
        gradient_checkpointing=settings["checkpointing"],
        use_cpu=True,
        bf16=False,
        shuffle_dataset=False,
        dataloader_pin_memory=False,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    steps = StepCallback(server)
    tokenizer = AutoTokenizer.from_pretrained(settings["model"])
    talker = None
    if workload.turns > 1:
        talk = words_config(workload, Words(**settings["talk"]))
        talker = TrlRollout(workload, talk, Renderer(tokenizer), settings["cached"])
    trainer = Trainer(
        model=load_model(settings["model"]),
        reward_funcs=luck,
        args=config,
        train_dataset=Dataset.from_json(settings["rows"]),
        processing_class=tokenizer,
        rollout_func=talker,
        callbacks=[steps],
    )
    trainer.steps = steps
    trainer.eos_token_ids = [-1]  # no token ends a completion, as in `run_turnwise`
    return trainer


def force_first(trainer: Trainer, path: str) -> None:
    """Train the first step on turnwise's samples; save its gradients before clipping to `path`."""
    first = torch.load(path, weights_only=False)
    forced: dict[tuple[int, ...], list[Mapping[str, Any]]] = {}
    for row in first["rows"]:
        forced.setdefault(tuple(row["prompt"]), []).append(row)
    trainer.forced = forced
    kept: dict[str, torch.Tensor] = {}
    clip = trainer.accelerator.clip_grad_norm_

    def keep(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        assert trainer.model is not None
        for name, parameter in trainer.model.named_parameters():
            if parameter.grad is not None:
                kept[name] = parameter.grad.clone()
        return clip(parameters, *args, **kwargs)

    trainer.accelerator.clip_grad_norm_ = keep

    def done() -> None:
        trainer.forced = None
        trainer.accelerator.clip_grad_norm_ = clip
        torch.save(kept, f"{path}.trl")

    trainer.steps.on_first = done


def main(settings: Mapping[str, Any]) -> None:
    """Run steps of one workload until the parent process closes the pipe."""
    server = StepServer()
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    torch.set_num_threads(settings["threads"])
    if settings["keep"]:
        keep_freed_memory()
    workload = Workload(**settings["workload"])
    with tempfile.TemporaryDirectory() as scratch:
        trainer = make_trainer(workload, settings, server, scratch)
        if server.wait() == "gradients":
            force_first(trainer, settings["first"])
        trainer.steps.began = time.perf_counter()
        trainer.train()


if __name__ == "__main__":
    with suppress(ParentExited):
        main(json.loads(sys.argv[1]))
