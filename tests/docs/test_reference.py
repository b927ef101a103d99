"""docs/reference.md is what the config classes say, and its generator knows every kind of table."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, Literal

from pydantic import Field

from turnwise.settings import Settings, one_of

from .conftest import GENERATOR, ROOT, load_generator


def test_the_reference_is_up_to_date():
    """In a process of its own, which must not load torch."""
    script = f"import sys, runpy\nsys.argv = [{str(GENERATOR)!r}, '--check']\ntry:\n"
    script += "    runpy.run_path(sys.argv[0], run_name='__main__')\n"
    script += "finally:\n    assert 'torch' not in sys.modules\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


class Clipped(Settings):
    """A clipped ratio."""

    kind: Literal["clipped"] = "clipped"
    """Which loss."""
    weight: float = 1.0
    """The weight of the term (arXiv:1707.06347)."""
    low: float = Field(default=0.2, gt=0, le=1)
    """How far down."""


class Sizes(Settings):
    """Sizes of a model."""

    layers: int | None = Field(default=None, ge=1)
    """How many layers."""


class Sequence(Settings):
    """A ratio of sequences."""

    kind: Literal["sequence"] = "sequence"
    """Which loss."""
    weight: float = 1.0
    """The weight of the term (arXiv:1707.06347)."""
    sizes: Sizes | None = None
    """Other sizes."""


Loss: Any = one_of({"clipped": Clipped, "sequence": Sequence}, default="clipped")


class Config(Settings):
    """All of it."""

    loss: Loss = Clipped(low=0.1)
    """The loss."""
    stages: tuple[Loss, ...] = ()
    """One after another."""
    models: dict[str, Sizes]
    """Name -> sizes."""
    own: Sizes = Sizes(layers=3)
    """Its own sizes."""


KINDS = """\
## `[loss]`

The loss.

- `kind`: `"clipped"` or `"sequence"`, default `"clipped"`.
  Decides which of the options below the table has.
- `weight`: float, default `1.0`.
  The weight of the term ([arXiv:1707.06347](https://arxiv.org/abs/1707.06347)).

### `[loss]` with `kind = "clipped"`

A clipped ratio.

- `low`: float > 0 and <= 1, default `0.1`.
  How far down.

### `[loss]` with `kind = "sequence"`

A ratio of sequences.

- `sizes`: none or a table, [`[loss.sizes]`](#losssizes).
"""


def test_a_table_of_several_classes_is_listed_by_kind():
    text = "\n".join(part for part in load_generator().tables(Config) if part)
    assert text.startswith(KINDS)
    assert "## `[[stages]]`\n\nOne after another.\n\nThe options are those of [`[loss]`]" in text
    assert "## `[models.<name>]`\n\nName -> sizes.\n\nSizes of a model.\n\n- `layers`: int" in text
    assert "[`[models.<name>]`](#modelsname), with other defaults: `layers = 3`." in text


def test_the_default_kind_of_every_table_is_named():
    """Of a section, of the tables of a free key, and of a list; and what a recipe must have."""
    generator = load_generator()
    page = generator.make_reference()
    for section, default in {
        "policies.<name>": 'kind`: `"weights"` or `"remote"`, default `"weights"',
        "credit": 'default `"grpo"',
        "loss": 'default `"clipped"',
    }.items():
        part = page.split(f"## `[{section}]`\n", 1)[1].split("\n#", 1)[0]
        assert default in part, section
    assert "- `policies`: a table, required," in page
    assert "- `loss`: a table, [" in page
