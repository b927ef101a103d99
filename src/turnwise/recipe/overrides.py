"""Settings over a recipe: how "section.key=value" is read, and which values of the recipe it drops.

Provides `compose`, which puts settings over a recipe's values. What the user sets always counts.
Values of the recipe that mean nothing beside it are left out or capped, and each is reported:
`credit.scheme=grpo` over a recipe for gigpo drops gigpo's `gamma` and `state_weight`. Two settings
of the user's that contradict each other are left as they are: the recipe's own checks refuse them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from turnwise.credit.config import RETURN
from turnwise.credit.schemes import DEFAULT, SCHEMES
from turnwise.curriculum import CURRICULA
from turnwise.engines.remote_config import RemoteConfig
from turnwise.envs import ToolEnv, find_env, make_env
from turnwise.errors import ConfigError, TurnwiseError
from turnwise.formats import with_reply_components
from turnwise.losses.table import LOSSES
from turnwise.policies.config import PolicyConfig
from turnwise.policies.presets import is_nano
from turnwise.policies.schedule import AUTO
from turnwise.settings import own_options

Data = dict[str, Any]
PHASES = ("options", "training", "warmup")


def parse_override(override: str) -> tuple[str, Any]:
    """Return the key and the value of "section.key=value"; values are TOML, or else plain text.

    The value `none` is None: it takes the key out, so that its default holds again.

    Example:
        >>> parse_override("env.options.size=6"), parse_override("device=cuda")
        (('env.options.size', 6), ('device', 'cuda'))
    """
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"override {override!r} must look like section.key=value")
    if text.strip() == "none":
        return key.strip(), None
    try:
        table = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        table = {}
    # more than one key: a line break in the text, after which another value stands
    return key.strip(), table["value"] if list(table) == ["value"] else text.strip()


def nest(key: str, value: Any) -> Data:
    """Return {"a": {"b": value}} for "a.b"."""
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Data:
    """Return `base` with the values of `over`, table by table; None takes a key out."""
    merged = dict(base)
    for key, value in over.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            below = merged.get(key)
            merged[key] = merge(below if isinstance(below, Mapping) else {}, value)
        else:
            merged[key] = value
    return merged


def with_preset(data: Mapping[str, Any], preset: Mapping[str, Any], name: str) -> Data:
    """Return a recipe's plain values with those of a preset over them.

    The keys in the preset's `without`, dotted paths, are taken out first.

    Raises:
        ConfigError: if `without` is no list of keys, or the recipe lacks one of them.

    Example:
        >>> data = {"policies": {"main": {"model": "nano"}}}
        >>> with_preset(data, {"without": ["policies.main"], "seed": 1}, "other")
        {'policies': {}, 'seed': 1}
    """
    keys = preset.get("without", [])
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ConfigError(
            f"presets.{name}.without = {keys!r}: expected a list of keys, such as ['policies.main']"
        )
    kept: Data = dict(data)
    for key in keys:
        if _value_at(kept, key) is None:
            raise ConfigError(f"presets.{name}.without: the recipe has no {key!r}: leave it out")
        kept = merge(kept, nest(key, None))
    return merge(kept, {key: value for key, value in preset.items() if key != "without"})


def _value_at(data: Any, path: str) -> Any:
    """Return the value at a dotted path; None where there is none."""
    for part in path.split("."):
        if not isinstance(data, Mapping):
            return None
        data = data.get(part)
    return data


def compose(
    base: Mapping[str, Any], settings: Sequence[tuple[str, Any]], note: Callable[[str], None]
) -> Data:
    """Return a recipe's plain values with settings over them.

    Args:
        base: the recipe's own values.
        settings: ("section.key", value) in order; None takes the key out.
        note: told, in one sentence each, what of the recipe gave way.
    """
    merged: Data = dict(base)
    for key, value in settings:
        if value == {} and _value_at(merged, key):
            note(f"{key} = {{}} changes nothing, as tables are merged; {key} = none removes it")
        merged = merge(merged, nest(key, value))
    if not settings:
        return merged
    given = {leaf for key, value in settings for leaf in _leaves(nest(key, value))}
    fit = _Fit(dict(base), merged, given)
    rules = (_env, _scheme, _std_floor, _loss, _models, _rates, _loop, _warmups, _mix, _play)
    for rule in rules:
        rule(fit)
    for sentence in fit.notes:
        note(sentence)
    return fit.merged


def _leaves(value: Any, where: str = "") -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key, below in value.items():
            yield from _leaves(below, f"{where}.{key}" if where else key)
    else:
        yield where


class _Fit:
    """A recipe's values with settings over them, and what the settings touched."""

    def __init__(self, base: Data, merged: Data, given: set[str]) -> None:
        self.base, self.merged, self.given, self.notes = base, merged, given, []

    def get(self, path: str, of: Data | None = None) -> Any:
        """Return the value at a dotted path; None where there is none."""
        return _value_at(self.merged if of is None else of, path)

    def set_by_user(self, path: str) -> bool:
        """Whether the user's settings say something at `path` or below it."""
        return any(leaf == path or leaf.startswith(f"{path}.") for leaf in self.given)

    def switched(self, path: str, default: Any) -> bool:
        """Whether the user's settings change the value at `path`."""
        if not self.set_by_user(path):
            return False
        before = self.get(path, self.base)
        return (default if before is None else before) != (self.get(path) or default)

    def table(self, path: str) -> Mapping[str, Any]:
        """Return the table at `path`; empty if there is none."""
        table = self.get(path)
        return table if isinstance(table, Mapping) else {}

    def keys(self, path: str) -> list[str]:
        """Return the keys of the table at `path`."""
        return list(self.table(path))

    def drop(self, reason: str, *paths: str) -> None:
        """Leave out what the recipe alone sets at `paths`, and say so."""
        gone = [p for p in paths if self.get(p) is not None and not self.set_by_user(p)]
        if gone:
            said = ", ".join(f"{path} = {_brief(self.get(path))}" for path in gone)
            self.notes.append(f"{reason}: left out the recipe's {said}")
        for path in gone:
            self.merged = merge(self.merged, nest(path, None))

    def cap(self, reason: str, path: str, most: int) -> None:
        """Lower a number that the recipe alone sets at `path`, and say so."""
        value = self.get(path)
        if _is_count(value) and value > most and not self.set_by_user(path):
            self.notes.append(f"{reason}: lowered the recipe's {path} from {value} to {most}")
            self.merged = merge(self.merged, nest(path, most))


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else "{...}" if isinstance(value, Mapping) else "..."


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _env(fit: _Fit) -> None:
    """Leave out options of another env, and those that contradict the options given."""
    name = fit.get("env.name")
    if not fit.set_by_user("env") or not isinstance(name, str):
        return
    try:
        kind = find_env(name)
    except TurnwiseError:
        return  # the recipe's own check says what is wrong
    if fit.switched("env.name", None):
        reason = f"env.name = {name!r}"
        fit.drop(reason, *(f"env.{p}.{key}" for p in PHASES for key in fit.keys(f"env.{p}")))
        known = with_reply_components(kind.components)
        others = [key for key in fit.keys("credit.rewards") if key not in known]
        fit.drop(reason, *(f"credit.rewards.{key}" for key in others))
        if not set(fit.keys("credit.rewards")) & set(kind.components):
            weights = dict.fromkeys(kind.components, 1.0)
            fit.merged = merge(fit.merged, nest("credit.rewards", weights))
            fit.notes.append(f"{reason}: credit.rewards = {weights}")
        spans = fit.table("credit.segments")
        others = [key for key, part in spans.items() if part != RETURN and part not in known]
        fit.drop(reason, *(f"credit.segments.{key}" for key in others))
        fit.drop(reason, "evaluation.exact", "evaluation.validation", "evaluation.target")
        if not kind.runs_programs:
            fit.drop(reason, "sandbox")
        for role in fit.keys("agents") if issubclass(kind, ToolEnv) else ():
            if not fit.set_by_user(f"agents.{role}.history"):
                fit.merged = merge(fit.merged, nest(f"agents.{role}.history", "full"))
    _env_options(fit, name)


