"""`turnwise data`: files that appear when they are complete, and cards for any name."""

from __future__ import annotations

import tracemalloc

import pytest
import yaml

from turnwise.app.card.files import published_files
from turnwise.cli import datasets
from turnwise.cli.datasets import DATASETS, write_dataset
from turnwise.envs.datasets import DataSet

NAMES = ["a b", "x\n```\n# no title", "bytes\udcff", "$(touch pwned)", "\x1b[2J"]


class Counted(DataSet):
    """Rows that can be counted, and that may end with an error.

    Example:
        >>> next(Counted().rows(None))
        {'text': '0'}
    """

    columns = ("text",)
    broken: bool = False
    size: int = 1

    def rows(self, rng):
        """Yield numbers."""
        for number in range(10**9):
            if self.broken and number == 3:
                raise KeyboardInterrupt
            yield {"text": str(number) * self.size}


@pytest.fixture
def counted(monkeypatch):
    monkeypatch.setitem(DATASETS, "counted", Counted)


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl", "rows"])
def test_what_is_stopped_in_the_middle_leaves_nothing(counted, tmp_path, name):
    with pytest.raises(KeyboardInterrupt):
        write_dataset("counted", tmp_path / name, rows=9, seed=0, sets=["broken=true"])
    assert list(tmp_path.iterdir()) == []
    write_dataset("counted", tmp_path / name, rows=9, seed=0, sets=[])
    assert [each.name for each in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl", "rows"])
def test_one_row_at_a_time_is_in_memory(counted, tmp_path, name):
    write_dataset("counted", tmp_path / "first", rows=1, seed=0, sets=[])  # imports
    tracemalloc.start()
    write_dataset("counted", tmp_path / name, rows=100, seed=0, sets=["size=100000"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    file = tmp_path / name if "." in name else tmp_path / name / "train.jsonl"
    assert file.stat().st_size > 10_000_000 > 4 * peak


@pytest.mark.parametrize("name", NAMES)
def test_a_card_holds_any_name(counted, tmp_path, name):
    out = tmp_path / name
    write_dataset("counted", out, rows=3, seed=0, sets=[])
    assert {file.name for file in published_files(out, data=True)} == {"README.md", "train.jsonl"}
    text = (out / "README.md").read_text(encoding="utf-8")
    assert text.isprintable() or all(line.isprintable() for line in text.split("\n"))
    assert yaml.safe_load(text.split("---")[1])["size_categories"] == ["n<1K"]
    lines = text.split("\n")
    begin = next(n for n, line in enumerate(lines) if line.endswith("bash"))
    fence = lines[begin].removesuffix("bash")
    end = lines.index(fence, begin)
    assert "turnwise data counted --out" in lines[begin + 1] and "--seed 0" in lines[end - 1]
    assert lines[end + 2] == "```python"


def test_the_hub_knows_the_size(counted, tmp_path):
    assert dict(datasets.SIZES)[10**7] == "1M<n<10M"
    write_dataset("counted", tmp_path / "rows", rows=1000, seed=0, sets=[])
    assert "- 1K<n<10K" in (tmp_path / "rows" / "README.md").read_text()
