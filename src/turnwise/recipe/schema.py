"""A recipe: the configs of all packages in one, read from TOML with overrides and presets.

Provides `Recipe`, `load_recipe` and `make_recipe`. `recipe.checks` refuses combinations that cannot
work before anything is built.
"""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tomli_w
from pydantic import Field, field_validator, model_validator

from turnwise.agents import AgentConfig
from turnwise.credit import AnyCredit
from turnwise.curriculum import AnyCurriculum, UniformConfig
from turnwise.engines.config import EngineConfig
from turnwise.engines.remote_config import RemoteConfig
from turnwise.engines.table import AnyEngineConfig
from turnwise.envs import Env
from turnwise.errors import ConfigError, unknown_name
from turnwise.forest import ForestConfig
from turnwise.losses.clipped import ClippedConfig
from turnwise.losses.table import AnyLoss
from turnwise.policies import OptimizerConfig, PolicyConfig
from turnwise.recipe.checks import check_recipe
from turnwise.recipe.file_paths import with_whole_paths
from turnwise.recipe.none_values import env_config, named_none
from turnwise.recipe.overrides import compose, parse_override, with_preset
from turnwise.recipe.sections import CheckpointConfig, EnvChoice, EpisodeConfig, EvaluationConfig
from turnwise.recipe.trl_names import TRL_NAMES
from turnwise.runs import MetricsConfig
from turnwise.sandbox import SandboxConfig
from turnwise.settings import Settings, one_of, parse
from turnwise.trainers.config import GrpoConfig, SftConfig, SftMixConfig
from turnwise.trainers.opponents_config import OpponentsConfig
from turnwise.trainers.table import AnyTrainer
from turnwise.utils.user_code import is_import_name
from turnwise.workflows import WorkflowConfig
from turnwise.workflows.topologies import AnyTopology, IndependentConfig, SpineConfig

Stage = Literal["pretrain", "warmup", "trainer"]
STAGES: tuple[Stage, ...] = ("pretrain", "warmup", "trainer")
if TYPE_CHECKING:
    AnyPolicy = PolicyConfig | RemoteConfig
else:
    AnyPolicy = one_of({"weights": PolicyConfig, "remote": RemoteConfig}, default="weights")
    """A section `[policies.NAME]` of a recipe."""


