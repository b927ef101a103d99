"""The sections of a recipe for the env, evaluation, checkpoints and recorded episodes.

Provides `EnvChoice`, `EvaluationConfig`, `CheckpointConfig` and `EpisodeConfig`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from turnwise.envs import ENVS, find_env, make_env, make_guarded
from turnwise.envs.base import Env
from turnwise.envs.checks.first_look import look_at
from turnwise.envs.user_calls import call_env
from turnwise.sandbox import SandboxConfig, configure
from turnwise.settings import Settings

Phase = Literal["evaluation", "training", "warmup"]


class EnvChoice(Settings):
    """Which env, with which options in evaluation, and what differs in training and warm-up."""

    name: str
    """The env's name in the table of envs, or "file.py:Class" for one of your own."""
    options: dict[str, Any] = Field(default_factory=dict)
    """The env's options; evaluation plays with exactly these."""
    training: dict[str, Any] = Field(default_factory=dict)
    """Options that differ in training episodes."""
    warmup: dict[str, Any] = Field(default_factory=dict)
    """Options that differ in warm-up demonstrations."""
    timeout: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    """Seconds that one call of the env may take; a slower one breaks its episode, and a second one
    soon after ends the run. Judging a batch may take as long for every 64 episodes."""
    max_turns: int | None = Field(default=None, ge=1)
    """The most turns of an episode, all roles' together; one that gets there is truncated. None is
    what the env declares (`Env.max_turns`), or else 100."""

    @model_validator(mode="after")
    def _check(self) -> EnvChoice:
        for phase in ("evaluation", "training", "warmup"):
            self.make(phase)
        return self

    def make(self, phase: Phase) -> Env[Any]:
        """Return the env as `phase` plays it, under guard (`envs.guard`)."""
        return self._capped(make_guarded(self.name, self._options(phase), self.timeout))

    def unguarded(self, phase: Phase) -> Env[Any]:
        """Make the env as `phase` plays it, without a guard: for checks that make the calls."""
        return self._capped(make_env(self.name, **self._options(phase)))

    def look(self, phase: Phase, seed: int) -> None:
        """Check a user's own env in about a second (`envs.first_look`); shipped ones are tested.

        Raises:
            EnvError: if it breaks the contract of envs.
        """
        if find_env(self.name) in ENVS.values():
            return
        made = call_env(None, "__init__", self.timeout, self.unguarded, phase)
        look_at(made, seed, self.timeout)

    def _options(self, phase: Phase) -> dict[str, Any]:
        """Return the options of the env in `phase`."""
        extra = {"evaluation": {}, "training": self.training, "warmup": self.warmup}[phase]
        return self.options | extra

    def _capped(self, env: Env[Any]) -> Env[Any]:
        """Return `env`, its cap on turns set where the recipe gives one."""
        if self.max_turns is not None:
            env.max_turns = self.max_turns
        return env


def open_sandbox(env: Env[Any], config: SandboxConfig) -> None:
    """Start the process's sandbox if `env` runs programs.

    Raises:
        SandboxError: if programs cannot be isolated as `config` asks.
    """
    if env.runs_programs:
        configure(config).start()


class EvaluationConfig(Settings):
    """Validation during training, and the test that the report makes once."""

    every: int = Field(default=10, ge=1)
    """Iterations between two validations; the best checkpoint is chosen by them."""
    validation_tasks: int = Field(default=64, ge=1)
    """Tasks of the validation split in each."""
    validation: Literal["played", "exact"] = "played"
    """Whether a validation is the score of play, as `decoding` says, or computed without sampling
    from the policy's probabilities at the training temperature, for envs with few states."""
    validate_start: bool = False
    """Whether the weights that training begins with are validated too. They are the ones that are
    tested if no later weights validate better."""
    decoding: Literal["greedy", "sampled", "validated"] = "greedy"
    """The decoding of the score: the most probable tokens (`greedy`), draws at the training
    temperature (`sampled`), or greedy unless sampling has a better validation score by more than
    the standard error of its lead (`validated`). A greedy policy does the same for the same prompt.
    It can therefore be worse than random play where a prompt hides part of the state, and before it
    has learned. Both scores are reported in any case."""
    test_tasks: int = Field(default=500, ge=1)
    """Tasks of the test split in the report."""
    samples: int = Field(default=1, ge=1)
    """Sampled episodes of each test task. With several, the score of sampled play is their mean,
    and the mean over tasks of the best one is reported too; where scores are 0 or 1 these are known
    as accuracy and pass@k."""
    baselines: tuple[str, ...] | None = None
    """The baselines that the policy is compared with in a test; None is all of the env, which can
    take longer than the test itself. The weights before training are always among them."""
    exact: int = Field(default=0, ge=0)
    """Test tasks on which the report also computes, without sampling, what the policy is worth; for
    envs with few states."""
    target: float | None = Field(default=None, allow_inf_nan=False)
    """Stop training at this validation score; None trains to the last iteration."""

    @model_validator(mode="after")
    def _check(self) -> EvaluationConfig:
        if self.validation == "exact" and self.decoding == "validated":
            raise ValueError(
                "decoding = 'validated' compares two ways to play, but validation = 'exact' plays "
                "nothing: set decoding to 'greedy' or 'sampled'"
            )
        return self


class CheckpointConfig(Settings):
    """The period of checkpoints, and the number that is kept."""

    every: int | None = Field(default=None, ge=1)
    """Iterations between two; None is 1 below 50 M parameters and 10 above."""
    keep: int = Field(default=2, ge=1)
    """The number of the latest checkpoints that are kept beside the best one."""


class EpisodeConfig(Settings):
    """The options of the log of played episodes."""

    keep: int = Field(default=20, ge=-1)
    """Iterations whose episodes are kept on disk; 0 is none, -1 all."""
    per_iteration: int = Field(default=64, ge=1)
    """The most episodes kept of one iteration."""
