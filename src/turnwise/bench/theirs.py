"""TRL's side: its `GRPOTrainer` on the rows of a work, one step at a time.

Owns the settings with which TRL is as fast as we could make it at the same mathematics. TRL is a
benchmark's extra (`pip install turnwise[bench]`); nothing else imports it.
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

from turnwise.bench.ours import ENDLESS, RATE
from turnwise.bench.side import Gate, Over
from turnwise.bench.works import Words, Work, luck
from turnwise.bench.worlds import TalkConfig, talk_of, words_of
from turnwise.kernels.memory import keep_freed_memory
from turnwise.policies.sources import ADAPTER_FILE
from turnwise.render import Renderer
from turnwise.types import Message


class Steps(TrainerCallback):
    """Takes a step when it is told to, and answers how long it took."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.began = time.perf_counter()
        self.sampling = 0.0
        self.on_first: Any = None

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        """Answer the step that is finished, and wait."""
        took = time.perf_counter() - self.began
        if self.on_first is None:
            self.gate.answer(seconds=took, sampling=self.sampling, update=took - self.sampling)
        else:
            self.on_first()
            self.on_first = None
            self.gate.answer()
        self.gate.wait()
        self.began = time.perf_counter()


class Trainer(GRPOTrainer):
    """TRL's trainer with a clock around its sampling; `forced` rows are taken as sampled."""

    steps: Steps
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


class Talker:
    """Plays many turns as TRL's `rollout_func`: one row an episode, the world's tokens masked."""

    def __init__(self, work: Work, talk: TalkConfig, renderer: Renderer, cached: bool) -> None:
        self.work, self.talk, self.renderer, self.cached = work, talk, renderer, cached

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """Return the episodes of all prompts, each of which comes once for every episode."""
        firsts = [tuple(Message(**message) for message in prompt) for prompt in prompts]
        begun = [list(self.renderer.prompt_ids(first)) for first in firsts]
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
        whose = {words_of(self.talk, index, 0): index for index in range(self.talk.prompts)}
        index = [whose[first[0].content] for first in firsts]
        history = torch.tensor(begun)
        masks: list[list[bool]] = [[] for _ in begun]
        cache = None
        for turn in range(self.work.turns):
            if turn:
                said = [self._said(firsts[i], who, turn) for i, who in enumerate(index)]
                history = torch.cat([history, torch.tensor(said)], 1)
                masks = [mask + [False] * len(said[0]) for mask in masks]
            with torch.no_grad():
                found = trainer.model.generate(
                    input_ids=history,
                    attention_mask=torch.ones_like(history),
                    past_key_values=cache,
                    max_new_tokens=self.work.completion_tokens,
                    do_sample=True,
                    top_k=0,
                    eos_token_id=None,
                    pad_token_id=0,
                    return_dict_in_generate=True,
                )
            history, cache = found.sequences, found.past_key_values if self.cached else None
            masks = [mask + [True] * self.work.completion_tokens for mask in masks]
        return [row[len(begun[0]) :] for row in history.tolist()], masks

    def _said(self, first: tuple[Message, ...], index: int, turn: int) -> list[int]:
        """Return the tokens between two replies: the template's and the world's words."""
        reply, mark = Message(role="assistant", content="x"), (0,)
        words = Message(role="user", content=words_of(self.talk, index, turn))
        ids = self.renderer.continued_ids(first, mark, reply.content, (*first, reply, words))
        assert ids is not None
        return list(ids[1:])


def load_model(folder: str) -> Any:
    """Load full weights, or a base with a trainable adapter."""
    if not (Path(folder) / ADAPTER_FILE).is_file():
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return AutoPeftModelForCausalLM.from_pretrained(folder, is_trainable=True, dtype=torch.float32)


def make_trainer(work: Work, settings: Mapping[str, Any], gate: Gate, scratch: str) -> Trainer:
    """Return TRL's trainer for a work."""
    rows = settings["micro_rows"]
    config = GRPOConfig(
        output_dir=scratch,
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=work.episodes // rows,
        num_generations=work.group,
        max_completion_length=work.row_tokens - work.prompt_tokens,
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
    steps = Steps(gate)
    tokenizer = AutoTokenizer.from_pretrained(settings["model"])
    talker = None
    if work.turns > 1:
        talk = talk_of(work, Words(**settings["talk"]))
        talker = Talker(work, talk, Renderer(tokenizer), settings["cached"])
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
    trainer.eos_token_ids = [-1]  # no token ends a completion, here as in ours
    return trainer


def force_first(trainer: Trainer, path: str) -> None:
    """Make the first step train what turnwise sampled; keep the gradients in `path`, unclipped."""
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
        torch.save(kept, f"{path}.theirs")

    trainer.steps.on_first = done


def main(settings: Mapping[str, Any]) -> None:
    """Serve one work until the other end has gone."""
    gate = Gate()
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    torch.set_num_threads(settings["threads"])
    if settings["keep"]:
        keep_freed_memory()
    work = Work(**settings["work"])
    with tempfile.TemporaryDirectory() as scratch:
        trainer = make_trainer(work, settings, gate, scratch)
        if gate.wait() == "gradients":
            force_first(trainer, settings["first"])
        trainer.steps.began = time.perf_counter()
        trainer.train()


if __name__ == "__main__":
    with suppress(Over):
        main(json.loads(sys.argv[1]))
