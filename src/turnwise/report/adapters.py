"""The section of a report on the run's adapters: where they are, and how other programs load them.

Provides `adapter_lines`. It reads the adapters' own files only.
"""

from __future__ import annotations

import json
from pathlib import Path

CONFIG, MERGED = "adapter_config.json", "merge_first.json"


def adapter_lines(folder: Path) -> list[str]:
    """Return the section on the adapters in `folder`, which are in PEFT's format; empty if none.

    `folder` has one folder for each policy. The last adapter of a policy is the run's outcome; the
    adapters that it stands on are merged into the base before.
    """
    policies = [path for path in sorted(folder.glob("*")) if any(path.glob(f"*/{CONFIG}"))]
    if not policies:
        return []
    return ["## Adapters", *(line for policy in policies for line in _policy_lines(policy))]


def _policy_lines(policy: Path) -> list[str]:
    found = sorted(policy.glob(f"*/{CONFIG}"), key=lambda file: (len(_below(file.parent)), file))
    last = found[-1].parent
    base = json.loads(found[-1].read_text(encoding="utf-8"))["base_model_name_or_path"]
    names = [f"`{policy.parent.name}/{policy.name}/{file.parent.name}`" for file in found]
    return [
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
