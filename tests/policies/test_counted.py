"""How a run says what of a policy is trained."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch import nn

from turnwise.app.build import _counted


def test_parameters_that_are_trained_are_counted_where_not_all_are():
    whole: Any = SimpleNamespace(
        parameters=1200, trainable_parameters=lambda: [nn.Linear(1, 1200).bias]
    )
    part: Any = SimpleNamespace(
        parameters=122496, trainable_parameters=lambda: [nn.Linear(1, 1200).bias]
    )
    assert _counted(whole) == "1,200 parameters"
    assert _counted(part) == "122,496 parameters, 1,200 trained"
