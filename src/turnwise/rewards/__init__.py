"""Answer checkers, as reward functions of rows: lists in, one number for each reply out.

Recipes name them as "turnwise.rewards:NAME".
"""

from __future__ import annotations

from turnwise.rewards.programs import passes_tests, program_in, runs, solves

__all__ = ["passes_tests", "program_in", "runs", "solves"]
