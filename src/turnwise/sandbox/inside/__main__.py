"""Start a worker: `python -I FOLDER PATHS`, where PATHS are those of `sys.path`, as JSON.

The rest of turnwise is not imported: its names stand for this folder alone while the worker is
loaded, and for nothing afterwards.
"""

import json
import os
import sys
import types

HERE = os.path.dirname(os.path.abspath(__file__))


def main() -> None:
    """Load the worker and hand over to it."""
    sys.path[:] = json.loads(sys.argv[1]) or sys.path[1:]
    for name, path in (("turnwise", []), ("turnwise.sandbox", [os.path.dirname(HERE)])):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = path
    from turnwise.sandbox.inside import worker

    for name in [name for name in sys.modules if name.partition(".")[0] == "turnwise"]:
        del sys.modules[name]
    worker.main()


if __name__ == "__main__":
    main()
