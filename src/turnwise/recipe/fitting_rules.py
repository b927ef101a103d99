"""The rules by which values of a recipe give way to a user's settings.

Provides `RULES`. Each leaves out or caps what means nothing beside what the user has set: options
of another env, scheme, loss, trainer or model.
"""

from __future__ import annotations

from collections.abc import Callable

from turnwise.credit.config import RETURN
from turnwise.credit.schemes import DEFAULT, SCHEMES
from turnwise.curriculum import CURRICULA
from turnwise.engines.remote_config import RemoteConfig
from turnwise.envs import ToolEnv, find_env, make_env
from turnwise.errors import TurnwiseError
from turnwise.formats import with_reply_components
from turnwise.losses.table import LOSSES
from turnwise.option_paths import own_options
from turnwise.policies.config import PolicyConfig
from turnwise.policies.presets import is_nano
from turnwise.policies.schedule import AUTO
from turnwise.recipe.fit import PHASES, Data, Fit, is_count, is_number, merge, nest, value_at
from turnwise.trainers.table import TRAINERS
from turnwise.workflows.topologies import TOPOLOGIES


def _env(fit: Fit) -> None:
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


def _env_options(fit: Fit, name: str) -> None:
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


def _scheme(fit: Fit) -> None:
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
        below = [key for key, weight in weights.items() if is_number(weight) and weight < 0]
        fit.drop(reason, *(f"credit.rewards.{key}" for key in below))


def _std_floor(fit: Fit) -> None:
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


def _loss(fit: Fit) -> None:
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


def _mix(fit: Fit) -> None:
    """Leave out what belongs to a span of the SFT mix that is gone, or weighs nothing.

    Without spans whole replies are imitated. That is not what somebody wants who takes the last
    span out: then there is no SFT mix.
    """
    if fit.get("sft_mix") is None or not fit.set_by_user("sft_mix.spans"):
        return
    spans = fit.table("sft_mix.spans")
    gone = [name for name in fit.keys("sft_mix.final") if name not in spans]
    fit.drop("sft_mix.spans", *(f"sft_mix.final.{name}" for name in gone))
    if not spans.get("action"):
        fit.drop("no sft_mix.spans.action", "sft_mix.action_floor")
    weights = [*spans.values(), *fit.table("sft_mix.final").values()]
    if any(weights) or not value_at(fit.base, "sft_mix.spans"):
        return
    if "sft_mix.spans" in fit.given:
        fit.notes.append("no sft_mix.spans: whole replies are imitated, with weight 1")
    else:
        fit.notes.append("no span of sft_mix.spans has a weight: left out sft_mix")
        fit.merged = merge(fit.merged, nest("sft_mix", None))


def _play(fit: Fit) -> None:
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


def _topology(fit: Fit) -> None:
    """Leave out what belongs to another topology."""
    if fit.switched("topology.kind", "independent"):
        options = own_options([topology.config for topology in TOPOLOGIES.values()])
        kind = fit.get("topology.kind") or "independent"
        fit.drop(f"topology.kind = {kind!r}", *(f"topology.{option}" for option in options))


def _models(fit: Fit) -> None:
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


def _rates(fit: Fit) -> None:
    """Leave out what "auto" begins with and aims at where no rate is "auto" any more."""
    rates = [fit.get(f"policies.{name}.lr") for name in fit.keys("policies")]
    rate = fit.get("optimizer.lr")
    if fit.set_by_user("optimizer.lr") and is_number(rate) and AUTO not in rates:
        fit.drop(f"optimizer.lr = {rate}", "optimizer.lr_start", "optimizer.movement")


def _loop(fit: Fit) -> None:
    """Cap what a shorter or smaller training loop has no room for."""
    tasks = fit.get("trainer.tasks_per_iteration")
    if fit.set_by_user("trainer.tasks_per_iteration") and is_count(tasks) and tasks > 0:
        fit.cap(f"trainer.tasks_per_iteration = {tasks}", "trainer.minibatches", tasks)
    if fit.set_by_user("trainer.dynamic_sampling") and not fit.get("trainer.dynamic_sampling"):
        fit.drop("trainer.dynamic_sampling = false", "trainer.max_refills")
    counts = [fit.get(f"trainer.{name}") for name in ("iterations", "minibatches", "epochs")]
    defaults = (100, 1, 1)
    filled = [d if count is None else count for count, d in zip(counts, defaults, strict=True)]
    if fit.set_by_user("trainer") and all(map(is_count, filled)):
        updates = filled[0] * filled[1] * filled[2]
        if updates > 0:
            reason = f"training takes {updates} optimizer step{'s' * (updates != 1)}"
            fit.cap(reason, "optimizer.warmup_steps", updates)


def _warmups(fit: Fit) -> None:
    """Leave out what shares time that is not limited; cap rises of rates in shorter phases."""
    if fit.set_by_user("trainer.minutes") and fit.get("trainer.minutes") is None:
        fit.drop("no trainer.minutes", "warmup.required_accuracy")
    for phase in ("pretrain", "warmup"):
        steps = fit.get(f"{phase}.steps")
        if fit.set_by_user(f"{phase}.steps") and is_count(steps) and steps > 0:
            fit.cap(f"{phase}.steps = {steps}", f"{phase}.optimizer.warmup_steps", steps)


def _trainer(fit: Fit) -> None:
    """Leave out what belongs to another trainer."""
    if not fit.switched("trainer.kind", "grpo"):
        return
    kind = fit.get("trainer.kind") or "grpo"
    options = own_options([trainer.config for trainer in TRAINERS.values()])
    reason = f"trainer.kind = {kind!r}"
    fit.drop(reason, *(f"trainer.{option}" for option in options))
    if kind != "grpo":
        fit.drop(reason, "sft_mix", "loss", "trainer.max_turns")
        if fit.get("optimizer.lr") == AUTO:
            fit.drop(reason, "optimizer.lr", "optimizer.lr_start", "optimizer.movement")


RULES: tuple[Callable[[Fit], None], ...] = (
    _env,
    _trainer,
    _scheme,
    _std_floor,
    _loss,
    _models,
    _rates,
    _loop,
    _warmups,
    _mix,
    _play,
    _topology,
)
"""The rules, in the order in which they are applied."""
