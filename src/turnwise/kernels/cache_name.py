"""The name of the argument, and of the output, that holds a model's keys and values.

Provides `CACHE`. Transformers 5.24 renamed it, and warns at each use of the old name.
"""

from __future__ import annotations

from dataclasses import fields

from transformers.modeling_outputs import CausalLMOutputWithPast

_RENAMED = any(field.name == "cache" for field in fields(CausalLMOutputWithPast))
CACHE = "cache" if _RENAMED else "past_key_values"
"""`cache`, or `past_key_values` in versions before 5.24."""
