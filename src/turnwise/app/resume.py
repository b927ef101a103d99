"""Settings that change when a run goes on: which may, and what becomes of the learning rate.

Provides `changed_recipe` and `write_change`. A run's recipe stays what resumes and reports read, so
a change is written into it, below a comment that says what changed and when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.envs import find_env
from turnwise.errors import ConfigError
from turnwise.policies.schedule import learning_rate
from turnwise.recipe.overrides import parse_override
from turnwise.recipe.schema import Recipe, load_recipe
from turnwise.runs import Checkpoint, Checkpoints, Run
from turnwise.runs.changes import MAY_CHANGE, is_among
from turnwise.runs.metric_names import TRAIN

OF_TRAINING = ("credit", "forest", "loss", "optimizer", "policies.*.lr", "trainer")
"""Those settings that may change, but change nothing in a run that trains no further."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A run's recipe as it is, as it shall be, the dotted keys that differ, and where the run is.

    `before` and `recipe` are equal where nothing changes.
    """

    before: Recipe
    recipe: Recipe
    keys: tuple[str, ...]
    latest: Checkpoint | None

    @property
    def iterations(self) -> int:
        """The number of iterations of training that the run has finished."""
        return self.latest.step if self.latest and self.latest.phase == TRAIN else 0


def changed_recipe(
    folder: Run, settings: Sequence[str] | Mapping[str, Any], note: Callable[[str], None]
) -> Change:
    """Return the recipe that the run in `folder` goes on with.

    Args:
        folder: the run.
        settings: settings to change, as `load_recipe` takes them.
        note: receives a sentence for each value of the recipe that the settings replace, if they
            are not refused.

    Raises:
        ConfigError: if a setting is wrong, or cannot change any more.
        RunError: if all checkpoints are damaged.
    """
    before = load_recipe(str(folder.recipe))
    mapping = isinstance(settings, Mapping)
    if "preset" in (settings if mapping else [parse_override(each)[0] for each in settings]):
        raise ConfigError(
            "presets are applied when a run begins, and cannot change in a resumed run: begin a "
            "new run, or give the settings that may change"
        )
    notes: list[str] = []
    recipe = load_recipe(str(folder.recipe), settings, notes.append) if settings else before
    keys = tuple(differences(before.model_dump(), recipe.model_dump()))
    latest = Checkpoints(folder.checkpoints, keep=recipe.checkpoint.keep).latest().checkpoint
    change = Change(before=before, recipe=recipe, keys=keys, latest=latest)
    _check_change(change, folder)
    for sentence in notes:
        note(sentence)
    return change


def _check_change(change: Change, folder: Run) -> None:
    """Refuse what a run was built on, and what would change nothing.

    Raises:
        ConfigError: for either, with the cure.
    """
    before, recipe, latest = change.before, change.recipe, change.latest
    fixed = [key for key in change.keys if not is_among(key, MAY_CHANGE)]
    if fixed:
        raise ConfigError(
            f"{fixed[0]} cannot change in a resumed run, which was built on it: leave it out, "
            f"or begin a new run with `turnwise train {folder.recipe} --set {fixed[0]}=...`"
        )
    if recipe.trainer.iterations < change.iterations:
        raise ConfigError(
            f"trainer.iterations = {recipe.trainer.iterations}, but the run has finished "
            f"{change.iterations} already: give more"
        )
    idle = [key for key in change.keys if is_among(key, OF_TRAINING)]
    if idle and change.iterations and recipe.trainer.iterations == change.iterations:
        raise ConfigError(
            f"{idle[0]} would change nothing, as the run has finished its {change.iterations} "
            f"iterations: give more by --set trainer.iterations=..., or leave it out"
        )
    minutes, seconds = recipe.trainer.minutes, latest.meta["totals"]["seconds"] if latest else 0.0
    if idle and minutes is not None and seconds >= 60 * minutes:
        raise ConfigError(
            f"{idle[0]} would change nothing, as the run has taken {seconds / 60:.3g} minutes, and "
            f"trainer.minutes = {minutes:g}: give more by --set trainer.minutes=..., or leave it "
            "out"
        )
    target, score = recipe.evaluation.target, latest.score if latest else None
    more = recipe.trainer.iterations > before.trainer.iterations
    if more and target is not None and score is not None and score >= target:
        raise ConfigError(
            f"the run stopped because its validation score {score:.3f} reached evaluation.target = "
            f"{target}: change that, too (evaluation.target=none) to go on"
        )


def write_change(folder: Run, change: Change, note: Callable[[str], None]) -> None:
    """Write the recipe that a run goes on with into its folder, and say what changes.

    Scores of the finished run are removed if it will train further.
    """
    if change.recipe.trainer.iterations > change.iterations:
        folder.evaluation.unlink(missing_ok=True)
    if not change.keys:
        return
    before, after = change.before.model_dump(), change.recipe.model_dump()
    said = ", ".join(f"{k} from {_at(before, k)!r} to {_at(after, k)!r}" for k in change.keys)
    sentence = f"changed after {change.iterations} iterations: {said}"
    folder.replace_recipe(_portable(change.recipe, folder).to_toml(), sentence)
    note(sentence)
    for line in _what_rescales(change):
        note(line)


def differences(own: Mapping[str, Any], given: Mapping[str, Any], where: str = "") -> list[str]:
    """Return the dotted keys in which two recipes differ.

    Example:
        >>> differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}, "d": 4})
        ['a.c', 'd']
    """
    found: list[str] = []
    for key in dict.fromkeys([*own, *given]):
        a, b = own.get(key), given.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += differences(a, b, f"{where}{key}.")
        elif a != b:
            found.append(f"{where}{key}")
    return found


def _at(data: Any, key: str) -> Any:
    for part in key.split("."):
        data = data.get(part) if isinstance(data, Mapping) else None
    return data


def _what_rescales(change: Change) -> Iterator[str]:
    """Say how what is spread over all iterations goes on, if their number changes."""
    old, new, done = change.before, change.recipe, change.iterations
    if old.trainer.iterations == new.trainer.iterations or not done:
        return
    span = f"now spans {new.trainer.iterations} iterations in place of {old.trainer.iterations}"
    if new.optimizer.schedule != "constant":
        rates = [
            learning_rate(
                recipe.optimizer,
                done * old.trainer.updates_per_batch,
                recipe.trainer.iterations * recipe.trainer.updates_per_batch,
            )
            for recipe in (old, new)
        ]
        changes = f": it goes on at {rates[1]:.2g} in place of {rates[0]:.2g}"
        auto = "auto" in (old.optimizer.lr, new.optimizer.lr)  # then the rate is not the recipe's
        yield (
            f"the {new.optimizer.schedule} schedule of the learning rate {span}"
            f"{'' if auto else changes}"
        )
    if new.sft_mix is not None and new.sft_mix.final:
        yield f"the fading of sft_mix.spans to sft_mix.final {span}"


def _portable(recipe: Recipe, folder: Run) -> Recipe:
    """Return the recipe with the files that lie in the run folder named relative to it."""
    home = folder.path.resolve()

    def relative(options: Mapping[str, Any]) -> dict[str, Any]:
        files = find_env(recipe.env.name).files
        return {
            key: Path(value).name
            if key in files and isinstance(value, str) and Path(value).parent == home
            else value
            for key, value in options.items()
        }

    sections = {name: relative(getattr(recipe.env, name)) for name in ("options", "training")}
    sections["warmup"] = relative(recipe.env.warmup)
    return recipe.model_copy(update={"env": recipe.env.model_copy(update=sections)})
