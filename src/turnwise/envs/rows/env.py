"""Rows: a list of prompts, each answered once and scored by reward functions.

Task: one row of a table. Its column `prompt` is text, which reaches the model unchanged, or a list
of messages, which go through the chat template. Reward functions get the other columns.
Sees: the prompt.
Actions: any text; the whole reply is the answer (`agents.player.reply = "whole"`).
Rewards: one component a reward function, named after it (`envs.reward_functions`), found for all
replies of a batch at once. They may be any numbers of up to 1e18 in size, so the score is their
weighted sum.
End: after one reply.
Baselines: with the option `replies`, `random`, another row's value, and `constant`, the best of the
most frequent values (`envs.rows.baselines`). Otherwise none: the number to compare with is then the
model's own score before training, which every evaluation gives.
Example: `make_env("rows", path="rows.jsonl", reward=["my_rewards.py:length"])`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, get_args

import numpy as np

from turnwise.envs.base import (
    Baseline,
    BatchRewards,
    Env,
    Level,
    Observation,
    ScoredBy,
    Step,
)
from turnwise.envs.rows.reward_arguments import check_columns, check_names, inner
from turnwise.envs.rows.reward_functions import TrainerState, call_functions, load_functions
from turnwise.envs.rows.table import Row, problem_of, read_rows, reply_of
from turnwise.envs.rows.values import TAG, decode
from turnwise.envs.split import share_of, split_of, too_few
from turnwise.errors import ConfigError, EnvError
from turnwise.sandbox import is_marked
from turnwise.settings import Settings
from turnwise.types import Episode, Message, Split, Task

GIVEN = ("prompt", "completion", "completion_ids")
"""Columns that reward functions do not get under their own names."""
MOST_WORDS = 4096
SAID_AT_RANDOM = 3
ATTEMPTS = 32
"""Draws of a row until one is of another problem."""
BEFORE = TrainerState(global_step=0, max_steps=0)
"""The state for rewards of replies that no training has sampled."""


class RowsConfig(Settings):
    """Options of the rows."""

    path: str | None = None
    """The rows: a .jsonl or .csv file with a column `prompt`."""
    eval_path: str | None = None
    """Rows for validation and test; without it some of the rows are held out for these splits."""
    reward: tuple[str, ...] = ()
    """Reward functions by name, "file.py:function"; their weights are in `credit.rewards`."""
    replies: str | None = None
    """A column of text or numbers: random replies, as the warm-up shows them, are drawn uniformly
    from the different values that the rows to train on have there, however many rows have each.
    None is a few words of the rows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowState:
    """A row and the reply to it, None before the reply."""

    row: Row
    said: str | None = None


