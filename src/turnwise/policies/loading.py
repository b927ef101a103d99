"""Loading of policies from their configs, ready to sample and to train.

Provides `load_policy` and `load_policies`, which check directories, tokenizers and options, and
choose device, precision and attention. Adapters are created here, before any optimizer exists.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from turnwise.errors import ModelError
from turnwise.kernels import check_ties, fix_rotary, longest_sequence
from turnwise.policies.adapters import adapter_base, with_adapter
from turnwise.policies.checkpointing import check_repeatable, enable_checkpointing
from turnwise.policies.config import PolicyConfig
from turnwise.policies.folders import quiet
from turnwise.policies.merging import read_merged
from turnwise.policies.nano import make_nano
from turnwise.policies.policy import Policy, fork
from turnwise.policies.presets import PRESETS, NanoConfig, is_nano
from turnwise.policies.resolve import resolve_attention, resolve_device, resolve_dtype
from turnwise.policies.sources import (
    ADAPTER_FILE,
    TOKENIZER_FILES,
    cannot_load,
    existing_source,
    has_tokenizer,
)
from turnwise.render import RenderConfig, Renderer
from turnwise.seeding import generator

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_LOAD_ERRORS = (OSError, ValueError, SafetensorError)


def load_policy(
    name: str,
    config: PolicyConfig,
    *,
    directory: str | Path | None = None,
    transcripts: Sequence[str] = (),
    words: Sequence[str] = (),
    seed: int = 0,
) -> Policy:
    """Return the policy that `config` describes.

    Args:
        name: the policy's name.
        config: where its weights come from.
        directory: where a model made on the spot is kept, as `<directory>/<name>`; needed for
            adapters on it, which are worth nothing without it.
        transcripts: texts for a nano tokenizer (see `make_nano`).
        words: words for a nano tokenizer.
        seed: of weights that are drawn: a nano model's and a new adapter's.

    Raises:
        ModelError: if model, tokenizer or adapter cannot be used as asked.
    """
    configs = {name: config}
    return load_policies(
        configs, directory=directory, transcripts=transcripts, words=words, seed=seed
    )[name]


def load_policies(
    configs: Mapping[str, PolicyConfig],
    *,
    directory: str | Path | None = None,
    transcripts: Sequence[str] = (),
    words: Sequence[str] = (),
    seed: int = 0,
) -> dict[str, Policy]:
    """Return one policy for each name; all adapters on one base share the base's memory.

    So do all frozen policies on one base. Arguments and errors are those of `load_policy`. Policies
    with equal configs begin equal, except that each new adapter is drawn from the seed and its
    policy's name.
    """
    policies: dict[str, Policy] = {}
    bases: dict[str, PreTrainedModel] = {}
    made: dict[tuple[str, NanoConfig | None], str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, config in configs.items():
            key = (config.model, config.nano)
            if not is_nano(config.model):
                source = existing_source(config.model)
            else:
                folder = _nano_folder(name, config, directory, scratch)
                if key not in made:
                    _require_words(config, transcripts, words)
                    sizes = config.nano or PRESETS[config.model]
                    made[key] = str(make_nano(folder, transcripts, words, sizes, seed).resolve())
                source = made[key]
            drawn = int(generator(seed, "adapter", name).integers(2**31))
            policies[name] = _load(name, config, source, bases, drawn)
    return policies


def _load(
    name: str, config: PolicyConfig, source: str, bases: dict[str, PreTrainedModel], seed: int
) -> Policy:
    """Load one policy, from a base that is already there if it may be shared."""
    adapter, base_source = _adapter_and_base(source)
    tokenizer = _load_tokenizer(source, base_source, config)
    shares = adapter is not None or config.lora is not None or not config.trainable
    if shares:
        asked = config.model_dump_json(include={"dtype", "device", "attention", "trainable"})
        model = fork(_shared_base(f"{base_source} {asked}", base_source, config, bases))
        assert isinstance(model, PreTrainedModel)
    else:
        model = _load_base(base_source, config)
    _check_vocabulary(tokenizer, model, source)
    with quiet():
        if config.gradient_checkpointing:
            enable_checkpointing(model, source)
        full = with_adapter(model, config, adapter, seed)
    if not config.trainable:
        full.requires_grad_(False)
    options = RenderConfig(template_options=config.template_options)
    renderer = Renderer(tokenizer, options, extra_stop_ids=_generation_stops(model))
    merged = read_merged(Path(adapter)) if adapter else ()
    policy = Policy(
        name=name,
        model=full,
        tokenizer=tokenizer,
        renderer=renderer,
        config=config,
        merged=merged,
    )
    fix_rotary(policy.base, policy.context)
    check_ties(policy.base, policy.context)
    if config.gradient_checkpointing:
        check_repeatable(policy.model, policy.base, source)
    return policy


def _nano_folder(
    name: str, config: PolicyConfig, directory: str | Path | None, scratch: str
) -> Path:
    """Return where a model made on the spot is written."""
    if directory is not None:
        return Path(directory) / name
    if config.lora is not None:
        raise ModelError(
            f"policy {name!r} puts an adapter on {config.model!r}, a model made on the spot that "
            "is not kept: give `directory`, so that the saved adapter finds its base again"
        )
    return Path(scratch) / name


def _require_words(config: PolicyConfig, transcripts: Sequence[str], words: Sequence[str]) -> None:
    """Refuse to make a tokenizer out of nothing."""
    if not transcripts and not words:
        raise ModelError(
            f"model = {config.model!r} is made on the spot and needs texts for its tokenizer: "
            "give `transcripts` or `words`, or a directory that `turnwise init` made"
        )


def _load_tokenizer(source: str, base: str, config: PolicyConfig) -> PreTrainedTokenizerBase:
    """Return the tokenizer beside the weights or, for an adapter without one, its base's."""
    place = source if source == base or has_tokenizer(Path(source)) else base
    if Path(place).is_dir() and not has_tokenizer(Path(place)):
        # AutoTokenizer would silently return an empty one of the model's family.
        raise ModelError(
            f"model directory {place} has no tokenizer: expected one of "
            f"{', '.join(TOKENIZER_FILES)}; copy the tokenizer's files beside the weights"
        )
    try:
        return AutoTokenizer.from_pretrained(place, trust_remote_code=config.trust_remote_code)
    except _LOAD_ERRORS as error:
        raise cannot_load("tokenizer", place, error) from error


