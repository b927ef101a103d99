"""Policies that play without training: those of a run, or of a recipe, with others in some roles.

Provides `load_run` and `load_models`. Nothing is written into a run's folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnwise.app.build import config_of, make_policies, runner_of, sequence_lengths
from turnwise.app.sources import (
    Source,
    best_checkpoint,
    check_roles,
    frozen,
    model_source,
    policy_source,
)
from turnwise.app.stages import PRETRAIN, without_adapters
from turnwise.engines.loop import SteppedEngine, close_engine
from turnwise.engines.table import make_engine
from turnwise.envs.base import Env
from turnwise.errors import ConfigError
from turnwise.parallel import ALONE, ProcessGroup
from turnwise.policies import Policy, PolicyConfig, is_nano
from turnwise.recipe.schema import Recipe, load_recipe
from turnwise.recipe.sections import open_sandbox
from turnwise.rollout import Runner
from turnwise.runs import Checkpoint, Run
from turnwise.runs.checkpoints import policy_folder
from turnwise.tasks import GeneratedTasks
from turnwise.trainers.validation import DECODING
from turnwise.types import Decoding


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A recipe's roles with the policies that play them, and an engine to play with.

    `sources` are the policies that are not the recipe's own, by name. `group` are the processes
    that have loaded the same and share the episodes.
    """

    recipe: Recipe
    policies: Mapping[str, Policy]
    engine: SteppedEngine
    seed: int
    sources: Mapping[str, Source] = field(default_factory=dict)
    group: ProcessGroup = ALONE

    @property
    def decoding(self) -> Decoding:
        """The decoding of the policies: the recipe's, or the one with the better validation score.

        Weights that were never validated imitate random play at best, whose most probable action
        is of no use: they are sampled. So are policies that validated better in different ways.
        """
        rule = self.recipe.evaluation.decoding
        if rule != "validated":
            return rule
        ways: set[Decoding] = {source.decoding for source in self.sources.values()}
        ways |= {self._own_decoding() for name in self.policies if name not in self.sources}
        return ways.pop() if len(ways) == 1 else "sampled"

    @property
    def checkpoint_name(self) -> str:
        """Phase and step of the weights, "" where no checkpoint is loaded."""
        return ""

    @property
    def players(self) -> dict[str, str]:
        """Role -> who plays it, where some are not the recipe's own after training."""
        return {role: self._title(agent.policy) for role, agent in self.recipe.agents.items()}

    def judge(self, env: Env[Any], *, heat: float = 1.0) -> Runner:
        """Return the runner that plays `env` with the weights in use and the draws of `seed`.

        Args:
            env: is played.
            heat: the agents' temperatures are multiplied by it.
        """
        agents = {
            role: agent.model_copy(update={"temperature": heat * agent.temperature})
            for role, agent in self.recipe.agents.items()
        }
        recipe = self.recipe.model_copy(update={"agents": agents})
        return runner_of(recipe, env, self.policies, self.engine, self.seed, group=self.group)

    def close(self) -> None:
        """Close the engine, with the connections to remote policies."""
        close_engine(self.engine)

    def use_checkpoint(self) -> None:
        """Play with the weights of the chosen checkpoint from now on; here they are in place."""

    def use_start(self) -> bool:
        """Play with the weights that training began with; False if there are none."""
        return False

    def _own_decoding(self) -> Decoding:
        return "sampled"

    def _title(self, policy: str) -> str:
        return policy if policy in self.sources else f"model {self.recipe.policies[policy].model}"


@dataclass(frozen=True, kw_only=True)
class LoadedRun(Loaded):
    """A run read back: its recipe, its chosen checkpoint, and an engine to play with."""

    folder: Run
    checkpoint: Checkpoint

    @property
    def checkpoint_name(self) -> str:
        """Phase and step of the weights."""
        return f"{self.checkpoint.phase} {self.checkpoint.step}"

    @property
    def players(self) -> dict[str, str]:
        """Role -> who plays it; empty where all are the run's own."""
        return super().players if self.sources else {}

    def use_checkpoint(self) -> None:
        """Play with the weights of the chosen checkpoint from now on."""
        self._use({name: policy_folder(self.checkpoint.path, name) for name in self._trained})

    def use_start(self) -> bool:
        """Play with the weights that training began with; False if the run has none yet."""
        places = {name: self.folder.start(name) for name in self._trained}
        found = bool(places) and all(place.is_dir() for place in places.values())
        if found:
            self._use(places)
        return found

    def _own_decoding(self) -> Decoding:
        return self.checkpoint.meta.get(DECODING, "sampled")

    def _title(self, policy: str) -> str:
        return policy if policy in self.sources else f"{self.folder.path}:{policy}"

    @property
    def _trained(self) -> list[str]:
        own = {name: each for name, each in self.policies.items() if name not in self.sources}
        return [name for name, policy in own.items() if policy.config.trainable]

    def _use(self, places: Mapping[str, Path]) -> None:
        for name, place in places.items():
            self.policies[name].load_weights(place)
            self.policies[name].version += 1
            self.engine.update_weights(name)


