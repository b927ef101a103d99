"""The optimizer of one policy, with a schedule, gradient clipping, and skipped bad steps.

It has weight-decay groups, float32 master copies of low-precision weights, and a rule for
non-finite gradients. Gradients must be computed before `step` is called.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from turnwise.errors import ConfigError, NonFiniteGradientError
from turnwise.policies.auto_rate import LARGEST_CHANGE
from turnwise.policies.policy import Policy
from turnwise.policies.schedule import (
    AUTO,
    AnyOptimizerConfig,
    OptimizerConfig,
    first_peak,
    scheduled,
)

MAX_SKIPS = 3
"""Training stops after this many consecutive steps with non-finite gradients."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Snapshot:
    """What `PolicyOptimizer.restore` goes back to."""

    weights: list[torch.Tensor]
    state: dict[str, Any]


class PolicyOptimizer:
    """Updates the trainable weights of one policy.

    Weights in bfloat16 or float16 are stepped in float32 masters and rounded afterwards: at usual
    rates an update is smaller than half a unit in the last place and would be lost.

    Attributes:
        config: its settings.
        peak: the learning rate at the peak of the schedule.
        found: the peak rate of the first update that stood, with `lr = "auto"`, on the evidence of
            enough replies (docs/math.md 6), changed since as the wanted movement demands; None
            before it. The peak rate is at most ten times as large.
        wanted: the steps of the last update with `lr = "auto"`, and the movement that was wanted of
            it without the schedule's share; None before it.
        steps: how often `step` was called, skipped steps included; the schedule's clock.
        skipped: how many of them had non-finite gradients.
        least_done: the lower bound of the share of the schedule that is over, where time ends the
            training.
    """

    def __init__(self, policy: Policy, config: AnyOptimizerConfig, total_steps: int) -> None:
        self._policy = policy.name
        self.config = config
        self._total_steps = total_steps
        decayed, plain = _decay_groups(policy.model)
        self._weights = [*decayed, *plain]
        self._masters = [_master(weight) for weight in self._weights]
        self.peak = first_peak(config)
        self.found: float | None = None
        self.wanted: tuple[int, float] | None = None
        masters = dict(zip(map(id, self._weights), self._masters, strict=True))
        self._rules = _rules(policy, config, self.peak, (decayed, plain), masters)
        self.steps = 0
        self.least_done = 0.0
        self.skipped = 0
        self._skipped_in_a_row = 0
        self._ending: tuple[int, int] | None = None

    @property
    def is_auto(self) -> bool:
        """Whether the rate follows how far the updates move the policy."""
        return self.config.lr == AUTO

    def wanted_movement(self, steps: int, before: int) -> float:
        """Return the wanted movement of an update, in nats per decision.

        The schedule's share of the rate is not part of it. The update's share of the training
        follows from the total number of steps, or from the time of the updates before if that gives
        a larger share.

        Args:
            steps: the number of its steps.
            before: how often `step` was called before it.
        """
        assert isinstance(self.config, OptimizerConfig), "only such a rate follows the movement"
        of_time = self.least_done / before if before else 0.0
        over = max(before / self._total_steps, self.least_done)
        return self.config.wanted_movement(steps * max(1 / self._total_steps, of_time), over)

    def follow_wanted(self) -> None:
        """Change the peak rate and the first one by the root of the change of the wanted movement.

        The movement rises in the first part of the training. Under a limit of time, the number of
        updates is first known after one of them. The rate changes by a factor of at most
        `LARGEST_CHANGE`, and by the rest later.
        """
        if self.wanted is not None:
            steps, before = self.wanted
            after = min(self.wanted_movement(steps, self.steps), LARGEST_CHANGE**2 * before)
            self.wanted, factor = (steps, after), math.sqrt(after / before)
            self.peak *= factor
            self.found = None if self.found is None else self.found * factor

    def end_in(self, count: int) -> None:
        """Decrease the learning rate linearly from its current value to 0 in `count` steps."""
        self._ending = (self.steps, count)

    def rate(self) -> float:
        """Return the learning rate of the next step."""
        return self._scheduled(self.peak, self.steps)

    def factor(self, step: int) -> float:
        """Return the share of the peak rate that step number `step` has."""
        return self._scheduled(1.0, step)

    def _scheduled(self, peak: float, step: int) -> float:
        if self._ending is None:
            return scheduled(peak, self.config, step, self._total_steps, self.least_done)
        began, count = self._ending
        left = max(0.0, 1 - (step - began) / count)
        return left * scheduled(peak, self.config, began, self._total_steps)

    def zero(self) -> None:
        """Clear all gradients."""
        for weight, master in zip(self._weights, self._masters, strict=True):
            weight.grad = None
            master.grad = None

    def step(self) -> dict[str, float]:
        """Take one step with the current gradients, and return its metrics.

        `optim/grad_norm` is the norm before clipping; it is absent from a skipped step.

        Raises:
            NonFiniteGradientError: if this is the third step in a row with a non-finite gradient.
                The message names the policy; whoever knows the batch adds its samples.
        """
        rate = self.rate()
        self.steps += 1
        self._fill_masters()
        gradients = [master.grad for master in self._masters if master.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        metrics = {"optim/lr": rate, "optim/skipped": 0.0}
        if not torch.isfinite(norm):
            self._skip()
            return metrics | {"optim/skipped": 1.0}
        self._skipped_in_a_row = 0
        nn.utils.clip_grads_with_norm_(self._masters, self.config.max_grad_norm, norm)
        for name, rule in self._rules.items():
            for group in rule.param_groups:
                group["lr"] = rate
            if name == "adamw" or norm > 0:  # Muon's step has one size, also by old momentum alone
                rule.step()
        self._round_masters()
        return metrics | {"optim/grad_norm": float(norm)}

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a resumed run needs to continue to the same numbers."""
        return {
            **{name: rule.state_dict() for name, rule in self._rules.items()},
            "masters": [
                None if master is weight else master.detach()
                for weight, master in zip(self._weights, self._masters, strict=True)
            ],
            "peak": self.peak,
            "found": self.found,
            "wanted": self.wanted,
            "steps": self.steps,
            "skipped": self.skipped,
            "skipped_in_a_row": self._skipped_in_a_row,
            "ending": self._ending,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the state that `state_dict` returned for the same policy and config."""
        for name, rule in self._rules.items():
            rule.load_state_dict(state[name])
        with torch.no_grad():
            for master, saved in zip(self._masters, state["masters"], strict=True):
                if saved is not None:
                    master.copy_(saved)
        if self.is_auto:  # a fixed rate is the recipe's, which may change
            self.peak, self.found, self.wanted = state["peak"], state["found"], state["wanted"]
        self.steps, self.skipped = state["steps"], state["skipped"]
        self._skipped_in_a_row = state["skipped_in_a_row"]
        self._ending = state["ending"]

    def snapshot(self) -> Snapshot:
        """Return a copy of the weights and of the optimizer's state, on their devices."""
        return Snapshot(
            weights=[weight.detach().clone() for weight in self._weights],
            state=deepcopy(self.state_dict()),
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot, which can be restored again."""
        with torch.no_grad():
            for weight, saved in zip(self._weights, snapshot.weights, strict=True):
                weight.copy_(saved)
        self.zero()
        self.load_state_dict(deepcopy(snapshot.state))

    def _skip(self) -> None:
        """Count a step with a non-finite gradient; raise at the third in a row."""
        self.zero()
        self.skipped += 1
        self._skipped_in_a_row += 1
        if self._skipped_in_a_row >= MAX_SKIPS:
            raise NonFiniteGradientError(
                f"policy {self._policy!r}: the gradient was not finite {MAX_SKIPS} steps in a row "
                f"(step {self.steps}); expected finite losses: lower the learning rate, or look "
                "for extreme advantages or log-probabilities in its batch"
            )

    def _fill_masters(self) -> None:
        """Copy gradients to the masters, and also weights that were loaded meanwhile."""
        with torch.no_grad():
            for weight, master in zip(self._weights, self._masters, strict=True):
                if master is not weight:
                    loaded = weight != master.to(weight.dtype)
                    master.copy_(torch.where(loaded, weight.float(), master))
                    master.grad = None if weight.grad is None else weight.grad.float()

    def _round_masters(self) -> None:
        """Copy the float32 masters into low-precision weights."""
        with torch.no_grad():
            for weight, master in zip(self._weights, self._masters, strict=True):
                if master is not weight:
                    weight.copy_(master)


def make_optimizer(policy: Policy, config: AnyOptimizerConfig, total_steps: int) -> PolicyOptimizer:
    """Return the optimizer of a policy's trainable weights.

    Raises:
        ConfigError: if the policy has nothing to train, or warm-up outlasts the training.
    """
    if not policy.trainable_parameters():
        raise ConfigError(
            f"policy {policy.name!r} has nothing to train: set trainable = true, or give it no "
            "optimizer"
        )
    if config.warmup_steps > total_steps:
        raise ConfigError(
            f"warmup_steps = {config.warmup_steps} outlasts the {total_steps} steps of training: "
            "lower it"
        )
    return PolicyOptimizer(policy, config, total_steps)


def _decay_groups(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return the trainable weights with weight decay (matrices), and those without."""
    embeddings = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, nn.Embedding)
        for parameter in module.parameters()
    }
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            bias = name.rpartition(".")[2].endswith("bias")
            matrix = parameter.ndim > 1 and not bias and id(parameter) not in embeddings
            (decayed if matrix else plain).append(parameter)
    return decayed, plain