class Recipe(Settings):
    """All that decides a run."""

    name: str
    """The recipe's name; run folders begin with it."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seeds the weights, tasks, sampled tokens and the randomness of the env."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """The device of policies that do not name one."""
    threads: int | None = Field(default=None, ge=1)
    """Threads of torch on the CPU; None is `OMP_NUM_THREADS` or what `torch.set_num_threads` set,
    else one for models below 5 million parameters, above that what is faster in a measurement at
    the start, which the run keeps, and above 50 million torch's own default."""
    processes: int | None = Field(default=None, ge=1)
    """Processes on this machine that share episodes and updates, each with `threads` threads and
    its own copy of the weights. None is two for long runs of nano models in frozen-lake, relay and
    treasure, where a second core and 4 GB of memory are free at the start, on Linux without a GPU,
    if no number of threads was set; the run keeps the number. Else it is one. Sums of other parts
    are rounded differently, so that runs with different numbers of processes are not equal to the
    bit."""
    env: EnvChoice
    """The world."""
    workflow: WorkflowConfig = WorkflowConfig()
    """The order in which agents act; a string is its `kind`."""
    topology: AnyTopology = IndependentConfig()
    """What is sampled of each task visit in training: whole episodes, or siblings of every turn; a
    string is its `kind`. Evaluation always plays whole episodes."""
    agents: dict[str, AgentConfig] = Field(default_factory=lambda: {"player": AgentConfig()})
    """Role -> agent."""
    policies: dict[str, AnyPolicy]
    """Policy name -> weights on this machine, or an endpoint."""
    stages: tuple[Stage, ...] = STAGES
    """The stages of training in their order, each the name of its section; a stage whose section is
    absent or has no steps is skipped."""
    pretrain: SftConfig | None = None
    """Supervised training of all weights before adapters exist; its outcome is their base, kept in
    the run as `base`. None puts them on the model as it is."""
    warmup: SftConfig | None = None
    """Supervised warm-up before training; None starts training at once."""
    sft_mix: SftMixConfig | None = None
    """Supervised rows in every update of the policy-gradient loop; None is none."""
    curriculum: AnyCurriculum = UniformConfig()
    """Which task comes next."""
    opponents: OpponentsConfig | None = None
    """Who plays against the policy where seats compete. None is self-play, and scores against the
    env's own opponents (`Env.opponents`)."""
    trainer: AnyTrainer = GrpoConfig()
    """The policy-gradient loop."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """The optimizer of the policy-gradient loop."""
    credit: AnyCredit
    """Groups and advantages."""
    loss: AnyLoss = ClippedConfig()
    """The loss."""
    engine: AnyEngineConfig = EngineConfig()
    """The sampler."""
    forest: ForestConfig = ForestConfig()
    """The layout of training rows."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """Validation and test."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """Checkpoints."""
    episodes: EpisodeConfig = EpisodeConfig()
    """Recorded episodes."""
    sandbox: SandboxConfig = SandboxConfig()
    """The isolation and limits of programs that the model writes, where the env runs any."""
    metrics: MetricsConfig = MetricsConfig()
    """The sinks of metrics beside `metrics.jsonl`."""

    @field_validator("agents", mode="before")
    @classmethod
    def _name_roles(cls, given: Any) -> Any:
        """Give every agent the role that its section is named after."""
        if not isinstance(given, Mapping):
            return given
        return {
            role: {"role": role, **agent} if isinstance(agent, Mapping) else agent
            for role, agent in given.items()
        }

    @field_validator("workflow", "topology", mode="before")
    @classmethod
    def _name_kind(cls, given: Any) -> Any:
        """Read a string as the kind."""
        return {"kind": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _check(self) -> Recipe:
        check_recipe(self)
        return self

    @property
    def weights(self) -> dict[str, PolicyConfig]:
        """The policies with weights on this machine."""
        return {n: each for n, each in self.policies.items() if isinstance(each, PolicyConfig)}

    @property
    def remote(self) -> dict[str, RemoteConfig]:
        """The policies at an endpoint."""
        return {n: each for n, each in self.policies.items() if isinstance(each, RemoteConfig)}

    def base_of(self, policy: str) -> str:
        """Return the name of the first policy whose adapter stands on the same base."""
        own = self.weights.get(policy)
        if own is None or own.lora is None or not own.trainable:
            return policy
        return next(
            name
            for name, other in self.weights.items()
            if other.lora is not None and other.trainable and _base(other) == _base(own)
        )

    @property
    def pretrains(self) -> bool:
        """Whether the run trains the bases of its adapters."""
        return self.pretrain is not None and "pretrain" in self.stages

    def has(self, stage: Stage) -> bool:
        """Whether a stage is among those that the run goes through, and has steps."""
        phase = self.pretrain if stage == "pretrain" else self.warmup
        steps = self.trainer.iterations if stage == "trainer" else phase.steps if phase else 0
        return stage in self.stages and steps > 0

    def scored_against(self, env: Env[Any]) -> tuple[str, ...]:
        """Return the baselines that scores are taken against, the one of the score first."""
        given = None if self.opponents is None else self.opponents.against
        return env.opponents if given is None else given

    @property
    def compares_steps(self) -> bool:
        """Whether siblings are compared by what their own steps earn."""
        return isinstance(self.topology, SpineConfig) and self.topology.horizon == "step"

    @property
    def rows_before_warmup(self) -> int:
        """The number of supervised rows before the warm-up's own."""
        has = self.pretrain is not None and self.has("pretrain")
        return self.pretrain.steps * self.pretrain.batch_size if self.pretrain and has else 0

    @property
    def rows_before_training(self) -> int:
        """The number of supervised rows before those of the SFT mix."""
        has = self.warmup is not None and self.has("warmup")
        own = self.warmup.steps * self.warmup.batch_size if self.warmup and has else 0
        return self.rows_before_warmup + own

    @property
    def episodes_of_training(self) -> int:
        """The number of episodes that the trainer plays, without refills."""
        one = self.trainer
        if not self.has("trainer"):
            return 0
        return one.iterations * one.tasks_per_iteration * one.group_size

    def to_toml(self) -> str:
        """Return the resolved recipe as TOML that loads to an equal recipe."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True, exclude_unset=False))


def _base(policy: PolicyConfig) -> dict[str, Any]:
    """Return what of a policy's config decides the base of its adapter."""
    return policy.model_dump(exclude={"lora", "lr"})


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
        note: receives a sentence for each value of the recipe that an override drops
            (`overrides.compose`); None warns.

    Raises:
        ConfigError: if the name, a key or a value is wrong; the message says the cure.

    Example:
        >>> load_recipe("frozen-lake", ["trainer.iterations=30"]).trainer.iterations
        30
    """
    data = read_recipe(name_or_path)
    presets = data.pop("presets", {})
    if not isinstance(presets, Mapping) or not all(
        isinstance(p, Mapping) for p in presets.values()
    ):
        raise ConfigError(f"recipe {name_or_path!r}: write presets as tables: [presets.NAME]")
    if isinstance(overrides, str):
        raise ConfigError(f"overrides = {overrides!r}: expected a list, as in [{overrides!r}]")
    mapping = isinstance(overrides, Mapping)
    pairs = list(overrides.items()) if mapping else [parse_override(each) for each in overrides]
    names = [str(preset) for key, preset in pairs if key == "preset"]
    for place, preset in enumerate(names):
        if not presets:
            raise ConfigError(
                f"preset = {preset!r}: recipe {name_or_path!r} has no presets: leave it out, or "
                f"add [presets.{preset}]"
            )
        if preset not in presets:
            raise unknown_name("preset", preset, presets)
        data = with_preset(data, presets[preset], preset, names[:place])
    pairs = [pair for pair in pairs if pair[0] != "preset"]
    return make_recipe(
        data, pairs if mapping else named_none(pairs, Recipe, data), note, name_or_path
    )


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
        note: receives a sentence for each value of `data` that a setting drops; None warns.
        name: what errors call a recipe without a name of its own.

    Raises:
        ConfigError: if a key or a value is wrong; the message says the cure.
    """
    pairs = list(settings.items()) if isinstance(settings, Mapping) else list(settings)
    for key, value in pairs:
        if not isinstance(key, str):
            raise ConfigError(
                f"setting {key!r:.80} = {value!r:.80}: expected a name, as in 'trainer.iterations'"
            )
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
    env = env_config(data)
    return found | {name: f"env.options.{name}" for name in (env.model_fields if env else ())}


