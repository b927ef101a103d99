"""The report of a finished run: curve, tables, warnings and verdict, read from the run folder."""

from turnwise.report.report import write_report
from turnwise.report.verdict import verdict

__all__ = ["verdict", "write_report"]
