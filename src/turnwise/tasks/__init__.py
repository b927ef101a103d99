"""Where problems come from: generated, JSONL, CSV; and the hash split that keeps tests unseen."""

from turnwise.tasks.files import SftRow, read_csv, read_jsonl, sft_rows
from turnwise.tasks.generated import GeneratedTasks
from turnwise.tasks.rows import FileTasks
from turnwise.tasks.split import split_of

__all__ = [
    "FileTasks",
    "GeneratedTasks",
    "SftRow",
    "read_csv",
    "read_jsonl",
    "sft_rows",
    "split_of",
]
