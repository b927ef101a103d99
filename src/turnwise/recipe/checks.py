"""The checks of a recipe that concern more than one package, made when it is read.

Provides `check_recipe`.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any

from turnwise.credit import SCHEMES, check_components
from turnwise.credit.schemes.max_at_k import MaxAtKConfig
from turnwise.envs import Env, ToolEnv
from turnwise.errors import ConfigError, unknown_name
from turnwise.formats import with_reply_components
from turnwise.losses.clipped import ClippedConfig
from turnwise.policies.schedule import AUTO
from turnwise.recipe.topology_checks import check_topology
from turnwise.sandbox import SandboxConfig
from turnwise.trainers.config import GrpoConfig, HindsightConfig
from turnwise.workflows import make_workflow

if TYPE_CHECKING:
    from turnwise.recipe.schema import Recipe

_POLICY_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
SPANS = ("think", "answer", "action")
"""The parts of a reply that spans name (`turnwise.formats`)."""


def check_recipe(recipe: Recipe) -> None:
    """Refuse combinations that cannot work.

    Raises:
        ValueError: if settings of several packages do not go together; the message says the cure.
    """
    if not recipe.name.strip() or not recipe.name.isprintable() or set(recipe.name) & set("/\\"):
        raise ValueError(f"name = {recipe.name!r} can begin no folder's name: give letters")
    env = recipe.env.make("training")
    if set(recipe.agents) != set(env.roles):
        raise ValueError(
            f"agents are {sorted(recipe.agents)}, env {env.name!r} has the roles "
            f"{sorted(env.roles)}: give one [agents.<role>] section for each role"
        )
    _check_agents(recipe, env)
    make_workflow(recipe.workflow)
    if len(set(recipe.stages)) < len(recipe.stages):
        raise ValueError(f"stages = {list(recipe.stages)} names a stage twice: name each once")
    if "pretrain" in recipe.stages[1:]:
        raise ValueError(
            f"stages = {list(recipe.stages)}: 'pretrain' makes the bases that other stages stand "
            "on: put it first, or leave it out"
        )
    _check_policies(recipe)
    target = recipe.evaluation.target
    if target is not None and env.scored_by == "score" and not 0 < target <= 1:
        raise ValueError(
            f"evaluation.target = {target}: scores of {env.name!r} are in [0, 1]: give a "
            "number above 0 and at most 1"
        )
    if recipe.sandbox != SandboxConfig() and not env.runs_programs:
        raise ValueError(
            f"[sandbox] does not apply: env {env.name!r} runs no programs: leave it out, or "
            "mark the reward function with turnwise.sandbox.runs_programs"
        )
    check_components(recipe.credit, with_reply_components(env.components))
    check_topology(recipe, env)
    _check_comparison(recipe)
    _check_parts(recipe, env)
    _check_loss(recipe)
    _check_schedules(recipe)
    _check_adapters(recipe)
    _check_opponents(recipe, env)
    if recipe.evaluation.baselines:
        known = env.baselines()
        for name in recipe.evaluation.baselines:
            if name not in known:
                raise unknown_name("evaluation.baselines", name, known)
    if isinstance(recipe.trainer, HindsightConfig):
        _check_hindsight(recipe, env)
    elif isinstance(recipe.trainer, GrpoConfig) and recipe.trainer.hindsight is not None:
        _check_relabels("trainer.hindsight", recipe, env)


def _check_relabels(what: str, recipe: Recipe, env: Env[Any]) -> None:
    """Refuse hindsight in an env that cannot be relabelled, or with episodes that begin later."""
    if type(env.unwrapped).relabel is Env.relabel:
        raise ValueError(
            f"{what} needs the task that an episode solved, which env {env.name!r} does not tell: "
            "write relabel(task, actions), or use another trainer"
        )
    if len(env.seats) > 1:
        raise ValueError(f"{what} is for envs with one seat, and {env.name!r} has several")
    if _begins_later(recipe):
        raise ValueError(
            f"{what} finds what an episode's actions solve from the first state on, but "
            "curriculum.kind = 'restarts' begins episodes in later ones: set curriculum.kind = "
            "'uniform'"
        )


def _check_hindsight(recipe: Recipe, env: Env[Any]) -> None:
    """Refuse the hindsight trainer beside settings that it does not use."""
    kind = 'trainer.kind = "hindsight"'
    _check_relabels(kind, recipe, env)
    unused = {
        "sft_mix": recipe.sft_mix is not None,
        "loss": recipe.loss != ClippedConfig(),
        "trainer.max_turns": recipe.trainer.max_turns is not None,
    }
    for setting, given in unused.items():
        if given:
            raise ValueError(f"{kind} takes supervised steps, without {setting}: leave it out")
    if AUTO in (recipe.optimizer.lr, *_own_rates(recipe)):
        raise ValueError(
            f'{kind} takes supervised steps, whose rate "auto" does not follow: give optimizer.lr '
            "a number, such as 1e-3"
        )


def _own_rates(recipe: Recipe) -> list[float | str | None]:
    return [policy.lr for policy in recipe.weights.values()]


def _check_opponents(recipe: Recipe, env: Env[Any]) -> None:
    """Refuse opponents without a seat, and what goes on without them."""
    given = recipe.opponents
    if given is None:
        return
    if len(env.seats) < 2:
        raise ValueError(
            f"[opponents] does not apply: env {env.name!r} has the one seat "
            f"{next(iter(env.seats))!r}: leave it out"
        )
    given.check_names(env.baselines())
    merging = [n for n, each in recipe.weights.items() if each.lora and each.lora.merge_warmup]
    if given.kept is not None and merging:
        raise ValueError(
            f"policies.{merging[0]}.lora.merge_warmup = true changes the base, which versions of "
            "the pool share: set it to false, or leave 'pool' out of opponents.shares"
        )
    if not given.trains_alone and recipe.curriculum.kind == "restarts":
        raise ValueError(
            "curriculum.kind = 'restarts' begins in states that the policy reached in all seats, "
            "but opponents.shares lets others play: set curriculum.kind = 'uniform'"
        )


def _check_agents(recipe: Recipe, env: Env[Any]) -> None:
    """Refuse agents without a policy, or with settings that env or evaluation contradict."""
    computed = recipe.evaluation.exact > 0 or recipe.evaluation.validation == "exact"
    for role, agent in recipe.agents.items():
        if agent.policy not in recipe.policies:
            raise ValueError(
                f"agents.{role}.policy: {unknown_name('policy', agent.policy, recipe.policies)}"
            )
        if agent.role != role:
            raise ValueError(
                f"agents.{role}.role = {agent.role!r}: leave it out, the section names the role"
            )
        if isinstance(env.unwrapped, ToolEnv) and agent.history != "full":
            raise ValueError(
                f"agents.{role}.history = {agent.history!r} would hide the results of the tools of "
                f"env {env.name!r}: set it to 'full'"
            )
        if agent.invalid_reply == "continue" and computed:
            raise ValueError(
                f"agents.{role}.invalid_reply = 'continue' does not go with computed scores: "
                "set evaluation.exact = 0 and evaluation.validation = 'played'"
            )


def _check_policies(recipe: Recipe) -> None:
    """Refuse policies that play no role, and a run that trains none of them."""
    used = {agent.policy for agent in recipe.agents.values()}
    for name in recipe.policies:
        if not _POLICY_NAME.fullmatch(name):
            raise ValueError(
                f"policies.{name}: a policy's name is a folder's name, too: give letters, "
                "digits, '_' and '-' only"
            )
        if name not in used:
            near = difflib.get_close_matches(name, used, n=1)
            mean = f"did you mean policies.{near[0]}? Otherwise " if near else ""
            raise ValueError(
                f"policies.{name} plays no role: {mean}name it in agents.<role>.policy, or leave "
                "it out"
            )
    for name, policy in recipe.weights.items():
        formats = {a.reply for a in recipe.agents.values() if a.policy == name}
        if recipe.sft_mix is not None and recipe.sft_mix.spans and len(formats) > 1:
            raise ValueError(
                f"sft_mix.spans names parts of one reply format, but the roles of policy "
                f"{name!r} reply as {' and '.join(sorted(formats))}: give them one `reply`, or "
                "leave spans out"
            )
        if policy.lr is not None and not policy.trainable:
            raise ValueError(
                f"policies.{name}.lr does not go with trainable = false: leave one out"
            )
    rates = {recipe.optimizer.lr, *(policy.lr for policy in recipe.weights.values())}
    for key in ("lr_start", "movement"):
        if getattr(recipe.optimizer, key) is not None and AUTO not in rates:
            raise ValueError(
                f'optimizer.{key} belongs to lr = "auto", but every learning rate is a number: '
                "leave it out"
            )
    if not any(policy.trainable for policy in recipe.weights.values()):
        raise ValueError(
            "every policy has trainable = false or is remote, so that nothing would be trained: "
            "give one of them weights to train, or use `turnwise eval`"
        )
    if recipe.remote and (recipe.evaluation.exact or recipe.evaluation.validation == "exact"):
        raise ValueError(
            f"policies.{next(iter(recipe.remote))} is remote and shows no probabilities: set "
            "evaluation.exact = 0 and evaluation.validation = 'played'"
        )


def _check_comparison(recipe: Recipe) -> None:
    """Refuse groups in which nothing can be compared."""
    scheme, trainer = recipe.credit.scheme, recipe.trainer
    by_visit = SCHEMES[scheme].by_visit and isinstance(trainer, GrpoConfig)
    if by_visit and trainer.group_size == 1 and not recipe.credit.lone_groups_teach:
        raise ValueError(
            f"trainer.group_size = 1 leaves nothing to compare in scheme = {scheme!r}: raise "
            "it, or use credit.scheme = 'reinforce'"
        )
    best_of = recipe.credit.k if isinstance(recipe.credit, MaxAtKConfig) else None
    if best_of and isinstance(trainer, GrpoConfig) and best_of >= trainer.group_size:
        raise ValueError(
            f"credit.k = {best_of} needs groups of more than {best_of} episodes, and "
            f"trainer.group_size = {trainer.group_size}: set credit.k to {trainer.group_size - 1} "
            "or less, or raise trainer.group_size"
        )
    if isinstance(trainer, GrpoConfig) and trainer.dynamic_sampling and not by_visit:
        raise ValueError(
            f"trainer.dynamic_sampling = true refills groups, but scheme = {scheme!r} has "
            "none: leave it out, or use a scheme with groups"
        )


def _begins_later(recipe: Recipe) -> bool:
    """Whether episodes may begin in states that others have reached."""
    return recipe.curriculum.kind == "restarts" and (
        recipe.curriculum.share > 0 or recipe.curriculum.explore > 0
    )


def _check_parts(recipe: Recipe, env: Env[Any]) -> None:
    """Refuse later beginnings that cannot be come to, and parts that would count as the whole."""
    later = _begins_later(recipe)
    if later and env.branching == "none":
        raise ValueError(
            f"curriculum.kind = 'restarts' begins in states of earlier episodes, but env "
            f"{env.name!r} has branching = 'none': set curriculum.kind = 'uniform'"
        )
    if later and env.blocking:
        raise ValueError(
            f"curriculum.kind = 'restarts' makes the moves to later states one after another, but "
            f"env {env.name!r} is blocking, and waits in each: set curriculum.kind = 'uniform'"
        )
    if recipe.trainer.max_turns is None:
        return
    if SCHEMES[recipe.credit.scheme].by_turn is None:
        raise ValueError(
            f"trainer.max_turns = {recipe.trainer.max_turns} leaves episodes before their end, "
            f"which scheme = {recipe.credit.scheme!r} would take for the end: set credit.scheme = "
            "'gae', or leave max_turns out"
        )
    refills = isinstance(recipe.trainer, GrpoConfig) and recipe.trainer.dynamic_sampling
    if refills or recipe.credit.mixed_only:
        raise ValueError(
            f"trainer.max_turns = {recipe.trainer.max_turns} does not go with dynamic_sampling or "
            "filter_zero_variance, which judge episodes by their returns so far: leave one out"
        )


def _check_loss(recipe: Recipe) -> None:
    """Refuse spans that no completion has, and ratios that could not be told from 1."""
    spans = {"credit.segments": list(recipe.credit.segments)}
    spans["sft_mix.spans"] = list(recipe.sft_mix.spans) if recipe.sft_mix else []
    spans["loss.entropy_span"] = [recipe.loss.entropy_span] if recipe.loss.entropy_span else []
    for where, names in spans.items():
        for name in names:
            if name not in SPANS:
                raise ConfigError(f"{where}: {unknown_name('span', name, SPANS)}")
    own = isinstance(recipe.trainer, GrpoConfig) and recipe.trainer.old_logprobs == "behaviour"
    if recipe.loss.needs_own_logprobs and own:
        raise ValueError(
            "trainer.old_logprobs = 'behaviour' does not go with loss.kind = 'gspo' or "
            "loss.tis_cap, which need the trainer's own log-probabilities: leave it out"
        )
    if recipe.loss.kl == "reward_k1" and recipe.credit.scheme == "maxrl":
        raise ValueError(
            "loss.kl = 'reward_k1' makes returns negative, by whose mean scheme = 'maxrl' "
            "divides: use loss_k2 or loss_k3, or another scheme"
        )


def _check_schedules(recipe: Recipe) -> None:
    """Refuse a run without steps, and rates that rise for longer than a phase lasts."""
    warmup = recipe.warmup.steps if recipe.warmup and recipe.has("warmup") else 0
    updates = recipe.trainer.iterations * recipe.trainer.updates_per_batch
    if not warmup and not recipe.has("trainer"):
        raise ValueError(
            "trainer.iterations = 0 without a warm-up trains nothing: give iterations or "
            "warmup.steps"
        )
    phases = {"optimizer": (recipe.optimizer.warmup_steps, updates * recipe.has("trainer"))}
    if recipe.pretrain:
        rise = recipe.pretrain.optimizer.warmup_steps
        phases["pretrain.optimizer"] = (rise, recipe.pretrain.steps)
    if recipe.warmup:
        phases["warmup.optimizer"] = (recipe.warmup.optimizer.warmup_steps, warmup)
    supervised = {"pretrain": recipe.pretrain, "warmup": recipe.warmup}
    for name, rows in {**supervised, "sft_mix": recipe.sft_mix}.items():
        players = recipe.env.make("warmup").baselines() if rows and rows.player else {}
        if rows is not None and rows.player is not None and rows.player not in players:
            raise unknown_name(f"{name}.player", rows.player, players)
    for name, phase in supervised.items():
        timed = name == "warmup" and recipe.trainer.minutes is not None
        if phase is not None and phase.required_accuracy is not None and not timed:
            raise ValueError(
                f"{name}.required_accuracy divides `trainer.minutes` between the warm-up and "
                f"training, but {'none are given' if name == 'warmup' else 'this is neither'}: "
                "leave it out"
            )
    for section, (rise, steps) in phases.items():
        if 0 < steps < rise:
            raise ValueError(
                f"{section}.warmup_steps = {rise} outlasts the {steps} steps of its phase: lower it"
            )


def _check_adapters(recipe: Recipe) -> None:
    """Refuse stages of adapters that have nothing to stand on."""
    for name, policy in recipe.weights.items():
        if not policy.trainable:
            continue
        where = f"policies.{name}.lora"
        if recipe.pretrains and policy.lora is None:
            raise ValueError(
                f"[pretrain] trains all weights before an adapter exists, but {where} is not "
                "set: set it, or use [warmup] alone"
            )
        merges = policy.lora is not None and policy.lora.merge_warmup
        if merges and not recipe.has("warmup"):
            raise ValueError(
                f"{where}.merge_warmup = true merges the warm-up's adapter, but there is no "
                "warm-up: set it to false, or give [warmup] steps"
            )
        if recipe.pretrains and policy.dtype == "float16":
            raise ValueError(
                f"[pretrain] trains all weights, which underflow in policies.{name}.dtype = "
                "'float16': use 'bfloat16' or 'float32'"
            )
        if recipe.pretrain and recipe.pretrains and not recipe.pretrain.steps:
            raise ValueError("pretrain.steps = 0 trains nothing: leave [pretrain] out")