def _env_options(fit: _Fit, name: str) -> None:
    """Keep as many of the recipe's options as go together with those that the user gives."""
    paths = [f"env.{phase}.{key}" for phase in PHASES for key in fit.keys(f"env.{phase}")]
    own = [path for path in paths if not fit.set_by_user(path)]
    if not own or _makes(fit.merged, name):
        return
    kept = fit.merged
    for path in own:
        kept = merge(kept, nest(path, None))
    if not _makes(kept, name):
        return  # it is the user's own settings that do not go together
    for path in own:
        more = merge(kept, nest(path, fit.get(path)))
        kept = more if _makes(more, name) else kept
    asked = ", ".join(sorted(leaf for leaf in fit.given if leaf.startswith("env.")))
    fit.drop(asked, *(path for path in own if fit.get(path, kept) is None))


def _makes(data: Data, name: str) -> bool:
    """Whether the env can be made in all phases."""
    env = data["env"]
    try:
        for phase in PHASES:
            make_env(name, **{**env.get("options", {}), **env.get(phase, {})})
    except (TurnwiseError, TypeError):
        return False
    return True


def _scheme(fit: _Fit) -> None:
    """Leave out what belongs to another credit scheme."""
    name = fit.get("credit.scheme") or DEFAULT
    if not fit.switched("credit.scheme", DEFAULT) or name not in SCHEMES:
        return
    reason = f"credit.scheme = {name!r}"
    options = own_options([scheme.config for scheme in SCHEMES.values()])
    kept = {"filter_zero_variance"} if SCHEMES[name].by_visit else set()
    fit.drop(reason, *(f"credit.{option}" for option in options if option not in kept))
    fit.drop(reason, "credit.std_floor")
    if SCHEMES[name].by_turn is None:  # it would take a part of an episode for the whole
        fit.drop(reason, "trainer.max_turns")
    if not SCHEMES[name].by_visit:
        fit.drop(reason, "trainer.dynamic_sampling", "trainer.max_refills")
    if name == "maxrl":
        weights = fit.table("credit.rewards")
        below = [key for key, weight in weights.items() if _is_number(weight) and weight < 0]
        fit.drop(reason, *(f"credit.rewards.{key}" for key in below))


