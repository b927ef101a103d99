"""turnwise: train language-model agents, alone or in teams, by playing.

    import turnwise as tw

    recipe = tw.load_recipe("frozen-lake", ["preset=fast"])
    outcome = tw.train(recipe)
    print(outcome.scores.score, outcome.scores.baselines)

The names below are the public ones; they are imported when first used, so that tools which only
read runs never load torch. So are the subpackages: `tw.rewards.passes_tests` needs no import of its
own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turnwise.utils.lazy_imports import lazy_names

if TYPE_CHECKING:
    from turnwise import credit as credit
    from turnwise import curriculum as curriculum
    from turnwise import engines as engines
    from turnwise import envs as envs
    from turnwise import errors as errors
    from turnwise import losses as losses
    from turnwise import policies as policies
    from turnwise import render as render
    from turnwise import rewards as rewards
    from turnwise import rollout as rollout
    from turnwise import runs as runs
    from turnwise import sandbox as sandbox
    from turnwise import settings as settings
    from turnwise import sweeps as sweeps
    from turnwise import tasks as tasks
    from turnwise import trainers as trainers
    from turnwise import types as types
    from turnwise import workflows as workflows
    from turnwise.app.baseline_scores import (
        evaluate_baselines,
    )
    from turnwise.app.lifecycle import (
        Outcome,
    )
    from turnwise.app.progress_bar import (
        LiveProgress,
    )
    from turnwise.app.run_scores import (
        evaluate_models,
        evaluate_run,
        play_run,
    )
    from turnwise.app.train import (
        resume,
        train,
    )
    from turnwise.envs import (
        Env,
        Observation,
        Step,
        ToolEnv,
        ToolResult,
        ToolState,
        check_env,
        make_env,
        tool,
    )
    from turnwise.errors import (
        BrokenEnvError,
        ConfigError,
        DataError,
        EndpointError,
        EndpointRefusedError,
        EngineError,
        EnvError,
        IllegalActionError,
        Interrupted,
        MissingDependencyError,
        ModelError,
        NonFiniteGradientError,
        ProcessError,
        RewardError,
        RunError,
        SandboxError,
        SlowEnvError,
        StuckEnvError,
        TrainingError,
        TurnwiseError,
        UnknownNameError,
    )
    from turnwise.policies import (
        LoraSettings,
        NanoConfig,
        PolicyConfig,
    )
    from turnwise.recipe.schema import (
        Recipe,
        load_recipe,
        recipe_names,
    )
    from turnwise.rollout.workflow_check import (
        WorkflowReport,
        check_workflow,
    )
    from turnwise.runs import (
        RunScores,
    )
    from turnwise.trainers import (
        Progress,
        Silent,
    )
    from turnwise.types import (
        Episode,
        Task,
        Turn,
    )

    __version__: str

__all__ = [
    "BrokenEnvError",
    "ConfigError",
    "DataError",
    "EndpointError",
    "EndpointRefusedError",
    "EngineError",
    "Env",
    "EnvError",
    "Episode",
    "IllegalActionError",
    "Interrupted",
    "LiveProgress",
    "LoraSettings",
    "MissingDependencyError",
    "ModelError",
    "NanoConfig",
    "NonFiniteGradientError",
    "Observation",
    "Outcome",
    "PolicyConfig",
    "ProcessError",
    "Progress",
    "Recipe",
    "RewardError",
    "RunError",
    "RunScores",
    "SandboxError",
    "Silent",
    "SlowEnvError",
    "Step",
    "StuckEnvError",
    "Task",
    "ToolEnv",
    "ToolResult",
    "ToolState",
    "TrainingError",
    "Turn",
    "TurnwiseError",
    "UnknownNameError",
    "WorkflowReport",
    "__version__",
    "check_env",
    "check_workflow",
    "evaluate_baselines",
    "evaluate_models",
    "evaluate_run",
    "load_recipe",
    "make_env",
    "play_run",
    "recipe_names",
    "resume",
    "tool",
    "train",
]

_SUBMODULES = (
    "credit",
    "curriculum",
    "engines",
    "envs",
    "errors",
    "losses",
    "policies",
    "render",
    "rewards",
    "rollout",
    "runs",
    "sandbox",
    "settings",
    "sweeps",
    "tasks",
    "trainers",
    "types",
    "workflows",
)
"""Shown by `dir` and imported when first used; `import *` leaves them out."""

_get, __dir__ = lazy_names(
    __name__,
    {
        "BrokenEnvError": "turnwise.errors",
        "ConfigError": "turnwise.errors",
        "DataError": "turnwise.errors",
        "EndpointError": "turnwise.errors",
        "EndpointRefusedError": "turnwise.errors",
        "EngineError": "turnwise.errors",
        "Env": "turnwise.envs",
        "EnvError": "turnwise.errors",
        "Episode": "turnwise.types",
        "IllegalActionError": "turnwise.errors",
        "Interrupted": "turnwise.errors",
        "LiveProgress": "turnwise.app.progress_bar",
        "LoraSettings": "turnwise.policies",
        "MissingDependencyError": "turnwise.errors",
        "ModelError": "turnwise.errors",
        "NanoConfig": "turnwise.policies",
        "NonFiniteGradientError": "turnwise.errors",
        "Observation": "turnwise.envs",
        "Outcome": "turnwise.app.lifecycle",
        "PolicyConfig": "turnwise.policies",
        "Progress": "turnwise.trainers",
        "Recipe": "turnwise.recipe.schema",
        "ProcessError": "turnwise.errors",
        "RewardError": "turnwise.errors",
        "RunError": "turnwise.errors",
        "RunScores": "turnwise.runs",
        "SandboxError": "turnwise.errors",
        "Silent": "turnwise.trainers",
        "SlowEnvError": "turnwise.errors",
        "Step": "turnwise.envs",
        "StuckEnvError": "turnwise.errors",
        "Task": "turnwise.types",
        "ToolEnv": "turnwise.envs",
        "ToolResult": "turnwise.envs",
        "ToolState": "turnwise.envs",
        "TrainingError": "turnwise.errors",
        "Turn": "turnwise.types",
        "TurnwiseError": "turnwise.errors",
        "UnknownNameError": "turnwise.errors",
        "WorkflowReport": "turnwise.rollout.workflow_check",
        "check_env": "turnwise.envs",
        "check_workflow": "turnwise.rollout.workflow_check",
        "evaluate_baselines": "turnwise.app.baseline_scores",
        "evaluate_models": "turnwise.app.run_scores",
        "evaluate_run": "turnwise.app.run_scores",
        "load_recipe": "turnwise.recipe.schema",
        "make_env": "turnwise.envs",
        "play_run": "turnwise.app.run_scores",
        "recipe_names": "turnwise.recipe.schema",
        "resume": "turnwise.app.train",
        "tool": "turnwise.envs",
        "train": "turnwise.app.train",
        **{name: f"{__name__}.{name}" for name in _SUBMODULES},
    },
)


def __getattr__(name: str) -> Any:
    """Import a public name from its home."""
    if name == "__version__":
        from importlib import metadata  # slow to import, and seldom asked for

        return metadata.version("turnwise")
    return _get(name)
