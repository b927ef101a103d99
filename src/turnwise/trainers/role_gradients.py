"""The share of each role in the gradient of an iteration (`trainer.role_gradients`).

Provides `role_gradients`, which takes no step.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from turnwise.losses import LossConfig
from turnwise.parallel import ALONE, ProcessGroup
from turnwise.trainers.exchange import sum_gradients
from turnwise.trainers.trained_policy import TrainedPolicy
from turnwise.trainers.update import Batch, add_gradients, rows_of_process


def role_gradients(
    trained: TrainedPolicy,
    batch: Batch,
    loss: LossConfig,
    roles: Mapping[str, str],
    group: ProcessGroup = ALONE,
) -> dict[str, float]:
    """Return the norm of each role's gradient, as a share of the sum of all roles' norms.

    Gradients are those of the first step, of the whole batch, before they are clipped.

    Args:
        trained: the policy with its scorer.
        batch: its rows.
        loss: the loss.
        roles: seat -> role.
        group: the processes that share the rows.

    Returns:
        `optim/grad_share/ROLE`; nothing where one role is trained.
    """
    by_role: dict[str, list[int]] = {}
    for number, row in enumerate(batch.samples):
        if row.turns:
            by_role.setdefault(roles[row.turns[0].role], []).append(number)
    if len(by_role) < 2:
        return {}
    norms: dict[str, float] = {}
    parameters = trained.policy.trainable_parameters()
    for role, rows in sorted(by_role.items()):
        part = batch.rows(rows)
        own = part if group.is_alone else part.rows(rows_of_process(part.samples, group))
        trained.optimizer.zero()
        with trained.policy.dropout(False):
            add_gradients(trained.policy, trained.scorer, own, loss)
        sum_gradients(parameters, group)
        found = [each.grad.norm() for each in parameters if each.grad is not None]
        norms[role] = float(torch.stack(found).norm()) if found else 0.0
    trained.optimizer.zero()
    total = sum(norms.values()) or 1.0
    return {f"optim/grad_share/{role}": norm / total for role, norm in norms.items()}