def _std_floor(fit: _Fit) -> None:
    """Leave out the floor of a standard deviation where none is divided by."""
    name = fit.get("credit.scheme") or DEFAULT
    if not fit.set_by_user("credit") or name not in SCHEMES:
        return
    segments = fit.table("credit.segments")
    own = any(part != RETURN for part in segments.values())
    field = SCHEMES[name].config.model_fields.get("std")
    std = fit.get("credit.std") or (field.default if field else "none")
    if std == "none" and not own:
        fit.drop(f"credit.std = {std!r}", "credit.std_floor")


def _loss(fit: _Fit) -> None:
    """Leave out what belongs to another kind of loss, of aggregation or of distance."""
    kind = fit.get("loss.kind") or "clipped"
    if fit.switched("loss.kind", "clipped"):
        options = own_options([loss.config for loss in LOSSES.values()])
        fit.drop(f"loss.kind = {kind!r}", *(f"loss.{option}" for option in options))
    if fit.set_by_user("loss.aggregation") and fit.get("loss.aggregation") != "constant":
        fit.drop(f"loss.aggregation = {fit.get('loss.aggregation')!r}", "loss.constant_length")
    if fit.set_by_user("loss.kl") and fit.get("loss.kl") in (None, "none"):
        fit.drop("loss.kl = 'none'", "loss.kl_weight")
    if fit.set_by_user("loss.entropy_weight") and not fit.get("loss.entropy_weight"):
        fit.drop("no loss.entropy_weight", "loss.entropy_span")
    if fit.set_by_user("loss") and fit.get("trainer.old_logprobs") == "behaviour":
        if kind == "gspo":
            fit.drop(f"loss.kind = {kind!r}", "trainer.old_logprobs")
        if fit.get("loss.tis_cap") is not None:
            fit.drop("loss.tis_cap", "trainer.old_logprobs")


def _mix(fit: _Fit) -> None:
    """Leave out what belongs to a span of the SFT mix that is gone, or weighs nothing."""
    if not fit.set_by_user("sft_mix.spans"):
        return
    spans = fit.table("sft_mix.spans")
    gone = [name for name in fit.keys("sft_mix.final") if name not in spans]
    fit.drop("sft_mix.spans", *(f"sft_mix.final.{name}" for name in gone))
    if not spans.get("action"):
        fit.drop("no sft_mix.spans.action", "sft_mix.action_floor")


