"""Recorded episodes: what was played, in which group, and what credit it was given.

Owns the files under `episodes/`, one an iteration and stream, written whole. They hold all of an
`Episode`, so that what is read back equals what was played. Knows nothing of how credit is
assigned.

A file is JSON lines, each with its `kind`: a head; then, each before its first use, the tasks, the
prompts and the episodes that refer to them by number. A prompt is stored once however many turns
answer it, and as a suffix where it goes on from an earlier turn: `after` is that turn's number, and
the whole prompt is that turn's prompt, its completion and these ids.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from turnwise.credit import Credit
from turnwise.runs.episode_lines import EpisodeLines, Marks, as_text, episodes_from_lines
from turnwise.runs.files import read_json_lines, write_atomically
from turnwise.types import Episode, Stream, TurnId

Decode = Callable[[str, Sequence[int]], str]
_NAME = re.compile(r"(train|warmup|evaluation)-(\d+)\.jsonl")


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """The episodes of one iteration with their credit; `played` counts those not recorded too.

    `advantages` are by turn and span (the span `""` is the whole completion); `groups` are the
    keys of the groups that turns were compared in; `returns` are the values compared.
    """

    stream: Stream
    iteration: int
    played: int
    episodes: tuple[Episode, ...]
    advantages: Mapping[TurnId, Mapping[str, float]] = field(default_factory=dict)
    groups: Mapping[TurnId, str] = field(default_factory=dict)
    returns: Mapping[TurnId, float] = field(default_factory=dict)


class EpisodeLog:
    """Writes the episodes of each iteration, and deletes what exceeds the bounds."""

    def __init__(
        self,
        directory: Path,
        *,
        keep: int = 20,
        per_iteration: int = 64,
        decode: Decode | None = None,
    ) -> None:
        """Set the bounds.

        Args:
            directory: where the files go.
            keep: iterations whose files are kept, of each stream; 0 is none, -1 all.
            per_iteration: the most episodes recorded of an iteration, the first ones.
            decode: gives the text of a policy's token ids, for people who read the files.
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
        """Delete the files of iterations after this one: a resumed run plays them again."""
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
    """Return where an iteration's episodes are.

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
    """Return what a file holds; the episodes equal those that were played.

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
