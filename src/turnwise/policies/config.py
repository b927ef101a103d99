"""The options of a policy: its weights, the trained part of them, precision and device.

Provides `PolicyConfig` and `LoraSettings`, which refuse combinations that cannot work. Imports no
torch.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from turnwise.errors import ConfigError
from turnwise.policies.presets import PRESETS, NanoConfig, is_nano
from turnwise.policies.schedule import Rate
from turnwise.settings import Settings

DType = Literal["auto", "float32", "bfloat16", "float16"]
Device = Literal["auto", "cpu", "cuda", "mps"]
Attention = Literal["auto", "sdpa", "eager"]


class LoraSettings(Settings):
    """A low-rank adapter (Hu et al. 2021, arXiv:2106.09685); the base stays frozen.

    Example:
        >>> LoraSettings(rank=8).alpha
        32.0
    """

    rank: int = Field(default=16, ge=1)
    """Rank of the two factors (r in arXiv:2106.09685, section 4.1)."""
    alpha: float = Field(default=32.0, gt=0)
    """Scale: the adapter's output is multiplied by alpha / rank (arXiv:2106.09685, section 4.1)."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the adapter's input; acts in supervised training only."""
    targets: tuple[str, ...] | Literal["all-linear"] = "all-linear"
    """Names of the linear layers that get an adapter; "all-linear" is all but the output layer and
    those whose weights a model reads without calling them (most of a Mamba mixer), as in QLoRA
    (arXiv:2305.14314). Experts that a model keeps in one tensor are no linear layers, and get
    none."""
    merge_warmup: bool = False
    """Whether the warm-up's adapter is merged into the base and a fresh one trained from there;
    false: one adapter goes through both."""


class PolicyConfig(Settings):
    """The source of a policy's weights, and their device, type and adapter.

    Example:
        >>> PolicyConfig(model="Qwen/Qwen3-0.6B", lora=LoraSettings()).lora.rank
        16
    """

    kind: Literal["weights"] = "weights"
    """The source of the policy's replies: `weights` on this machine, or a `remote` endpoint."""
    model: str = "nano"
    """A model directory (from the working directory), a saved adapter's directory, a hub name, or
    "pico", "nano", "micro", "small"."""
    lora: LoraSettings | None = None
    """An adapter to train instead of the full weights."""
    trainable: bool = True
    """Whether training changes it."""
    lr: Rate | Literal["auto"] | None = None
    """Peak learning rate of this policy in the policy-gradient loop, in place of `optimizer.lr`."""
    dtype: DType = "auto"
    """Precision; "auto" is float32, but on CUDA bfloat16 from 50 million parameters upwards."""
    device: Device = "auto"
    """"auto" is CUDA if there is a card, else the CPU; "mps" only if asked for."""
    attention: Attention = "auto"
    """"auto" is SDPA, but eager for models with soft-capped logits (Gemma 2)."""
    trust_remote_code: bool = False
    """Whether code that comes with the model may run."""
    template_options: dict[str, bool | int | str] = Field(default_factory=dict)
    """Variables for the chat template, such as `enable_thinking`."""
    context: int | None = Field(default=None, ge=2)
    """Longest sequence of prompt and completion, in tokens; by default the model's own limit.
    Models whose rotary frequencies depend on the length (Long-RoPE, dynamic NTK) use those for this
    length for all sequences, as vLLM does by `max_model_len`."""
    gradient_checkpointing: bool = False
    """Whether activations are computed again in the backward pass instead of kept
    (arXiv:1604.06174)."""
    nano: NanoConfig | None = None
    """Sizes to put in place of the preset's, where `model` is one that is made on the spot."""

    @field_validator("model")
    @classmethod
    def _is_no_slip(cls, model: str) -> str:
        """Refuse a name that is nearly a preset's, before any hub is asked for it."""
        near = difflib.get_close_matches(model.lower(), PRESETS, n=1, cutoff=0.8)
        if near and model not in PRESETS and not Path(model).expanduser().is_dir():
            raise ConfigError(
                f"there is no model {model!r}: did you mean {near[0]!r}? A directory is given as "
                f"'./{model}', a model of the hub as 'OWNER/NAME'"
            )
        return model

    @field_validator("nano", mode="before")
    @classmethod
    def _complete(cls, sizes: Any, checked: ValidationInfo) -> Any:
        """Complete the table with the sizes of the preset that `model` names."""
        if isinstance(sizes, NanoConfig):
            sizes = sizes.model_dump(exclude_unset=True)
        preset = PRESETS.get(checked.data.get("model", ""))
        return preset.model_dump() | sizes if preset and isinstance(sizes, dict) else sizes

    @model_validator(mode="after")
    def _check(self) -> PolicyConfig:
        if self.nano is not None and not is_nano(self.model):
            raise ConfigError(
                f"`nano` gives sizes of a model made on the spot, but model = {self.model!r}: "
                f"remove `nano`, or set model to one of {', '.join(PRESETS)}"
            )
        if self.dtype == "float16" and self.trainable and self.lora is None:
            raise ConfigError(
                "dtype = 'float16' underflows when all weights are trained: use 'bfloat16' or "
                "'float32', or train an adapter (`lora`)"
            )
        if self.gradient_checkpointing and not self.trainable:
            raise ConfigError(
                "gradient_checkpointing = true does nothing for trainable = false: remove one"
            )
        return self
