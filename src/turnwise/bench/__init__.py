"""Benchmarks of whole training steps, against TRL and against the peaks of the machine.

`workloads` has the table of timed steps. `step` times two trainers in alternation, each in its own
process: `run_turnwise` and `run_trl`. `peers` has the settings of TRL, and `tools` the tools of a
workload. `flops` counts the operations that the shapes require, `roofline` measures the peaks of
the machine, and `growth` the cost of a token at several sizes.
"""
