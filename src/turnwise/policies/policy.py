"""A policy: weights with their tokenizer and renderer, under one name and version.

Provides `Policy`: digest, save, load, a frozen copy, and the control of dropout. Weights change
only through an optimizer or `load_weights`; the caller raises `version`.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from peft import PeftModel
from peft.utils.save_and_load import (
    get_peft_model_state_dict,
    load_peft_weights,
    set_peft_model_state_dict,
)
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from turnwise.errors import ModelError
from turnwise.kernels.wrapped import Model
from turnwise.policies.checkpointing import checkpointed
from turnwise.policies.config import PolicyConfig
from turnwise.policies.folders import quiet, replaced_folder
from turnwise.policies.merging import Merged, merge_in_place, read_merged, write_merged
from turnwise.policies.resolve import resolve_context
from turnwise.policies.sources import ADAPTER_FILE
from turnwise.render import Renderer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Policy:
    """Weights that answer, with everything needed to speak to them.

    The model is in eval mode except inside `dropout(True)`, and its gradients work in eval mode.

    Attributes:
        name: the policy's name in recipes, turns and metrics.
        version: how often its weights changed; raised by whoever trains it.
        model: the Hugging Face model, wrapped by PEFT where there is an adapter.
        tokenizer: its tokenizer, for the renderer's use.
        renderer: messages to ids and back.
        config: what was asked for.
        merged: the saved adapters that were merged into the base before the present one.
        context: the longest sequence of prompt and completion, in tokens.
    """

    def __init__(
        self,
        *,
        name: str,
        model: Model,
        tokenizer: PreTrainedTokenizerBase,
        renderer: Renderer,
        config: PolicyConfig,
        version: int = 0,
        merged: tuple[Merged, ...] = (),
    ) -> None:
        self.name = name
        self.version = version
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.renderer = renderer
        self.config = config
        self.merged = merged
        self.context = resolve_context(
            config.context,
            self.base.config.get_text_config(),
            int(tokenizer.model_max_length),
            model=config.model,
        )
        self._frozen_digests: dict[str, tuple[int, int, bytes]] = {}

    def __repr__(self) -> str:
        kind = "adapter" if isinstance(self.model, PeftModel) else "full"
        return f"Policy({self.name!r}, version={self.version}, {kind}, {self.device})"

    @property
    def stop_ids(self) -> frozenset[int]:
        """The ids that end a completion."""
        return self.renderer.stop_ids

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.model.parameters()).device

    @property
    def parameters(self) -> int:
        """The number of weights, frozen ones and the adapter's included."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def base(self) -> PreTrainedModel:
        """The Hugging Face model itself, inside the adapter's wrapper if there is one."""
        inner = self.model.get_base_model() if isinstance(self.model, PeftModel) else self.model
        assert isinstance(inner, PreTrainedModel)
        return inner

    @property
    def has_adapter(self) -> bool:
        """Whether an adapter is what training changes and `save` writes."""
        return isinstance(self.model, PeftModel)

    def trainable_parameters(self) -> list[nn.Parameter]:
        """Return the parameters that training changes; none if the policy is frozen."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def digest(self) -> str:
        """Return a hash of the weights in use: every tensor, and the active adapter's name.

        Equal digests mean equal bits. Frozen tensors are hashed again only after they changed.
        """
        whole = hashlib.blake2b(digest_size=16)
        if isinstance(self.model, PeftModel):
            status = self.model.get_model_status()
            whole.update(f"{status.active_adapters} {status.enabled}".encode())
        seen: set[int] = set()
        for name, tensor in self.model.state_dict(keep_vars=True).items():
            if id(tensor) not in seen:  # tied weights appear twice
                seen.add(id(tensor))
                whole.update(self._tensor_digest(name, tensor))
        return whole.hexdigest()

    def save(self, directory: str | Path) -> None:
        """Write weights, tokenizer and template to `directory`, which appears only when complete.

        Full weights become an ordinary Hugging Face directory, adapters one in PEFT's format; where
        adapters were merged into the base before, `merge_first.json` says which.
        """
        with replaced_folder(Path(directory)) as folder, quiet():
            if isinstance(self.model, PeftModel):
                self.model.save_pretrained(str(folder), save_embedding_layers=False)
                write_merged(folder, self.merged, place=Path(directory))
            else:
                self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)

    def load_weights(self, directory: str | Path) -> None:
        """Copy saved weights into this policy's own tensors, so that its optimizer stays valid.

        Adapters that the saved one stands on are merged into the base if they are not yet.

        Raises:
            ModelError: if `directory` is not what `save` of a like policy writes.
        """
        folder = Path(directory)
        is_adapter = (folder / ADAPTER_FILE).is_file()
        if not folder.is_dir() or is_adapter != isinstance(self.model, PeftModel):
            found = "an adapter" if is_adapter else "full weights" if folder.is_dir() else "nothing"
            wanted = "an adapter" if isinstance(self.model, PeftModel) else "full weights"
            raise ModelError(
                f"{folder} holds {found}, but policy {self.name!r} expects {wanted}: give a "
                "directory that this policy saved"
            )
        if isinstance(self.model, PeftModel):
            self._load_adapter(self.model, folder)
        else:
            self._load_full(folder)

    def merge_adapter(self, saved: str | Path, seed: int) -> None:
        """Merge the adapter, just saved in `saved`, into the base and begin a fresh one.

        The answers stay the same to rounding. The adapter's tensors keep their places, but nothing
        of its past: make a new optimizer. Base tensors shared with other policies do not change.

        Args:
            saved: where `save` wrote this adapter; it is needed to load what is saved from now on.
            seed: of the fresh adapter.
        """
        assert isinstance(self.model, PeftModel), "only an adapter can be merged"
        entry = Merged.of(Path(saved))
        merge_in_place(self.model, seed)
        self.merged = (*self.merged, entry)
        self._frozen_digests.clear()

    def reference(self) -> Policy:
        """Return a frozen copy of the policy as it is now, for the KL (docs/math.md 3).

        Frozen tensors are shared with it, so an adapter's reference costs an adapter's memory, and
        it is the weights at the start of RL, not the bare base.
        """
        return self.frozen_copy(f"{self.name}-reference")

    def frozen_copy(self, name: str) -> Policy:
        """Return a copy of the policy as it is now, under another name, that is not trained."""
        twin = Policy(
            name=name,
            model=fork(self.model),
            tokenizer=self.tokenizer,
            renderer=self.renderer,
            config=self.config.model_copy(
                update={"trainable": False, "gradient_checkpointing": False}
            ),
            version=self.version,
            merged=self.merged,
        )
        twin.model.requires_grad_(False)
        for parameter in twin.model.parameters():
            parameter.grad = None
        return twin

    def copy_weights(self, source: Policy) -> None:
        """Copy the weights that training changes in `source`, of which this is a frozen copy."""
        own = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, parameter in source.model.named_parameters():
                if parameter.requires_grad:
                    own[name].copy_(parameter)

    @contextmanager
    def dropout(self, enabled: bool) -> Iterator[None]:
        """Prepare the model for a forward and backward pass inside the block.

        `True` is for supervised training: all dropout acts. `False` is for everything with an `rl`
        part: eval mode with gradients. Gradient checkpointing acts inside the block in both cases
        and nowhere else, as it would switch off the cache that sampling needs.
        """
        with ExitStack() as undo:
            undo.callback(self.model.eval)
            self.model.train(enabled)  # in training mode transformers' own checkpointing acts
            if self.config.gradient_checkpointing and not enabled:
                undo.enter_context(checkpointed(self.model))
            yield

    def _tensor_digest(self, name: str, tensor: torch.Tensor) -> bytes:
        """Return the hash of one tensor's name, type, shape and bytes."""
        state = (tensor.data_ptr(), tensor._version)
        known = self._frozen_digests.get(name)
        if known is not None and known[:2] == state and not tensor.requires_grad:
            return known[2]
        header = f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode()
        raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        value = hashlib.blake2b(header, digest_size=16)
        value.update(raw.data)
        self._frozen_digests[name] = (*state, value.digest())
        return value.digest()

    def _load_adapter(self, model: PeftModel, folder: Path) -> None:
        """Merge what an adapter stands on, then copy its tensors; everything is checked before."""
        below = read_merged(folder)
        known = [entry.digest for entry in self.merged]
        if known != [entry.digest for entry in below[: len(known)]]:
            raise ModelError(
                f"{folder} was not trained on the adapters merged into policy {self.name!r} "
                f"({', '.join(str(entry.path) for entry in self.merged)}): load the policy again"
            )
        missing = below[len(known) :]
        tensors = [self._adapter_tensors(model, entry.path) for entry in missing]
        own = self._adapter_tensors(model, folder)
        for entry, saved in zip(missing, tensors, strict=True):
            set_peft_model_state_dict(model, saved)
            self.merge_adapter(entry.path, seed=0)  # what is drawn is overwritten below
        set_peft_model_state_dict(model, own)

    def _adapter_tensors(self, model: PeftModel, folder: Path) -> dict[str, torch.Tensor]:
        """Return an adapter's tensors after checking names and shapes."""
        saved = load_peft_weights(str(folder), device=str(self.device))
        own = get_peft_model_state_dict(model, save_embedding_layers=False)
        self._check_like(
            {name: tensor.shape for name, tensor in saved.items()},
            {name: tensor.shape for name, tensor in own.items()},
            folder,
        )
        return saved

    def _load_full(self, folder: Path) -> None:
        """Copy full weights after checking names and shapes."""
        own = dict(self.base.named_parameters())
        dtype = next(iter(own.values())).dtype
        with quiet():
            saved_model = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=dtype,
                use_safetensors=True,
                trust_remote_code=self.config.trust_remote_code,
            )
        saved = dict(saved_model.named_parameters())
        self._check_like(
            {name: tensor.shape for name, tensor in saved.items()},
            {name: tensor.shape for name, tensor in own.items()},
            folder,
        )
        with torch.no_grad():
            for name, parameter in own.items():
                parameter.copy_(saved[name])

    def _check_like(
        self, saved: dict[str, torch.Size], own: dict[str, torch.Size], folder: Path
    ) -> None:
        """Refuse tensors of other names or shapes than this policy's."""
        differing = sorted(name for name in saved | own if saved.get(name) != own.get(name))
        if differing:
            name = differing[0]
            raise ModelError(
                f"{folder} does not fit policy {self.name!r}: {len(differing)} tensors differ, "
                f"first {name} with saved shape {saved.get(name)} and expected {own.get(name)}; "
                "give a directory saved with the same model and adapter settings"
            )


def fork(model: Model) -> Model:
    """Return a copy of `model` with modules of its own that shares the frozen parameters.

    Policies on one base each have their own adapters and never switch each other's.
    """
    shared = {id(tensor): tensor for tensor in model.parameters() if not tensor.requires_grad}
    return copy.deepcopy(model, shared)
