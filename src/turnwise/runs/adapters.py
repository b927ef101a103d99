"""What a report says of a run's adapters: where they lie, and how other programs load them.

Owns that one section. Reads the adapters' own files, and knows nothing of weights.
"""

from __future__ import annotations

import json
from pathlib import Path

CONFIG, MERGED = "adapter_config.json", "merge_first.json"


def adapter_lines(folder: Path) -> list[str]:
    """Return the section on the adapters in `folder`, which are in PEFT's format; empty if none.

    The last one is the run's outcome; those that it stands on are merged into the base before.
    """
    found = sorted(folder.glob(f"*/{CONFIG}"), key=lambda file: (len(_below(file.parent)), file))
    if not found:
        return []
    last = found[-1].parent
    base = json.loads(found[-1].read_text(encoding="utf-8"))["base_model_name_or_path"]
    names = [f"`{folder.name}/{file.parent.name}`" for file in found]
    return [
        "## Adapters",
        "",
        f"{' and '.join(names)}, in PEFT's format with tokenizer and template, on `{base}`:",
        "",
        "```python",
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "from peft import PeftModel",
        "",
        f'model = AutoModelForCausalLM.from_pretrained("{base}")',
        *(f"{_load(below)}.merge_and_unload()" for below in _below(last)),
        _load(last),
        f'tokenizer = AutoTokenizer.from_pretrained("{last}")',
        "```",
    ]


def _load(adapter: Path) -> str:
    return f'model = PeftModel.from_pretrained(model, "{adapter}")'


def _below(adapter: Path) -> list[Path]:
    """Return the adapters that are merged into the base before this one."""
    note = adapter / MERGED
    if not note.is_file():
        return []
    entries = json.loads(note.read_text(encoding="utf-8"))
    return [(adapter / entry["adapter"]).resolve() for entry in entries]
