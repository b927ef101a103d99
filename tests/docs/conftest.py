"""The documents' code blocks, each with its page, its language and why it is not run, if so."""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATOR = ROOT / ".ci" / "make_reference.py"
PAGES = [
    *(ROOT / name for name in ("README.md", "AGENTS.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^>]+) -->\n)?^```(?P<language>.*)\n(?P<text>(?:.*\n)*?)```$",
    re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block; `reason` says why no test runs it."""

    page: Path
    number: int
    language: str
    text: str
    reason: str | None

    def __str__(self) -> str:
        return f"{self.page.name}-{self.number}"


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page, in order."""
    found = enumerate(BLOCK.finditer(page.read_text(encoding="utf-8")), start=1)
    return [Block(page=page, number=number, **match.groupdict()) for number, match in found]


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def in_language(language: str, *, run: bool | None = None) -> list[Block]:
    """Return the blocks in a language; `run` chooses those that tests run, or the others."""
    found = [block for block in BLOCKS if block.language == language]
    return found if run is None else [b for b in found if (b.reason is None) == run]


def load_generator():
    """Return the module that writes docs/reference.md."""
    spec = importlib.util.spec_from_file_location("make_reference", GENERATOR)
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_reference"] = module  # its dataclass looks there for its annotations
    spec.loader.exec_module(module)
    return module
