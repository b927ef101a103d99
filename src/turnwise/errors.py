"""A closed vocabulary of errors. Each message says what was given, what was expected, the cure.

Every class also inherits the builtin it refines, so that `except ValueError` keeps working. To add
one: derive from `TurnwiseError` and the builtin, and say in one sentence when it is raised.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class TurnwiseError(Exception):
    """Base of all errors that turnwise raises for its user."""


class ConfigError(TurnwiseError, ValueError):
    """A recipe, an option or a combination of options is wrong."""


class UnknownNameError(ConfigError):
    """A name is not in its table; the message lists the nearest ones."""


class EnvError(TurnwiseError, RuntimeError):
    """An environment broke its contract or raised."""


class BrokenEnvError(EnvError):
    """An environment's own code raised, took too long or returned something of a wrong type."""


class SlowEnvError(BrokenEnvError):
    """A call of an environment did not return in time."""


class StuckEnvError(SlowEnvError):
    """An environment's calls take too long again and again: waiting for more would be in vain."""


class IllegalActionError(TurnwiseError, ValueError):
    """An answer is no action of the env: the reply is to blame, not the env."""


class RewardError(TurnwiseError, RuntimeError):
    """A reward function of the user's raised, or returned something else than rewards."""


class DataError(TurnwiseError, ValueError):
    """A data file is missing, unreadable or malformed; the message names file and line."""


class ModelError(TurnwiseError, ValueError):
    """A model directory, name, tokenizer or adapter cannot be used as asked."""


class EngineError(TurnwiseError, RuntimeError):
    """Sampling failed, or sampler and trainer disagree beyond tolerance."""


class EndpointError(EngineError):
    """A server refused a request, or failed in all attempts: the request is not repeated."""


class EndpointRefusedError(EndpointError):
    """A server refused a request for good, as for a wrong key: others would be refused, too."""


class SandboxError(TurnwiseError, RuntimeError):
    """Programs cannot be isolated here, or the sandbox itself failed."""


class TrainingError(TurnwiseError, RuntimeError):
    """Training cannot go on: non-finite losses in a row, or a failed invariant of a batch."""


class NonFiniteGradientError(TrainingError):
    """Gradients were not finite several steps in a row."""


class ProcessError(TurnwiseError, RuntimeError):
    """Another process of the run ended, failed, or did not do the same as the others."""


class RunError(TurnwiseError, RuntimeError):
    """A run folder is missing, in use, incomplete or corrupt."""


class MissingDependencyError(TurnwiseError, ImportError):
    """An optional package is needed; the message gives the install command."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C stopped a run; `run` is its folder, or None if nothing of it was kept."""

    def __init__(self, message: str, run: Path | None) -> None:
        super().__init__(message)
        self.run = run


def unknown_name(kind: str, given: str, known: Iterable[str], other: str = "") -> UnknownNameError:
    """Build the error for a misspelt name, with the nearest known one as the cure.

    Args:
        kind: what the name is of.
        given: the name.
        known: all names.
        other: what may be given in place of a name, such as a file.

    Example:
        >>> str(unknown_name("recipe", "frozen-lak", ["frozen-lake", "rows"]))
        "unknown recipe 'frozen-lak': did you mean 'frozen-lake'? Known: frozen-lake, rows"
    """
    names = sorted(known)
    lower = {name.lower(): name for name in names}
    found = difflib.get_close_matches(given.lower(), lower, n=1, cutoff=0.5)
    nearest = [lower[name] for name in found]
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    listed = ", ".join(names) or "none"
    return UnknownNameError(
        f"unknown {kind} {given!r}: {hint}Known: {listed}{f', or {other}' if other else ''}"
    )
