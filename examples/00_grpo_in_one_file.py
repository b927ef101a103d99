"""GRPO on FrozenLake in plain torch and transformers: the algorithm of turnwise in one file.

    python examples/00_grpo_in_one_file.py        # 60 iterations, seed 0
    python examples/00_grpo_in_one_file.py 20 1   # 20 iterations, seed 1

Nothing of turnwise is imported. A small Qwen3 model with random weights learns to cross the lake in
about a minute on one CPU core. A test holds its update equal to that of `turnwise.trainers.grpo`,
which adds batching, caches, prefix sharing, resuming and the rest.

    task --> rollout --> turns --> groups --> advantages --> loss --> policy --> task ...
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import gymnasium
import numpy as np
import torch
from torch.nn.functional import pad
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

ACTIONS = ["LEFT", "DOWN", "RIGHT", "UP"]  # in the order of Gymnasium's FrozenLake
CELLS = [f"cell{n}" for n in range(16)]
WORDS = ["<pad>", "<user>", "<assistant>", "<end>", *CELLS, *ACTIONS]
ID = {word: number for number, word in enumerate(WORDS)}

ITERATIONS = 60
TASKS = 8  # tasks an iteration; all episodes of one task are one group
GROUP_SIZE = 16  # episodes of one task
MAX_TURNS = 12  # turns of one episode
MAX_TOKENS = 1  # tokens of one reply
CLIP_LOW, CLIP_HIGH = 0.2, 0.28  # DAPO, arXiv:2503.14476
STD_FLOOR = 1e-4
MAX_GRAD_NORM = 1.0


@dataclass
class Turn:
    """One model call. `logprobs` are those of the sampled tokens when they were sampled."""

    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float]


@dataclass
class Episode:
    """One attempt at a task."""

    turns: list[Turn]
    reward: float


# ------------------------------------------------------------------------------------ rollout


def prompt_of(cell: int, before: list[int]) -> list[int]:
    """Return the ids of what the model continues: all that was said so far, and the new cell."""
    ended = [*before, ID["<end>"]] if before else []
    return [*ended, ID["<user>"], ID[f"cell{cell}"], ID["<assistant>"]]


@torch.no_grad()
def sample(
    model: PreTrainedModel, prompts: list[list[int]], generator: torch.Generator | None
) -> list[Turn]:
    """Continue every prompt by one reply; greedily without a generator."""
    turns = [Turn(prompt, [], []) for prompt in prompts]
    going = list(turns)
    for _ in range(MAX_TOKENS):
        if not going:
            break
        rows = [torch.tensor(turn.prompt_ids + turn.completion_ids) for turn in going]
        logits = next_logits(model, rows)
        logprobs = logits.log_softmax(dim=-1)
        if generator is None:
            tokens = logprobs.argmax(dim=-1)
        else:
            tokens = torch.multinomial(logprobs.exp(), 1, generator=generator)[:, 0]
        for row, (turn, token) in enumerate(zip(going, tokens.tolist(), strict=True)):
            turn.completion_ids.append(token)
            turn.logprobs.append(float(logprobs[row, token]))
        going = [turn for turn in going if turn.completion_ids[-1] != ID["<end>"]]
    return turns


def next_logits(model: PreTrainedModel, rows: list[torch.Tensor]) -> torch.Tensor:
    """Return the logits after each row, [rows, vocabulary]. Rows are padded on the right."""
    ends = torch.tensor([len(row) - 1 for row in rows])
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=ID["<pad>"])
    return model(input_ids=ids).logits[torch.arange(len(rows)), ends]


def action_of(completion_ids: list[int]) -> int | None:
    """Return the action that a reply names; None if it is anything else."""
    word = " ".join(WORDS[token] for token in completion_ids)
    return ACTIONS.index(word) if word in ACTIONS else None


class Lake:
    """One episode on Gymnasium's 4x4 lake, from a start cell of its own."""

    def __init__(self, start: int) -> None:
        self.env = gymnasium.make("FrozenLake-v1", is_slippery=False).unwrapped
        self.env.reset(seed=0)
        self.env.s = self.cell = start
        self.said: list[int] = []
        self.turns: list[Turn] = []
        self.reward, self.done = 0.0, False

    def take(self, turn: Turn) -> None:
        """Record a turn and make its move; a reply that is no action ends the episode at -1."""
        self.turns.append(turn)
        self.said = turn.prompt_ids + turn.completion_ids
        action = action_of(turn.completion_ids)
        if action is None:
            self.reward, self.done = -1.0, True
            return
        self.cell, reward, terminated, _, _ = self.env.step(action)
        self.reward += float(reward)
        self.done = terminated or len(self.turns) == MAX_TURNS


def rollout(
    model: PreTrainedModel, starts: list[int], generator: torch.Generator | None
) -> list[Episode]:
    """Play one episode from each start cell, all of them side by side."""
    lakes = [Lake(start) for start in starts]
    while going := [lake for lake in lakes if not lake.done]:
        prompts = [prompt_of(lake.cell, lake.said) for lake in going]
        for lake, turn in zip(going, sample(model, prompts, generator), strict=True):
            lake.take(turn)
    return [Episode(lake.turns, lake.reward) for lake in lakes]


