"""A recipe: the packages' configs composed, read from TOML, with dotted overrides and presets.

Owns the composition and the checks that concern more than one package: a combination that cannot
work fails here, before anything is built. Knows how to build nothing.
"""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import tomli_w
from pydantic import Field, model_validator

from turnwise.agents import AgentConfig
from turnwise.credit import CreditConfig, check_components
from turnwise.credit.schemes import SCHEMES
from turnwise.engines import EngineConfig
from turnwise.envs import IMPORTING, ToolEnv, find_env
from turnwise.errors import ConfigError, TurnwiseError, unknown_name
from turnwise.forest import ForestConfig
from turnwise.imports import is_import_name
from turnwise.losses import LossConfig
from turnwise.overrides import RUNNER_COMPONENTS, compose, merge, parse_override
from turnwise.policies import OptimizerConfig, PolicyConfig
from turnwise.runs import MetricsConfig
from turnwise.sandbox import SandboxConfig
from turnwise.sections import CheckpointConfig, EnvChoice, EpisodeConfig, EvaluationConfig
from turnwise.settings import Settings, parse
from turnwise.trainers.config import GrpoConfig, RehearsalConfig, SftConfig
from turnwise.trl_names import TRL_NAMES
from turnwise.workflows import WORKFLOWS

SPANS = ("think", "answer", "action")
"""The spans that renderers find in a completion (`render.find_spans`)."""


