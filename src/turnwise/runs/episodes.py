"""Recorded episodes: their turns, groups, returns and advantages.

Provides `EpisodeLog` and `read_episodes`. A file under `episodes/` has the episodes of one
iteration and stream. It stores every field of an `Episode`, so episodes that are read equal those
that were played.

A file is JSON lines, each with a `kind`. The first line is a header. Tasks, prompts and episodes
follow, each before the first line that refers to it by number. A prompt is stored once for all
turns that answer it. A prompt that continues an earlier turn is stored as a suffix: `after` is the
number of that turn, and the prompt is that turn's prompt, its completion and these ids.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from turnwise.credit import Credit
from turnwise.runs.episode_codec import EpisodeLines, Marks, as_text, episodes_from_lines
from turnwise.runs.files import read_json_lines, write_atomically
from turnwise.types import Episode, Stream, TurnId

Decode = Callable[[str, Sequence[int]], str]
_NAME = re.compile(r"(train|warmup|evaluation)-(\d+)\.jsonl")


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """The episodes of one iteration with their credit; `played` also counts unrecorded episodes.

    `advantages` are by turn and span (the span `""` is the whole completion). `groups` are the keys
    of the groups of turns, and `returns` the values compared within them.
    """

    stream: Stream
    iteration: int
    played: int
    episodes: tuple[Episode, ...]
    advantages: Mapping[TurnId, Mapping[str, float]] = field(default_factory=dict)
    groups: Mapping[TurnId, str] = field(default_factory=dict)
    returns: Mapping[TurnId, float] = field(default_factory=dict)


class EpisodeLog:
    """Writes the episodes of each iteration, and deletes files beyond the limits."""

    def __init__(
        self,
        directory: Path,
        *,
        keep: int = 20,
        per_iteration: int = 64,
        decode: Decode | None = None,
    ) -> None:
        """Set the limits.

        Args:
            directory: the folder of the files.
            keep: number of iterations whose files are kept, of each stream; 0 is none, -1 all.
            per_iteration: largest number of episodes recorded per iteration, the first ones.
            decode: returns the text of a policy's token ids, for human readers.
        """
        assert keep >= -1 and per_iteration >= 1, (keep, per_iteration)
        self.directory = directory
        self._keep, self._per_iteration, self._decode = keep, per_iteration, decode

    def write(
        self,
        iteration: int,
        episodes: Sequence[Episode],
        *,
        stream: Stream = "train",
        credit: Credit | None = None,
    ) -> None:
        """Record an iteration; an earlier file of the same iteration is replaced."""
        if self._keep == 0:
            return
        lines = EpisodeLines(self._decode, Marks.of(credit))
        kept = episodes[: self._per_iteration]
        lines.head(stream=stream, iteration=iteration, played=len(episodes), recorded=len(kept))
        for episode in kept:
            lines.episode(episode)
        self.directory.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path(stream, iteration), as_text(lines.lines))
        self._prune(stream)

    def cut_after(self, iteration: int, stream: Stream = "train") -> None:
        """Delete the files of later iterations, which a resumed run plays again."""
        for number in recorded_iterations(self.directory, stream):
            if number > iteration:
                self._path(stream, number).unlink()

    def _prune(self, stream: Stream) -> None:
        if self._keep > 0:
            for number in recorded_iterations(self.directory, stream)[: -self._keep]:
                self._path(stream, number).unlink()

    def _path(self, stream: Stream, iteration: int) -> Path:
        return episode_file(self.directory, iteration, stream)


def episode_file(directory: Path, iteration: int, stream: Stream = "train") -> Path:
    """Return the path of an iteration's episodes.

    Example:
        >>> episode_file(Path("episodes"), 12).as_posix()
        'episodes/train-000012.jsonl'
    """
    return directory / f"{stream}-{iteration:06d}.jsonl"


def recorded_iterations(directory: Path, stream: Stream = "train") -> list[int]:
    """Return the iterations whose episodes are recorded, ascending."""
    names = (path.name for path in directory.iterdir()) if directory.is_dir() else ()
    found = (_NAME.fullmatch(name) for name in names)
    return sorted(int(match[2]) for match in found if match and match[1] == stream)


def read_episodes(path: Path) -> Recorded:
    """Return the contents of a file; the episodes equal those that were played.

    Raises:
        RunError: if the file is damaged.
    """
    lines = read_json_lines(path)
    head, episodes, marks = episodes_from_lines(path, lines)
    return Recorded(
        stream=head["stream"],
        iteration=head["iteration"],
        played=head["played"],
        episodes=tuple(episodes),
        advantages=marks.advantages,
        groups=marks.groups,
        returns=marks.returns,
    )