def _play(fit: _Fit) -> None:
    """Leave out what belongs to another curriculum, or to replies that do not end the episode."""
    if fit.switched("curriculum.kind", "uniform"):
        options = own_options([config for config, _ in CURRICULA.values()])
        kind = fit.get("curriculum.kind") or "uniform"
        fit.drop(f"curriculum.kind = {kind!r}", *(f"curriculum.{option}" for option in options))
    if fit.set_by_user("curriculum.share") and not fit.get("curriculum.share"):
        fit.drop("curriculum.share = 0", "curriculum.explore")
    for role in fit.keys("agents"):
        history = fit.get(f"agents.{role}.history") or "observation"
        if fit.set_by_user(f"agents.{role}.history") and history != "last_n":
            fit.drop(f"agents.{role}.history = {history!r}", f"agents.{role}.last_n")
        if fit.set_by_user(f"agents.{role}.invalid_reply"):
            rule = fit.get(f"agents.{role}.invalid_reply") or "end"
            if rule == "end":
                limit = f"agents.{role}.invalid_limit"
                fit.drop(f"agents.{role}.invalid_reply = 'end'", limit)


def _models(fit: _Fit) -> None:
    """Leave out the sizes of another model, and stages that need an adapter that is gone."""
    for name in fit.keys("policies"):
        where = f"policies.{name}"
        kind = fit.get(f"{where}.kind") or "weights"
        if fit.switched(f"{where}.kind", "weights"):
            known = (RemoteConfig if kind == "remote" else PolicyConfig).model_fields
            others = (key for key in fit.keys(where) if key not in known)
            fit.drop(f"{where}.kind = {kind!r}", *(f"{where}.{key}" for key in others))
        model = fit.get(f"{where}.model")
        if fit.switched(f"{where}.model", "nano") and isinstance(model, str):
            fit.drop(f"{where}.model = {model!r}", f"{where}.nano")
            if is_nano(model):
                fit.drop(f"{where}.model = {model!r}", f"{where}.template_options")
        if fit.set_by_user(f"{where}.lora") and fit.get(f"{where}.lora") is None:
            fit.drop(f"{where}.lora = none", "pretrain")
        none = fit.get("warmup") is None or fit.get("warmup.steps") == 0
        if fit.set_by_user("warmup") and none and fit.get(f"{where}.lora.merge_warmup"):
            fit.drop("no warm-up", f"{where}.lora.merge_warmup")


def _rates(fit: _Fit) -> None:
    """Leave out what "auto" begins with and aims at where no rate is "auto" any more."""
    rates = [fit.get(f"policies.{name}.lr") for name in fit.keys("policies")]
    rate = fit.get("optimizer.lr")
    if fit.set_by_user("optimizer.lr") and _is_number(rate) and AUTO not in rates:
        fit.drop(f"optimizer.lr = {rate}", "optimizer.lr_start", "optimizer.movement")


def _loop(fit: _Fit) -> None:
    """Cap what a shorter or smaller training loop has no room for."""
    tasks = fit.get("trainer.tasks_per_iteration")
    if fit.set_by_user("trainer.tasks_per_iteration") and _is_count(tasks) and tasks > 0:
        fit.cap(f"trainer.tasks_per_iteration = {tasks}", "trainer.minibatches", tasks)
    if fit.set_by_user("trainer.dynamic_sampling") and not fit.get("trainer.dynamic_sampling"):
        fit.drop("trainer.dynamic_sampling = false", "trainer.max_refills")
    counts = [fit.get(f"trainer.{name}") for name in ("iterations", "minibatches", "epochs")]
    defaults = (100, 1, 1)
    filled = [d if count is None else count for count, d in zip(counts, defaults, strict=True)]
    if fit.set_by_user("trainer") and all(map(_is_count, filled)):
        updates = filled[0] * filled[1] * filled[2]
        if updates > 0:
            reason = f"training takes {updates} optimizer step{'s' * (updates != 1)}"
            fit.cap(reason, "optimizer.warmup_steps", updates)


def _warmups(fit: _Fit) -> None:
    """Leave out what shares time that is not limited; cap rises of rates in shorter phases."""
    if fit.set_by_user("trainer.minutes") and fit.get("trainer.minutes") is None:
        fit.drop("no trainer.minutes", "warmup.required_accuracy")
    for phase in ("pretrain", "warmup"):
        steps = fit.get(f"{phase}.steps")
        if fit.set_by_user(f"{phase}.steps") and _is_count(steps) and steps > 0:
            fit.cap(f"{phase}.steps = {steps}", f"{phase}.optimizer.warmup_steps", steps)
