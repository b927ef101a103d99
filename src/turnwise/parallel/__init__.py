"""Processes that run one training program in lockstep: what they exchange, and who does what.

Every process has the same weights and takes the same decisions. It plays its share of the episodes
and computes its share of a gradient; the parts are put together by a `ProcessGroup`. Nothing here
assumes one machine except `turnwise.parallel.launch`, which starts processes on this one.
"""

from turnwise.parallel.group import ALONE, ProcessGroup
from turnwise.parallel.shares import divide_rows, share_of_episodes

__all__ = ["ALONE", "ProcessGroup", "divide_rows", "share_of_episodes"]
