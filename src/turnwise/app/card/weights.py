"""The weights of a model card: each trained policy of a run as files that other programs load.

Provides `PublishedPolicy` and `write_weights`. An adapter stays an adapter where its base has a
name on the hub. Where the base is a folder of this machine, a copy of it lies in `base`, beside the
adapter. Adapters that were trained one after the other become one adapter, their sum.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from turnwise.app.build import config_of
from turnwise.app.card.files import MODEL_FILES, TOKENIZER_FILES, matches
from turnwise.app.stages import PRETRAIN, without_adapters
from turnwise.errors import ModelError
from turnwise.policies import PolicyConfig
from turnwise.policies.joined import write_joined
from turnwise.policies.merging import read_merged
from turnwise.policies.sources import ADAPTER_FILE
from turnwise.recipe.schema import Recipe
from turnwise.runs import Checkpoint, Run
from turnwise.runs.checkpoints import policy_folder
from turnwise.utils.redaction import cleaned

BASE, ADAPTER = "base", "adapter"


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedPolicy:
    """A policy in a card's folder.

    `folder` is where its weights and its tokenizer are, relative to the card's folder, "" for the
    card's folder itself. `base` is the hub name of an adapter's base, and `base_folder` where its
    copy is; both are empty for full weights. `rank` is the adapter's, and `stages` the number of
    adapters of which it is the sum.
    """

    name: str
    config: PolicyConfig
    folder: str
    base: str = ""
    base_folder: str = ""
    rank: int = 0
    stages: int = 0

    @property
    def is_adapter(self) -> bool:
        """Whether it is an adapter on a base."""
        return self.stages > 0


def write_weights(
    folder: Path, run: Run, recipe: Recipe, chosen: Checkpoint
) -> list[PublishedPolicy]:
    """Write the trained policies of a checkpoint into `folder` and return what they are.

    Raises:
        ModelError: if no policy was trained, one needs code of its own, or a base is not there.
    """
    if chosen.phase == PRETRAIN:
        recipe = without_adapters(recipe)
    trained = [name for name, each in recipe.weights.items() if each.trainable]
    if not trained:
        raise ModelError(
            f"run '{run.path}' has trained no weights: expected a run with a policy that has "
            "trainable = true"
        )
    bases: dict[Path, str] = {}
    return [
        _write_policy(
            folder, name, config_of(name, recipe, run), chosen, bases, alone=len(trained) == 1
        )
        for name in trained
    ]


def _write_policy(
    folder: Path,
    name: str,
    config: PolicyConfig,
    chosen: Checkpoint,
    bases: dict[Path, str],
    *,
    alone: bool,
) -> PublishedPolicy:
    saved = policy_folder(chosen.path, name)
    if not (saved / ADAPTER_FILE).is_file():
        if config.trust_remote_code:
            raise _needs_code(name, saved)
        place = "" if alone else _folder_of(name)
        copy_files(saved, folder / place, (*MODEL_FILES, *TOKENIZER_FILES))
        return PublishedPolicy(name=name, config=config, folder=place)
    base = _base_of(config, saved)
    beside = ""
    if isinstance(base, Path):
        if config.trust_remote_code:
            raise _needs_code(name, base)
        beside = bases.setdefault(base, BASE if not bases else f"{BASE}-{len(bases) + 1}")
        if not (folder / beside).is_dir():
            copy_files(base, folder / beside, MODEL_FILES)
    below = [each.path for each in read_merged(saved)]
    place = "" if alone and not beside else ADAPTER if alone else _folder_of(name)
    (folder / place).mkdir(parents=True, exist_ok=True)
    write_joined([*below, saved], folder / place, None if beside else str(base))
    copy_files(saved, folder / place, TOKENIZER_FILES)
    written = json.loads((folder / place / ADAPTER_FILE).read_text(encoding="utf-8"))
    return PublishedPolicy(
        name=name,
        config=config,
        folder=place,
        base="" if beside else str(base),
        base_folder=beside,
        rank=written["r"],
        stages=len(below) + 1,
    )


def _needs_code(policy: str, folder: Path) -> ModelError:
    return ModelError(
        f"policy {policy!r} needs a model with code of its own (trust_remote_code), which a card "
        f"does not hold: copy {folder} and the code by hand"
    )


def _folder_of(policy: str) -> str:
    """Return the folder of a policy among several; bases have names of their own."""
    return f"policy-{policy}" if policy.startswith(BASE) else policy


def _base_of(config: PolicyConfig, saved: Path) -> Path | str:
    """Return the base of a saved adapter: a folder, or its name on the hub."""
    given = Path(config.model).expanduser()
    if given.is_dir() and not (given / ADAPTER_FILE).is_file():
        return given.resolve()
    named = json.loads((saved / ADAPTER_FILE).read_text(encoding="utf-8"))
    base = str(named["base_model_name_or_path"])
    if Path(base).is_dir():
        return Path(base).resolve()
    if Path(base).is_absolute():
        raise ModelError(
            f"adapter {saved} names the base {base}, which is not there: put the base there, or "
            f"correct base_model_name_or_path in {saved / ADAPTER_FILE}"
        )
    return base


def copy_files(source: Path, target: Path, patterns: tuple[str, ...]) -> None:
    """Copy the files of a folder whose names fit a pattern; no JSON of them keeps a path."""
    target.mkdir(parents=True, exist_ok=True)
    for file in sorted(source.iterdir()):
        if not file.is_file() or not matches(file.name, patterns):
            continue
        if file.suffix == ".json" and file.name != "tokenizer.json":
            value = json.loads(file.read_text(encoding="utf-8"))
            if isinstance(value, Mapping):
                value = {key: each for key, each in value.items() if key != "_name_or_path"}
            tokens = (key for key in value if key.endswith("_token"))  # no secrets, as `eos_token`
            kept = frozenset({"chat_template", "weight_map", *tokens})
            text = json.dumps(cleaned(value, kept), indent=2, ensure_ascii=False) + "\n"
            (target / file.name).write_text(text, encoding="utf-8")
        else:
            shutil.copyfile(file, target / file.name)