def known_context(model: str) -> int | None:
    """Return the longest sequence that a pretrained model's config names.

    None where it names none, and where the config is not on this machine or of an unknown kind:
    loading the model says what is wrong.
    """
    path = Path(model).expanduser()
    try:
        _, base = _adapter_and_base(str(path) if path.is_dir() else model)
        config = AutoConfig.from_pretrained(base, local_files_only=True)
    except (OSError, ValueError, ModelError):
        return None
    return longest_sequence(config.get_text_config())


def _adapter_and_base(source: str) -> tuple[str | None, str]:
    """Return the saved adapter in a source, if it is one, and the source of its base."""
    if (Path(source) / ADAPTER_FILE).is_file():
        return source, adapter_base(source)
    return None, source


def _shared_base(
    key: str, source: str, config: PolicyConfig, bases: dict[str, PreTrainedModel]
) -> PreTrainedModel:
    """Return the frozen base that policies with this key share, loading it the first time."""
    if key not in bases:
        bases[key] = _load_base(source, config).requires_grad_(False)
    return bases[key]


def _load_base(source: str, config: PolicyConfig) -> PreTrainedModel:
    """Return the Hugging Face model in eval mode, on its device and in its precision."""
    device = resolve_device(config.device)
    try:
        sizes = AutoConfig.from_pretrained(source, trust_remote_code=config.trust_remote_code)
        with torch.device("meta"):
            shape = AutoModelForCausalLM.from_config(
                sizes, trust_remote_code=config.trust_remote_code
            )
        dtype = resolve_dtype(
            config.dtype,
            device.type,
            has_bf16=device.type == "cuda" and torch.cuda.is_bf16_supported(False),
            parameters=shape.num_parameters(),
            trainable=config.trainable,
        )
        attention = resolve_attention(
            config.attention,
            sizes.get_text_config().to_dict(),
            has_sdpa=shape._supports_sdpa,
            model=config.model,
        )
        with quiet():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                source,
                dtype=dtype,
                attn_implementation=attention,
                use_safetensors=True,
                trust_remote_code=config.trust_remote_code,
                output_loading_info=True,
            )
    except ModelError:
        raise
    except _LOAD_ERRORS as error:
        raise cannot_load("model", source, error) from error
    model, report = loaded
    _check_complete(report, source)
    return model.to(device).eval()


def _check_complete(report: Mapping[str, Any], source: str) -> None:
    """Refuse weights with holes, which transformers fills with random numbers."""
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelError(
            f"model {source} lacks {len(missing)} weights, first {missing[0]}: expected a complete "
            "causal language model; use one, or save it again"
        )


def _check_vocabulary(
    tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel, source: str
) -> None:
    """Refuse a tokenizer with ids that the model has no embedding for."""
    weight = model.get_input_embeddings().weight
    assert isinstance(weight, torch.Tensor)
    rows = weight.shape[0]
    if len(tokenizer) > rows:
        raise ModelError(
            f"the tokenizer of {source} has {len(tokenizer)} tokens but the model {rows} "
            "embeddings: use the tokenizer that the model was trained with"
        )


def _generation_stops(model: PreTrainedModel) -> tuple[int, ...]:
    """Return the end ids in the model's generation config."""
    if model.generation_config is None:
        return ()
    eos = model.generation_config.eos_token_id
    if eos is None:
        return ()
    return (eos,) if isinstance(eos, int) else tuple(eos)