class Recipe(Settings):
    """All that decides a run."""

    name: str
    """The recipe's name; run folders begin with it."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Decides weights, tasks, tokens and the world's chance."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where policies live that do not say otherwise."""
    threads: int | None = Field(default=None, ge=1)
    """Threads of torch on the CPU; None is `OMP_NUM_THREADS` or what was set by
    `torch.set_num_threads`, else one for models below 5 million parameters and torch's own default
    above."""
    env: EnvChoice
    """The world."""
    workflow: str = "solo"
    """Who speaks when."""
    agents: dict[str, AgentConfig] = Field(default_factory=lambda: {"player": AgentConfig()})
    """Role -> agent."""
    policies: dict[str, PolicyConfig]
    """Policy name -> weights."""
    pretrain: SftConfig | None = None
    """Supervised training of all weights before adapters exist; its outcome is their base, kept in
    the run as `base`. None puts them on the model as it is."""
    warmup: SftConfig | None = None
    """Supervised warm-up before training; None starts training at once."""
    rehearsal: RehearsalConfig | None = None
    """Supervised rows in every update of the policy-gradient loop; None is none."""
    trainer: GrpoConfig = GrpoConfig()
    """The policy-gradient loop."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """The optimizer of the policy-gradient loop."""
    credit: CreditConfig
    """Groups and advantages."""
    loss: LossConfig = LossConfig()
    """The loss."""
    engine: EngineConfig = EngineConfig()
    """The sampler."""
    forest: ForestConfig = ForestConfig()
    """How training rows are laid out."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """Validation and test."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """Checkpoints."""
    episodes: EpisodeConfig = EpisodeConfig()
    """Recorded episodes."""
    sandbox: SandboxConfig = SandboxConfig()
    """How programs that the model writes are run, where the env runs any."""
    metrics: MetricsConfig = MetricsConfig()
    """Where metrics go beside `metrics.jsonl`."""

    @model_validator(mode="after")
    def _check(self) -> Recipe:
        if not self.name.strip() or not self.name.isprintable() or set(self.name) & set("/\\"):
            raise ValueError(f"name = {self.name!r} can begin no folder's name: give letters")
        env = self.env.make("training")
        if set(self.agents) != set(env.roles):
            raise ValueError(
                f"agents are {sorted(self.agents)}, env {env.name!r} has the roles "
                f"{sorted(env.roles)}: give one [agents.<role>] section for each role"
            )
        for role, agent in self.agents.items():
            if agent.policy not in self.policies:
                raise ValueError(
                    f"agents.{role}.policy = {agent.policy!r} is none of the policies "
                    f"{sorted(self.policies)}"
                )
            if isinstance(env, ToolEnv) and agent.history != "full":
                raise ValueError(
                    f"agents.{role}.history = {agent.history!r} would hide what the tools of env "
                    f"{env.name!r} told: set it to 'full'"
                )
        if self.workflow not in WORKFLOWS:
            raise unknown_name("workflow", self.workflow, WORKFLOWS)
        if len(self.policies) != 1:
            raise ValueError(f"one policy is trained at present, got {sorted(self.policies)}")
        target = self.evaluation.target
        if target is not None and env.scored_by == "score" and not 0 < target <= 1:
            raise ValueError(
                f"evaluation.target = {target}: scores of {env.name!r} are in [0, 1]: give a "
                "number above 0 and at most 1"
            )
        if self.sandbox != SandboxConfig() and not env.runs_programs:
            raise ValueError(
                f"[sandbox] does not apply: env {env.name!r} runs no programs: leave it out, or "
                "mark the reward function with turnwise.sandbox.runs_programs"
            )
        check_components(self.credit, (*env.components, *RUNNER_COMPONENTS))
        self._check_comparison()
        self._check_loss()
        self._check_schedules()
        self._check_adapters()
        return self

    def _check_comparison(self) -> None:
        """Refuse groups in which nothing can be compared."""
        scheme, trainer = self.credit.scheme, self.trainer
        by_visit = SCHEMES[scheme].by_visit
        if by_visit and trainer.group_size == 1 and self.credit.own_episode != "include":
            raise ValueError(
                f"trainer.group_size = 1 leaves nothing to compare in scheme = {scheme!r}: raise "
                "it, or use credit.scheme = 'reinforce'"
            )
        if trainer.dynamic_sampling and not by_visit:
            raise ValueError(
                f"trainer.dynamic_sampling = true refills groups, but scheme = {scheme!r} has "
                "none: leave it out, or use a scheme with groups"
            )

    def _check_loss(self) -> None:
        """Refuse spans that no completion has, and ratios that could not be told from 1."""
        spans = {"credit.segments": list(self.credit.segments)}
        spans["rehearsal.spans"] = list(self.rehearsal.spans) if self.rehearsal else []
        spans["loss.entropy_span"] = [self.loss.entropy_span] if self.loss.entropy_span else []
        for where, names in spans.items():
            for name in names:
                if name not in SPANS:
                    raise ConfigError(f"{where}: {unknown_name('span', name, SPANS)}")
        own = self.loss.kind == "gspo" or self.loss.tis_cap is not None
        if own and self.trainer.proximal == "behaviour":
            raise ValueError(
                "trainer.proximal = 'behaviour' does not go with loss.kind = 'gspo' or "
                "loss.tis_cap, which need the trainer's own log-probabilities: leave it out"
            )

        if self.loss.kl == "reward_k1" and self.credit.scheme == "maxrl":
            raise ValueError(
                "loss.kl = 'reward_k1' makes returns negative, by whose mean scheme = 'maxrl' "
                "divides: use loss_k2 or loss_k3, or another scheme"
            )

    def _check_schedules(self) -> None:
        """Refuse a run without steps, and rates that rise for longer than a phase lasts."""
        warmup = self.warmup.steps if self.warmup else 0
        updates = self.trainer.iterations * self.trainer.updates_per_batch
        if not warmup + updates:
            raise ValueError(
                "trainer.iterations = 0 without a warm-up trains nothing: give iterations or "
                "warmup.steps"
            )
        phases = {"optimizer": (self.optimizer, updates)}
        if self.pretrain:
            phases["pretrain.optimizer"] = (self.pretrain.optimizer, self.pretrain.steps)
        if self.warmup:
            phases["warmup.optimizer"] = (self.warmup.optimizer, warmup)
        for section, (optimizer, steps) in phases.items():
            if 0 < steps < optimizer.warmup_steps:
                raise ValueError(
                    f"{section}.warmup_steps = {optimizer.warmup_steps} outlasts the {steps} steps "
                    "of its phase: lower it"
                )

    def _check_adapters(self) -> None:
        """Refuse stages of adapters that have nothing to stand on."""
        for name, policy in self.policies.items():
            where = f"policies.{name}.lora"
            if self.pretrain is not None and policy.lora is None:
                raise ValueError(
                    f"[pretrain] trains all weights before an adapter exists, but {where} is not "
                    "set: set it, or use [warmup] alone"
                )
            merges = policy.lora is not None and policy.lora.merge_warmup
            if merges and not (self.warmup and self.warmup.steps):
                raise ValueError(
                    f"{where}.merge_warmup = true merges the warm-up's adapter, but there is no "
                    "warm-up: set it to false, or give [warmup] steps"
                )
            if self.pretrain is not None and policy.dtype == "float16":
                raise ValueError(
                    f"[pretrain] trains all weights, which underflow in policies.{name}.dtype = "
                    "'float16': use 'bfloat16' or 'float32'"
                )
            if self.pretrain is not None and not self.pretrain.steps:
                raise ValueError("pretrain.steps = 0 trains nothing: leave [pretrain] out")

    @property
    def rows_before_warmup(self) -> int:
        """How many supervised rows come before the warm-up's own."""
        return self.pretrain.steps * self.pretrain.batch_size if self.pretrain else 0

    @property
    def rows_before_training(self) -> int:
        """How many supervised rows come before those that training rehearses."""
        own = self.warmup.steps * self.warmup.batch_size if self.warmup else 0
        return self.rows_before_warmup + own

    def to_toml(self) -> str:
        """Return the resolved recipe as TOML that loads to an equal recipe."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True, exclude_unset=False))


def recipe_names() -> list[str]:
    """Return the names of the shipped recipes."""
    folder = resources.files("turnwise") / "recipes"
    return sorted(
        p.name.removesuffix(".toml") for p in folder.iterdir() if p.name.endswith(".toml")
    )


def load_recipe(
    name_or_path: str,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    note: Callable[[str], None] | None = None,
) -> Recipe:
    """Return a shipped recipe by name, or one from a .toml file, with overrides applied.

    Args:
        name_or_path: "frozen-lake", or a path that ends in .toml.
        overrides: "a.b=c" in order, or {"a.b": c}; "preset=fast" applies the recipe's own
            `[presets.fast]` first.
        note: told what of the recipe gives way to an override (`overrides.compose`); None warns.

    Raises:
        ConfigError: if the name, a key or a value is wrong; the message says the cure.

    Example:
        >>> load_recipe("frozen-lake", ["trainer.iterations=30"]).trainer.iterations
        30
    """
    data = _read(name_or_path)
    presets = data.pop("presets", {})
    if not isinstance(presets, Mapping) or not all(
        isinstance(p, Mapping) for p in presets.values()
    ):
        raise ConfigError(f"recipe {name_or_path!r}: write presets as tables: [presets.NAME]")
    if isinstance(overrides, str):
        raise ConfigError(f"overrides = {overrides!r}: expected a list, as in [{overrides!r}]")
    mapping = isinstance(overrides, Mapping)
    pairs = list(overrides.items()) if mapping else [parse_override(each) for each in overrides]
    for _, preset in (pair for pair in pairs if pair[0] == "preset"):
        if preset not in presets:
            raise unknown_name("preset", str(preset), presets)
        data = merge(data, presets[preset])
    return make_recipe(data, [pair for pair in pairs if pair[0] != "preset"], note, name_or_path)


def make_recipe(
    data: Mapping[str, Any],
    settings: Mapping[str, Any] | Sequence[tuple[str, Any]] = (),
    note: Callable[[str], None] | None = None,
    name: str = "",
) -> Recipe:
    """Return the recipe that plain values describe, with settings applied.

    Args:
        data: what a recipe's TOML would say.
        settings: "section.key" -> value, as overrides have it; None takes the key out.
        note: told what of `data` gives way to a setting; None warns.
        name: what errors call a recipe without a name of its own.

    Raises:
        ConfigError: if a key or a value is wrong; the message says the cure.
    """
    pairs = list(settings.items()) if isinstance(settings, Mapping) else list(settings)
    notes: list[str] = []
    composed = compose(data, pairs, notes.append)
    what = f"recipe {data.get('name', name)!r}"
    recipe = parse(Recipe, composed, what, aliases=_aliases(composed))
    for sentence in notes:
        note(sentence) if note else warnings.warn(sentence, stacklevel=3)
    return recipe


def _aliases(data: Mapping[str, Any]) -> dict[str, str]:
    """Return other names for settings: TRL's, and the options of the recipe's env."""
    found = dict(TRL_NAMES)
    for section, spot in (("agents", "agents.player."), ("policies", "policies.main.")):
        names = data.get(section)
        first = next(iter(names), "") if isinstance(names, Mapping) else ""
        if first:
            keys = {k: v.replace(spot, f"{section}.{first}.") for k, v in found.items()}
            found = keys
    env = data.get("env")
    name = env.get("name") if isinstance(env, Mapping) else None
    if isinstance(name, str):
        with suppress(TurnwiseError):
            options = find_env(name).config_class.model_fields
            found |= {option: f"env.options.{option}" for option in options}
    return found


def recipe_summary(name: str) -> dict[str, Any]:
    """Return a recipe's name, env, model and presets, for listings."""
    data = _read(name)
    chosen = compose(data, [], lambda text: None)  # not parsed: that would make every env
    return {
        "name": chosen["name"],
        "env": chosen["env"]["name"],
        "models": {key: policy["model"] for key, policy in chosen["policies"].items()},
        "scheme": chosen["credit"]["scheme"],
        "iterations": chosen.get("trainer", {}).get("iterations", GrpoConfig().iterations),
        "presets": sorted(data.get("presets", {})),
    }


