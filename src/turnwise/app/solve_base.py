"""The base that `turnwise solve` adapts: a run of `arc-draw-base`, or a model's directory.

Provides `Base`, `base_of`, `weights_of` and `digest_of`. A wrong base is refused before torch is
imported.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from turnwise.app.lifecycle import RUNS
from turnwise.envs.drawing.env import ArcDraw
from turnwise.errors import RunError
from turnwise.policies.sources import beside, existing_source
from turnwise.recipe.schema import load_recipe
from turnwise.runs import Run, read_scores

BASE = "arc-draw-base"


@dataclass(frozen=True, kw_only=True, slots=True)
class Base:
    """A base: the directory or the run that it was given as, and the run it is of, if any."""

    place: str
    run: Run | None = None
    latest: bool = False

    @property
    def described(self) -> str:
        """The place, and how many test drawings the base gets right, where that is known."""
        said = f"{self.place}, the latest finished run of {BASE}" if self.latest else self.place
        scores = None if self.run is None else read_scores(self.run.evaluation)
        if scores is not None:
            said += f"; exact in {scores.score:.1%} of its {scores.tasks} test drawings"
        return f"base: {said}"


def base_of(given: str | Path | None) -> Base:
    """Return the base that is given, or the latest finished run of `arc-draw-base`.

    Args:
        given: a model's directory, a run folder or "RUN:POLICY"; None is the latest run.

    Raises:
        RunError: if there is no such directory or run, or the run is of another env.
        ModelError: if the directory holds no model.
    """
    place = str(_latest() if given is None else given)
    path = Path(place).expanduser()
    if not path.is_dir() and ":" in path.name:
        path = path.with_name(path.name.rpartition(":")[0])
    if path.is_dir() and not (path / "recipe.toml").is_file():
        existing_source(str(path))
        return Base(place=str(path))
    if not path.is_dir():
        raise RunError(
            f"the base '{path}' is no directory: {beside(path)}give the directory of a model, also "
            f"of one that was downloaded from a hub, or a run of {BASE}"
        )
    run = Run.open(path)
    env = load_recipe(str(run.recipe), (), lambda text: None).env.name
    if env != ArcDraw.name:
        raise RunError(
            f"the base '{path}' is a run of the env {env!r}, which draws nothing: give a run of "
            f"{BASE}, or a model's directory"
        )
    return Base(place=place, run=run, latest=given is None)


def weights_of(base: Base) -> Path:
    """Return the directory of a base's weights: of a run, those of its best checkpoint.

    Raises:
        RunError: if the run has no checkpoint yet, or the chosen one is damaged.
    """
    if base.run is None:
        return Path(base.place).resolve()
    from turnwise.app.sources import policy_source  # which imports torch

    source = policy_source(base.place)
    return (source.weights or Path(source.config.model)).resolve()


def digest_of(model: Path) -> str:
    """Return a hash of the weights in a model's directory.

    Raises:
        RunError: if there are none.
    """
    files = sorted(model.glob("*.safetensors"))
    if not files:
        raise RunError(f"'{model}' has no weights (*.safetensors): give a model's directory")
    whole = hashlib.blake2b(digest_size=8)
    for file in files:
        with file.open("rb") as opened:
            whole.update(hashlib.file_digest(opened, "blake2b").digest())
    return whole.hexdigest()


def _latest() -> Path:
    """Return the latest finished run of the base in `runs`."""
    runs = sorted(RUNS.glob(f"{BASE}-*/eval.json"), key=lambda path: path.stat().st_mtime)
    if not runs:
        raise RunError(
            f"there is no finished run of {BASE} in '{RUNS}': make one by `turnwise train {BASE}`, "
            "or give --base"
        )
    return runs[-1].parent
