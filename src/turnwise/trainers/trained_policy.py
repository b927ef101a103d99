"""A trained policy with its scorer, its agents and the state of its training.

Provides `TrainedPolicy` and `by_policy`, which joins the metrics of several policies. An optimizer
belongs to one phase: `begin` makes a new one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch

from turnwise.agents import AgentConfig
from turnwise.forest import Scorer
from turnwise.formats import ReplyFormat
from turnwise.policies import AnyOptimizerConfig, Policy, PolicyOptimizer, make_optimizer
from turnwise.trainers.action_floor import ActionFloor
from turnwise.trainers.sft_mix import SftMix

if TYPE_CHECKING:
    from turnwise.trainers.hindsight_mix import HindsightMix


@dataclass(kw_only=True)
class TrainedPolicy:
    """One policy that is trained, and all that its training needs.

    Attributes:
        policy: the weights.
        scorer: computes log-probabilities of training rows.
        agents: role -> agent, for the roles that the policy plays.
        reference: a frozen copy of the start weights, where the loss has a KL part.
        sft_mix: supervised rows of every update, where the recipe has `[sft_mix]`.
        floor: the floor under the frequency of actions, where the SFT mix has one.
        hindsight: supervised rows of its own episodes, where `trainer.hindsight` is given.
    """

    policy: Policy
    scorer: Scorer
    agents: Mapping[str, AgentConfig]
    reference: Policy | None = None
    sft_mix: SftMix | None = None
    floor: ActionFloor | None = None
    hindsight: HindsightMix | None = None
    _optimizer: PolicyOptimizer | None = None

    @property
    def name(self) -> str:
        """The policy's name."""
        return self.policy.name

    @property
    def reply_format(self) -> ReplyFormat:
        """The reply format of the policy's roles, which is one where the SFT mix has spans."""
        return next(agent.reply_format for agent in self.agents.values())

    @property
    def low_precision(self) -> bool:
        """Whether the policy computes below float32."""
        return torch.finfo(next(self.policy.model.parameters()).dtype).bits < 32

    @property
    def optimizer(self) -> PolicyOptimizer:
        """The optimizer of the present phase."""
        assert self._optimizer is not None, "call begin first"
        return self._optimizer

    def begin(
        self, settings: AnyOptimizerConfig, steps: int, *, lr: float | Literal["auto"] | None = None
    ) -> None:
        """Make the optimizer of a phase of at most `steps` steps; `lr` replaces its rate."""
        own = settings if lr is None else settings.model_copy(update={"lr": lr})
        self._optimizer = make_optimizer(self.policy, own, max(steps, 1))

    def save(self, weights: Path, optimizer: Path) -> None:
        """Write the weights to a folder and the optimizer's state to a file."""
        self.policy.save(weights)
        optimizer.parent.mkdir(exist_ok=True)
        with optimizer.open("wb") as file:  # its errors say why, torch's do not
            torch.save(self.optimizer.state_dict(), file)

    def load_optimizer(self, optimizer: Path) -> None:
        """Read back what `save` wrote to the file `optimizer`."""
        self.optimizer.load_state_dict(torch.load(optimizer, weights_only=True))


def by_policy(
    found: Mapping[str, Mapping[str, float]], policies: Collection[str]
) -> dict[str, float]:
    """Return the metrics of trained policies, by policy name, as those of one iteration.

    Where there is one policy they keep their names. Where there are several, each has the policy's
    name in front, and the bare name holds the mean over the policies that have it.

    Example:
        >>> by_policy({"main": {"loss/rl": 2.0}}, ["main"])
        {'loss/rl': 2.0}
        >>> by_policy({"a": {"loss/rl": 2.0}, "b": {"loss/rl": 4.0}}, ["a", "b"])
        {'loss/rl': 3.0, 'a/loss/rl': 2.0, 'b/loss/rl': 4.0}
    """
    if len(policies) == 1:
        return {name: value for metrics in found.values() for name, value in metrics.items()}
    names = dict.fromkeys(name for metrics in found.values() for name in metrics)
    values = {name: [each[name] for each in found.values() if name in each] for name in names}
    means = {name: sum(these) / len(these) for name, these in values.items()}
    own = {f"{policy}/{name}": v for policy, each in found.items() for name, v in each.items()}
    return means | own