def _matrices(policy: Policy) -> set[int]:
    """Return the identities of the matrices of linear layers, without those of the output layer."""
    head = policy.base.get_output_embeddings()
    last = set() if head is None else {id(weight) for weight in head.parameters()}
    return {
        id(module.weight)
        for module in policy.model.modules()
        if isinstance(module, nn.Linear | Conv1D) and min(module.weight.shape) > 1
    } - last


def _rules(
    policy: Policy,
    config: AnyOptimizerConfig,
    peak: float,
    weights: tuple[list[nn.Parameter], list[nn.Parameter]],
    masters: Mapping[int, nn.Parameter],
) -> dict[str, torch.optim.Optimizer]:
    """Return PyTorch's optimizers by name, which share the weights' masters.

    Muon has the matrices of linear layers. AdamW has all other weights: embeddings, the output
    layer, vectors, and what a layer computes with in another way. `weights` are those with weight
    decay and those without.
    """
    decayed, plain = weights
    matrices = _matrices(policy) if config.kind == "muon" else set[int]()
    layers = [masters[id(weight)] for weight in decayed if id(weight) in matrices]
    rest = [masters[id(weight)] for weight in decayed if id(weight) not in matrices]
    groups = [
        {"params": params, "weight_decay": decay}
        for params, decay in (
            (rest, config.weight_decay),
            ([masters[id(weight)] for weight in plain], 0.0),
        )
        if params
    ]
    rules: dict[str, torch.optim.Optimizer] = {}
    if groups:
        rules["adamw"] = torch.optim.AdamW(groups, lr=peak, betas=config.betas, eps=config.eps)
    if layers:
        rules["muon"] = _muon(layers, config, peak)
    return rules


def _muon(
    weights: list[nn.Parameter], config: AnyOptimizerConfig, peak: float
) -> torch.optim.Optimizer:
    try:
        from torch.optim import Muon
    except ImportError:
        raise ConfigError(
            f"optimizer.kind = 'muon' needs torch 2.9 or newer, and torch {torch.__version__} is "
            "installed: run `pip install -U torch`, or set kind = 'adamw'"
        ) from None
    return Muon(weights, lr=peak, weight_decay=config.weight_decay, adjust_lr_fn="match_rms_adamw")


def _master(weight: nn.Parameter) -> nn.Parameter:
    """Return the tensor that is updated: the weight itself, or a float32 copy of a shorter one."""
    if weight.dtype in (torch.bfloat16, torch.float16):
        return nn.Parameter(weight.detach().float())
    return weight
