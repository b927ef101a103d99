"""Sweeps: one recipe trained with many settings, on all cores, and compared in a table and a plot.

`definition` says what is trained, `running` trains it, `results` compares.
"""

from turnwise.sweeps.definition import Cell, SweepConfig, load_sweep, parse_values
from turnwise.sweeps.results import Compared, Measured, compare
from turnwise.sweeps.running import SweepOutcome, run_sweep

__all__ = [
    "Cell",
    "Compared",
    "Measured",
    "SweepConfig",
    "SweepOutcome",
    "compare",
    "load_sweep",
    "parse_values",
    "run_sweep",
]
