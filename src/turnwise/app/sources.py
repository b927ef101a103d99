"""The sources of a role's weights in an evaluation: a model, an adapter, or a run's policy.

Provides `Source`, `model_source`, `policy_source` and `best_checkpoint`. Loads no weights: a path,
a run or a policy that is not there is refused here, before anything slow begins.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from turnwise.app.build import config_of
from turnwise.app.stages import PRETRAIN, without_adapters
from turnwise.errors import ConfigError, ModelError, RunError, unknown_name
from turnwise.policies import PolicyConfig, is_nano
from turnwise.policies.sources import existing_source
from turnwise.recipe.schema import Recipe, load_recipe
from turnwise.runs import Checkpoint, Checkpoints, Run
from turnwise.runs.checkpoints import policy_folder
from turnwise.trainers.validation import DECODING
from turnwise.types import Decoding


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A policy from elsewhere.

    Attributes:
        name: what it is called among the policies of the evaluation, and in words.
        config: how it is loaded.
        weights: a checkpoint's folder whose weights take the place of the loaded ones.
        decoding: how it validated better, where a run says so.
    """

    name: str
    config: PolicyConfig
    weights: Path | None = None
    decoding: Decoding = "sampled"


def check_roles(recipe: Recipe, given: Mapping[str, str]) -> None:
    """Raise `UnknownNameError` for a role that the recipe's env does not have."""
    for role in given:
        if role not in recipe.agents:
            raise unknown_name("role", role, recipe.agents)


def model_source(place: str, own: PolicyConfig) -> Source:
    """Return the source of a model, an adapter, or a run's best policy.

    Args:
        place: a model's or adapter's directory, a hub name, a run folder, or "RUN:POLICY".
        own: the config of the policy that it stands in for, which says how models are held.

    Raises:
        TurnwiseError: if there is nothing at `place`.
    """
    if _is_run(Path(place)) or _is_run(Path(place.rpartition(":")[0] or place)):
        return policy_source(place)
    if is_nano(place):
        raise ModelError(
            f"model {place!r} is made on the spot and has learned nothing: give a model's or "
            "adapter's directory, a hub name, or a run folder"
        )
    _check_path(Path(place).expanduser())
    existing_source(place)
    config = frozen(own).model_copy(update={"model": place, "nano": None})
    return Source(name=f"model {place}", config=config)


def policy_source(place: str) -> Source:
    """Return the source of a run's policy at its best checkpoint.

    Args:
        place: the run folder, or "RUN:POLICY", which is needed where a run has several policies.

    Raises:
        RunError: if there is no such run, or it has no checkpoint that can be used.
        UnknownNameError: if the run has no policy of that name.
    """
    path, name = Path(place), ""
    if not path.is_dir() and ":" in place:
        before, _, name = place.rpartition(":")
        path = Path(before)
    if (path / "config.json").is_file() or (path / "adapter_config.json").is_file():
        raise ConfigError(
            f"'{path}' is the directory of a model or an adapter, not of a run: give RUN:POLICY, "
            "or evaluate the run's recipe.toml with --model ROLE=PATH for each role"
        )
    folder = Run.open(path)
    recipe = load_recipe(str(folder.recipe))
    chosen = best_checkpoint(folder, recipe)
    recipe = without_adapters(recipe) if chosen.phase == PRETRAIN else recipe
    if name in recipe.remote:
        raise ConfigError(
            f"policy '{path}:{name}' is remote and has no weights: name its endpoint in a recipe, "
            'under [policies.NAME] with kind = "remote"'
        )
    if name and name not in recipe.weights:
        raise unknown_name("policy", place, [f"{path}:{each}" for each in recipe.weights])
    if not name and len(recipe.weights) > 1:
        names = ", ".join(recipe.weights)
        raise ConfigError(
            f"run '{path}' has the policies {names}: name one, as in "
            f"{path}:{next(iter(recipe.weights))}"
        )
    name = name or next(iter(recipe.weights))
    config = config_of(name, recipe, folder)
    return Source(
        name=f"{path}:{name}",
        config=config,
        weights=policy_folder(chosen.path, name) if config.trainable else None,
        decoding=chosen.meta.get(DECODING, "sampled"),
    )


def best_checkpoint(folder: Run, recipe: Recipe) -> Checkpoint:
    """Return a run's best checkpoint, or its latest where none was validated.

    Raises:
        RunError: if it has none yet, or the chosen one is damaged.
    """
    checkpoints = Checkpoints(folder.checkpoints, keep=recipe.checkpoint.keep)
    chosen = checkpoints.best() or checkpoints.latest().checkpoint
    if chosen is None:
        raise RunError(f"run '{folder.path}' has no checkpoint yet: let it train first")
    checkpoints.check(chosen)
    return chosen


def frozen(config: PolicyConfig) -> PolicyConfig:
    """Return a policy's config without all that concerns its training."""
    idle = {"lora": None, "lr": None, "trainable": False, "gradient_checkpointing": False}
    return config.model_copy(update=idle)


def _is_run(path: Path) -> bool:
    return (path / "recipe.toml").is_file()


def _check_path(path: Path) -> None:
    """Refuse a path that is nearly a folder's, before any hub is asked for it."""
    if path.exists() or path.parent == Path() or not path.parent.is_dir():
        return
    if any(path.parent.glob("*/recipe.toml")):
        Run.open(path)  # says which runs there are
    folders = [each.name for each in path.parent.iterdir() if each.is_dir()]
    near = difflib.get_close_matches(path.name.partition(":")[0], folders, n=1, cutoff=0.6)
    if near:
        raise ModelError(
            f"there is no model or run at '{path}': did you mean '{path.parent / near[0]}'?"
        )