class Rows(Env[RowState]):
    """An env of rows with reward functions.

    Raises:
        ConfigError: if there is no path or no reward, or a reward function needs an argument that
            is no column.
        DataError: if the file is malformed; with its line.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> path = Path(tempfile.mkdtemp()) / "rows.jsonl"
        >>> _ = path.write_text('{"prompt": "2+2=", "answer": "4", "tests": []}')
        >>> rows = Rows(RowsConfig(path=str(path), reward=("turnwise.rewards:solves",)))
        >>> rows.tasks("test")[0]["answer"], rows.single_task
        ('4', True)
    """

    name = "rows"
    config_class = RowsConfig
    components: ClassVar[Mapping[str, Level]] = {}
    reward_timing = "terminal"
    scored_by: ClassVar[ScoredBy] = "return"
    files = ("path", "eval_path")

    def __init__(self, config: RowsConfig | None = None) -> None:
        config = config or RowsConfig()
        super().__init__(config)
        if config.path is None or not config.reward:
            missing = "path = 'rows.jsonl'" if config.path is None else "reward = ['file.py:name']"
            raise ConfigError(f"rows need a file of prompts and a reward: give {missing}")
        self.functions = load_functions(config.reward)
        own = dict.fromkeys(self.functions, "agent")
        self.components = own  # pyright: ignore[reportAttributeAccessIssue]
        self.runs_programs = any(is_marked(inner(each)) for each in self.functions.values())
        self._rows = read_rows(config.path)
        self._judged = self._rows if config.eval_path is None else read_rows(config.eval_path)
        for table, what in ((self._rows, "the rows"), (self._judged, "the rows for evaluation")):
            columns = _columns(table)
            check_names(columns, what)
            for title, function in self.functions.items():
                check_columns(title, function, columns, what)
        self._columns = tuple(dict.fromkeys([*_columns(self._rows), *_columns(self._judged)]))
        if config.replies is not None and not self._replies:
            raise ConfigError(
                f"replies = {config.replies!r}: no row has text or a number in such a column: name "
                f"one of {', '.join(self._columns) or 'none'}, or leave replies out"
            )

    def generate(self, rng: np.random.Generator) -> dict[str, Any]:
        """Draw one of the rows."""
        return dict(self._rows[rng.integers(len(self._rows))])

    def canonical(self, data: Row) -> str:
        """Return the prompt: rows with equal prompts are the same problem."""
        return problem_of(data)

    def tasks(self, split: Split) -> Sequence[Row]:
        """Return the rows of a split."""
        return self._splits[split]

    @property
    def single_task(self) -> bool:
        """Whether training uses the prompts of the test, because there are too few to hold out."""
        trained = {problem_of(row) for row in self._splits["train"]}
        return any(problem_of(row) in trained for row in self._splits["test"])

    @cached_property
    def _splits(self) -> dict[Split, Sequence[Row]]:
        """Return the rows of every split; if there are too few, all rows in each."""
        apart = self.config.eval_path is not None
        splits: dict[Split, Sequence[Row]] = {
            split: [row for row in self._judged if _split(row, apart) == split]
            for split in get_args(Split)
        }
        if apart:
            splits["train"] = self._rows
        held_out = ("validation", "test")
        judged = held_out if apart else get_args(Split)
        if too_few([problem_of(row) for row in splits[split]] for split in judged):
            return {"train": self._rows, "validation": self._judged, "test": self._judged}
        return splits

    def reset(self, task: Task) -> RowState:
        """Return the state of the task's row before the reply."""
        return RowState(row=task.data)

    def observe(self, state: RowState, role: str) -> Observation:
        """Return the prompt."""
        prompt = state.row["prompt"]
        if isinstance(prompt, str):
            return Observation(text=prompt, legal_actions=(), raw=True)
        messages = tuple(Message(role=m["role"], content=m["content"]) for m in prompt)
        text = "\n".join(message.content for message in messages)
        return Observation(text=text, legal_actions=(), messages=messages)

    def step(
        self, state: RowState, role: str, action: str, noise: np.random.Generator
    ) -> Step[RowState]:
        """Record the reply; its rewards follow in `score_batch`."""
        if state.said is not None:
            raise EnvError("rows: the row is answered: an episode is one reply")
        after = RowState(row=state.row, said=action)
        return Step(state=after, rewards={}, terminated=True, truncated=False)

    def score(self, state: RowState) -> float:
        """Return 0; the score is the weighted sum of the rewards from `score_batch`."""
        return 0.0

    async def score_batch(self, episodes: Sequence[Episode], iterations: int) -> BatchRewards:
        """Call every reward function once, for the replies of all episodes."""
        if not episodes:
            return BatchRewards(rewards=())
        turns = [episode.turns[-1] for episode in episodes]
        return await self.judge(
            [episode.task.data for episode in episodes],
            [turn.text for turn in turns],
            [turn.completion_ids for turn in turns],
            TrainerState(global_step=episodes[0].id.iteration, max_steps=iterations),
        )

    async def judge(
        self,
        rows: Sequence[Row],
        replies: Sequence[str],
        ids: Sequence[Sequence[int]] | None = None,
        state: TrainerState = BEFORE,
    ) -> BatchRewards:
        """Call every reward function once, for a reply to each of `rows`; `ids` are its tokens."""
        names = dict.fromkeys([*self._columns, *_columns(rows)])
        return await call_functions(
            self.functions,
            prompts=[row["prompt"] for row in rows],
            completions=[
                reply if isinstance(row["prompt"], str) else _as_message(reply)
                for row, reply in zip(rows, replies, strict=True)
            ],
            completion_ids=[()] * len(rows) if ids is None else ids,
            columns={
                name: [decode(row.get(name), f"column {name!r}") for row in rows] for name in names
            },
            state=state,
        )

    def state_key(self, state: RowState, role: str) -> str:
        """Return the row and the reply."""
        return json.dumps([dict(state.row), state.said], sort_keys=True)

    def baselines(self) -> Mapping[str, Baseline]:
        """Return `random` and `constant` (see the module docstring), or none.

        Played alone, `constant` is the most frequent value: only rewards tell the best one.
        """
        if not self._replies or self.runs_programs:
            return {}
        return {
            "random": lambda state, rng: self._reply_of_another(state.row, rng),
            "constant": lambda state, rng: self.frequent_replies(1)[0],
        }

    def frequent_replies(self, count: int) -> tuple[str, ...]:
        """Return the most frequent values of the column `replies` in the rows to train on."""
        found = Counter(reply for _, reply in self._answered)
        return tuple(reply for reply, _ in found.most_common(count))

    def _reply_of_another(self, row: Row, rng: np.random.Generator) -> str:
        """Return the value of a row that is drawn, of another problem if one is met."""
        own, reply = problem_of(row), ""
        for _ in range(ATTEMPTS):
            problem, reply = self._answered[int(rng.integers(len(self._answered)))]
            if problem != own:
                break
        return reply

    def random_action(self, state: RowState, role: str, rng: np.random.Generator) -> str:
        """Return a value of the column `replies`, or a few words of the rows."""
        if self._replies:
            return self._replies[rng.integers(len(self._replies))]
        words = self.vocabulary() or ("?",)
        return " ".join(words[i] for i in rng.integers(len(words), size=SAID_AT_RANDOM))

    def vocabulary(self) -> tuple[str, ...]:
        """Return the words of prompts and other text columns, by decreasing frequency."""
        return self._words

    @cached_property
    def _words(self) -> tuple[str, ...]:
        counts = Counter(
            word for row in self._rows for text in _texts(row.values()) for word in text.split()
        )
        return tuple(sorted(counts, key=lambda word: (-counts[word], word))[:MOST_WORDS])

    @cached_property
    def _answered(self) -> Sequence[tuple[str, str]]:
        """The problem and the value of `replies` of each row to train on that has one."""
        name = self.config.replies
        if name is None:
            return ()
        found = ((problem_of(row), reply_of(row, name)) for row in self.tasks("train"))
        return [(problem, reply) for problem, reply in found if reply is not None]

    @cached_property
    def _replies(self) -> tuple[str, ...]:
        """The different values of the column `replies` in the rows to train on."""
        return tuple(dict.fromkeys(reply for _, reply in self._answered))

    def render(self, state: RowState) -> str:
        """Return prompt and reply."""
        asked = self.observe(state, next(iter(self.seats))).text
        return asked if state.said is None else f"{asked}\n--> {state.said}"


def _columns(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the columns that reward functions get under their own names."""
    return tuple(dict.fromkeys(name for row in rows for name in row if name not in GIVEN))


def _split(row: Row, apart: bool) -> Split:
    """Return a row's split; rows of the evaluation file are halved into validation and test."""
    if not apart:
        return split_of(problem_of(row))
    return "validation" if share_of(problem_of(row)) < 0.5 else "test"


def _as_message(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def _texts(values: Any) -> list[str]:
    """Return all texts in a row's values, a conversation's contents among them."""
    found: list[str] = []
    for value in values:
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, list):
            found += _texts(value)
        elif isinstance(value, dict):
            found += _texts(v for k, v in value.items() if k not in ("role", TAG))
    return found
