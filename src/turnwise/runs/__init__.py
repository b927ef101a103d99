"""The run folder: metrics, episodes, checkpoints, results and their files, without torch."""

from turnwise.runs.checkpoints import Checkpoint, Checkpoints, Latest
from turnwise.runs.disk_errors import DiskErrors
from turnwise.runs.episodes import (
    EpisodeLog,
    Recorded,
    episode_file,
    read_episodes,
    recorded_iterations,
)
from turnwise.runs.folder import Run, check_free, claim_folder, resume_command
from turnwise.runs.metrics import MetricsLog, Record, Unlogged, comparable, read_metrics
from turnwise.runs.results import Difference, RunScores, read_scores, write_scores
from turnwise.runs.signals import StopSignal
from turnwise.runs.sinks import MetricsConfig, check_installed, open_sinks

__all__ = [
    "Checkpoint",
    "Checkpoints",
    "Difference",
    "DiskErrors",
    "EpisodeLog",
    "Latest",
    "MetricsConfig",
    "MetricsLog",
    "Record",
    "Recorded",
    "Run",
    "RunScores",
    "StopSignal",
    "Unlogged",
    "check_free",
    "check_installed",
    "claim_folder",
    "comparable",
    "episode_file",
    "open_sinks",
    "read_episodes",
    "read_metrics",
    "read_scores",
    "recorded_iterations",
    "resume_command",
    "write_scores",
]
