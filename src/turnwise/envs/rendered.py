"""The text that a renderer makes of an observation, checked.

Provides `rendered`, which the adapters of Gymnasium and PettingZoo share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnwise.errors import EnvError
from turnwise.utils.user_code import MISTAKES


def rendered(renderer: Callable[[Any], Any], name: str | None, seen: Any) -> tuple[str, str]:
    """Return the text and the description of an observation; "" is no description.

    Args:
        renderer: from the observation to its text, or to (text, description).
        name: the option `renderer`, for messages.
        seen: the observation.

    Raises:
        EnvError: if the renderer raises, or returns something else or an empty text.

    Example:
        >>> rendered(str, "plain", 3)
        ('3', '')
    """
    try:
        shown = renderer(seen)
    except MISTAKES as cause:
        raise EnvError(f"renderer = {name!r} raised {cause!r} for {seen!r:.200}") from cause
    pair = (shown, "") if isinstance(shown, str) else shown
    texts = isinstance(pair, tuple) and len(pair) == 2
    if not texts or not all(isinstance(part, str) for part in pair) or not pair[0].strip():
        raise EnvError(
            f"renderer = {name!r} returned {shown!r:.200}: return text, or (text, description)"
        )
    return pair