def advantages_of(rewards: list[float]) -> np.ndarray:
    """Return (reward - mean) / std of one group, with ddof = 1: DeepSeekMath, arXiv:2402.03300."""
    centred = np.array(rewards) - np.mean(rewards)
    if np.ptp(rewards) == 0:
        return np.zeros(len(rewards))
    return centred / max(np.std(rewards, ddof=1), STD_FLOOR)


# --------------------------------------------------------------------------------------- loss


def loss_of(model: PreTrainedModel, groups: list[list[Episode]]) -> torch.Tensor:
    """Return the clipped policy-gradient loss, each sampled token counted once and equally.

    Every turn is a row of its own here: its prompt, and the completion that is trained.
    """
    rows, old, weights = [], [], []
    for group in groups:
        advantages = advantages_of([episode.reward for episode in group])
        for episode, advantage in zip(group, advantages, strict=True):
            for turn in episode.turns:
                rows.append((turn.prompt_ids, turn.completion_ids))
                old.append(torch.tensor(turn.logprobs))
                weights.append(torch.full((len(turn.logprobs),), float(advantage)))
    new = logprobs_of(model, rows)
    old_logprobs, advantage = torch.cat(old), torch.cat(weights)
    ratio = torch.exp(new - old_logprobs)
    clipped = ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH)
    return -torch.minimum(ratio * advantage, clipped * advantage).mean()


def logprobs_of(model: PreTrainedModel, rows: list[tuple[list[int], list[int]]]) -> torch.Tensor:
    """Return the log-probability of every completion token of every row, [tokens]."""
    longest = max(len(prompt) + len(completion) for prompt, completion in rows)
    ids = torch.stack(
        [pad(torch.tensor(p + c), (0, longest - len(p) - len(c)), value=0) for p, c in rows]
    )
    logprobs = model(input_ids=ids).logits[:, :-1].log_softmax(dim=-1)
    chosen = logprobs.gather(-1, ids[:, 1:, None])[..., 0]  # [rows, longest - 1]
    return torch.cat(
        [row[len(p) - 1 : len(p) + len(c) - 1] for row, (p, c) in zip(chosen, rows, strict=True)]
    )


def update(
    model: PreTrainedModel, optimizer: torch.optim.Optimizer, groups: list[list[Episode]]
) -> None:
    """Take one optimizer step on an iteration's groups."""
    optimizer.zero_grad()
    loss_of(model, groups).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
    optimizer.step()


def make_optimizer(model: PreTrainedModel, lr: float) -> torch.optim.Optimizer:
    """Return AdamW without weight decay."""
    return torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.0)


# --------------------------------------------------------------------------------------- loop


def make_model(seed: int) -> PreTrainedModel:
    """Return a Qwen3 model with random weights; eval mode, as dropout has no place in RL."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(WORDS), hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, head_dim=32, initializer_range=0.1,
        max_position_embeddings=128, tie_word_embeddings=True,
    )  # fmt: skip
    return Qwen3ForCausalLM(config).eval()


def warm_up(model: PreTrainedModel, draws: np.random.Generator, steps: int = 100) -> None:
    """Teach that a reply is an action, drawn evenly; else GRPO settles for the first valid word."""
    optimizer = make_optimizer(model, lr=1e-3)
    for _ in range(steps):
        rows = []
        for _ in range(32):
            said: list[int] = []
            for _ in range(draws.integers(1, MAX_TURNS)):
                prompt = prompt_of(int(draws.integers(16)), said)
                said = [*prompt, ID[str(draws.choice(ACTIONS))]]
            rows.append((prompt, said[-1:]))
        optimizer.zero_grad()
        (-logprobs_of(model, rows).mean()).backward()
        optimizer.step()


def start_cells() -> list[int]:
    """Return the cells that are neither a hole nor the goal."""
    lake = gymnasium.make("FrozenLake-v1", is_slippery=False).unwrapped.desc.ravel()
    return [cell for cell, kind in enumerate(lake) if kind in (b"S", b"F")]


def main(iterations: int = ITERATIONS, seed: int = 0) -> None:
    torch.set_num_threads(1)
    model, starts = make_model(seed), start_cells()
    optimizer = make_optimizer(model, lr=1e-3)
    draws, tokens = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    warm_up(model, draws)
    for iteration in range(iterations + 1):
        if iteration % 10 == 0:
            greedy = np.mean([episode.reward == 1 for episode in rollout(model, starts, None)])
            print(f"iteration {iteration:3}: reaches the goal from {greedy:.0%} of the cells")
        tasks = draws.choice(starts, TASKS)
        played = rollout(model, [int(t) for t in tasks for _ in range(GROUP_SIZE)], tokens)
        groups = [played[i * GROUP_SIZE : (i + 1) * GROUP_SIZE] for i in range(TASKS)]
        update(model, optimizer, groups)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
