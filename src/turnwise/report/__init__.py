"""The report of a finished run: curve, tables, warnings and verdict, read from the run folder."""

from turnwise.report.report import memory_line, write_report
from turnwise.report.verdict import verdict

__all__ = ["memory_line", "verdict", "write_report"]
