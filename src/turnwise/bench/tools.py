"""Tools of a workload: their schemas, and the class that TRL calls them by.

Provides `RandomTools` and `tool_schemas`. Both trainers show the same schemas in their prompts. No
tool looks anything up: every result is random words.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


class RandomTools:
    """An environment for TRL: its public methods but `reset` are the tools of an episode.

    `result` returns the words of a turn of a prompt: `result(index, turn)`.
    """

    def __init__(self, result: Callable[[int, int], str]) -> None:
        self._result = result
        self._index = self._turn = 0

    def reset(self, index: int = 0, **columns: object) -> None:
        """Begin an episode of prompt `index`; the other columns of its row are not needed."""
        self._index, self._turn = index, 0

    def search(self, words: str, most: int = 5) -> str:
        """Search the documents of the project and return the passages that fit the words best.

        Args:
            words: The words to search for.
            most: The largest number of passages to return.
        """
        self._turn += 1
        return self._result(self._index, self._turn)

    def read_file(self, path: str, first: int, last: int) -> str:
        """Read some lines of a text file.

        Args:
            path: The path of the file, from the root of the project.
            first: The number of the first line, from 1 on.
            last: The number of the last line.
        """
        return self.search(path)


def tool_schemas() -> list[dict[str, Any]]:
    """Return the JSON schemas of the tools, in the order in which TRL shows them."""
    from transformers.utils.chat_template_utils import get_json_schema

    tools = RandomTools(lambda index, turn: "")
    names = [name for name, _ in inspect.getmembers(RandomTools, inspect.isfunction)]
    return [get_json_schema(getattr(tools, n)) for n in names if n[0] != "_" and n != "reset"]
