"""The run folder: metrics, episodes, checkpoints, resume, report."""
