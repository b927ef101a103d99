"""Solve a drawing by TRL's own `GRPOTrainer`, as github.com/ironbar/arc25 did, from our base.

    pip install turnwise[bench]
    python benchmarks/drawing_trl.py FILE --base MODEL --tasks 12-squares --rate 4e-6 --seeds 0 1 2

One prompt repeated, one group a step, until a program is exact or `--budget` programs were sampled.
Everything but the learning rate and the model is as published there: eight programs at temperature
0.5 with top-p 0.95 and top-k 50, at most 768 tokens, KL weight 0.04, advantages divided by the
group's deviation, the token-averaged loss, AdamW at a constant rate, LoRA of rank 16 on the
attention's four matrices with dropout 0.1. `--targets` and `--dropout` change the adapter. Each
line of FILE has the keys of `benchmarks/drawing.py`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from peft import LoraConfig
from result_rows import add_row, commit, kept_rows
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from turnwise.app.solve_base import digest_of
from turnwise.envs.drawing.env import ArcDraw, ArcDrawConfig, DrawingState
from turnwise.errors import IllegalActionError
from turnwise.types import Task

GROUP, LONGEST = 8, 768
ARM = "trl"


class Programs:
    """Runs the programs of one drawing, and counts what they cost."""

    __name__ = "pixels"  # TRL names a reward by it

    def __init__(self, picture: str) -> None:
        self.env = ArcDraw(ArcDrawConfig(picture=picture))
        tasks = self.env.tasks("test")
        assert tasks is not None, "a picture is one task"
        task = Task(id=picture, env=self.env.name, seed=0, data=tasks[0])
        self.state: DrawingState = self.env.reset(task)
        self.best, self.program = -1.0, ""
        self.generations = self.tokens = 0
        self.drawn: set[Any] = set()
        self.solved = False
        self.curve: list[tuple[int, int, float]] = []

    @property
    def prompt(self) -> str:
        """What the model reads."""
        return self.env.observe(self.state, "player").text

    def run(self, program: str) -> tuple[float, bool, Any]:
        """Return the share of right cells, whether all are right, and the grids."""
        try:
            step = self.env.step(self.state, "player", program, np.random.default_rng(0))
        except IllegalActionError:
            return 0.0, False, ()
        return step.rewards["pixels"], step.rewards["exact"] == 1.0, step.state.made

    def __call__(
        self, completions: Sequence[Any], completion_ids: Sequence[Sequence[int]], **_: Any
    ) -> list[float]:
        """Return the share of right cells of each program."""
        rewards = []
        for said, ids in zip(completions, completion_ids, strict=True):
            program = said[0]["content"]
            pixels, exact, grids = self.run(program)
            self.generations += 1
            self.tokens += len(ids)
            if grids:
                self.drawn.add(grids)
            if (exact, pixels) > (self.solved, self.best):
                self.best, self.program = pixels, program
            self.solved = self.solved or exact
            rewards.append(pixels)
        updates = len(self.curve) + 1  # one step for each group
        self.curve.append((self.generations, updates, round(self.best, 4)))
        return rewards


class StopAtExact(TrainerCallback):
    """Ends the training at the first step with an exact program."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop if a program was exact."""
        if self.programs.solved:
            control.should_training_stop = True


def config(args: argparse.Namespace, seed: int, scratch: str) -> GRPOConfig:
    """Return the published settings."""
    return GRPOConfig(
        output_dir=scratch,
        per_device_train_batch_size=GROUP,
        num_generations=GROUP,
        max_completion_length=LONGEST,
        max_steps=args.budget // GROUP,
        learning_rate=args.rate,
        lr_scheduler_type="constant",
        weight_decay=0.0,
        max_grad_norm=1.0,
        beta=0.04,
        epsilon=0.2,
        temperature=0.5,
        top_p=0.95,
        top_k=50,
        loss_type="bnpo",
        scale_rewards="group",
        mask_truncated_completions=False,
        gradient_checkpointing=False,
        seed=seed,
        use_cpu=True,
        bf16=False,
        dataloader_pin_memory=False,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )


def solve(task: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """Train until a program is exact, or the budget is spent; return what is kept."""
    programs, tokenizer = Programs(task), AutoTokenizer.from_pretrained(args.base)
    rows = Dataset.from_list([{"prompt": [{"role": "user", "content": programs.prompt}]}])
    targets = "all-linear" if args.targets == "all" else ["q_proj", "k_proj", "v_proj", "o_proj"]
    with tempfile.TemporaryDirectory() as scratch:
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(args.base, dtype=torch.float32),
            reward_funcs=programs,
            args=config(args, seed, scratch),
            train_dataset=rows,
            processing_class=tokenizer,
            peft_config=LoraConfig(
                r=16, lora_alpha=32, lora_dropout=args.dropout, target_modules=targets
            ),
            callbacks=[StopAtExact(programs)],
        )
        began = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - began
    greedy = greedy_program(trainer, tokenizer, programs.prompt)
    prompt = read_prompt(tokenizer, programs.prompt)["input_ids"].shape[1]
    return {
        "task": task,
        "method": "grpo",
        "seed": seed,
        "solved": programs.solved,
        "greedy_exact": programs.run(greedy)[1],
        "pixels": programs.best,
        "generations": programs.generations,
        "distinct": len(programs.drawn),
        "updates": trainer.state.global_step,
        "sampled_tokens": programs.tokens,
        "prefilled_tokens": prompt * programs.generations,
        "trained_tokens": programs.tokens,
        "env_steps": programs.generations,
        "state_resets": 0,
        "seconds": round(seconds, 1),
        "program": programs.program,
        "base": digest_of(args.base),
        "curve": programs.curve,
    }


def read_prompt(tokenizer: Any, prompt: str) -> Any:
    """Return the tokens of a prompt in the chat template."""
    return tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )


def greedy_program(trainer: GRPOTrainer, tokenizer: Any, prompt: str) -> str:
    """Return the most probable program."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    model.eval()
    read = read_prompt(tokenizer, prompt)
    with torch.no_grad():
        said = model.generate(
            **read, do_sample=False, max_new_tokens=LONGEST, eos_token_id=tokenizer.eos_token_id
        )
    return tokenizer.decode(said[0, read["input_ids"].shape[1] :], skip_special_tokens=True)


def main() -> None:
    """Solve what FILE does not hold yet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--base", type=Path, required=True, help="a model's directory")
    parser.add_argument("--tasks", nargs="+", required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--budget", type=int, default=2400)
    parser.add_argument("--rate", type=float, default=2e-6)
    parser.add_argument("--targets", choices=("attention", "all"), default="attention")
    parser.add_argument("--dropout", type=float, default=0.1)
    args = parser.parse_args()
    known = {
        (row["arm"], row["task"], row["seed"], tuple(row["settings"]))
        for row in kept_rows(args.file)
    }
    version = commit()
    settings = [f"rate={args.rate:g}", f"targets={args.targets}", f"dropout={args.dropout:g}"]
    for seed in args.seeds:
        for task in args.tasks:
            if (ARM, task, seed, tuple(settings)) in known:
                continue
            row = {"arm": ARM, "budget": args.budget, "settings": settings, "commit": version}
            row |= solve(task, seed, args)
            add_row(args.file, row)
            print(task, seed, "solved" if row["solved"] else row["pixels"], row["generations"])


if __name__ == "__main__":
    main()
