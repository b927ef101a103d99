"""Where problems come from: generated, listed, files; and the split that keeps tests unseen."""

from turnwise.datafiles import read_csv, read_jsonl
from turnwise.envs.split import split_of
from turnwise.tasks.counting import Problems, count_problems
from turnwise.tasks.files import SftRow, sft_rows
from turnwise.tasks.generated import GeneratedTasks

__all__ = [
    "GeneratedTasks",
    "Problems",
    "SftRow",
    "count_problems",
    "read_csv",
    "read_jsonl",
    "sft_rows",
    "split_of",
]
