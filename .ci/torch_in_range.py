"""Exit with 0 if the torch that this Python imports satisfies pyproject.toml, else with 1."""

import importlib.metadata
import importlib.util
import sys
import tomllib
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
torch = next(r for r in map(Requirement, project["dependencies"]) if r.name == "torch")
if importlib.util.find_spec("torch") is None:
    sys.exit(1)
sys.exit(not torch.specifier.contains(importlib.metadata.version("torch"), prereleases=True))
