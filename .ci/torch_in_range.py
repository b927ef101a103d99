"""Exit with 0 if the torch that this Python imports satisfies pyproject.toml, else with 1."""

import sys
import tomllib
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement

try:
    import torch
except (ImportError, OSError):  # OSError: it is there, but a library it needs is not
    sys.exit(1)

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
wanted = next(r for r in map(Requirement, project["dependencies"]) if r.name == "torch")
sys.exit(not wanted.specifier.contains(torch.__version__, prereleases=True))
