"""The worker process of TRL: its `GRPOTrainer` on a workload, one step per request.

The settings are either those of TRL's quick start, or given ones at the same mathematics as
turnwise's. A workload with tools is played by TRL's own loop over an environment, or by a rollout
that keeps keys and values. TRL is an extra (`pip install turnwise[bench]`) that no other module
imports.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import gcd
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
from turnwise.bench.tools import RandomTools, tool_schemas
from turnwise.bench.worker import ParentExited, StepServer
from turnwise.bench.workloads import Words, Workload, luck
from turnwise.kernels.memory import keep_freed_memory
from turnwise.policies.sources import ADAPTER_FILE
from turnwise.render import Renderer
from turnwise.types import Message, Prompt

PAD = 0
"""A token that no mask shows."""


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
            self.server.answer(threads=torch.get_num_threads())
        self.server.wait()
        self.began = time.perf_counter()


class Trainer(GRPOTrainer):
    """TRL's trainer with a timer around its sampling; `forced` rows replace sampled ones.

    `expected` are the tokens of all episodes of a step after their first prompts.
    """

    steps: StepCallback
    expected: int
    forced: dict[tuple[int, ...], list[Mapping[str, Any]]] | None = None
    given: Sequence[Mapping[str, Any]] = ()

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        began = time.perf_counter()
        outputs = super()._generate_and_score_completions(inputs)
        self.steps.sampling = time.perf_counter() - began
        played = int(outputs["completion_mask"].sum())
        assert self.forced is not None or played == self.expected, (played, self.expected)
        return outputs

    def _generate_single_turn(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        if self.forced is None:
            return super()._generate_single_turn(prompt_ids, *args, **kwargs)
        self.given = [self.forced[tuple(ids)].pop(0) for ids in prompt_ids]
        return [row["rest"] for row in self.given], None

    def _get_tool_suffix_ids(self, tool_messages: Any) -> Any:
        """Put the end token before the result of a tool: replies of fixed length have none."""
        return [self._tokenizer.eos_token_id, *super()._get_tool_suffix_ids(tool_messages)]

    def _tool_call_loop(
        self, prompts: Any, prompt_ids: Any, completion_ids: Any, completions: Any, *args: Any
    ) -> Any:
        if self.forced is None:
            return super()._tool_call_loop(prompts, prompt_ids, completion_ids, completions, *args)
        masks = [[int(drawn) for drawn in row["sampled"]] for row in self.given]
        return masks, completions, completion_ids, None, 0, 0, [[] for _ in masks]


class TrlRollout:
    """A `rollout_func` for many turns: one row per episode, observation tokens masked.

    Each turn reads the whole history again unless keys and values are `cached`.
    """

    def __init__(
        self, workload: Workload, talk: RandomWordsConfig, renderer: Renderer, cached: bool
    ) -> None:
        self.workload, self.talk, self.renderer, self.cached = workload, talk, renderer, cached
        self.tools = tuple(json.dumps(tool) for tool in tool_schemas()) if talk.tools else ()

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """Return the episodes of all prompts; each prompt is repeated once per episode."""
        firsts = [
            Prompt(messages=tuple(Message(**m) for m in prompt), tools=self.tools)
            for prompt in prompts
        ]
        begun = [list(self.renderer.prompt_ids(first)) for first in firsts]
        if trainer.forced is not None:
            rows = [trainer.forced[tuple(ids)].pop(0) for ids in begun]
            rests, masks = [row["rest"] for row in rows], [row["sampled"] for row in rows]
        else:
            rests, masks = self.play(trainer.model, firsts, begun)
        return {
            "prompt_ids": begun,
            "completion_ids": rests,
            "logprobs": None,
            "env_mask": [[int(drawn) for drawn in mask] for mask in masks],
        }

    def play(
        self, model: Any, firsts: Sequence[Prompt], begun: list[list[int]]
    ) -> tuple[list[list[int]], list[list[bool]]]:
        """Return the tokens of each episode after its first prompt, and which were sampled.

        Prompts have equal lengths. Shorter observations are padded on the left.
        """
        index_of = {words_of(self.talk, index, 0): index for index in range(self.talk.prompts)}
        index = [index_of[first.messages[-1].content] for first in firsts]
        history = torch.tensor(begun)
        real, drawn = torch.ones_like(history), torch.zeros_like(history)
        cache = None
        for turn in range(self.workload.turns):
            if turn:
                said = [self._said(firsts[i], who, turn) for i, who in enumerate(index)]
                longest = max(map(len, said))
                padded = torch.tensor([[PAD] * (longest - len(ids)) + ids for ids in said])
                history = torch.cat([history, padded], 1)
                shown = [[0] * (longest - len(ids)) + [1] * len(ids) for ids in said]
                real = torch.cat([real, torch.tensor(shown)], 1)
                drawn = torch.cat([drawn, torch.zeros_like(padded)], 1)
            with torch.no_grad():
                found = model.generate(
                    input_ids=history,
                    attention_mask=real,
                    past_key_values=cache,
                    max_new_tokens=self.workload.completion_tokens,
                    do_sample=True,
                    top_k=0,
                    eos_token_id=None,
                    pad_token_id=PAD,
                    return_dict_in_generate=True,
                )
            new = found.sequences[:, history.shape[1] :]
            history, cache = found.sequences, found.past_key_values if self.cached else None
            real = torch.cat([real, torch.ones_like(new)], 1)
            drawn = torch.cat([drawn, torch.ones_like(new)], 1)
        start, rests, masks = len(begun[0]), [], []
        for ids, kept, mask in zip(history, real.bool(), drawn.bool(), strict=True):
            rests.append(ids[start:][kept[start:]].tolist())
            masks.append(mask[start:][kept[start:]].tolist())
        return rests, masks

    def _said(self, first: Prompt, index: int, turn: int) -> list[int]:
        """Return the tokens between two replies: those of the template and of the observation."""
        reply, mark = Message(role="assistant", content="x"), (0,)
        text = words_of(self.talk, index, turn)
        words = Message(role="tool" if self.tools else "user", content=text)
        prompt = Prompt(messages=(*first.messages, reply, words), tools=self.tools)
        ids = self.renderer.continued_ids(first, mark, reply.content, prompt)
        assert ids is not None
        return list(ids[1:])


def call_with_every_reply(tokenizer: Any) -> None:
    """Read every reply as a call of a tool: an untrained model writes none."""

    def parse(ids: Sequence[int], **_: Any) -> dict[str, Any]:
        words = tokenizer.decode(ids)
        call = {"name": "search", "arguments": {"words": words}}
        calls = [{"type": "function", "function": call}]
        return {"role": "assistant", "content": "", "tool_calls": calls}

    tokenizer.response_template = {"calls": "every reply"}  # TRL asks whether there is one
    tokenizer.parse_response = parse


def load_model(folder: str) -> Any:
    """Load full weights, or a base model with a trainable adapter."""
    if not (Path(folder) / ADAPTER_FILE).is_file():
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return AutoPeftModelForCausalLM.from_pretrained(folder, is_trainable=True, dtype=torch.float32)


def tuned_config(workload: Workload, settings: Mapping[str, Any], scratch: str) -> GRPOConfig:
    """Return the options for turnwise's mathematics, with the given ways to compute it."""
    rows = settings["micro_rows"]
    return GRPOConfig(
        output_dir=scratch,
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=workload.episodes // rows,
        num_generations=workload.group,
        max_completion_length=workload.row_tokens - workload.prompt_tokens,
        max_tool_calling_iterations=workload.turns - 1,
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
        generation_kwargs=fixed_length(workload),
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


def documented_config(workload: Workload, scratch: str) -> GRPOConfig:
    """Return the defaults of TRL's quick start, for the episodes and lengths of a workload.

    `use_cpu` is what TRL asks for where there is no GPU. The batch size is the default, and
    gradients are accumulated until a step has all episodes.
    """
    config = GRPOConfig(output_dir=scratch, use_cpu=True)
    rows = gcd(config.per_device_train_batch_size, workload.episodes)
    return GRPOConfig(
        output_dir=scratch,
        use_cpu=True,
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=workload.episodes // rows,
        num_generations=workload.group,
        max_completion_length=workload.row_tokens - workload.prompt_tokens,
        max_tool_calling_iterations=workload.turns - 1,
        max_steps=ENDLESS,
        generation_kwargs=fixed_length(workload),
    )


def fixed_length(workload: Workload) -> dict[str, Any]:
    """Return the options of `generate` that give every completion its full length."""
    return {"eos_token_id": None, "max_new_tokens": workload.completion_tokens}


def make_trainer(
    workload: Workload, settings: Mapping[str, Any], server: StepServer, scratch: str
) -> Trainer:
    """Return TRL's trainer for a workload."""
    steps, tokenizer = StepCallback(server), AutoTokenizer.from_pretrained(settings["model"])
    played: dict[str, Any] = {}
    if workload.turns > 1:
        talk = words_config(workload, Words(**settings["talk"]))
        if settings["rollout"] == "tools":
            call_with_every_reply(tokenizer)
            result = partial(words_of, talk)
            played["environment_factory"] = partial(RandomTools, result)
        else:
            cached = settings["rollout"] == "kept"
            played["rollout_func"] = TrlRollout(workload, talk, Renderer(tokenizer), cached)
    documented = settings["documented"]
    trainer = Trainer(
        model=load_model(settings["model"]),
        reward_funcs=luck,
        args=documented_config(workload, scratch)
        if documented
        else tuned_config(workload, settings, scratch),
        train_dataset=Dataset.from_json(settings["rows"]),
        processing_class=tokenizer,
        callbacks=[steps],
        **played,
    )
    trainer.steps = steps
    own = (workload.tokens_of(i) - workload.prompt_tokens for i in range(workload.prompts))
    trainer.expected = workload.group * sum(own)
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
    if not settings["documented"]:
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
