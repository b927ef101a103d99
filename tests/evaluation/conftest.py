"""The fixtures of tests/rollout: evaluation plays episodes with the same parts."""

import importlib.util
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "rollout" / "conftest.py"
_spec = importlib.util.spec_from_file_location("rollout_fixtures", SOURCE)
assert _spec is not None and _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)

renderer, lake, slippery, says = _module.renderer, _module.lake, _module.slippery, _module.says
table, make_runner, task_of = _module.table, _module.make_runner, _module.task_of