def load_run(
    run: str | Path,
    *,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    policies: Mapping[str, str] | None = None,
    group: ProcessGroup = ALONE,
) -> LoadedRun:
    """Read a run back with its best checkpoint, or its latest where none was validated.

    Args:
        run: the run folder.
        overrides: settings of the run's recipe to replace, as "section.key=value".
        seed: seeds tokens and the randomness of the env; None is the recipe's.
        policies: role -> "RUN:POLICY" of another run, whose best checkpoint plays the role.
        group: the processes that load the run and share the episodes.

    Raises:
        RunError: if there is no run, it has no checkpoint yet, or the chosen one is damaged.
    """
    folder = Run.open(Path(run))
    recipe = load_recipe(str(folder.recipe), overrides)
    given = policies or {}
    check_roles(recipe, given)
    chosen = best_checkpoint(folder, recipe)
    recipe = without_adapters(recipe) if chosen.phase == PRETRAIN else recipe
    own = {name: config_of(name, recipe, folder) for name in recipe.weights}
    sources = {role: policy_source(place) for role, place in given.items()}
    recipe, others = _with_sources(recipe, sources)
    return LoadedRun(
        **_loaded(recipe, own, others, folder, recipe.seed if seed is None else seed),
        folder=folder,
        checkpoint=chosen,
        group=group,
    )


def load_models(recipe: Recipe, models: Mapping[str, str], *, seed: int | None = None) -> Loaded:
    """Load the models that play a recipe's roles, without any training.

    Args:
        recipe: the recipe.
        models: role -> a model's or adapter's directory, a hub name, a run folder or "RUN:POLICY";
            a role without one is played by the recipe's own policy as it is before training.
        seed: seeds tokens and the randomness of the env; None is the recipe's.

    Raises:
        ConfigError: if a role is unknown, or has no weights.
        TurnwiseError: if a model or a run cannot be used.
    """
    check_roles(recipe, models)
    sources: dict[str, Source] = {}
    for role, agent in recipe.agents.items():
        own = recipe.policies[agent.policy]
        if role in models:
            held = own if isinstance(own, PolicyConfig) else PolicyConfig()
            sources[role] = model_source(models[role], held)
        elif is_nano(own.model):
            raise ConfigError(
                f"role {role!r} of recipe {recipe.name!r} has no weights: its policy "
                f"{agent.policy!r} is {own.model!r}, which is made on the spot and has learned "
                f"nothing: add --model {role}=PATH, with a model's or adapter's directory, a hub "
                "name or a run folder"
            )
    own = {name: frozen(config_of(name, recipe, None)) for name in recipe.weights}
    recipe, others = _with_sources(recipe, sources)
    return Loaded(**_loaded(recipe, own, others, None, recipe.seed if seed is None else seed))


def _with_sources(
    recipe: Recipe, sources: Mapping[str, Source]
) -> tuple[Recipe, dict[str, Source]]:
    """Return a recipe whose roles are played by `sources`, and the sources by policy name.

    Policies that play no role any more are left out; equal sources become one policy.
    """
    others: dict[str, Source] = {}
    agents = dict(recipe.agents)
    for role, source in sources.items():
        name = source.name
        if name in others and others[name] != source:
            name = f"{name} as {role}"  # the same model, held otherwise
        others[name] = source
        agents[role] = agents[role].model_copy(update={"policy": name})
    used = {agent.policy for agent in agents.values()}
    own = {name: policy for name, policy in recipe.policies.items() if name in used - set(others)}
    policies = own | {name: source.config for name, source in others.items()}
    return recipe.model_copy(update={"agents": agents, "policies": policies}), others


def _loaded(
    recipe: Recipe,
    own: Mapping[str, PolicyConfig],
    others: Mapping[str, Source],
    folder: Run | None,
    seed: int,
) -> dict[str, Any]:
    """Load all policies of a recipe, of which `others` are not its own; return all parts."""
    env = recipe.env.make("evaluation")
    open_sandbox(env, recipe.sandbox)
    configs = {
        name: others[name].config if name in others else own[name] for name in recipe.weights
    }
    policies = make_policies(recipe, folder, configs=configs)
    for name, source in others.items():
        if source.weights is not None:
            policies[name].load_weights(source.weights)
    tasks = GeneratedTasks(env, "test", seed)
    tokens = sequence_lengths(recipe, env, tasks, policies)
    engine = make_engine(policies, recipe.remote, recipe.engine, seed, tokens)
    return {
        "recipe": recipe,
        "policies": policies,
        "engine": engine,
        "seed": seed,
        "sources": dict(others),
    }