def recipe_summary(name: str) -> dict[str, Any]:
    """Return a recipe's name, env, model and presets, for listings."""
    data = read_recipe(name)
    chosen = compose(data, [], lambda text: None)  # not parsed: that would make every env
    return {
        "name": chosen["name"],
        "env": chosen["env"]["name"],
        "models": {key: policy["model"] for key, policy in chosen["policies"].items()},
        "scheme": chosen["credit"]["scheme"],
        "iterations": chosen.get("trainer", {}).get("iterations", GrpoConfig().iterations),
        "presets": sorted(data.get("presets", {})),
    }


def read_recipe(name_or_path: str) -> dict[str, Any]:
    """Return the values of a recipe as they are written, with its presets and whole paths.

    Raises:
        ConfigError: if there is no such recipe, or it cannot be read.
    """
    text = recipe_text(name_or_path)
    try:
        data = tomllib.loads(text)
    except ValueError as error:  # TOML's, or an integer of too many digits
        raise ConfigError(f"recipe {name_or_path!r} is not valid TOML: {error}") from None
    if not name_or_path.endswith(".toml"):
        return data
    return with_whole_paths(data, Path(name_or_path).parent)


def recipe_text(name_or_path: str) -> str:
    """Return the text of a recipe's file, comments included.

    Raises:
        ConfigError: if there is no such recipe, or it cannot be read.
    """
    if name_or_path.endswith(".toml"):
        return _text_of(name_or_path)
    if is_import_name(name_or_path) or name_or_path.endswith(".py"):
        raise ConfigError(_how_to_train(name_or_path))
    if name_or_path not in recipe_names():
        beside = f"{name_or_path}.toml"
        if Path(beside).is_file():
            raise ConfigError(f"unknown recipe {name_or_path!r}: did you mean {beside!r}?")
        raise unknown_name("recipe", name_or_path, recipe_names(), "a .toml file")
    file = resources.files("turnwise") / "recipes" / f"{name_or_path}.toml"
    return file.read_text(encoding="utf-8")


def _text_of(path: str) -> str:
    if not Path(path).is_file():
        raise ConfigError(f"no recipe file at {path!r}: give a .toml file that exists")
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(
            f"recipe {path!r} cannot be read ({said}): let it be a UTF-8 text file that you may "
            "read"
        ) from None


def _how_to_train(env: str) -> str:
    """Return the sentence for an env that is given in place of a recipe."""
    named = env if is_import_name(env) else f"{env}:Class"
    return (
        f"{env!r} is not a recipe: to train an env, call turnwise.train('nano', env='{named}') in "
        f'Python, or write a recipe.toml with name = "{named}" under [env]'
    )