def _read(name_or_path: str) -> dict[str, Any]:
    if name_or_path.endswith(".toml"):
        path = Path(name_or_path)
        if not path.is_file():
            raise ConfigError(f"no recipe file at {name_or_path!r}: give a .toml file that exists")
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            said = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise ConfigError(
                f"recipe {name_or_path!r} cannot be read ({said}): let it be a UTF-8 text file "
                "that you may read"
            ) from None
    else:
        if is_import_name(name_or_path) or name_or_path.endswith(".py"):
            raise ConfigError(_how_to_train(name_or_path))
        if name_or_path not in recipe_names():
            raise unknown_name("recipe", name_or_path, recipe_names())
        file = resources.files("turnwise") / "recipes" / f"{name_or_path}.toml"
        text = file.read_text(encoding="utf-8")
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"recipe {name_or_path!r} is not valid TOML: {error}") from None
    return _find_files(data, Path(name_or_path).parent) if name_or_path.endswith(".toml") else data


def _how_to_train(env: str) -> str:
    """Return the sentence for an env that is given in place of a recipe."""
    named = env if is_import_name(env) else f"{env}:Class"
    return (
        f"{env!r} is no recipe: to train an env, call turnwise.train('nano', env='{named}') in "
        f'Python, or write a recipe.toml with name = "{named}" under [env]'
    )


def _find_files(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a recipe whose data files are looked for beside it first."""
    env = data.get("env")
    if not isinstance(env, dict) or not isinstance(env.get("name"), str):
        return data  # parsing says what is wrong
    timeout = env.get("timeout")
    if not isinstance(timeout, int | float) or timeout <= 0:
        timeout = IMPORTING  # a wrong one is refused when the recipe is parsed
    names = find_env(env["name"], timeout).files
    for section in ("options", "training", "warmup"):
        options = env.get(section)
        if not isinstance(options, dict):
            continue
        for name in names:
            given = options.get(name)
            if isinstance(given, str) and (folder / given).is_file():
                options[name] = str((folder / given).resolve())
    return data
